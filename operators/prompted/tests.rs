//! All stages in prompted form, each over one turn, with a model that answers by a script.

use std::sync::atomic::{AtomicU32, Ordering};

use turnstream_knowledge::Graph;
use turnstream_schemas::{
    Evidence, EvidenceId, EvidenceSet, FactStatement, RevisionKind, Score, Via,
};

use super::*;
use crate::cross_revision::{CrossRevisionConfig, cross_revision};
use crate::fact_selection::{FactSelectionConfig, fact_selection};
use crate::flow::{Candidates, Failed, TurnInFlight};
use crate::gate::{GateConfig, GateForm, gate};
use crate::query_production::{QueryProductionConfig, produce, query_production};
use crate::stage::OnFailure;
use crate::stage_form::StageForm;
use crate::testing::{asking, context, graph, run_dataflow, scene, stage_context};
use crate::topic_planning::{TopicPlanningConfig, plan, topic_planning};

const FACTS: &str = "
    coffee Causes insomnia 2
    green_tea IsA drink 2
    green_tea HasProperty calming 1
    sleep UsedFor rest 2
    bed UsedFor sleep 2
";
const LINES: [&str; 2] = ["s: Do you like coffee?", "u: Yes, but I sleep badly. What else?"];

fn answers(text: &str) -> Generated {
    let model = ModelUsed { name: "scripted".to_owned(), prompt_hash: None };
    Generated { text: text.to_owned(), confidence: None, model }
}

fn queried(
    config: QueryProductionConfig,
    answer: impl Fn(GenerateRequest) -> Generated + Clone + Send + Sync + 'static,
) -> (Vec<TurnInFlight>, Vec<Failed>) {
    let graph = graph(FACTS);
    let turn = scene(&LINES, &graph);
    run_dataflow(vec![turn], move |turns| {
        use timely::dataflow::operators::vec::ResultStream;
        let means = asking(stage_context(&graph), answer.clone());
        let halves = query_production(turns, config.clone(), &means);
        (halves.clone().ok(), halves.err())
    })
}

fn query_config() -> QueryProductionConfig {
    QueryProductionConfig { form: StageForm::Prompted, ..Default::default() }
}

const QUERIES: &str = r#"{"aim": "to sleep better", "explicit": ["Sleep", "coffee", "yoga", "rest"],
    "implicit": ["a green tea", "no such thing", "green tea"]}"#;

#[test]
fn queries_are_concepts_that_the_graph_has_where_the_dialogue_names_them() {
    let (queried, failed) = queried(query_config(), |request| {
        assert!(request.schema.as_deref().is_some_and(|schema| schema.contains("\"aim\"")));
        assert!(request.prompt.contains("Put that into \"aim\""), "{}", request.prompt);
        answers(QUERIES)
    });
    assert!(failed.is_empty());
    let turn = &queried[0];
    let (queries, thought) = (&turn.demand.queries, &turn.demand.thoughts.queries);
    let explicit: Vec<_> = queries.explicit.iter().map(|query| &*query.concept).collect();
    assert_eq!(explicit, ["sleep", "coffee"]);
    for query in &queries.explicit {
        let said = turn.context.dialogue.iter().find(|said| said.turn_id == query.turn);
        let words = query.span.of(&said.expect("an utterance").text).expect("a span");
        assert_eq!((words, query.via), (&*query.concept, Via::Exact));
    }
    assert!(queries.explicit[0].weight.get() > queries.explicit[1].weight.get());
    // "rest" is in the graph and not in the dialogue, so it is implicit.
    let implicit: Vec<_> = queries.implicit.iter().map(|query| &*query.concept).collect();
    assert_eq!(implicit, ["green tea", "rest"]);
    assert_eq!(thought, "to sleep better");
    assert_eq!(turn.progress.models[&Stage::QueryProduction].name, "scripted");
    let hash = turn.progress.models[&Stage::QueryProduction].prompt_hash.as_deref();
    let shipped = Prompts::shipped(Stage::QueryProduction).expect("shipped");
    assert_eq!(hash, Some(shipped.english.hash()));
}

