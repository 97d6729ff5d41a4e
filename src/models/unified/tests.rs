use std::collections::BTreeMap;
use std::path::Path;

use turnstream_ports::model::unified::{EvidenceText, Exchange, Said, text_of};
use turnstream_schemas::Column;

use crate::metrics::Metrics;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::decoder::tests::tiny;
use crate::{ModelsConfig, Runtime};

/// PyTorch's outputs for a tiny model whose weights follow from their names:
/// `deploy/training/unified/reference.py`.
#[derive(Deserialize)]
struct UnifiedReference {
    tokenizer: Value,
    config: Value,
    tensors: BTreeMap<String, Vec<usize>>,
    plan: Vec<f32>,
    relevance: [Vec<f32>; 2],
    response: Vec<f32>,
}

fn figures() -> UnifiedReference {
    serde_json::from_str(include_str!("fixtures/figures.json")).expect("figures")
}

fn folder(figures: &UnifiedReference) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |file: &str| folder.path().join(file);
    let tensors = figures.tensors.iter();
    let tensors: HashMap<String, _> =
        tensors.map(|(name, shape)| (name.clone(), tiny::weights(name, shape, false))).collect();
    candle_core::safetensors::save(&tensors, at("model.safetensors")).expect("written");
    std::fs::write(at("config.json"), figures.config.to_string()).expect("written");
    std::fs::write(at("tokenizer.json"), figures.tokenizer.to_string()).expect("written");
    folder
}

fn at(path: &Path) -> UnifiedWeights {
    UnifiedWeights::Path(path.to_owned())
}

fn model() -> UnifiedModel {
    let folder = folder(&figures());
    UnifiedModel::open(&at(folder.path())).expect("a model")
}

/// The dialogue of the reference figures; its last words look like a control token.
fn dialogue() -> Vec<Exchange> {
    let response = Some("Yes, the Oslo and 2 more.".to_owned());
    let user = "What is the price of the Oslo lamp? [EOS]".to_owned();
    vec![
        Exchange { user: "Do you have a lamp?".to_owned(), response },
        Exchange { user, response: None },
    ]
}

fn evidence(kind: SourceKind, text: &str, columns: &[(&str, &str)]) -> EvidenceText {
    let column = |(name, value): &(&str, &str)| Column {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    EvidenceText { kind, text: text.to_owned(), columns: columns.iter().map(column).collect() }
}

fn lamp() -> EvidenceText {
    let columns = [("item", "Oslo lamp"), ("price", "$49"), ("stock", "3")];
    evidence(SourceKind::Table, "item = Oslo lamp, price = $49, stock = 3", &columns)
}

fn hotel() -> EvidenceText {
    let text = "Ashley Inn: Lamps in Ashley Inn are old.";
    evidence(SourceKind::Documents, text, &[("name", "Ashley Inn")])
}

fn request(task: Task) -> UnifiedRequest {
    UnifiedRequest { dialogue: dialogue(), task }
}

fn relevance(evidence: EvidenceText) -> UnifiedRequest {
    request(Task::Relevance { plan: vec![evidence.kind], evidence })
}

fn response(evidence: Vec<(EvidenceText, u8)>, max_tokens: u32) -> UnifiedRequest {
    let plan = evidence.iter().map(|(piece, _)| piece.kind).collect();
    request(Task::Response { plan, evidence, max_tokens, drafts: 1 })
}

fn assert_near(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let apart = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 5e-5, "{what}: {apart}");
}

#[test]
fn logits_are_those_of_pytorch() {
    let figures = figures();
    let [plan, of_lamp, of_hotel, response] = logits(&model());
    assert_near(&plan, &figures.plan, "the plan");
    assert_near(&of_lamp, &figures.relevance[0], "the lamp");
    assert_near(&of_hotel, &figures.relevance[1], "the hotel");
    assert_near(&response, &figures.response, "the response");
}

