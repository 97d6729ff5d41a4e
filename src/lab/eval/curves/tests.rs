//! Tests of all methods but DCRAG, whose curves need the whole flow (`it::curves`), on dialogues with
//! figures counted by hand.

use turnstream_formats::Format;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::similarity::Similarity;
use turnstream_ports::model::unified::UnifiedRequest;
use turnstream_schemas::{Speaker, Turn};

use super::dh_rag::Varied;
use super::ragate::Gated;
use super::replayed::ReplayLog;
use super::*;
use crate::eval::gate::{GateError, ScoresTurns};
use crate::eval::history::material::Conversation;
use crate::eval::history::tests::{asked, exchanges, talk};
use crate::eval::sources::Asked;
use crate::eval::sources::tests::{judge, scripted, written};
use crate::labelled::LabelledTurn;

fn values(line: &Line, figure: &str) -> Vec<f64> {
    line.points.iter().map(|point| point.figures[figure].value.expect("a value")).collect()
}

#[test]
fn the_page_has_a_plot_of_each_figure_and_escapes_every_name() {
    let figure = |value| Figure { value: Some(value), interval: Some([value - 0.5, value + 0.5]) };
    let point = |at, value| Point { at, figures: Figures::from([("recall", figure(value))]) };
    let absent = Figures::from([("f1", Figure::default())]);
    let line = Line { name: "a <way>".to_owned(), points: vec![point(1.0, 2.0), point(3.0, 4.0)] };
    let curves = Curves {
        method: "dcrag",
        sweeps: vec![Sweep {
            title: "A & B".to_owned(),
            about: "Two points.".to_owned(),
            setting: "facts",
            lines: vec![line, Line { name: "empty".to_owned(), points: Vec::new() }],
        }],
        comparisons: vec![Comparison {
            title: "Ways".to_owned(),
            about: "One way.".to_owned(),
            rows: vec![
                ("with <all>".to_owned(), Figures::from([("cdp", figure(0.25))])),
                ("without".to_owned(), absent),
            ],
        }],
    };
    let page = curves.page().expect("a page");
    assert_eq!(page.matches("<svg").count(), 1, "one figure has values");
    for part in ["A &amp; B", "a &lt;way&gt;", "4.000 [3.500, 4.500]", "with &lt;all&gt;", "0.250"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("<way>") && !page.contains("<th>f1</th>"), "{page}");
}

#[test]
fn a_history_that_holds_more_keeps_more_evidence() {
    let config = HistoryConfig::default();
    let varied = Varied { config: &config, similarity: &Similarity::by_words() };
    let curves = dh_rag::curves(&varied, (Some(&talk()), None), &|| ());
    let titles: Vec<&str> = curves.sweeps.iter().map(|sweep| sweep.title.as_str()).collect();
    assert_eq!(titles[0], "How much is held (N), LoCoMo");
    let held = &curves.sweeps[0].lines;
    let named = |name: &str| held.iter().find(|line| line.name == name).expect("the line");
    let latest = values(named("the latest"), "survival");
    // Exchanges 3 and 4 are half of the utterances, and only one of two questions needs the fourth.
    assert_eq!((latest[2], latest[4]), (0.25, 1.0));
    let random = values(named("at random"), "survival");
    assert!(random.windows(2).all(|pair| pair[0] <= pair[1]), "{random:?}");
    assert_eq!(random.last(), Some(&1.0));
    for line in held {
        assert_eq!(values(line, "recall_at_10").last(), Some(&1.0), "{}", line.name);
    }
    let alphas = &curves.sweeps[1].lines;
    assert_eq!(
        alphas[0].points.iter().map(|point| point.at).collect::<Vec<_>>(),
        [0.0, 0.25, 0.5, 0.75, 1.0]
    );
    assert_eq!(alphas[2].points[0].figures, alphas[2].points[4].figures, "chance knows no α");
}

#[test]
fn relevance_keeps_and_groups_what_is_spoken_of_again() {
    let said = [
        "Hi.",
        "Yes.",
        "No.",
        "Well.",
        "Right.",
        "I keep bees in the garden.",
        "A violin, a string, a bow, a stand and a garden.",
    ];
    let again = "I keep bees in the garden by the train and the tall willow.";
    let said: Vec<_> = said.into_iter().chain([again]).map(|text| (text, "I see.")).collect();
    let question = asked("How are the bees?", "1", &["u6"]);
    let steps = exchanges(&said).into_iter().chain([question]).collect();
    let bees = [Conversation { id: "b".to_owned(), steps }];
    let config = HistoryConfig::default();
    let varied = Varied { config: &config, similarity: &Similarity::by_words() };
    let curves = dh_rag::curves(&varied, (Some(&bees), None), &|| ());
    let of_alpha = values(&curves.sweeps[1].lines[1], "survival");
    // Two of eight exchanges are held: the last one, and the violin or the bees.
    assert_eq!((of_alpha[0], of_alpha[4]), (0.0, 1.0));
    let groups = values(&curves.sweeps[2].lines[0], "groups");
    assert!(groups[0] < groups[4], "the bees are one group until likeness is near 1: {groups:?}");
    let categories = values(&curves.sweeps[3].lines[0], "categories");
    assert!(categories[0] < categories[4], "{categories:?}");
}