#[test]
fn a_thought_of_its_own_comes_first() {
    let prompted = PromptedConfig { think: Think::First, ..Default::default() };
    let config = QueryProductionConfig { prompted, ..query_config() };
    let (queried, _) = queried(config, |request| match &request.schema {
        None => answers("they want\n to sleep"),
        Some(schema) => {
            assert!(!schema.contains("aim"), "it has thought already");
            assert!(request.prompt.contains("- they want to sleep"), "{}", request.prompt);
            answers(r#"{"explicit": [], "implicit": ["rest"]}"#)
        }
    });
    assert_eq!(queried[0].demand.thoughts.queries, "they want to sleep");
    assert_eq!(queried[0].demand.queries.implicit.len(), 1);
}

#[test]
fn without_thinking_nothing_is_thought() {
    let prompted = PromptedConfig { think: Think::Never, ..Default::default() };
    let config = QueryProductionConfig { prompted, ..query_config() };
    let (queried, _) = queried(config, |request| {
        assert!(!request.schema.expect("a schema").contains("aim"));
        assert!(!request.prompt.contains("First say"), "{}", request.prompt);
        answers(r#"{"explicit": ["sleep"], "implicit": []}"#)
    });
    assert_eq!(
        (&*queried[0].demand.thoughts.queries, queried[0].demand.queries.explicit.len()),
        ("", 1)
    );
}

#[test]
fn what_cannot_be_read_is_asked_for_once_more() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let (queried, failed) = queried(query_config(), move |request| {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            return answers("Sleep, I should think.");
        }
        assert!(request.prompt.contains("- Sleep, I should think."), "{}", request.prompt);
        assert!(request.prompt.contains("no JSON object"), "{}", request.prompt);
        answers(QUERIES)
    });
    assert!(failed.is_empty());
    assert_eq!(queried[0].demand.queries.explicit.len(), 2);
    assert!(queried[0].progress.degraded.is_empty());
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn what_cannot_be_read_twice_goes_by_the_policy() {
    let run = |on_failure| {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let config = QueryProductionConfig { on_failure, ..query_config() };
        let ended = queried(config, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            answers("No.")
        });
        assert_eq!(asked.load(Ordering::Relaxed), 2, "once more, and no more than that");
        ended
    };
    let (without, _) = run(OnFailure::Degrade);
    assert_eq!(without[0].demand.queries, Default::default());
    assert_eq!(without[0].progress.without(), [Stage::QueryProduction]);
    let (lexical, _) = run(OnFailure::Lexical);
    let graph = graph(FACTS);
    let by_rules = produce(&scene(&LINES, &graph), graph.view(), None, &Default::default());
    assert_eq!(
        (&lexical[0].demand.queries, &lexical[0].demand.thoughts.queries),
        (&by_rules.0, &by_rules.1)
    );
    assert!(!lexical[0].demand.queries.explicit.is_empty());
    assert_eq!(lexical[0].progress.without(), [Stage::QueryProduction]);
    let (none, failed) = run(OnFailure::DeadLetter);
    assert!(none.is_empty());
    assert!(failed[0].fault.reason.contains("no JSON object"), "{}", failed[0].fault.reason);
}

#[test]
fn the_gate_goes_by_the_models_word() {
    let run = |answer: &'static str| {
        let graph = graph(FACTS);
        let turn = Arc::new(context(&LINES));
        let config = GateConfig { form: GateForm::Prompted, ..Default::default() };
        let (gated, _): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
            let means = asking(stage_context(&graph), move |_| answers(answer));
            gate(turns, config.clone(), &means)
        });
        gated.into_iter().next().expect("a turn")
    };
    let (yes, no) = (run("{\"needs_knowledge\": true}"), run("False."));
    assert!(yes.gate.retrieve && !no.gate.retrieve);
    assert_eq!((yes.gate.score.get(), no.gate.score.get()), (1.0, 0.0));
    assert!(!yes.mentions.is_empty(), "later stages need the concepts");
    let unread = run("perhaps");
    assert!(!unread.gate.retrieve);
    assert_eq!(unread.progress.without(), [Stage::Gate]);
}

#[test]
fn topics_are_concepts_that_the_graph_has() {
    let graph = graph(FACTS);
    let turn = scene(&LINES, &graph);
    let config = TopicPlanningConfig { form: StageForm::Prompted, ..Default::default() };
    let (planned, _): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
        use timely::dataflow::operators::vec::ResultStream;
        let answer = r#"{"course": "to drinks", "extended": ["green tea", "sleep", "zzz"],
            "maintained": ["sleep"]}"#;
        let halves = topic_planning(
            turns,
            config.clone(),
            &asking(stage_context(&graph), move |_| answers(answer)),
        );
        (halves.clone().ok(), halves.err())
    });
    let topics = &planned[0].demand.topics;
    assert_eq!(topics.maintained[0].concept, "sleep");
    let extended: Vec<_> = topics.extended.iter().map(|topic| &*topic.concept).collect();
    assert_eq!(extended, ["green tea"], "what is maintained is not extended");
    assert_eq!(
        (&*topics.extended[0].because, &*planned[0].demand.thoughts.topics),
        (&["sleep".to_owned()][..], "to drinks")
    );
}

