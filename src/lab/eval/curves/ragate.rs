//! RAGate on KBP: what a gate saves and costs. Every turn gets a response with knowledge and one
//! without; the gate, or chance, says which of the two counts (the paper's tables 3 and 4).

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use turnstream_formats::Need;
use turnstream_operators::judge::Judge;
use turnstream_ports::model::unified::Exchange;
use turnstream_schemas::Speaker;

use super::unims_rag::figures;
use super::{Comparison, Curves, Figures, Line, Point, Sweep};
use crate::eval::bootstrap::Figure;
use crate::eval::gate::{GateError, ScoresTurns};
use crate::eval::sources::{
    Asked, Case, MeasuredResponse, PlanBy, Setting, SourcesError, figures as measured, respond,
};
use crate::labelled::{LabelledTurn, Said};

/// Draws of the control; its figures are means over them.
const DRAWS: u64 = 5;
/// The steps of the share of turns with knowledge.
const STEPS: usize = 10;

/// Why the gate cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum RagateError {
    /// The model or the judge failed.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The gate failed.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// A gate whose scores are those of the need of knowledge.
pub struct Gated<'g> {
    /// The gate.
    pub gate: &'g dyn ScoresTurns,
    /// The score from which it retrieves.
    pub threshold: f64,
}

/// How many responses a turn gets.
pub const RESPONSES: usize = 3;

/// Measures a gate beside chance; `done` is called after each response.
///
/// # Errors
/// The gate, the model or the judge fails.
pub fn curves(
    cases: &[Case],
    gated: &Gated<'_>,
    (asked, judge): (&mut Asked<'_>, &Judge),
    done: &dyn Fn(),
) -> Result<Curves, RagateError> {
    let turns: Vec<LabelledTurn> = cases.iter().map(labelled).collect();
    let need = gated.gate.scores(&turns, &|| ())?;
    let mut by = |plan| {
        let setting = Setting { plan, ..Setting::default() };
        respond(cases, &setting, asked, judge, done).map(|(responses, _)| responses)
    };
    let by_plan = by(PlanBy::Model)?;
    let both = Both { cases, with: by(PlanBy::Every)?, without: by(PlanBy::None)? };

    let mut by_gate: Vec<usize> = (0..cases.len()).collect();
    by_gate.sort_by(|one, other| need[*other].total_cmp(&need[*one]));
    let gate = |count: usize| both.figures(&by_gate[..count]);
    let open = need.iter().filter(|need| **need >= gated.threshold).count();
    let name = gated.gate.name();
    let share = |count: usize| count as f64 / cases.len().max(1) as f64;
    let line = |name: &str, figures: &dyn Fn(usize) -> Figures| {
        let mut counts: Vec<usize> = (0..=STEPS).map(|step| step * cases.len() / STEPS).collect();
        counts.dedup();
        let point = |count| Point { at: share(count), figures: figures(count) };
        let points = counts.into_iter().map(point);
        Line { name: name.to_owned(), points: points.collect() }
    };
    let at_random = |count| both.at_random(count);
    let about = format!(
        "{} turns of KBP, of which {} use knowledge.",
        cases.len(),
        turns.iter().filter(|turn| turn.need != Need::None).count()
    );
    let row = |name: &str, count, figures| (format!("{name}: {count} turns"), figures);
    Ok(Curves {
        method: "ragate",
        sweeps: vec![Sweep {
            title: "Turns with knowledge".to_owned(),
            about: about.clone(),
            setting: "share of the turns with knowledge",
            lines: vec![line(&name, &gate), line("at random", &at_random)],
        }],
        comparisons: vec![Comparison {
            title: "The gate at its threshold".to_owned(),
            about,
            rows: vec![
                row("no knowledge", 0, gate(0)),
                row("knowledge for all", cases.len(), gate(cases.len())),
                row(&name, open, gate(open)),
                row("at random", open, both.at_random(open)),
                ("the model's own plan".to_owned(), figures(&measured(cases, &by_plan))),
            ],
        }],
    })
}

/// The responses with knowledge and without.
struct Both<'b> {
    cases: &'b [Case],
    with: Vec<MeasuredResponse>,
    without: Vec<MeasuredResponse>,
}

impl Both<'_> {
    /// Returns the figures if these turns get knowledge, and how much of the need they meet.
    fn figures(&self, open: &[usize]) -> Figures {
        let mut responses = self.without.clone();
        let needs = |at: &usize| !self.cases[*at].gold_plan().is_empty();
        open.iter().for_each(|at| responses[*at] = self.with[*at]);
        let all = (0..self.cases.len()).filter(needs).count();
        let met = open.iter().filter(|at| needs(at)).count();
        let mut figures = figures(&measured(self.cases, &responses));
        let value = (all > 0).then(|| met as f64 / all as f64);
        figures.insert("needs_met", Figure { value, interval: None });
        figures
    }

    /// Returns the mean figures if turns drawn at random get knowledge.
    fn at_random(&self, count: usize) -> Figures {
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        let draws = (1..=DRAWS).map(|seed| {
            order.shuffle(&mut StdRng::seed_from_u64(seed));
            self.figures(&order[..count])
        });
        let draws: Vec<Figures> = draws.collect();
        let mean = |name: &'static str| {
            let values: Vec<f64> =
                draws.iter().filter_map(|figures| figures.get(name)?.value).collect();
            let value =
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
            (name, Figure { value, interval: None })
        };
        draws.first().map_or_else(Figures::new, |first| first.keys().map(|it| mean(it)).collect())
    }
}

/// Returns the turn as a gate sees it.
fn labelled(case: &Case) -> LabelledTurn {
    let said = |speaker, text: &str| Said { speaker, text: text.to_owned() };
    let exchange = |exchange: &Exchange| {
        let response = exchange.response.as_deref().map(|text| said(Speaker::System, text));
        [Some(said(Speaker::User, &exchange.user)), response].into_iter().flatten()
    };
    let needs = !case.gold_plan().is_empty();
    LabelledTurn {
        conversation: case.conversation.to_string(),
        position: (2 * case.dialogue.len()).saturating_sub(1) as u32,
        domain: None,
        utterances: case.dialogue.iter().flat_map(exchange).collect(),
        knowledge: Vec::new(),
        reply: None,
        need: if needs { Need::Persona } else { Need::None },
    }
}
