//! Defines the records that travel between two operators while a turn is in flight. They live only
//! inside one process; records that leave the engine are in `turnstream_schemas`.
//!
//! Recall makes a [`TurnContext`] from a turn. The turn then goes through the stages as one
//! [`TurnInFlight`], into which each stage writes its decision, and returns to `history` with its
//! response, or as [`Failed`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnstream_knowledge::KnowledgeVersion;
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::Mention;
use turnstream_ports::model::Embedding;
use turnstream_schemas::{
    Action, Citation, Confidence, ConversationRecord, Demand, EventTime, Evidence, Fault,
    GateDecision, HandOffReason, Header, HistoryChange, HistoryEntry, InputId, ModelUsed, Outcome,
    Passage, Plan, RecalledVia, RecordPart, RefinementRound, RequestId, Scope, Score, SourceKind,
    Speaker, Stage, Turn, TurnId,
};

use crate::sources::{Source, Sources};
use turnstream_knowledge::phrasings::NearestPhrasings;

mod in_flight;

pub use in_flight::{InFlight, Written};

/// The timestamp of the dataflow: a coarse epoch.
pub type Epoch = u64;

/// One utterance of H, the dialogue history up to the current user turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// The turn it is from; for one of our own responses, the response id.
    pub turn_id: TurnId,
    /// The party that said it.
    pub speaker: Speaker,
    /// The unchanged words.
    pub text: Arc<str>,
}

/// A query completed from the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconstructed {
    /// q'_t: the query, followed in brackets by the words that it leaves out; of a choice, the question
    /// that it belongs to, followed by the name that it chooses.
    pub query: String,
    /// The turns that those words come from, latest first.
    pub from: Vec<TurnId>,
}

/// What a user chose of the places that the response before asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPlace {
    /// The name of the place; `None` if it is none of them.
    pub name: Option<String>,
}

/// A history entry that recall found for a turn.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// The entry; its input is strictly earlier than the turn's.
    pub entry: Arc<HistoryEntry>,
    /// Why recall chose it.
    pub via: RecalledVia,
    /// Its relevance to the query, and that of its neighbours if recall followed its chain; 0..=1.
    pub relevance: Score,
    /// The weight by which eviction would rank it, 0..=1.
    pub weight: Score,
    /// The index of the passage that is most like the query, if the entry has passages (DH-RAG eq 21).
    pub passage: Option<usize>,
}

impl Recalled {
    /// Returns the passage that is most like the query, if the entry has passages.
    pub fn best_passage(&self) -> Option<&Passage> {
        self.entry.passages.get(self.passage?)
    }
}

/// A user turn with the history that it is answered from. Immutable after recall.
#[derive(Clone, Debug)]
pub struct TurnContext {
    /// The attempt to serve the input.
    pub request: RequestId,
    /// The input.
    pub input: InputId,
    /// Its scope.
    pub scope: Scope,
    /// The turn as it was parsed.
    pub turn: Turn,
    /// The id of the turn, never absent.
    pub turn_id: TurnId,
    /// When it was said.
    pub event_time: EventTime,
    /// H: the latest utterances of the scope, oldest first; the last is the current user turn.
    /// Never empty.
    pub dialogue: Vec<Utterance>,
    /// Entries recalled from the whole history: first the latest ones, latest first, then the others
    /// by falling relevance.
    pub recalled: Vec<Recalled>,
    /// q'_t: the query completed from recalled entries; `None` if it needs no completion.
    pub reconstructed: Option<Reconstructed>,
    /// What the turn chooses, if the response before it asked the user to choose.
    pub chosen: Option<ChosenPlace>,
    /// The fault of the encoder, if it failed and recall went by words alone.
    pub recall_fault: Option<Fault>,
}

impl TurnContext {
    /// Returns the current user turn's words.
    pub fn query(&self) -> &str {
        &self.turn.text
    }

    /// Returns the query that sources are searched for: q'_t if the query was completed, else the
    /// words of the turn.
    pub fn completed_query(&self) -> &str {
        self.reconstructed.as_ref().map_or(self.query(), |it| &it.query)
    }

    /// Returns the responses of the other side in the dialogue, the latest first.
    pub fn responses_before(&self) -> impl Iterator<Item = &str> {
        let said = self.dialogue.iter().rev().filter(|said| said.speaker == Speaker::System);
        said.map(|said| &*said.text)
    }