/// The logits after the plan's beginning, the lamp, the hotel, and the beginning of a response to
/// both.
fn logits(model: &UnifiedModel) -> [Vec<f32>; 4] {
    let asked = request(Task::Plan { kinds: Vec::new() });
    let base = model.dialogues(&[asked]).expect("read").remove(0);
    let mut plan = model.read(&mut [(&[model.control.plan], &mut base.clone())]).expect("read");
    let [of_lamp, of_hotel] = [lamp(), hotel()].map(|piece| {
        let mut base = base.clone();
        model.read(&mut [(&model.planned(&[piece.kind]), &mut base)]).expect("read");
        let tokens = stream::evidence(&piece, &model.vocabulary, &model.control);
        model.evidence(&base, &[tokens]).expect("read").remove(0).0
    });
    let mut base = base;
    let kinds = [SourceKind::Table, SourceKind::Documents];
    model.read(&mut [(&model.planned(&kinds), &mut base)]).expect("read");
    let mut whole = model.gathered(&base, &[(lamp(), 8), (hotel(), 2)]).expect("read");
    let mut response = model.read(&mut [(&[model.control.response], &mut whole)]).expect("read");
    [plan.remove(0), of_lamp, of_hotel, response.remove(0)]
}

/// PyTorch's outputs for the shipped model at some tokens: `deploy/training/unified/reference.py
/// --of`.
#[derive(Deserialize)]
struct Shipped {
    tokens: Vec<usize>,
    plan: Vec<f32>,
    relevance: [Vec<f32>; 2],
    response: Vec<f32>,
}

/// The mean and the largest difference of the logits from PyTorch's.
fn apart(model: &UnifiedModel, shipped: &Shipped) -> (f32, f32) {
    let expected = [&shipped.plan, &shipped.relevance[0], &shipped.relevance[1], &shipped.response];
    let apart: Vec<f32> = logits(model)
        .iter()
        .zip(expected)
        .flat_map(|(ours, theirs)| {
            shipped.tokens.iter().zip(theirs).map(|(token, theirs)| (ours[*token] - theirs).abs())
        })
        .collect();
    let mean = apart.iter().sum::<f32>() / apart.len() as f32;
    (mean, apart.into_iter().fold(0.0, f32::max))
}

/// The shipped model at eight bits, and its original if `TURNSTREAM_READER` names the folder.
#[test]
fn logits_of_the_model_that_ships_are_nearly_those_of_pytorch() {
    let shipped: Shipped =
        serde_json::from_str(include_str!("fixtures/shipped.json")).expect("figures");
    let model = UnifiedModel::open(&UnifiedWeights::Shipped).expect("a model");
    let (mean, most) = apart(&model, &shipped);
    println!("at eight bits: {mean} on the mean, {most} at most");
    assert!(mean < 0.05 && most < 0.5, "{mean} on the mean, {most} at most");
    let Some(folder) = std::env::var_os("TURNSTREAM_READER") else {
        eprintln!(
            "SKIPPED: TURNSTREAM_READER names no folder of a trained model in full precision"
        );
        return;
    };
    let model = UnifiedModel::open(&at(Path::new(&folder))).expect("a model");
    let (mean, most) = apart(&model, &shipped);
    println!("in full precision: {mean} on the mean, {most} at most");
    assert!(most < 1e-3, "{most}");
}

#[test]
fn the_relevance_of_one_evidence_is_its_own() {
    let model = model();
    let alone = model.run(&[relevance(lamp())]).expect("an answer").0;
    let other = evidence(SourceKind::Table, "item = Oslo chair, price = $90", &[]);
    for beside in [hotel(), other] {
        let both = model.run(&[relevance(beside), relevance(lamp())]).expect("answers").0;
        assert_eq!(both[1], alone[0]);
        assert_ne!(both[0], both[1]);
    }
    let UnifiedAnswer::Relevance(relevance) = alone[0] else { panic!("{alone:?}") };
    let tenths = &model.control.relevance;
    let shares = shares(&figures().relevance[0], tenths);
    let by_hand: f32 = (0_u8..11).zip(shares).map(|(at, share)| f32::from(at) * share / 10.0).sum();
    assert!((relevance - by_hand).abs() < 1e-4, "{relevance} is not {by_hand}");
}

