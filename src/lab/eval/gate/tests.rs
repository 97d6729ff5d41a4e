//! Compares the measures and the baseline with scikit-learn's results (`fixtures/figures.py`), and
//! tests the gates on our own data.

use std::path::Path;

use serde::Deserialize;
use turnstream_formats::Need;
use turnstream_models::ModelError;
use turnstream_models::gate::instructed::{CARD, InstructedCard, InstructedGate};
use turnstream_models::gate::ngrams::Vectoriser;
use turnstream_ports::model::gate::GateInputs;
use turnstream_schemas::Speaker;

use super::figures::{auc, best_f1, precision_recall, roc};
use super::gates::{Constant, Random};
use super::instructed::Instructed;
use super::intervals::differences;
use super::table::{GateRow, Section, markdown};
use super::tfidf::logistic::Logistic;
use super::*;
use crate::labelled::Said;

#[derive(Deserialize)]
struct Fixture {
    threshold: f64,
    positive: Vec<bool>,
    scores: Vec<f64>,
    other: Vec<f64>,
    conversations: Vec<String>,
    figures: Reference,
    best_f1: f64,
    intervals: BTreeMap<String, [f64; 2]>,
    texts: Vec<String>,
    asks: Vec<bool>,
    baseline: Baseline,
}

#[derive(Deserialize)]
struct Reference {
    confusion: [u64; 4],
    precision: f64,
    recall: f64,
    f1: f64,
    auc: f64,
    fdr: f64,
}

#[derive(Deserialize)]
struct Baseline {
    columns: [usize; 2],
    row: Vec<f64>,
    likely: BTreeMap<String, Vec<f64>>,
    auc: f64,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/figures.json")).unwrap()
}

impl Fixture {
    fn scored(&self, scores: &[f64]) -> Scored {
        Scored {
            positive: self.positive.clone(),
            predicted: scores.iter().map(|score| *score >= self.threshold).collect(),
            scores: scores.to_vec(),
        }
    }
}

fn near(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "{found} is not {expected}");
}

#[test]
fn figures_are_those_of_scikit_learn() {
    let fixture = fixture();
    let scored = fixture.scored(&fixture.scores);
    let Confusion { tp, fp, tn, missed } = scored.confusion();
    assert_eq!([tp, fp, tn, missed], fixture.figures.confusion);
    let Reference { precision, recall, f1, auc, fdr, .. } = fixture.figures;
    for ((name, found), expected) in
        scored.figures().named().into_iter().zip([precision, recall, f1, auc, fdr])
    {
        near(found.unwrap_or_else(|| panic!("{name}")), expected, 1e-12);
    }
}

#[test]
fn a_threshold_of_the_best_f1_has_it() {
    let fixture = fixture();
    let threshold = best_f1(&fixture.positive, &fixture.scores).unwrap();
    let predicted = fixture.scores.iter().map(|score| *score >= threshold).collect();
    let scored = Scored { predicted, ..fixture.scored(&fixture.scores) };
    near(scored.figures().f1.unwrap(), fixture.best_f1, 1e-12);
    assert!(!fixture.scores.contains(&threshold), "it lies between two scores");
    assert_eq!(best_f1(&[false, false], &[0.1, 0.9]), None);
}

#[test]
fn intervals_are_those_of_an_independent_bootstrap() {
    let fixture = fixture();
    let conversations = Conversations::new(&fixture.conversations);
    let (one, other) = (fixture.scored(&fixture.scores), fixture.scored(&fixture.other));
    let found = intervals(&one, &conversations);
    let over = differences(&one, &other, &conversations);
    // A thousand draws here, four thousand there: ends vary by about a tenth of the width.
    for name in ["f1", "auc"] {
        for (found, expected) in [
            (found[name], fixture.intervals[name]),
            (over[name].interval, fixture.intervals[&format!("{name}_over")]),
        ] {
            let within = 0.12 * (expected[1] - expected[0]);
            near(found[0], expected[0], within);
            near(found[1], expected[1], within);
        }
    }
    near(over["auc"].by, one.figures().auc.unwrap() - other.figures().auc.unwrap(), 1e-12);
    // Repeating a conversation's turns five times adds no information.
    let five = |scored: &Scored| Scored {
        positive: repeated(&scored.positive),
        predicted: repeated(&scored.predicted),
        scores: repeated(&scored.scores),
    };
    let repeated_ids = Conversations::new(repeated(&fixture.conversations));
    for (name, [low, high]) in intervals(&five(&one), &repeated_ids) {
        near(low, found[name][0], 1e-12);
        near(high, found[name][1], 1e-12);
    }
}

