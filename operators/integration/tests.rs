//! What is weighed, what is left out, and which encoder is asked.

use std::sync::Arc;

use turnstream_ports::model::encoder::{EncodeError, Encoded};
use turnstream_ports::model::{Busy, Model, Reply};
use turnstream_schemas::{DocumentPassage, EvidenceId, Passage, RequestId, SourceName};

use super::*;
use crate::flow::TurnContext;
use crate::prompted::Slot;
use crate::prompted::material::{of_evidence, of_recalled};
use crate::testing::{context, gated, graph, recalled, run_dataflow, stage_context};

/// An encoder whose vectors point one way for texts about water, and another way for all others.
struct AboutWater;

fn direction(text: &str) -> [f32; 2] {
    if text.contains("lake") || text.contains("heron") { [1.0, 0.0] } else { [0.0, 1.0] }
}

impl Encoder for AboutWater {
    fn name(&self) -> &str {
        "water"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        vectors.extend(texts.iter().copied().flat_map(direction));
        Ok(Encoded::default())
    }
}

/// The same encoder as a model that does not answer at once.
impl Model<Vec<String>, Vec<Embedding>> for AboutWater {
    fn name(&self) -> &str {
        "water"
    }

    fn ask(
        &self,
        texts: Vec<String>,
        reply: Reply<Vec<Embedding>>,
    ) -> Result<(), Busy<Vec<String>, Vec<Embedding>>> {
        assert!(texts.len() > 1, "nothing but the query is asked for");
        reply.answer(Ok(texts.iter().map(|text| Embedding::from(direction(text))).collect()));
        Ok(())
    }
}

fn evidence(text: &str, selected: bool) -> Evidence {
    Evidence {
        id: EvidenceId(format!("test/{text}")),
        source: SourceName("test".to_owned()),
        text: text.to_owned(),
        set: None,
        fact: None,
        document: Some(DocumentPassage {
            document: "d".to_owned(),
            title: String::new(),
            chunk: 0,
            by_words: None,
            by_meaning: None,
        }),
        persona: None,
        row: None,
        relevance: Score::new(0.5),
        consistency: None,
        attention: None,
        selected,
    }
}

/// A turn that asks for the lake, with three passages, two of them selected, and three recalled exchanges:
/// two from before the dialogue, and one in it.
fn turn() -> TurnInFlight {
    let in_sight = recalled("t0", "Is the lake near?", Some("Yes."));
    let before = recalled("before", "Where do herons nest?", Some("In the reeds."));
    let passages = ["A violin has four strings.", "The heron nests by the lake."];
    let passages = passages.map(|text| Passage { id: text.into(), text: text.to_owned() });
    let mut entry = (*before.entry).clone();
    entry.passages = passages.to_vec();
    let before = Recalled { entry: Arc::new(entry), passage: Some(1), ..before };
    let lines = ["u: Is the lake near?", "s: Yes.", "u: How deep is the lake?"];
    let other = recalled("other", "Do you play the violin?", Some("No, the drum."));
    let context = TurnContext { recalled: vec![in_sight, before, other], ..context(&lines) };
    TurnInFlight {
        evidence: vec![
            evidence("The drum is loud.", true),
            evidence("The lake is deep.", true),
            evidence("The lake is cold.", false),
        ],
        ..TurnInFlight::without_knowledge(gated(context, &graph("")))
    }
}

/// How the stage reaches the encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum There {
    None,
    InPlace,
    Waited,
}

fn integrated(turn: TurnInFlight, config: IntegrationConfig, there: There) -> TurnInFlight {
    let (turns, faults) = run_dataflow(vec![turn], move |turns| {
        let mut means = stage_context(&graph(""));
        match there {
            There::None => {}
            There::InPlace => means.encoder = Some(Arc::new(AboutWater)),
            There::Waited => means.embed = Some(Arc::new(AboutWater)),
        }
        means.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset: 0 });
        integration(turns, config.clone(), &means)
    });
    assert!(faults.is_empty());
    let [turn] = <[TurnInFlight; 1]>::try_from(turns).expect("one turn");
    assert!(turn.progress.degraded.is_empty());
    turn
}

fn selected(turn: &TurnInFlight) -> Vec<&str> {
    let selected = turn.evidence.iter().filter(|evidence| evidence.selected);
    selected.map(|evidence| &*evidence.text).collect()
}

fn exchanges(turn: &TurnInFlight) -> Vec<&str> {
    turn.earlier_exchanges().iter().map(|recalled| recalled.entry.turn_id.as_str()).collect()
}