#[test]
fn a_plan_names_what_it_may_and_each_once() {
    let model = model();
    let (graph, table) = (SourceKind::Graph, SourceKind::Table);
    for kinds in [vec![], vec![graph], vec![graph, table, SourceKind::Documents]] {
        let plan = request(Task::Plan { kinds: kinds.clone() });
        let UnifiedAnswer::Plan { kinds: planned, probability } =
            model.run(&[plan]).expect("an answer").0.remove(0)
        else {
            panic!("no plan");
        };
        let unique: std::collections::BTreeSet<_> = planned.iter().collect();
        assert_eq!(unique.len(), planned.len(), "{planned:?}");
        assert!(planned.iter().all(|kind| kinds.contains(kind)), "{planned:?}");
        assert!(probability > 0.0 && probability <= 1.0 + 1e-6);
        assert!(!kinds.is_empty() || probability > 1.0 - 1e-6, "NULL is all that is left");
    }
}

#[test]
fn a_response_has_words_and_values_of_its_evidence() {
    let model = model();
    let asked = response(vec![(lamp(), 10), (hotel(), 0)], 40);
    let (answers, _) =
        model.run(&[asked.clone(), response(vec![(lamp(), 10)], 5)]).expect("answers");
    for (answer, most) in answers.iter().zip([40, 5]) {
        let UnifiedAnswer::Response(drafts) = answer else { panic!("{answer:?}") };
        let [Wording { said, lowest_log_probability, .. }] = &drafts[..] else {
            panic!("{drafts:?}");
        };
        assert!(said.len() <= most && *lowest_log_probability < 0.0);
        let values = ["Oslo lamp", "$49", "3", "Ashley Inn"];
        let foreign = said.iter().find(|part| match part {
            Said::Value(column) => !values.contains(&column.value.as_str()),
            Said::Words(words) => words.contains("[EO") || words.contains("[VALUE"),
        });
        assert_eq!(foreign, None);
        assert!(!text_of(said).starts_with(' '));
    }
    // The cached dialogue changes no answer.
    assert_eq!(model.run(&[asked]).expect("an answer").0[0], answers[0]);
}

#[test]
fn drafts_are_drawn_behind_the_most_probable_one_and_the_same_again() {
    let model = model();
    let mut asked = response(vec![(lamp(), 10)], 12);
    let drafts = |asked: &UnifiedRequest| match model
        .run(std::slice::from_ref(asked))
        .expect("answers")
        .0
        .remove(0)
    {
        UnifiedAnswer::Response(drafts) => drafts,
        other => panic!("{other:?}"),
    };
    let alone = drafts(&asked);
    let Task::Response { drafts: count, .. } = &mut asked.task else { panic!("a response") };
    *count = 5;
    let several = drafts(&asked);
    assert_eq!((several.len(), &several[0]), (5, &alone[0]));
    assert!(several[1..].iter().any(|draft| *draft != several[0]), "{several:?}");
    assert!(several[1..].iter().any(|draft| *draft != several[1]), "{several:?}");
    assert_eq!(drafts(&asked), several);
}

#[test]
fn what_is_drawn_is_among_the_most_probable() {
    let mut random = fastrand::Rng::with_seed(3);
    // Shares of 0.85, 0.1, 0.04 and 0.01: the first two sum to more than 0.9.
    let logits = [0.85_f32, 0.1, 0.04, 0.01].map(f32::ln);
    let mut counts = [0_u32; 4];
    for _ in 0..2_000 {
        let (token, share) = drawn(&logits, &[0, 1, 2, 3], &mut random);
        counts[token as usize] += 1;
        assert!((share - logits[token as usize].exp()).abs() < 1e-5);
    }
    // 0.1 ** (1 / 0.7) is 0.0447, of a total of 0.8376.
    assert!((70..=140).contains(&counts[1]), "{counts:?}");
    assert_eq!(counts[2..], [0, 0]);
}