fn repeated<T: Clone>(values: &[T]) -> Vec<T> {
    values.iter().flat_map(|value| std::iter::repeat_n(value.clone(), 5)).collect()
}

#[test]
fn what_is_not_defined_is_none() {
    let none_predicted =
        Scored { positive: vec![true, false], predicted: vec![false; 2], scores: vec![0.0; 2] };
    let ClassFigures { precision, recall, f1, auc: area, fdr } = none_predicted.figures();
    assert_eq!((precision, fdr), (None, None));
    assert_eq!((recall, f1, area), (Some(0.0), Some(0.0), Some(0.5)));
    assert_eq!(auc(&[true, true], &[0.3, 0.4]), None);
    assert!(roc(&[true], &[0.3]).is_empty() && precision_recall(&[false], &[0.3]).is_empty());
}

#[test]
fn the_area_under_the_curve_is_the_auc() {
    let fixture = fixture();
    let curve = roc(&fixture.positive, &fixture.scores);
    let area: f64 =
        curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum();
    near(area, fixture.figures.auc, 1e-12);
    assert_eq!(curve.last(), Some(&(1.0, 1.0)));
    let share = fixture.positive.iter().filter(|yes| **yes).count() as f64;
    let (recall, precision) = *precision_recall(&fixture.positive, &fixture.scores).last().unwrap();
    near(recall, 1.0, 0.0);
    near(precision, share / fixture.positive.len() as f64, 1e-12);
}

#[test]
fn the_baseline_is_that_of_scikit_learn() {
    let Fixture { texts, asks, baseline, .. } = fixture();
    let (learned, scored) = texts.split_at(120);
    let vectoriser = Vectoriser::fit(learned.iter().map(String::as_str), tfidf::LEAST_TEXTS);
    let rows = vectoriser.rows(learned.iter().map(String::as_str));
    assert_eq!(rows.width(), baseline.columns[0] + baseline.columns[1]);
    let mut row = rows.row(0).1.to_vec();
    row.sort_by(f32::total_cmp);
    assert_eq!(row.len(), baseline.row.len());
    row.iter().zip(&baseline.row).for_each(|(one, two)| near(f64::from(*one), *two, 1e-6));

    let unseen = vectoriser.rows(scored.iter().map(String::as_str));
    let (all, asked): (Vec<usize>, Vec<usize>) = ((0..120).collect(), (0..unseen.len()).collect());
    for (strength, expected) in &baseline.likely {
        let model = Logistic::zero(rows.width()).fit(&rows, &asks, &all, strength.parse().unwrap());
        let likely = model.likely(&unseen, &asked);
        likely.iter().zip(expected).for_each(|(one, two)| near(*one, *two, 2e-4));
        if strength == "10.0" {
            near(auc(&asks[120..], &likely).unwrap(), baseline.auc, 1e-9);
        }
    }
}

/// Returns a turn of the conversation with this number.
fn turn(conversation: usize, need: Need, text: &str) -> LabelledTurn {
    LabelledTurn {
        conversation: conversation.to_string(),
        position: 1 + (conversation % 3) as u32,
        domain: conversation.is_multiple_of(2).then(|| "<b>hotel</b>".to_owned()),
        utterances: vec![Said { speaker: Speaker::User, text: text.to_owned() }],
        knowledge: Vec::new(),
        reply: None,
        need,
    }
}

/// Returns the fixture's texts as turns.
fn turns() -> Vec<LabelledTurn> {
    let Fixture { texts, asks, .. } = fixture();
    let need = |asks| if asks { Need::Persona } else { Need::None };
    texts
        .iter()
        .zip(asks)
        .enumerate()
        .map(|(at, (text, asks))| turn(at, need(asks), text))
        .collect()
}