fn attention(turn: &TurnInFlight) -> Vec<f64> {
    let evidence = turn.evidence.iter().filter_map(|evidence| evidence.attention);
    let history = turn.history.iter().map(|attended| attended.attention);
    evidence.chain(history).map(Score::get).collect()
}

#[test]
fn evidence_and_history_share_one_attention() {
    let turn = integrated(turn(), IntegrationConfig::default(), There::None);
    let shares = attention(&turn);
    assert_eq!(shares.len(), 4, "two pieces of evidence, two exchanges out of sight");
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(shares[1] > shares[2] && shares[2] > shares[0], "{shares:?}: lake, its heron, drum");
    assert_eq!(exchanges(&turn), ["before", "other"], "by falling attention");
    assert_eq!(selected(&turn), ["The drum is loud.", "The lake is deep."], "in their order");
    assert_eq!(turn.evidence[2].attention, None, "what is not selected is not weighed");
    let prompt = of_evidence(Slot::Passages, &turn.evidence);
    assert!(prompt.find("lake is deep") < prompt.find("drum"), "{prompt}");
    let prompt = of_recalled(&turn.context, turn.earlier_exchanges());
    assert!(prompt.contains("known: The heron nests by the lake."), "{prompt}");
    assert!(!prompt.contains("near"), "what is in sight stands in the dialogue: {prompt}");
}

#[test]
fn vectors_count_where_an_encoder_is_there() {
    let by_vectors = IntegrationConfig { meaning_share: 1.0, ..IntegrationConfig::default() };
    let waits = IntegrationConfig { wait_for_encoder: true, ..by_vectors.clone() };
    let in_place = attention(&integrated(turn(), by_vectors.clone(), There::InPlace));
    let (like, unlike) = (10.0_f64.exp(), 1.0);
    let by_hand = [unlike, like, like, unlike].map(|it| it / (2.0 * (like + unlike)));
    assert!(in_place.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < 1e-6), "{in_place:?}");
    assert_eq!(attention(&integrated(turn(), waits.clone(), There::Waited)), in_place);
    let words = attention(&integrated(turn(), by_vectors, There::Waited));
    assert_eq!(words, attention(&integrated(turn(), waits, There::None)), "nobody is waited for");
    assert_ne!(words, in_place);
}

#[test]
fn what_there_is_no_room_for_is_left_out() {
    let room_for = |max_tokens| {
        let config = IntegrationConfig { max_tokens, ..IntegrationConfig::default() };
        let turn = integrated(turn(), config, There::None);
        let evidence = selected(&turn).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let exchanges = exchanges(&turn).into_iter().map(str::to_owned).collect::<Vec<_>>();
        (turn, evidence, exchanges)
    };
    let (turn, evidence, exchanges) = room_for(5);
    assert_eq!(evidence, ["The lake is deep."]);
    assert!(exchanges.is_empty());
    assert!(turn.history.iter().all(|attended| attended.left_out));
    assert_eq!(turn.evidence[0].text, "The lake is deep.", "what is selected stands first");
    assert!(turn.evidence[1].attention.is_some(), "what was left out keeps its share");
    let (_, evidence, exchanges) = room_for(23);
    assert_eq!((evidence.len(), exchanges), (1, vec!["before".to_owned()]));
    let (_, evidence, exchanges) = room_for(100);
    assert_eq!((evidence.len(), exchanges.len()), (2, 2));
}

#[test]
fn where_it_is_off_nothing_is_weighed() {
    let config =
        IntegrationConfig { form: IntegrationForm::Off, max_tokens: 1, ..Default::default() };
    let turn = integrated(turn(), config, There::InPlace);
    assert!(attention(&turn).is_empty());
    assert_eq!(selected(&turn).len(), 2);
    assert_eq!(exchanges(&turn), ["before", "other"], "as they were recalled");
}

#[test]
fn a_turn_with_nothing_to_weigh_asks_nobody() {
    let bare = TurnInFlight::without_knowledge(gated(context(&["u: Hello!"]), &graph("")));
    let waits = IntegrationConfig { wait_for_encoder: true, ..IntegrationConfig::default() };
    let turn = integrated(bare, waits, There::Waited);
    assert!(attention(&turn).is_empty());
}

#[test]
fn the_learned_form_needs_its_weights() {
    let default = IntegrationConfig::default();
    assert_eq!(default.check(), Ok(()));
    let learned = IntegrationConfig { form: IntegrationForm::Learned, ..default };
    assert!(learned.check().unwrap_err().to_string().contains("weights"));
}