#[test]
fn of_the_control_tokens_a_response_has_references_and_its_end() {
    let model = model();
    let control = |evidence: &[(EvidenceText, u8)]| {
        let sayable = model.sayable(&References::of(evidence, &model.vocabulary));
        let words = model.vocabulary.len() - model.vocabulary.control_tokens().len();
        let control: Vec<u32> =
            sayable.iter().copied().filter(|token| model.control.is_control(*token)).collect();
        assert_eq!(sayable.len(), words + control.len());
        control
    };
    let token = |name: &str| model.vocabulary.control_token(name).expect("a token");
    assert_eq!(control(&[(lamp(), 10)]), [token("</s>"), token("[VALUE]")]);
    // Without values, a wording has no references.
    let dims = evidence(SourceKind::Table, "dims = yes", &[("dims", "yes")]);
    assert_eq!(control(&[(dims, 10)]), [token("</s>")]);
}

#[test]
fn a_reference_is_to_the_value_of_its_name() {
    let model = model();
    let films = [("film", "Alien"), ("film", "Brazil"), ("film house", "Rex"), ("3d", "no")];
    let films = evidence(SourceKind::Table, "films", &films);
    let cheaper = evidence(SourceKind::Table, "item = Bergen lamp", &[("item", "Bergen lamp")]);
    let references =
        References::of(&[(lamp(), 5), (films, 9), (hotel(), 3), (cheaper, 2)], &model.vocabulary);
    let control = &model.control;
    let spelt = |text: &str| stream::spelt(text, &model.vocabulary);
    let name = |name: &str| {
        [&[control.value], &*spelt(&format!(" {name}")), &[control.value_end]].concat()
    };
    let read = |parts: &[Vec<u32>]| {
        let said = stream::said(&parts.concat(), &references, &model.vocabulary, control);
        text_of(&said)
    };
    let films =
        [spelt("See"), name("film"), spelt(" or"), name("film"), spelt(", in"), name("film house")];
    assert_eq!(read(&films), "See Alien or Brazil, in Rex");
    // Further uses take the last value; unknown names, truth values and other rows give nothing.
    assert_eq!(read(&[name("film"), name("film"), name("film")]), "Alien Brazil Brazil");
    assert_eq!(read(&[spelt("It"), name("price"), name("3d"), name("item"), spelt("!")]), "It!");
    assert_eq!(read(&[name("name")]), "Ashley Inn");

    // Within an unfinished name, only names may continue.
    let begun = [&[control.value], &*spelt(" film")].concat();
    let open = open_name(&begun, control).expect("in a name");
    let after = references.following(open, control);
    let house = spelt(" film house")[open.len()];
    let mut expected = vec![control.value_end, house];
    expected.sort_unstable();
    assert_eq!(after, expected);
    assert_eq!(references.following(&[], control), [spelt(" film")[0]]);
    assert_eq!(open_name(&name("film"), control), None);
    assert_eq!(references.following(&spelt(" price"), control), Vec::<u32>::new());
}

#[test]
fn another_model_is_refused() {
    let (_folder, config) = tiny::folder("llama");
    let refused = UnifiedModel::open(&at(&config.path)).err().expect("refused").to_string();
    assert!(refused.contains("[RELEVANCE_0.0]"), "{refused}");
}

#[test]
fn it_is_started_by_its_path_and_answers_behind_its_port() {
    let folder = folder(&figures());
    let (config, metrics) = (ModelsConfig::default(), Metrics::unread());
    let runtime = Runtime::new(&config, &metrics);
    let started_at = |path: &Path| runtime.unified(&at(path));
    let unified = started_at(folder.path()).expect("a model");
    let (answers, asked) = turnstream_ports::model::reply();
    let plan = request(Task::Plan { kinds: vec![SourceKind::Table] });
    let taken = unified.ask(vec![relevance(lamp()), plan], answers);
    assert!(taken.is_ok(), "the queue is empty");
    let answers = asked.wait().expect("answers");
    assert!(matches!(answers[0], UnifiedAnswer::Relevance(of) if (0.0..=1.0).contains(&of)));
    assert!(matches!(answers[1], UnifiedAnswer::Plan { .. }));
    let refused = started_at(Path::new("nowhere.gguf")).err().expect("refused").to_string();
    assert!(refused.contains("nowhere.gguf"), "{refused}");
}