#[test]
fn the_baseline_chooses_on_the_parts_held_out() {
    let turns = turns();
    let (learned, scored_turns) = turns.split_at(120);
    let classes = [Positive::Null, Positive::Persona];
    let trained =
        tfidf::train(learned, &classes, tfidf::LEAST_TEXTS, Path::new("train"), &|| {}).unwrap();
    assert!(tfidf::STRENGTHS.contains(&trained.strength));
    for class in classes {
        let gate = trained.gate(class);
        let need = scores(&gate, scored_turns, &|| {}).unwrap();
        let scored = scored(scored_turns, &need, gate.threshold(), class);
        let figures = scored.figures();
        assert!(figures.auc.unwrap() > 0.9 && figures.f1.unwrap() > 0.8, "{class}: {figures:?}");
    }
    let alike: Vec<LabelledTurn> =
        learned.iter().map(|turn| LabelledTurn { need: Need::None, ..turn.clone() }).collect();
    let refused = tfidf::train(&alike, &classes, tfidf::LEAST_TEXTS, Path::new("train"), &|| {})
        .err()
        .unwrap();
    assert!(refused.to_string().starts_with("train has turns of one class alone"), "{refused}");
}

#[test]
fn null_is_what_the_gate_does_not_retrieve_for() {
    let turns = turns();
    let need: Vec<f64> = (0..turns.len()).map(|at| at as f64 / 1_000.0).collect();
    let of = |class| scored(&turns, &need, 0.05, class);
    let (null, persona) = (of(Positive::Null), of(Positive::Persona));
    let turned = |values: &[bool]| values.iter().map(|value| !value).collect::<Vec<_>>();
    assert_eq!(null.positive, turned(&persona.positive));
    assert_eq!(null.predicted, turned(&persona.predicted));
    assert!(persona.predicted[50] && !persona.predicted[49], "what reaches it is retrieved for");
    near(null.figures().auc.unwrap(), persona.figures().auc.unwrap(), 1e-12);
    let threshold = best_threshold(&turns, &need, Positive::Null).unwrap();
    let best = best_f1(&null.positive, &null.scores).unwrap();
    near(1.0 - threshold, best, 1e-12);
}

fn measured_by(gate: &dyn ScoresTurns, turns: &[LabelledTurn], class: Positive) -> MeasuredGate {
    let need = scores(gate, turns, &|| {}).unwrap();
    let scored = scored(turns, &need, gate.threshold(), class);
    measured(gate, turns, &scored, (class, gate.threshold()))
}

#[test]
fn the_controls_are_what_they_say() {
    let turns = turns();
    let always = measured_by(&Constant::Always, &turns, Positive::Persona);
    assert_eq!((always.figures.recall, always.confusion.tn), (Some(1.0), 0));
    assert_eq!(always.figures.auc, Some(0.5));
    let never = measured_by(&Constant::Never, &turns, Positive::Null);
    assert_eq!((never.figures.recall, never.confusion.tn), (Some(1.0), 0));
    let many: Vec<LabelledTurn> = turns.iter().cycle().take(16_000).cloned().collect();
    let random = measured_by(&Random { rate: 0.2, seed: 3 }, &many, Positive::Persona);
    let share = (random.confusion.tp + random.confusion.fp) as f64 / many.len() as f64;
    near(share, 0.2, 0.012);
    near(random.figures.auc.unwrap(), 0.5, 0.02);
}

