//! Tests self-refinement through the program: rows that a response does not say make room for
//! others, round by round; and a language model words and judges, whose recorded answers do the
//! same again.

use serde_json::json;
use turnstream_schemas::Response;

use crate::invariants::responses_keep_the_schema;
use crate::methods::run;
use crate::persona::{replayed, turn};
use crate::scripted_server::{Script, ScriptedServer};
use crate::turnstream;

/// Writes a table of lamps of five towns.
fn lamps(folder: &std::path::Path) -> String {
    let file = folder.join("lamps.jsonl");
    let towns = [("Oslo", 49), ("Bergen", 35), ("Narva", 20), ("Turku", 51), ("Visby", 18)];
    let row =
        |(town, price)| json!({ "item": format!("{town} lamp"), "price": format!("${price}") });
    let rows: String = towns.map(row).iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&file, rows).expect("written");
    format!(
        "[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n\
         [decision]\nform = \"off\"\n[generation]\nform = \"lexical\"\n\
         [sources.lamps]\nkind = \"table\"\nfile = {file:?}\ncues = [\"lamp\"]\n\
         [table_retrieval]\nmin_score = 0.0\n\
         [fact_selection]\nmax_passages_selected = 2\nmin_passage_relevance = 0.0\n"
    )
}

const REFINING: &str = "[consistency]\nform = \"lexical\"\n[self_refinement]\nsteps = 2\n";

#[test]
fn rows_that_are_not_said_make_room_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let turns = [
        turn(0, "What is the price of the Bergen lamp?", &[]),
        turn(1, "Good afternoon to everybody over there.", &[]),
    ];
    let plain = replayed(folder.path(), &turns, &lamps(folder.path()));
    let config = lamps(folder.path()) + REFINING;
    let refined = replayed(folder.path(), &turns, &config);
    let [lamp, null] = &refined[..] else { panic!("{refined:?}") };
    assert_eq!(lamp.text, "For Bergen lamp: price is $35.");
    let rounds = &lamp.refinement;
    assert_eq!(rounds.len(), 2, "{rounds:?}");
    let mut seen = vec![lamp.evidence[0].id.clone()];
    for (round, number) in rounds.iter().zip(1..) {
        assert_eq!((round.round, &*round.text), (number, &*lamp.text));
        let [said, other] = &round.evidence[..] else { panic!("{round:?}") };
        // No judge scored relevance: it counts as 1.
        assert_eq!((said.consistency.get(), said.relevance, said.score.get()), (1.0, None, 1.0));
        assert_eq!((&round.dropped[..], other.score.get()), (&[other.id.clone()][..], 0.0));
        assert!(!seen.contains(&round.added[0]), "it was there before: {round:?}");
        seen.extend([other.id.clone(), round.added[0].clone()]);
    }
    let kept = lamp.evidence.iter().filter(|evidence| evidence.selected);
    let kept: Vec<_> = kept.map(|it| (it.id.0.as_str(), it.consistency.is_some())).collect();
    assert_eq!(kept, [("lamps/2", true), (&*rounds[1].added[0].0, true)]);
    assert!(null.plan.0.is_empty() && null.refinement.is_empty(), "never for NULL");
    // When refinement is off, the record has nothing of it.
    assert!(plain.iter().all(|response| response.refinement.is_empty()));
    let written = serde_json::to_string(&plain[0]).expect("JSON");
    assert!(!written.contains("refinement") && !written.contains("consistency"), "{written}");
    assert_eq!(replayed(folder.path(), &turns, &config), refined, "and so it is again");
}

#[test]
fn recorded_answers_refine_as_the_model_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ScriptedServer::start(Script::Good);
    let config = folder.path().join("t.toml");
    let text = format!(
        "[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n\
         [sources.facts]\nkind = \"graph\"\ncues = [\"dog\", \"umbrella\", \"coffee\"]\n\
         [fact_selection]\nmax_selected = 4\n[generation]\nform = \"prompted\"\n\
         [consistency]\nform = \"prompted\"\n[self_refinement]\nsteps = 3\nreplaced = 2\n{}",
        server.config()
    );
    std::fs::write(&config, text).expect("written");
    let said = [
        (0, "My dog barks at the umbrella whenever rain falls."),
        (0, "Could the dog drink coffee in the kitchen?"),
        (1, "Where is an umbrella kept in the house?"),
        (1, "Good afternoon to everybody over there."),
        (2, "Does coffee keep people awake at night?"),
    ];
    let turns = said.map(|(conversation, text)| turn(conversation, text, &[]));
    let log = folder.path().join("log.jsonl");
    let lines: String = turns.iter().map(|turn| format!("{turn}\n")).collect();
    std::fs::write(&log, lines).expect("written");
    let log = [log.to_str().expect("UTF-8")];
    let answers = folder.path().join("answers.jsonl");
    let answers = answers.to_str().expect("UTF-8");
    let first = run(&config, &log, folder.path(), &["--record-answers", answers]);
    assert_eq!(responses_keep_the_schema(&first.responses), said.len());
    let responses: Vec<Response> =
        first.responses.iter().map(|it| serde_json::from_value(it.clone()).expect("one")).collect();
    let refined: usize = responses.iter().map(|response| response.refinement.len()).sum();
    assert!(refined > 4, "{refined} rounds");
    for response in &responses {
        assert!(response.refinement.len() <= 3 && response.degraded.is_empty(), "{response:?}");
        assert_eq!(response.plan.0.is_empty(), response.evidence.is_empty());
        assert!(!response.plan.0.is_empty() || response.refinement.is_empty());
    }
    let asked = server.seen().len();
    let again = run(&config, &log, folder.path(), &["--answers", answers]);
    assert_eq!(again.text, first.text, "the same bytes without a model");
    assert_eq!(server.seen().len(), asked);
}

#[test]
fn rounds_without_a_judge_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.toml");
    for (config, says) in [
        ("[self_refinement]\nsteps = 1\n", "self_refinement.steps"),
        (
            "[consistency]\nform = \"lexical\"\n[self_refinement]\nsteps = 6\n",
            "self_refinement.steps",
        ),
        ("[consistency]\nform = \"always\"\n", "consistency.form"),
    ] {
        std::fs::write(&path, config).expect("written");
        let path = path.to_str().expect("UTF-8");
        let ended = turnstream(&["validate", "--config", path]).output().expect("started");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains(says), "{says} is not in {said}");
    }
}
