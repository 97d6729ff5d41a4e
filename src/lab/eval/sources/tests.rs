//! Tests with a scripted model and a judge by two letters, on a dialogue with figures counted by
//! hand.

use std::sync::Arc;

use turnstream_ports::model::calibration::Calibration;
use turnstream_ports::model::encoder::{Encoded, Encoder};
use turnstream_ports::model::unified::{Said, Task, UnifiedAnswer, UnifiedRequest, Wording};

use super::*;
use crate::eval::retrieval::kbp::Order;
use crate::eval::testing::Files;

/// A judge with one direction for tea and one for mountains.
struct Tastes;

impl Encoder for Tastes {
    fn name(&self) -> &str {
        "tastes"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let taste = |text: &str, of: char| f32::from(u8::from(text.contains(of)));
        vectors.extend(texts.iter().flat_map(|text| [taste(text, '茶'), taste(text, '山')]));
        Ok(Encoded::default())
    }
}

pub(in crate::eval) fn judge() -> Judge {
    Judge::new(Arc::new(Tastes), Calibration { slope: 10.0, offset: -5.0 })
}

/// Returns four turns of one dialogue. The replies use nothing, a sentence, a sentence with a
/// document behind it, and nothing.
pub(in crate::eval) fn written() -> Vec<Case> {
    let line = r#"{"persona": {"B0": "我 喝茶", "B1": "我 爬山"},
        "persona_kg": {"B0": {"K0": "绿茶 是茶", "K1": "红茶 也是茶"}, "B1": {"K0": "泰山 是山"}},
        "conversation": [{"U": "你 好", "S": "你好", "P-K": []},
                         {"U": "周末 呢", "S": "我去爬山", "P-K": [["B1"]]},
                         {"U": "喝 什么", "S": "红茶也是茶", "P-K": [["B0"], ["B0-K1"]]},
                         {"U": "再见", "S": "再见", "P-K": []}]}"#;
    let files = Files::new();
    let path = files.write("dev.jsonl", &[line]);
    let mut cases = read(&path, None, None, 1).expect("cases");
    for case in &mut cases {
        case.order = Order { personas: vec![0, 1], documents: vec![0, 1, 2] };
    }
    cases
}

/// Plans both sources if someone drinks, and the persona at weekends and, wrongly, at the end.
/// Evidence with a red in it has the highest relevance. The response repeats all evidence, or says
/// that there is none.
pub(in crate::eval) fn scripted(request: &UnifiedRequest) -> UnifiedAnswer {
    let user = request.dialogue.last().map_or("", |last| &last.user);
    match &request.task {
        Task::Plan { kinds } => {
            let kinds = match user {
                "喝什么" => vec![kinds[1]],
                "周末呢" | "再见" => vec![kinds[0]],
                _ => Vec::new(),
            };
            UnifiedAnswer::Plan { kinds, probability: 1.0 }
        }
        Task::Relevance { evidence, .. } => {
            let is_high = evidence.text.contains('红') || evidence.text.contains("爬山");
            UnifiedAnswer::Relevance(if is_high { 0.9 } else { 0.4 })
        }
        Task::Response { evidence, .. } => {
            let texts: Vec<&str> = evidence.iter().map(|(piece, _)| piece.text.as_str()).collect();
            let said = if texts.is_empty() { "不说".to_owned() } else { texts.join("，") };
            let said = vec![Said::Words(said)];
            let (lowest_log_probability, is_whole, tokens) = (-0.1, true, 3);
            UnifiedAnswer::Response(vec![Wording {
                said,
                lowest_log_probability,
                is_whole,
                tokens,
            }])
        }
    }
}

fn measured(setting: Setting) -> (SourceFigures, Vec<Sample>) {
    let mut ask = |requests: &[UnifiedRequest]| Ok(requests.iter().map(scripted).collect());
    let mut asked = Asked::new(&mut ask);
    evaluate(&written(), &setting, &mut asked, &judge(), || ()).expect("figures")
}

fn said(samples: &[Sample]) -> Vec<&str> {
    samples.iter().map(|sample| sample.response.as_str()).collect()
}

#[test]
fn planned_sources_are_searched_and_consistency_counts_the_plan() {
    let (figures, samples) = measured(Setting::default());
    // The fusion ranks tea first at the weekend; the documents are those behind the first sentence.
    assert_eq!(said(&samples), ["不说", "我喝茶", "我喝茶，绿茶是茶", "我喝茶"]);
    // The four turns: nothing used and nothing asked; mountains used but tea said; tea; nothing
    // used but the persona asked.
    assert_eq!(figures.persona_consistency.value, Some(0.5));
    // Only the tea turn asks documents, which is right.
    assert_eq!(figures.knowledge_consistency.value, Some(1.0));
    assert_eq!((figures.n, figures.rounds), (4, 0));
    assert!(figures.bleu_1.value.is_some_and(|bleu| bleu > 10.0 && bleu < 90.0), "{figures:?}");
}