#[test]
fn a_revision_is_told_as_what_changed() {
    let graph = graph(FACTS);
    let turn = scene(&LINES, &graph);
    let config = CrossRevisionConfig { form: StageForm::Prompted, ..Default::default() };
    let (demanded, _): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
        use timely::dataflow::operators::vec::Map;
        let view = Arc::clone(&graph);
        let queried = turns.clone().map(move |turn| {
            let mut turn: TurnInFlight = turn;
            let produced = produce(&turn, view.view(), None, &Default::default());
            (turn.demand.queries, turn.demand.thoughts.queries) = produced;
            Ok(turn)
        });
        let view = Arc::clone(&graph);
        let planned = turns.map(move |turn| {
            let mut turn: TurnInFlight = turn;
            let planned = plan(&turn, view.view(), &Default::default());
            (turn.demand.topics, turn.demand.thoughts.topics) = planned;
            Ok(turn)
        });
        let means = asking(stage_context(&graph), |request| {
            for heading in ["<<queries ", "<<topics ", "explicit: ", "maintained: "] {
                assert!(request.prompt.contains(heading), "{heading}: {}", request.prompt);
            }
            answers(
                r#"{"changes": "coffee is over", "explicit": ["sleep"], "extended": ["green tea"],
                    "implicit": ["rest"], "maintained": ["sleep"]}"#,
            )
        });
        cross_revision(queried, planned, config.clone(), &means)
    });
    let demand = &demanded[0].demand;
    assert_eq!(demand.query_concepts().collect::<Vec<_>>(), ["sleep", "rest"]);
    assert_eq!(demand.topic_concepts().collect::<Vec<_>>(), ["sleep", "green tea"]);
    let revision = |kind, what: &str| {
        demand.revisions.iter().any(|revision| revision.kind == kind && revision.what == what)
    };
    assert!(revision(RevisionKind::Drop, "explicit: coffee"), "{:?}", demand.revisions);
    assert!(revision(RevisionKind::Add, "implicit: rest"), "{:?}", demand.revisions);
    assert!(demand.revisions.iter().all(|revision| revision.why == "coffee is over"));
}

fn fact(head: &str, set: EvidenceSet) -> Evidence {
    let relation = "IsA".to_owned();
    let (tail, weight, negated) = ("drink".to_owned(), 1.0, head == "gin");
    Evidence {
        id: EvidenceId(head.to_owned()),
        source: "test".into(),
        text: format!("{head} is a drink"),
        set: Some(set),
        fact: Some(FactStatement {
            head: head.to_owned(),
            relation,
            tail,
            weight,
            negated,
            ..FactStatement::default()
        }),
        document: None,
        persona: None,
        row: None,
        relevance: Score::new(0.5),
        consistency: None,
        attention: None,
        selected: false,
    }
}

#[test]
fn facts_are_selected_by_number_the_foreseen_ones_first() {
    let run = |candidates: Candidates, answer: &'static str| {
        let graph: Arc<Graph> = graph(FACTS);
        let demand = turnstream_schemas::Demand::default();
        let turn = TurnInFlight { candidates, ..TurnInFlight { demand, ..scene(&LINES, &graph) } };
        let config = FactSelectionConfig { form: StageForm::Prompted, ..Default::default() };
        let (grounded, failed): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
            let means = asking(stage_context(&graph), move |request| {
                assert!(request.prompt.contains("- 1. tea is a drink"), "{}", request.prompt);
                assert!(request.prompt.contains("- 3. gin is a drink (denied)"));
                answers(answer)
            });
            fact_selection(turns, config.clone(), &means)
        });
        assert!(failed.is_empty());
        grounded.into_iter().next().expect("a turn")
    };
    let candidates = Candidates {
        foreseen: vec![fact("tea", EvidenceSet::Foreseen), fact("milk", EvidenceSet::Foreseen)],
        unforeseen: vec![fact("gin", EvidenceSet::Unforeseen)],
        ..Candidates::default()
    };
    let grounded = run(candidates, r#"{"selected": [3, 2, 2, 9, 0]}"#);
    let told: Vec<_> = grounded.evidence.iter().map(|fact| (&*fact.id.0, fact.selected)).collect();
    assert_eq!(told, [("milk", true), ("gin", true), ("tea", false)]);
    // Where there is nothing to choose from, the model is not asked.
    let grounded = run(Candidates::default(), "never read");
    assert!(grounded.evidence.is_empty() && grounded.progress.models.is_empty());
}
