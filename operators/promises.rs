//! Properties of the stages together, from the gate to the response, over random graphs and dialogues:
//! the tests check the finished turns.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::Map;
use turnstream_knowledge::language::Lexicon;
use turnstream_schemas::KnowledgeState;

use crate::cross_revision::{CrossRevisionConfig, cross_revision};
use crate::decision::{DecisionConfig, decision};
use crate::embedding::{EmbeddingConfig, embedding};
use crate::fact_retrieval::{FactRetrievalConfig, fact_retrieval};
use crate::fact_selection::{FactSelectionConfig, fact_selection};
use crate::flow::TurnInFlight;
use crate::gate::{GateConfig, gate};
use crate::generation::{GenerationConfig, generation};
use crate::integration::{IntegrationConfig, integration};
use crate::query_production::{QueryProductionConfig, query_production};
use crate::source_planning::{SourcePlanningConfig, source_planning};
use crate::sources::SpokenFacts;
use crate::testing::{context_of, graph, run_dataflow, stage_context};
use crate::topic_planning::{TopicPlanningConfig, topic_planning};

/// Concepts of the random graphs; several share words.
const CONCEPTS: [&str; 13] = [
    "coffee",
    "coffee_shop",
    "sleep",
    "insomnia",
    "dog",
    "walk_dog",
    "rain",
    "umbrella",
    "caffeine",
    "town",
    "故宫",
    "咖啡",
    "天坛公园",
];
const RELATIONS: [&str; 7] = [
    "UsedFor",
    "Causes",
    "HasPrerequisite",
    "AtLocation",
    "NotCapableOf",
    "HasProperty",
    "周边景点",
];
const SAYINGS: [&str; 15] = [
    "I like coffee",
    "Where is the coffee shop?",
    "My dogs sleep",
    "It rains",
    "Thanks!",
    "So?",
    "Do I need an umbrella in town?",
    "insomnia and caffeine",
    "我在故宮喝coffee",
    "天坛公园附近有什么？",
    "谢谢！",
    "I love 故宫 and my umbrella",
    "What about an umbrela?",
    "Do you know the coffeeshop?",
    "天坛公园子在哪里？",
];

/// Runs all stages; every turn retrieves.
fn respond(facts: &str, dialogues: &[Vec<String>]) -> Vec<TurnInFlight> {
    let graph = graph(facts);
    let turns = dialogues.iter().enumerate().map(|(at, lines)| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        Arc::new(context_of(&lines, at as i64))
    });
    let (drafted, failed) = run_dataflow(turns.collect::<Vec<_>>(), move |turns| {
        let context = stage_context(&graph);
        let config = GateConfig { threshold: 0.0, ..GateConfig::default() };
        let facts = SpokenFacts::AskedFor;
        let (gated, gate_faults) = gate(turns, config, &context);
        let (embedded, embedding_faults) = embedding(gated, EmbeddingConfig::default(), &context);
        let (turns, planning_faults) =
            source_planning(embedded, SourcePlanningConfig::default(), facts, &context);
        let queried = query_production(turns.clone(), QueryProductionConfig::default(), &context);
        let planned = topic_planning(turns, TopicPlanningConfig::default(), &context);
        let (demanded, revision_faults) =
            cross_revision(queried, planned, CrossRevisionConfig::default(), &context);
        let (retrieved, retrieval_faults) = fact_retrieval(
            demanded.map(TurnInFlight::unasked),
            FactRetrievalConfig::default(),
            &context,
        );
        let (grounded, selection_faults) =
            fact_selection(retrieved, FactSelectionConfig::default(), &context);
        let (decided, decision_faults) =
            decision(grounded, DecisionConfig::default(), facts, &context);
        let (weighed, weighing_faults) =
            integration(decided, IntegrationConfig::default(), &context);
        let (drafted, faults) = generation(weighed, GenerationConfig::default(), &context);
        let earlier = gate_faults.concat(embedding_faults).concat(planning_faults);
        let earlier = earlier.concat(revision_faults).concat(retrieval_faults);
        let earlier = earlier.concat(decision_faults);
        (drafted, earlier.concat(selection_faults).concat(weighing_faults).concat(faults))
    });
    assert!(failed.is_empty(), "{failed:?}");
    drafted
}