#[test]
fn the_model_finds_by_the_relevance_that_it_gives() {
    let (figures, samples) = measured(Setting { retrieval: FindBy::Model, ..Setting::default() });
    // Behind mountains there are no documents about tea, however relevant they are.
    assert_eq!(said(&samples), ["不说", "我爬山", "我爬山，泰山是山", "我爬山"]);
    assert_eq!(figures.persona_consistency.value, Some(0.5));
    let mut ask = |requests: &[UnifiedRequest]| Ok(requests.iter().map(scripted).collect());
    let mut asked = Asked::new(&mut ask);
    let recall = recall(&written(), &mut asked, || ()).expect("figures");
    // The sentence of one reply is right. That of the other is wrong, but its document is right
    // among all.
    assert_eq!((recall.n, recall.persona, recall.both_persona), (2, 1.0, 0.0));
    assert_eq!(recall.both_documents, Some(1.0));
}

#[test]
fn oracles_give_what_the_reply_used_and_ablations_ask_all_or_nothing() {
    let one = Setting::default();
    let gold = Setting { plan: PlanBy::Gold, retrieval: FindBy::Gold, ..one };
    let (figures, samples) = measured(gold);
    assert_eq!(said(&samples), ["不说", "我爬山", "我喝茶，红茶也是茶", "不说"]);
    assert_eq!(figures.persona_consistency.value, Some(1.0));
    assert_eq!(figures.knowledge_consistency.value, Some(1.0));

    // For a turn without gold evidence, the planned sources are searched as usual.
    let (_, samples) = measured(Setting { retrieval: FindBy::Gold, ..one });
    assert_eq!(said(&samples), ["不说", "我爬山", "我喝茶，红茶也是茶", "我喝茶"]);

    let (figures, samples) = measured(Setting { plan: PlanBy::Every, ..one });
    assert!(samples.iter().all(|sample| sample.plan.len() == 2));
    assert_eq!(figures.knowledge_consistency.value, Some(0.25));
    let (figures, samples) = measured(Setting { plan: PlanBy::None, steps: 2, ..one });
    assert!(samples.iter().all(|sample| sample.response == "不说" && sample.drafts.is_empty()));
    assert_eq!(figures.persona_consistency.value, Some(0.5));
}

#[test]
fn a_round_replaces_the_lowest_by_the_next_of_its_source() {
    let of = |steps, replaced| {
        let (figures, samples) = measured(Setting { steps, replaced, ..Setting::default() });
        let responses: Vec<String> = said(&samples).into_iter().map(ToOwned::to_owned).collect();
        (figures.rounds, responses)
    };
    // The later of two equals is replaced: the green tea by the red tea.
    assert_eq!(
        of(1, 1),
        (3, ["不说", "我爬山", "我喝茶，红茶也是茶", "我爬山"].map(ToOwned::to_owned).to_vec())
    );
    // In the next round, tea is replaced by mountains, since the persona's first sentence is not
    // judged again. Sources with one piece have no other left, so the piece stays.
    let (rounds, responses) = of(2, 1);
    assert_eq!((rounds, &*responses[1], &*responses[2]), (4, "我爬山", "我爬山，红茶也是茶"));
    let (rounds, responses) = of(1, 2);
    assert_eq!((rounds, &*responses[2]), (3, "我爬山，红茶也是茶"));
}

#[test]
fn a_question_is_put_once() {
    let mut count = 0;
    let mut ask = |requests: &[UnifiedRequest]| {
        count += requests.len();
        Ok(requests.iter().map(scripted).collect())
    };
    let mut asked = Asked::new(&mut ask);
    let (cases, setting) = (written(), Setting::default());
    let first = evaluate(&cases, &setting, &mut asked, &judge(), || ()).expect("figures");
    let second = evaluate(&cases, &setting, &mut asked, &judge(), || ()).expect("figures");
    assert_eq!(first, second);
    // Four plans; one piece each at the weekend and at the end, and two of tea; four responses.
    assert_eq!(count, 4 + 1 + 1 + 2 + 4);
}

#[test]
fn the_table_has_every_row_once_under_a_name_of_its_own() {
    let rows = rows();
    for (at, row) in rows.iter().enumerate() {
        let others = &rows[..at];
        assert!(others.iter().all(|other| other.name != row.name && other.setting != row.setting));
    }
    assert_eq!(rows[0].setting, Setting::default());
}
