//! Measures planning on KBP: whether a planner names the sources that the reply used. (UniMS-RAG:
//! NULL, PERSONA, or PERSONA and then DOCUMENTS, which the paper calls Both.)
//!
//! The figures are per class, since the classes differ widely in size: F1 of each against the
//! annotation of the reply. A planner sees the dialogue before the reply, never the reply.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;

use serde::Serialize;
use turnstream_ports::model::unified::{Exchange, Task, UnifiedAnswer, UnifiedRequest};
use turnstream_schemas::SourceKind;

use super::bootstrap::{Conversations, Figure, Mean};
use super::persona::kbp::joined;
use super::retrieval::kbp::Record;
use super::retrieval::{EvalError, records};
use super::unified::{Ask, MeasureError};

pub mod classifier;

/// The sources that a reply used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Planned {
    /// No source.
    Null,
    /// A sentence of the persona.
    Persona,
    /// A sentence of the persona, and knowledge behind it.
    Both,
}

impl Planned {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Null, Self::Persona, Self::Both];

    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Persona => "persona",
            Self::Both => "both",
        }
    }

    /// Returns the class of a plan. Documents depend on the persona, so they imply it.
    fn of(kinds: &[SourceKind]) -> Self {
        match kinds {
            [] => Self::Null,
            kinds if kinds.contains(&SourceKind::Documents) => Self::Both,
            _ => Self::Persona,
        }
    }
}

/// A user's turn with the sources that the reply used.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTurn {
    /// The number of its conversation.
    pub conversation: usize,
    /// The dialogue so far; the last exchange has no response yet.
    pub dialogue: Vec<Exchange>,
    /// The sources that the reply used.
    pub gold: Planned,
}

impl PlannedTurn {
    /// Returns the user's last utterance.
    fn last(&self) -> &str {
        self.dialogue.last().map_or("", |exchange| exchange.user.as_str())
    }
}

/// Reads the cases of a split of KBP.
///
/// # Errors
/// The file cannot be read, or has no exchange.
pub fn read(path: &Path) -> Result<Vec<PlannedTurn>, EvalError> {
    let mut cases = Vec::new();
    for (conversation, record) in records::<Record>(path)?.into_iter().enumerate() {
        let mut dialogue: Vec<Exchange> = Vec::new();
        for exchange in &record.conversation {
            dialogue.push(Exchange { user: joined(&exchange.user), response: None });
            let gold = match exchange.used.len() {
                0 => Planned::Null,
                1 => Planned::Persona,
                _ => Planned::Both,
            };
            cases.push(PlannedTurn { conversation, dialogue: dialogue.clone(), gold });
            if let Some(last) = dialogue.last_mut() {
                last.response = Some(joined(&exchange.system));
            }
        }
    }
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

/// Plans each case with the unified model, over a persona and the documents behind it.
///
/// # Errors
/// The model fails.
pub fn by_model(
    cases: &[PlannedTurn],
    ask: &mut Ask<'_>,
    mut done: impl FnMut(),
) -> Result<Vec<Planned>, MeasureError> {
    let plan = |case: &PlannedTurn| {
        let kinds = vec![SourceKind::BotPersona, SourceKind::Documents];
        let request =
            UnifiedRequest { dialogue: case.dialogue.clone(), task: Task::Plan { kinds } };
        let answers = ask(&[request]).map_err(MeasureError::Model)?;
        done();
        match answers.first() {
            Some(UnifiedAnswer::Plan { kinds, .. }) => Ok(Planned::of(kinds)),
            _ => Err(MeasureError::Model("no plan came back".to_owned())),
        }
    };
    cases.iter().map(plan).collect()
}

/// The figures of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OfClass {
    /// Replies of the class.
    pub n: usize,
    /// tp ÷ (tp + fp).
    pub precision: Figure,
    /// tp ÷ (tp + fn).
    pub recall: Figure,
    /// 2 tp ÷ (2 tp + fp + fn).
    pub f1: Figure,
}

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanningFigures {
    /// Turns.
    pub n: usize,
    /// The share of plans that equal the annotation.
    pub accuracy: Figure,
    /// Figures by gold class.
    pub classes: BTreeMap<&'static str, OfClass>,
    /// The count of each planned class, by gold class.
    pub confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
}

/// True and false positives, and misses.
#[derive(Clone, Copy, Default)]
struct ClassCounts([u32; 3]);