#[test]
fn groups_add_up_to_all_turns() {
    let turns = turns();
    let found = measured_by(&Random { rate: 0.5, seed: 1 }, &turns, Positive::Persona);
    let sums = |groups: &[&Group]| {
        let sum = |part: fn(&Group) -> u64| groups.iter().map(|group| part(group)).sum::<u64>();
        [sum(|it| it.n), sum(|it| it.positives), sum(|it| it.predicted), sum(|it| it.tp)]
    };
    let Confusion { tp, fp, missed, .. } = found.confusion;
    let all = [turns.len() as u64, tp + missed, tp + fp, tp];
    assert_eq!(sums(&found.by_position.values().collect::<Vec<_>>()), all);
    assert_eq!(sums(&found.by_domain.values().collect::<Vec<_>>()), all);
    assert_eq!(found.by_position.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(found.by_domain.len(), 2);
}

/// A gate that returns wrong scores.
struct Broken(Vec<f64>);

impl ScoresTurns for Broken {
    fn name(&self) -> String {
        "a|broken\n<script>gate".to_owned()
    }
    fn threshold(&self) -> f64 {
        0.5
    }
    fn is_causal(&self) -> bool {
        false
    }
    fn scores(&self, _: &[LabelledTurn], _: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        Ok(self.0.clone())
    }
}

#[test]
fn a_gate_must_score_every_turn_with_a_number() {
    let turns = turns();
    for bad in [vec![0.5; 3], vec![f64::NAN; turns.len()]] {
        let refused = scores(&Broken(bad), &turns, &|| {}).unwrap_err().to_string();
        assert!(refused.contains("for 160 turns"), "{refused}");
    }
}

#[test]
fn names_are_escaped_in_reports_and_tables() {
    let turns = turns();
    let gate = Broken(vec![0.7; turns.len()]);
    let measured = measured_by(&gate, &turns, Positive::Persona);
    let need = gate.0;
    let scored = scored(&turns, &need, 0.5, Positive::Persona);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let sections = [report::PageSection { measured: &measured, scored: &scored }];
    report::write(&path, ("kbp", Path::new("<i>.jsonl")), &sections).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(!page.contains("<script>") && !page.contains("<i>.jsonl") && !page.contains("<b>hot"));
    assert!(page.contains("&lt;b&gt;hotel") && page.contains("Not causal"));
    let plots: Vec<&str> = page.split("<svg").skip(1).collect();
    assert_eq!(plots.len(), 4);
    assert!(plots.iter().all(|plot| plot.contains("#0000FF")), "each has its curve");

    let row = GateRow { measured, over_tfidf: BTreeMap::new() };
    let table = markdown(&[Section {
        format: "kbp",
        split: "dev.jsonl.gz".to_owned(),
        positive: "persona",
        rows: vec![row],
    }]);
    assert!(
        table.contains("| a\\|broken &lt;script>gate (reads the reply: not causal) | "),
        "{table}"
    );
    let last = table.lines().last().unwrap();
    assert_eq!(last.replace("\\|", "").matches('|').count(), 9, "{last}");
}

#[test]
fn an_encoder_reads_the_latest_first() {
    let said = |speaker, text: &str| Said { speaker, text: text.to_owned() };
    let utterances = vec![
        said(Speaker::User, "Is there a pool?"),
        said(Speaker::System, "Yes."),
        said(Speaker::User, "Is it heated?"),
    ];
    let turn = LabelledTurn { utterances, ..turn(1, Need::None, "") };
    let (utterance, earlier) = encoder::pair_of(&turn);
    assert_eq!(utterance, "User: Is it heated?");
    assert_eq!(earlier, "System: Yes.\nUser: Is there a pool?");
}

/// Opens a tiny language model as a gate that reads a response.
fn adapter(drafts: Option<&str>) -> Result<Instructed, ModelError> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/gate/fixtures/instructed");
    let card = InstructedGate::card_of(&fixture.join("adapter")).unwrap();
    let (inputs, drafts) = (GateInputs::ContxRespNer, drafts.map(str::to_owned));
    let card = InstructedCard { inputs, drafts, ..card };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(CARD), serde_json::to_vec(&card).unwrap()).unwrap();
    Instructed::open(&fixture.join("base"), folder.path())
}

#[test]
fn an_adapter_is_causal_if_its_responses_are_drafted() {
    let replied = |reply: &str| {
        let reply = Some(reply.to_owned());
        LabelledTurn { reply, ..turn(1, Need::None, "Is there wifi?") }
    };
    let turns = [replied("Yes, at the Oslo Inn."), replied("No.")];
    let known = |gate: &Instructed| (gate.name(), gate.is_causal());
    let gate = adapter(None).unwrap();
    assert_eq!(known(&gate), ("adapter (contx-resp-ner)".to_owned(), false));
    let scored = scores(&gate, &turns, &|| {}).unwrap();
    assert_ne!(scored[0], scored[1], "by the reply");
    let gate = adapter(Some("shipped")).unwrap();
    assert_eq!(known(&gate), ("adapter (contx-resp-ner, drafts)".to_owned(), true));
    let scored = scores(&gate, &turns, &|| {}).unwrap();
    near(scored[0], scored[1], 1e-6);
    let refused = adapter(Some("nowhere.gguf")).err().unwrap().to_string();
    assert!(refused.contains("nowhere.gguf"), "{refused}");
}