    /// Returns the recalled entries whose turns are not in the dialogue, with their indices.
    pub fn out_of_sight(&self) -> impl Iterator<Item = (usize, &Recalled)> {
        let in_sight = |turn_id| self.dialogue.iter().any(|said| &said.turn_id == turn_id);
        let recalled = self.recalled.iter().enumerate();
        recalled.filter(move |(_, recalled)| !in_sight(&recalled.entry.turn_id))
    }

    /// Returns the lexicon of the current user turn's language.
    pub fn lexicon(&self) -> &'static Lexicon {
        Lexicon::of_turn(&self.turn)
    }

    /// Returns the texts of the dialogue, each with the lexicon of its language. The current user
    /// turn may name its language; the language of the others is inferred from their script.
    pub fn utterances(&self) -> impl Iterator<Item = (&'static Lexicon, &str)> {
        let current = self.dialogue.len().saturating_sub(1);
        self.dialogue.iter().enumerate().map(move |(at, utterance)| {
            let text = &*utterance.text;
            (if at == current { self.lexicon() } else { Lexicon::of_text(text) }, text)
        })
    }
}

/// The bookkeeping of a turn in flight.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Microseconds per stage so far; empty if the engine does not measure them.
    pub timings_us: BTreeMap<Stage, u64>,
    /// The faults of the stages that failed and that the turn went on without: one for each stage, in
    /// flow order.
    pub degraded: Vec<Fault>,
    /// The models that decided, by stage.
    pub models: BTreeMap<Stage, ModelUsed>,
    /// The parts of the record that stages have written so far.
    pub written: Written,
}

impl Progress {
    /// Whether the stage failed and the turn went on without it.
    pub fn is_without(&self, stage: Stage) -> bool {
        self.degraded.iter().any(|fault| fault.stage == stage)
    }

    /// Returns the stages that failed and that the turn went on without.
    #[cfg(test)]
    pub(crate) fn without(&self) -> Vec<Stage> {
        self.degraded.iter().map(|fault| fault.stage).collect()
    }
}

/// The vectors of a dialogue, each of length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// The latest utterances, weighted by recency. Facts are ranked by this vector.
    pub dialogue: Embedding,
    /// The current user turn alone; `None` if the encoder knows no word of it. Documents are
    /// searched by this vector, and personas for the most part, because earlier utterances lead
    /// away from the question.
    pub utterance: Option<Embedding>,
}

/// What a response does.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionDecision {
    /// The action.
    pub action: Action,
    /// Why the conversation is handed over, if it is.
    pub hand_off: Option<HandOffReason>,
    /// The share of right answers on development data among those with such a score; `None` if no
    /// reader judged the evidence.
    pub precision: Option<Score>,
    /// The words to say; `None` if generation finds them.
    pub said: Option<String>,
    /// The number of pieces of evidence, from the first, that those words come from.
    pub pieces: usize,
}

impl ActionDecision {
    /// Makes the decision for an action; generation finds the words.
    pub fn to(action: Action) -> Self {
        Self { action, hand_off: None, precision: None, said: None, pieces: 0 }
    }

    /// Whether the response answers from evidence that generation has to word.
    pub fn needs_words(&self) -> bool {
        self.action == Action::Answer && self.said.is_none() && self.pieces > 0
    }
}

/// A turn on its way through the stages, with their decisions so far. A part is empty until its
/// stage has decided, and stays empty if the stage does not decide about this turn.
#[derive(Clone, Debug)]
pub struct TurnInFlight {
    /// The turn and its history.
    pub context: Arc<TurnContext>,
    /// The version of the knowledge in which all stages look up facts for this turn.
    pub knowledge: KnowledgeVersion,
    /// The concepts of the graph that the dialogue names, in order.
    pub mentions: Arc<[Mention]>,
    /// The content words of the current utterance that the graph lacks, in order of place.
    pub missing: Arc<[String]>,
    /// Whether the turn needs knowledge.
    pub gate: GateDecision,
    /// The vectors of the configured encoder; `None` without one, or if it knows no word of the dialogue.
    pub embedding: Option<Embedded>,
    /// The reader's vector of the question, of length 1, to search documents and tables by; `None` if neither is.
    pub question: Option<Embedding>,
    /// The reader's vector of the utterance alone, of length 1, to compare with the names of columns.
    pub utterance: Option<Embedding>,
    /// How near the question is to the phrasings that staff taught.
    pub taught: Arc<NearestPhrasings>,
    /// The sources to ask, in this order; NULL until source planning, and for a turn without need.
    pub plan: Plan,
    /// E^Q and E^T: as their stages produced them, and later as cross revision revised them.
    pub demand: Demand,
    /// How many sources of the plan have been asked.
    pub asked: usize,
    /// The evidence that the sources gave, before fact selection chooses from it.
    pub candidates: Candidates,
    /// The evidence for the response: selected evidence first, in its order.
    pub evidence: Vec<Evidence>,
    /// What the response does; `None` until it is decided, and if the decision is off.
    pub decision: Option<ActionDecision>,
    /// The recalled entries beyond the dialogue, weighed against the evidence; empty if nothing was
    /// weighed.
    pub history: Vec<Attended>,
    /// The response.
    pub draft: Draft,
    /// The rounds of self-refinement so far.
    pub refinement: Refinement,
    /// Timings, faults, models and written parts so far.
    pub progress: Progress,
}