#[test]
fn a_part_of_the_conversations_is_spread_over_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let line = |at: u32| {
        let turn = Turn::new(at.to_string().as_str(), Speaker::User, "Hello.");
        serde_json::to_string(&turn).expect("JSON")
    };
    let lines = (0..5).map(line).chain(["no turn".to_owned(), line(2)]);
    std::fs::write(&log, lines.collect::<Vec<_>>().join("\n")).expect("written");
    let read = |most| {
        let read = ReplayLog::read(Format::Turns, &log, most).expect("a log");
        let turns = read.log().expect("the turns").conversations().iter().map(Vec::len).collect();
        (read.count, turns)
    };
    assert_eq!(read(Some(2)), (2, vec![1, 2]), "the first and the third");
    assert_eq!(read(None), (5, vec![1, 1, 2, 1, 1]));
    assert_eq!(read(Some(9)).0, 5);
}

#[test]
fn more_pieces_and_rounds_are_more_evidence() {
    let mut ask = |requests: &[UnifiedRequest]| Ok(requests.iter().map(scripted).collect());
    let mut asked = Asked::new(&mut ask);
    let responses = std::cell::Cell::new(0);
    let done = || responses.set(responses.get() + 1);
    let curves = unims_rag::curves(&written(), &mut asked, &judge(), &done).expect("curves");
    assert_eq!(responses.get(), unims_rag::settings() * written().len());
    let [counts, refined] = &curves.sweeps[..] else { panic!("{curves:?}") };
    // With one piece the reply about mountains is worded from tea; with two, from both.
    let by_fusion = values(&counts.lines[0], "persona_consistency");
    assert_eq!(by_fusion[..2], [0.5, 0.75]);
    assert_eq!(refined.lines.len(), 2);
    assert_eq!(refined.lines[0].points[0], refined.lines[1].points[0], "no round is no piece");
    assert_eq!(values(&counts.lines[0], "confidence")[0], f64::from(-0.1_f32));
}

/// Knows which of the four turns need knowledge.
struct Knowing;

impl ScoresTurns for Knowing {
    fn name(&self) -> String {
        "knowing".to_owned()
    }

    fn threshold(&self) -> f64 {
        0.5
    }

    fn scores(&self, turns: &[LabelledTurn], _: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let score = |turn: &LabelledTurn| match turn.last() {
            "周末呢" => 0.9,
            "喝什么" => 0.8,
            "再见" => 0.2,
            _ => 0.1,
        };
        Ok(turns.iter().map(score).collect())
    }
}

#[test]
fn a_gate_that_knows_the_need_beats_all_none_and_chance() {
    let mut ask = |requests: &[UnifiedRequest]| Ok(requests.iter().map(scripted).collect());
    let mut asked = Asked::new(&mut ask);
    let (gate, cases) = (Knowing, written());
    let gated = Gated { gate: &gate, threshold: gate.threshold() };
    let measured = (&mut asked, &judge());
    let curves = ragate::curves(&cases, &gated, measured, &|| ()).expect("curves");
    let rows = &curves.comparisons[0].rows;
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names[..3],
        ["no knowledge: 0 turns", "knowledge for all: 4 turns", "knowing: 2 turns"]
    );
    let of = |at: usize, figure: &str| rows[at].1[figure].value.expect("a value");
    // Nothing was used in two turns, which is right without knowledge. Tea is right in one of the
    // other two.
    let consistency = [0, 1, 2].map(|at| of(at, "persona_consistency"));
    assert_eq!(consistency, [0.5, 0.25, 0.75]);
    assert_eq!([0, 1, 2].map(|at| of(at, "needs_met")), [0.0, 1.0, 1.0]);
    assert!(of(3, "persona_consistency") < 0.75 && of(3, "needs_met") < 1.0, "{:?}", rows[3]);

    let [gate, random] = &curves.sweeps[0].lines[..] else { panic!("{curves:?}") };
    assert_eq!(gate.points.iter().map(|it| it.at).collect::<Vec<_>>(), [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(values(gate, "needs_met"), [0.0, 0.5, 1.0, 1.0, 1.0]);
    assert_eq!(values(random, "needs_met").last(), Some(&1.0));
    assert_eq!(gate.points[4].figures["bleu_1"].value, random.points[4].figures["bleu_1"].value);
}
