use turnstream_ports::model::Generated;
use turnstream_ports::model::unified::Said;
use turnstream_schemas::{Column, EvidenceId, Score, Stage};

use super::*;
use std::sync::Arc;

use crate::flow::{Failed, TurnInFlight};
use crate::generation::{GenerationConfig, GenerationForm};
use crate::stage_context::StageContext;
use crate::testing::{Answering, asking, context, gated, graph, run_dataflow, stage_context};

fn row(place: u32, item: &str, price: &str) -> Evidence {
    let column =
        |name: &str, value: &str| Column { name: name.to_owned(), value: value.to_owned() };
    let columns = vec![column("item", item), column("price", price)];
    let score = Score::new(0.64);
    Evidence {
        id: EvidenceId(format!("goods/{place}")),
        source: "goods".into(),
        text: format!("item = {item}, price = {price}"),
        set: None,
        fact: None,
        document: None,
        persona: None,
        row: Some(TableRow {
            place,
            columns,
            by_words: score,
            by_meaning: None,
            asked: None,
            cells: None,
        }),
        relevance: score,
        consistency: None,
        attention: None,
        selected: true,
    }
}

/// The response to an utterance with this evidence, where the model says this, and the model's requests.
fn responded(text: &str, evidence: Vec<Evidence>, said: &[Said]) -> (Draft, Vec<UnifiedRequest>) {
    drafted(text, evidence, &[said])
}

/// The same, where the model says one of these in each draft.
fn drafted(
    text: &str,
    evidence: Vec<Evidence>,
    drafts: &[&[Said]],
) -> (Draft, Vec<UnifiedRequest>) {
    let drafts: Vec<Wording> = (0_u8..)
        .zip(drafts)
        .map(|(at, said)| Wording {
            said: said.to_vec(),
            lowest_log_probability: -0.5 - f32::from(at),
            is_whole: true,
            tokens: 9,
        })
        .collect();
    let (drafted, asked) = answered(text, evidence, UnifiedAnswer::Response(drafts));
    (drafted.draft, asked)
}

/// The outcome of a turn where the model gives this answer.
fn answered(
    text: &str,
    evidence: Vec<Evidence>,
    answer: UnifiedAnswer,
) -> (TurnInFlight, Vec<UnifiedRequest>) {
    let graph = graph("");
    let turn = gated(context(&[&format!("u: {text}")]), &graph);
    let grounded = TurnInFlight { evidence, ..turn };
    let model = Answering::new(move |_: &UnifiedRequest| answer.clone());
    let unified = Arc::clone(&model);
    let (mut drafted, failed): (Vec<TurnInFlight>, Vec<Failed>) =
        run_dataflow(vec![grounded], move |turns| {
            let means = asking(stage_context(&graph), |_| Generated::default());
            let means = StageContext { unified: Some(Arc::clone(&unified) as _), ..means };
            let config =
                GenerationConfig { form: GenerationForm::Learned, ..GenerationConfig::default() };
            super::super::generation(turns, config, &means)
        });
    assert!(failed.is_empty(), "{failed:?}");
    let asked = model.asked();
    (drafted.pop().expect("a turn"), asked)
}

fn words(words: &str) -> Said {
    Said::Words(words.to_owned())
}

fn value(value: &str) -> Said {
    Said::Value(Column { name: "price".to_owned(), value: value.to_owned() })
}

#[test]
fn a_faithful_response_is_said() {
    let rows = vec![row(1, "Oslo lamp", "$49"), row(2, "Bergen lamp", "$35")];
    let said =
        [words(" The"), value("Oslo lamp"), words(" has a price of"), value("$49"), words(".")];
    let (draft, asked) = responded("What is the price of the Oslo lamp?", rows, &said);
    assert_eq!(draft.text, "The Oslo lamp has a price of $49.");
    assert_eq!(draft.model.name, "answering");
    let confidence = draft.confidence.expect("it is sure");
    assert_eq!(confidence.kind, ConfidenceKind::LowestLogProbability);
    let [UnifiedRequest { task: Task::Response { plan, evidence, .. }, dialogue }] = &asked[..]
    else {
        panic!("{asked:?}");
    };
    assert_eq!((plan.as_slice(), dialogue.len()), (&[SourceKind::Table][..], 1));
    let shown: Vec<(&str, u8)> =
        evidence.iter().map(|(row, at)| (&*row.columns[0].value, *at)).collect();
    assert_eq!(shown, [("Oslo lamp", 10), ("Bergen lamp", 3)]);
}

#[test]
fn the_realiser_replaces_an_unfaithful_response() {
    for said in [
        &[words(" It costs 99.")][..],
        &[words(" I do not know.")],
        &[words(" The item is"), value("$49"), words(".")],
        // No evidence says so.
        &[words(" The price of the red one is"), value("$49"), words(".")],
        &[],
    ] {
        let rows = vec![row(1, "Oslo lamp", "$49")];
        let (draft, asked) = responded("What is the price of the Oslo lamp?", rows, said);
        assert_eq!((&*draft.text, asked.len()), ("For Oslo lamp: price is $49.", 1), "{said:?}");
        assert_eq!(draft.model.name, "realiser");
    }
}

#[test]
fn of_several_drafts_the_first_faithful_one_is_said() {
    let wrong = [words(" It costs 99.")];
    let right = [words(" Its price is"), value("$49"), words(".")];
    let longer = [words(" The price of it is"), value("$49"), words(".")];
    let rows = vec![row(1, "Oslo lamp", "$49")];
    let (draft, asked) = drafted("The price of the Oslo lamp?", rows, &[&wrong, &right, &longer]);
    assert_eq!((&*draft.text, &*draft.model.name), ("Its price is $49.", "answering"));
    assert_eq!(draft.confidence.map(|it| it.value), Some(-1.5));
    let Task::Response { drafts, .. } = asked[0].task else { panic!("{asked:?}") };
    assert_eq!(drafts, LearnedGenerationConfig::default().drafts);
}

#[test]
fn where_the_model_fails_the_realiser_answers() {
    let rows = vec![row(1, "Oslo lamp", "$49")];
    let no_response = UnifiedAnswer::Relevance(0.5);
    let (drafted, asked) = answered("What is the price of the Oslo lamp?", rows, no_response);
    let TurnInFlight { progress, draft, .. } = drafted;
    assert_eq!((&*draft.text, &*draft.model.name), ("For Oslo lamp: price is $49.", "realiser"));
    assert_eq!(progress.without(), [Stage::Generation]);
    assert!(!asked.is_empty());
}

#[test]
fn the_model_is_not_asked_about_what_it_cannot_word() {
    let said = [words(" Never said.")];
    let passage = crate::testing::document("documents", "d", "Lamps are old.", 0.9);
    let passage = Evidence { selected: true, ..passage };
    let unselected = Evidence { selected: false, ..row(1, "Oslo lamp", "$49") };
    for (text, evidence) in [
        ("Are lamps old?", vec![passage, row(1, "Oslo lamp", "$49")]),
        ("Are lamps old?", vec![unselected]),
        ("Are lamps old?", vec![]),
        ("台灯多少钱？", vec![row(1, "台灯", "49元")]),
    ] {
        let (draft, asked) = responded(text, evidence, &said);
        assert!(asked.is_empty(), "{text}");
        assert_eq!(draft.model.name, "realiser");
    }
}