impl TurnInFlight {
    /// Makes a turn as it leaves `history`: no stage has decided anything yet.
    pub fn recalled(context: Arc<TurnContext>, knowledge: KnowledgeVersion) -> Self {
        let mut turn = Self::undecided(context, knowledge);
        turn.progress.written = Written::begun(&[RecordPart::Dialogue, RecordPart::Recalled]);
        turn
    }

    /// Makes a turn like [`Self::recalled`], but does not record what stages write: for turns that
    /// do not go through the whole flow.
    pub fn undecided(context: Arc<TurnContext>, knowledge: KnowledgeVersion) -> Self {
        let degraded = context.recall_fault.clone().into_iter().collect();
        Self {
            progress: Progress { degraded, ..Progress::default() },
            context,
            knowledge,
            mentions: Arc::default(),
            missing: Arc::default(),
            gate: GateDecision::default(),
            embedding: None,
            question: None,
            utterance: None,
            taught: Arc::default(),
            plan: Plan::default(),
            demand: Demand::default(),
            asked: 0,
            candidates: Candidates::default(),
            evidence: Vec::new(),
            decision: None,
            history: Vec::new(),
            draft: Draft::default(),
            refinement: Refinement::default(),
        }
    }

    /// Removes everything that was planned, retrieved or drafted, for a turn that needs no knowledge.
    /// The demand keeps only the words that the graph lacks.
    pub fn without_knowledge(self) -> Self {
        use RecordPart::{
            Attention, Candidates, Decision, Demand as Demanded, Evidence, Plan, Queries, Topics,
        };
        let Self { context, knowledge, mentions, missing, gate, mut progress, .. } = self;
        let Self { embedding, taught, .. } = self;
        let empty = [Plan, Queries, Topics, Demanded, Candidates, Evidence, Decision, Attention];
        progress.written.add(&empty);
        let demand = Demand { missing: missing.to_vec(), ..Demand::default() };
        let undecided = Self::undecided(context, knowledge);
        Self { mentions, missing, gate, embedding, taught, demand, progress, ..undecided }
    }

    /// Clears the demand, for a turn whose sources are asked without one.
    pub fn without_demand(mut self) -> Self {
        let empty = [RecordPart::Queries, RecordPart::Topics, RecordPart::Demand];
        self.progress.written.add(&empty);
        self.demand = Demand::default();
        self
    }

    /// Resets the turn to the state before its first source is asked.
    pub fn unasked(mut self) -> Self {
        self.progress.written.add(&[RecordPart::Candidates]);
        (self.asked, self.candidates) = (0, Candidates::default());
        self
    }

    /// Removes the response that was drafted for the gate to read, and what came with it.
    pub fn undrafted(self) -> Self {
        let demand = Demand::default();
        let (draft, refinement, evidence) = Default::default();
        Self { demand, draft, refinement, evidence, ..self }
    }

    /// Returns the source to ask now; `None` if all have been asked.
    pub fn source<'s>(&self, sources: &'s Sources) -> Option<&'s Source> {
        sources.of_name(self.plan.0.get(self.asked)?.as_str())
    }

    /// Returns the most relevant piece of evidence from each source that `source` depends on.
    pub fn given<'t>(&'t self, source: &'t Source, sources: &'t Sources) -> Vec<&'t Evidence> {
        let before = source.config.depends_on.iter().filter_map(|name| sources.of_name(name));
        before.filter_map(|before| self.candidates.of(before).next()).collect()
    }

    /// Returns the recalled entries beyond the dialogue that fit into the budget: by falling
    /// attention if they were weighed, else in the order of recall.
    pub fn earlier_exchanges(&self) -> Vec<&Recalled> {
        let context = &self.context;
        if self.history.is_empty() {
            return context.out_of_sight().map(|(_, recalled)| recalled).collect();
        }
        let mut kept: Vec<&Attended> = self.history.iter().filter(|it| !it.left_out).collect();
        kept.sort_by(|a, b| b.attention.get().total_cmp(&a.attention.get()));
        kept.into_iter().filter_map(|attended| context.recalled.get(attended.place)).collect()
    }
}

