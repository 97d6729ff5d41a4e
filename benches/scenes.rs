//! Prepares the user turns of the dialogues, as each stage receives them.
#![allow(dead_code, reason = "every bench takes what it needs")]

use std::sync::{Arc, LazyLock};

use turnstream_knowledge::linking::{LinkingConfig, Mention, link};
use turnstream_knowledge::{Graph, KnowledgeVersion};
use turnstream_operators::cross_revision::{CrossRevisionConfig, revise};
use turnstream_operators::fact_retrieval::{FactRetrievalConfig, Likeness, retrieve};
use turnstream_operators::fact_selection::{FactSelectionConfig, select};
use turnstream_operators::flow::{TurnContext, TurnInFlight, Utterance};
use turnstream_operators::gate::{GateConfig, decide};
use turnstream_operators::query_production::{QueryProductionConfig, produce};
use turnstream_operators::topic_planning::{TopicPlanningConfig, plan};
use turnstream_schemas::{EventTime, GateDecision, InputId, RequestId, Scope, Speaker, Turn};
use turnstream_sources::knowledge::open_pack;

/// The dialogues, in the shape of the log's turns.
pub(crate) const DIALOGUES: &str = include_str!("dialogues.jsonl");

/// The most utterances of H, as the history keeps them by default.
const WINDOW: usize = 8;

/// The shipped graph.
pub(crate) static GRAPH: LazyLock<Arc<Graph>> =
    LazyLock::new(|| Arc::new(open_pack().expect("the shipped graph opens")));

/// Returns every turn of the dialogues, in order.
pub(crate) fn turns() -> Vec<Turn> {
    let read = |line| serde_json::from_str(line).expect("a turn");
    DIALOGUES.lines().map(read).collect()
}

/// Returns every user turn with the dialogue before it.
pub(crate) fn contexts() -> Vec<TurnContext> {
    let turns = turns();
    let dialogues = turns.chunk_by(|one, next| one.conversation_id == next.conversation_id);
    let of_user = |dialogue: &[Turn]| -> Vec<TurnContext> {
        let ends = (0..dialogue.len()).filter(|end| dialogue[*end].speaker == Speaker::User);
        ends.map(|end| context(&dialogue[..=end])).collect()
    };
    dialogues.flat_map(of_user).collect()
}

fn context(dialogue: &[Turn]) -> TurnContext {
    let (current, offset) = (&dialogue[dialogue.len() - 1], dialogue.len() as i64 - 1);
    let turn_id = current.turn_id.clone().expect("a turn id");
    let latest = dialogue.iter().skip(dialogue.len().saturating_sub(WINDOW));
    let utterances = latest.map(|turn| Utterance {
        turn_id: turn.turn_id.clone().expect("a turn id"),
        speaker: turn.speaker,
        text: turn.text.as_str().into(),
    });
    TurnContext {
        request: RequestId { partition: 0, generation: 1, offset },
        input: InputId { topic: "turns".to_owned(), partition: 0, offset },
        scope: Scope::new(None, current.conversation_id.as_str()),
        turn: current.clone(),
        turn_id,
        event_time: EventTime(offset * 1_000),
        dialogue: utterances.collect(),
        recalled: Vec::new(),
        reconstructed: None,
        chosen: None,
        recall_fault: None,
    }
}

/// Returns the mentions of a turn's dialogue.
pub(crate) fn mentions(context: &TurnContext, config: &LinkingConfig) -> Vec<Mention> {
    link(GRAPH.view(), context.utterances(), config)
}

/// Does the gate's work on one turn.
pub(crate) fn gate(context: &TurnContext, config: &GateConfig) -> (Vec<Mention>, GateDecision) {
    let mentions = mentions(context, &config.linking);
    let decision = decide(context, &mentions, config);
    (mentions, decision)
}

/// Returns the turns after the gate: all of them, so that every stage has the same inputs.
pub(crate) fn gated() -> Vec<TurnInFlight> {
    let config = GateConfig::default();
    let gated = |context: TurnContext| {
        let (mentions, gate) = gate(&context, &config);
        let turn = TurnInFlight::undecided(Arc::new(context), KnowledgeVersion::default());
        TurnInFlight { mentions: mentions.into(), gate, ..turn }
    };
    contexts().into_iter().map(gated).collect()
}

/// Returns the turns before cross revision.
pub(crate) fn half_demanded() -> Vec<TurnInFlight> {
    let (queries, topics) = (QueryProductionConfig::default(), TopicPlanningConfig::default());
    let half_demanded = |mut turn: TurnInFlight| {
        let (queries, thought) = produce(&turn, GRAPH.view(), None, &queries);
        (turn.demand.queries, turn.demand.thoughts.queries) = (queries, thought);
        let (topics, thought) = plan(&turn, GRAPH.view(), &topics);
        (turn.demand.topics, turn.demand.thoughts.topics) = (topics, thought);
        turn
    };
    gated().into_iter().map(half_demanded).collect()
}

/// Returns the turns before fact retrieval.
pub(crate) fn demanded() -> Vec<TurnInFlight> {
    let config = CrossRevisionConfig::default();
    let demanded = |turn: TurnInFlight| {
        let demand = revise(&turn, GRAPH.view(), &config);
        TurnInFlight { demand, ..turn }
    };
    half_demanded().into_iter().map(demanded).collect()
}

/// Returns the turns before fact selection.
pub(crate) fn retrieved() -> Vec<TurnInFlight> {
    let config = FactRetrievalConfig::default();
    let retrieved = |turn: TurnInFlight| {
        let likeness = Likeness::read(&turn, GRAPH.view(), None, &config.recency);
        let candidates = retrieve(&turn.demand, &likeness, &config);
        TurnInFlight { candidates, ..turn }
    };
    demanded().into_iter().map(retrieved).collect()
}

/// Returns the turns before generation.
pub(crate) fn grounded() -> Vec<TurnInFlight> {
    let config = FactSelectionConfig::default();
    let grounded = |turn: TurnInFlight| {
        let evidence = select(&turn.candidates, &config);
        TurnInFlight { evidence, ..turn }
    };
    retrieved().into_iter().map(grounded).collect()
}