impl AddAssign for ClassCounts {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

fn share(part: u32, all: u32) -> Option<f64> {
    (all > 0).then(|| f64::from(part) / f64::from(all))
}

/// Computes the figures of plans, in the order of the cases.
pub fn figures(cases: &[PlannedTurn], planned: &[Planned]) -> PlanningFigures {
    let conversations = Conversations::new(cases.iter().map(|case| case.conversation));
    let pairs: Vec<(Planned, Planned)> =
        cases.iter().map(|case| case.gold).zip(planned.iter().copied()).collect();
    let right =
        pairs.iter().map(|(gold, plan)| Some(Mean::from(f64::from(u8::from(gold == plan)))));
    let right: Vec<Option<Mean>> = right.collect();
    let of_class = |class: Planned| {
        let counts = pairs.iter().map(|(gold, plan)| {
            let counts = [
                *gold == class && *plan == class,
                *gold != class && *plan == class,
                *gold == class && *plan != class,
            ];
            Some(ClassCounts(counts.map(u32::from)))
        });
        let counts: Vec<Option<ClassCounts>> = counts.collect();
        let figure = |of: fn(&ClassCounts) -> Option<f64>| conversations.figure(&counts, of).into();
        OfClass {
            n: pairs.iter().filter(|(gold, _)| *gold == class).count(),
            precision: figure(|ClassCounts([tp, fp, _])| share(*tp, tp + fp)),
            recall: figure(|ClassCounts([tp, _, missed])| share(*tp, tp + missed)),
            f1: figure(|ClassCounts([tp, fp, missed])| share(2 * tp, 2 * tp + fp + missed)),
        }
    };
    let mut confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>> = BTreeMap::new();
    for (gold, plan) in &pairs {
        *confusion.entry(gold.name()).or_default().entry(plan.name()).or_default() += 1;
    }
    PlanningFigures {
        n: pairs.len(),
        accuracy: conversations.figure(&right, Mean::value).into(),
        classes: Planned::ALL.into_iter().map(|class| (class.name(), of_class(class))).collect(),
        confusion,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::testing::Files;

    fn case(conversation: usize, user: &str, gold: Planned) -> PlannedTurn {
        let dialogue = vec![Exchange { user: user.to_owned(), response: None }];
        PlannedTurn { conversation, dialogue, gold }
    }

    #[test]
    fn figures_are_those_counted_by_hand() {
        use Planned::{Both, Null, Persona};
        let gold = [Null, Null, Persona, Both, Both, Both];
        let cases: Vec<PlannedTurn> =
            gold.iter().enumerate().map(|(at, gold)| case(at, "", *gold)).collect();
        let figures = figures(&cases, &[Null, Both, Both, Both, Both, Persona]);
        assert_eq!((figures.n, figures.accuracy.value), (6, Some(0.5)));
        let of = |name: &str| {
            let OfClass { n, precision, recall, f1 } = figures.classes[name];
            (n, precision.value, recall.value, f1.value)
        };
        assert_eq!(of("null"), (2, Some(1.0), Some(0.5), Some(2.0 / 3.0)));
        assert_eq!(of("persona"), (1, Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!(of("both"), (3, Some(0.5), Some(2.0 / 3.0), Some(4.0 / 7.0)));
        assert_eq!(figures.confusion["null"]["both"], 1);
        assert!(figures.classes["both"].f1.interval.is_some());
    }

    #[test]
    fn what_a_reply_used_is_its_class_and_the_reply_is_not_seen() {
        let files = Files::new();
        let line = r#"{"persona": {"B0": "我 喜欢 茶"}, "persona_kg": {"B0": {"K0": "茶 是 饮料"}},
            "conversation": [{"U": "你 好", "S": "你好 呀", "P-K": []},
                             {"U": "喝 什么", "S": "茶", "P-K": [["B0"]]},
                             {"U": "茶 是 什么", "S": "饮料", "P-K": [["B0"], ["B0-K0"]]}]}"#;
        let cases = read(&files.write("dev.jsonl", &[line])).expect("cases");
        let gold: Vec<Planned> = cases.iter().map(|case| case.gold).collect();
        assert_eq!(gold, Planned::ALL);
        assert_eq!(cases[1].dialogue[0].response.as_deref(), Some("你好呀"));
        assert_eq!((cases[1].last(), &cases[1].dialogue[1].response), ("喝什么", &None));
    }

    #[test]
    fn documents_bring_their_persona_along() {
        use SourceKind::{BotPersona, Documents};
        let cases = [
            case(0, "a", Planned::Null),
            case(0, "b", Planned::Both),
            case(1, "c", Planned::Persona),
        ];
        let mut ask = |requests: &[UnifiedRequest]| {
            let kinds = match requests[0].dialogue[0].user.as_str() {
                "a" => vec![],
                "b" => vec![Documents],
                _ => vec![BotPersona],
            };
            assert_eq!(requests[0].task, Task::Plan { kinds: vec![BotPersona, Documents] });
            Ok(vec![UnifiedAnswer::Plan { kinds, probability: 1.0 }])
        };
        let planned = by_model(&cases, &mut ask, || ()).expect("plans");
        assert_eq!(planned, [Planned::Null, Planned::Both, Planned::Persona]);
        let mut fails = |_: &[UnifiedRequest]| Err("out of order".to_owned());
        assert!(by_model(&cases, &mut fails, || ()).is_err());
    }
}