/// The evidence that retrieval found, ranked and cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Facts that join a query and a topic, by falling relevance.
    pub foreseen: Vec<Evidence>,
    /// Other facts that touch a query or a topic, by falling relevance.
    pub unforeseen: Vec<Evidence>,
    /// Sentences of personas: persona by persona in the order of asking, each by falling relevance.
    pub persona: Vec<Evidence>,
    /// Passages of documents, by falling relevance.
    pub passages: Vec<Evidence>,
    /// Rows of tables: table by table in the order of asking, each by falling relevance.
    pub rows: Vec<Evidence>,
}

impl Candidates {
    /// Returns all candidates: facts, sentences, passages, rows.
    pub fn iter(&self) -> impl Iterator<Item = &Evidence> {
        let facts = self.foreseen.iter().chain(&self.unforeseen);
        facts.chain(&self.persona).chain(&self.passages).chain(&self.rows)
    }

    /// Returns the evidence from one source, the most relevant first.
    pub fn of<'c>(&'c self, source: &'c Source) -> impl Iterator<Item = &'c Evidence> {
        let is_graph = source.config.kind == SourceKind::Graph;
        // The `source` of a fact is not the graph but the collection that the fact is from.
        self.iter().filter(move |found| match &found.fact {
            Some(_) => is_graph,
            None => found.source == source.name,
        })
    }
}

/// The drafts of a response: the draft that the gate reads, and the rounds in which self-refinement
/// makes the response anew from other evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refinement {
    /// Whether the draft is made before the gate decides, so that the gate can read it.
    pub for_gate: bool,
    /// The rounds so far, in order, including the current one.
    pub rounds: Vec<RefinementRound>,
    /// The state before the current round; `None` between rounds.
    pub before: Option<Box<Before>>,
}

/// A draft and its material, put aside during a round. The turn returns to it if the round fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Before {
    /// The draft.
    pub draft: Draft,
    /// The evidence it was made from.
    pub evidence: Vec<Evidence>,
    /// The history it was made from.
    pub history: Vec<Attended>,
    /// The thought behind it.
    pub thought: String,
}

/// A recalled entry, weighed together with the evidence (DH-RAG eq 6).
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// Its index in [`TurnContext::recalled`].
    pub place: usize,
    /// Its share of the attention, 0..=1.
    pub attention: Score,
    /// Whether it does not fit into the budget.
    pub left_out: bool,
}

/// A response before it is final.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// The words.
    pub text: String,
    /// How sure the generator was.
    pub confidence: Option<Confidence>,
    /// The model or generator that wrote it.
    pub model: ModelUsed,
    /// The evidence that the words come from.
    pub citations: Vec<Citation>,
}

/// A turn that a stage could not serve, on its way back to `history`.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The turn.
    pub context: Arc<TurnContext>,
    /// The reason.
    pub fault: Fault,
}

/// The original record of an input, for dead letters and for the headers of all outputs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Original {
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers, including `traceparent`.
    pub headers: Vec<Header>,
    /// The log's time: milliseconds since 1970. `None` if the log has none.
    pub time_ms: Option<i64>,
}

/// Inputs that ended together, with the changes they made. All of it goes into one transaction.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The inputs' partition.
    pub partition: i32,
    /// The generation under which they were read; nothing of an older generation is committed.
    pub generation: u32,
    /// The outcome of each input with its original record, in log order.
    pub outcomes: Vec<(Outcome, Arc<Original>)>,
    /// The changes of the history, in order.
    pub changes: Vec<HistoryChange>,
    /// The changes of hands, in order.
    pub conversations: Vec<ConversationRecord>,
}

impl Finished {
    /// Makes the record of one input that ended and changed nothing.
    pub fn single(request: RequestId, outcome: Outcome, original: Arc<Original>) -> Self {
        Self {
            partition: request.partition,
            generation: request.generation,
            outcomes: vec![(outcome, original)],
            changes: Vec::new(),
            conversations: Vec::new(),
        }
    }
}
