use std::sync::Arc;

use turnstream_ports::model::Generated;
use turnstream_ports::model::unified::{Task, UnifiedAnswer, UnifiedRequest};
use turnstream_schemas::{SourceKind, Turn};

use super::*;
use crate::sources::SourceConfig;
use crate::testing::{Answering, asking, graph, run_dataflow, scene, stage_context};

/// A table of opening hours with cues, documents, and a persona that the documents depend on.
fn sources() -> Sources {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let of = |name: &str, config: SourceConfig| (name.to_owned(), config);
    let hours = SourceConfig {
        file: Some("hours.jsonl".into()),
        cues: words(&["open", "opening hours"]),
        description: "When each shop is open.".to_owned(),
        ..SourceConfig::of(SourceKind::Table)
    };
    let manuals =
        SourceConfig { depends_on: words(&["persona"]), ..SourceConfig::of(SourceKind::Documents) };
    let persona = SourceConfig::of(SourceKind::UserPersona);
    let config = [of("hours", hours), of("manuals", manuals), of("persona", persona)];
    Sources::new(&config.into()).expect("sources")
}

fn turn(text: &str, persona: &[&str]) -> TurnInFlight {
    let mut turn = scene(&[&format!("u: {text}")], &graph(""));
    let mut context = (*turn.context).clone();
    let persona = persona.iter().map(|sentence| (*sentence).to_owned()).collect();
    context.turn = Turn { persona, ..context.turn };
    turn.context = Arc::new(context);
    turn
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.0.iter().map(|name| name.as_str()).collect()
}

#[test]
fn cues_call_for_a_source() {
    let sources = sources();
    let plan = |text, persona: &[&str]| {
        let turn = turn(text, persona);
        executable(&turn, &called_for(&turn, &sources), &sources)
    };
    assert_eq!(names(&plan("Are you open now?", &["I sail."])), ["hours", "persona", "manuals"]);
    assert_eq!(names(&plan("What are the opening hours?", &[])), ["hours"], "in the words' forms");
    assert_eq!(names(&plan("How many hours?", &["I sail."])), ["persona", "manuals"]);
    assert_eq!(names(&plan("How many hours?", &[" "])), [""; 0], "NULL");
    assert_eq!(names(&every(&turn("Hello", &["I sail."]), &sources)).len(), 3);
}

#[test]
fn the_graph_is_asked_only_for_facts_that_could_be_said() {
    use SpokenFacts::{AskedFor, None, Selected};
    let graph_and = |others: &[(&str, SourceConfig)]| {
        let graph = ("graph".to_owned(), SourceConfig::of(SourceKind::Graph));
        let others = others.iter().map(|(name, config)| ((*name).to_owned(), config.clone()));
        Arc::new(Sources::new(&others.chain([graph]).collect()).expect("sources"))
    };
    let alone = graph_and(&[]);
    let depends_on = vec!["graph".to_owned()];
    let pages = SourceConfig { depends_on, ..SourceConfig::of(SourceKind::Documents) };
    let needed = graph_and(&[("pages", pages)]);
    for (said, facts, sources, expected) in [
        ("What is a lighthouse?", AskedFor, &alone, &["graph"][..]),
        ("Where is my lighthouse?", AskedFor, &alone, &[]),
        ("What is a windmill?", AskedFor, &alone, &[]),
        ("灯塔", AskedFor, &alone, &["graph"]),
        ("Where is my lighthouse?", Selected, &alone, &["graph"]),
        ("What is a lighthouse?", None, &alone, &[]),
        ("Hello", None, &needed, &["graph", "pages"]),
    ] {
        let graph = graph("lighthouse IsA tower 2\n灯塔 地址 海边 1");
        let asked = scene(&[&format!("u: {said}")], &graph);
        let sources = Arc::clone(sources);
        let (out, faults) = run_dataflow(vec![asked], move |turns| {
            let sources = Arc::clone(&sources);
            let means = StageContext { sources, ..stage_context(&graph) };
            source_planning(turns, SourcePlanningConfig::default(), facts, &means)
        });
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(names(&out[0].plan), expected, "{said} {facts:?}");
    }
}

/// The operator's plan for a turn with a persona, if the model gives this answer.
fn planned(form: SourcePlanningForm, answer: &'static str) -> (Vec<String>, Vec<Stage>) {
    let config = SourcePlanningConfig { form, ..Default::default() };
    let asked = vec![turn("Hello, open?", &["I sail."])];
    let (out, faults) = run_dataflow(asked, move |turns| {
        let means = asking(stage_context(&graph("")), move |request| {
            let prompt = &request.prompt;
            assert!(prompt.contains("- hours: When each shop is open."), "{prompt}");
            assert!(prompt.contains("- manuals: documents"), "{prompt}");
            Generated { text: answer.to_owned(), ..Generated::default() }
        });
        let means = StageContext { sources: Arc::new(sources()), ..means };
        source_planning(turns, config.clone(), SpokenFacts::None, &means)
    });
    assert!(faults.is_empty(), "{faults:?}");
    let TurnInFlight { plan, progress, .. } = &out[0];
    (names(plan).into_iter().map(str::to_owned).collect(), progress.without())
}

#[test]
fn what_a_model_names_is_put_in_order() {
    for (answer, expected) in [
        (r#"{"sources": ["manuals", "hours", "weather"]}"#, &["hours", "persona", "manuals"][..]),
        (r#"{"sources": [" persona "]}"#, &["persona"]),
        (r#"{"sources": []}"#, &[]),
    ] {
        let (plan, degraded) = planned(SourcePlanningForm::Prompted, answer);
        assert_eq!(plan, expected, "{answer}");
        assert!(degraded.is_empty());
    }
    // If the model's answer is of no use, every source is asked.
    let (plan, degraded) = planned(SourcePlanningForm::Prompted, "I would look it up.");
    assert_eq!(plan, ["hours", "persona", "manuals"]);
    assert_eq!(degraded, [Stage::SourcePlanning]);
    assert_eq!(planned(SourcePlanningForm::Off, "").0, ["hours", "persona", "manuals"]);
}

#[test]
fn the_unified_model_chooses_kinds_among_what_is_called_for() {
    use SourceKind::{Documents, Graph, Table, UserPersona};
    for (said, kinds, asked, expected) in [
        ("Are you open?", vec![Table], vec![Table, UserPersona, Documents], &["hours"][..]),
        ("Good day", vec![Documents], vec![UserPersona, Documents], &["persona", "manuals"]),
        ("Good day", vec![Table, Graph], vec![UserPersona, Documents], &[]),
        ("Good day", vec![], vec![UserPersona, Documents], &[]),
    ] {
        let plan = move |_: &UnifiedRequest| UnifiedAnswer::Plan {
            kinds: kinds.clone(),
            probability: 0.9,
        };
        let model = Answering::new(plan);
        let unified = Arc::clone(&model);
        let config =
            SourcePlanningConfig { form: SourcePlanningForm::Learned, ..Default::default() };
        let (out, faults) = run_dataflow(vec![turn(said, &["I sail."])], move |turns| {
            let means = asking(stage_context(&graph("")), |_| Generated::default());
            let unified = Some(Arc::clone(&unified) as _);
            let means = StageContext { sources: Arc::new(sources()), unified, ..means };
            source_planning(turns, config.clone(), SpokenFacts::None, &means)
        });
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(names(&out[0].plan), expected, "{said}");
        let requests = model.asked();
        let [UnifiedRequest { dialogue, task: Task::Plan { kinds } }] = &requests[..] else {
            panic!("{requests:?}");
        };
        assert_eq!((&*dialogue[0].user, kinds), (said, &asked));
    }
}