fn check(drafted: &TurnInFlight) {
    let TurnInFlight { context, gate, progress, demand, .. } = drafted;
    assert!(gate.retrieve && progress.degraded.is_empty());
    for query in &demand.queries.explicit {
        let said = context.dialogue.iter().find(|said| said.turn_id == query.turn).unwrap();
        let span = query.span.of(&said.text).unwrap();
        let lexicon = Lexicon::of_text(&query.concept);
        let named = lexicon.key(span) == lexicon.key(&query.concept);
        assert_eq!(named, query.via.is_exact(), "{query:?} for {span}");
        assert_eq!(query.via.is_exact(), query.similarity.is_none(), "{query:?}");
        let similarity = query.similarity.map_or(1.0, |found| found.get());
        assert!(similarity > 0.0 && similarity <= 1.0, "{query:?}");
    }
    let demanded: BTreeSet<&str> = demand.query_concepts().chain(demand.topic_concepts()).collect();
    let selected = drafted.evidence.iter().take_while(|evidence| evidence.selected).count();
    assert!(drafted.evidence[selected..].iter().all(|evidence| !evidence.selected));
    for evidence in &drafted.evidence {
        let fact = evidence.fact.as_ref().unwrap();
        let touches = [&fact.head, &fact.tail].iter().any(|end| demanded.contains(end.as_str()));
        assert!(touches, "{fact:?} touches nothing of {demanded:?}");
        assert_eq!(fact.negated, fact.relation.starts_with("Not"));
        assert!((0.0..=1.0).contains(&evidence.relevance.get()));
    }
    let sentences = drafted.draft.text.matches(['.', '!', '?', '。', '！', '？']).count();
    assert!((1..=3).contains(&sentences), "{}", drafted.draft.text);
    // The graph's relation with "can" only denies: no fact says what a thing can do.
    for ability in [" can sleep", " can walk", " can rain"] {
        assert!(!drafted.draft.text.contains(ability), "{}", drafted.draft.text);
    }
    for ability in ["故宫会", "咖啡会天坛", "天坛公园会"] {
        let caused = [format!("{ability}引起"), format!("{ability}让人")];
        let said = drafted.draft.text.matches(ability).count();
        let causes: usize =
            caused.iter().map(|said| drafted.draft.text.matches(said).count()).sum();
        assert_eq!(said, causes, "{}", drafted.draft.text);
    }
    let chinese = context.lexicon().is_chinese();
    assert_eq!(
        turnstream_knowledge::language::has_han(&drafted.draft.text),
        chinese,
        "{}",
        drafted.draft.text
    );
    assert_ne!(*drafted.knowledge.state(), KnowledgeState::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_stages_keep_their_promises_together(
        facts in prop::collection::btree_set((0..13_usize, 0..7_usize, 0..13_usize), 0..40),
        dialogues in prop::collection::vec(prop::collection::vec(0..SAYINGS.len(), 1..7), 1..4),
    ) {
        let facts: String = facts
            .into_iter()
            .map(|(head, relation, tail)| {
                format!("{} {} {} 1\n", CONCEPTS[head], RELATIONS[relation], CONCEPTS[tail])
            })
            .collect();
        let dialogues: Vec<Vec<String>> = dialogues
            .iter()
            .map(|sayings| {
                // The current turn is the user's.
                let speakers = if sayings.len() % 2 == 1 { ["u", "s"] } else { ["s", "u"] };
                let line = |(at, saying): (usize, &usize)| {
                    format!("{}: {}", speakers[at % 2], SAYINGS[*saying])
                };
                sayings.iter().enumerate().map(line).collect()
            })
            .collect();
        let drafted = respond(&facts, &dialogues);
        prop_assert_eq!(drafted.len(), dialogues.len());
        drafted.iter().for_each(check);
        let texts = |all: &[TurnInFlight]| {
            all.iter().map(|drafted| drafted.draft.text.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(texts(&respond(&facts, &dialogues)), texts(&drafted), "the same again");
    }
}
