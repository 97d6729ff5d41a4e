//! What travels between two operators while a turn is in flight. Records that leave the engine
//! are in `turnstream_schemas`; these live only inside one process.
//!
//! A turn is recalled ([`TurnContext`]) and then goes through the stages as one [`TurnInFlight`], into which
//! each writes what it decides, until it goes back to `history` with its response, or as [`Failed`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnstream_knowledge::KnowledgeVersion;
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::Mention;
use turnstream_ports::model::Embedding;
use turnstream_schemas::{
    Confidence, Demand, EventTime, Evidence, Fault, GateDecision, Header, HistoryChange,
    HistoryEntry, InputId, ModelUsed, Outcome, Passage, Plan, RecalledVia, RecordPart,
    RefinementRound, RequestId, Scope, Score, SourceKind, Speaker, Stage, Turn, TurnId,
};

use crate::sources::{Source, Sources};

mod in_flight;

pub use in_flight::{InFlight, Written};

/// The time of the dataflow: coarse epochs.
pub type Epoch = u64;

/// One utterance of H, the dialogue history up to the current user turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// The turn that said it (for our own responses, the response id).
    pub turn_id: TurnId,
    /// Who said it.
    pub speaker: Speaker,
    /// The words as they came.
    pub text: Arc<str>,
}

/// A query that was completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconstructed {
    /// q'_t: the query, and in brackets the words that it leaves out.
    pub query: String,
    /// The turns that the words come from, latest first.
    pub from: Vec<TurnId>,
}

/// A history entry that recall brought back.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// The entry, of a strictly earlier input.
    pub entry: Arc<HistoryEntry>,
    /// Why it came back.
    pub via: RecalledVia,
    /// Its relevance to the query, and that of its neighbours where its chain was followed; 0..=1.
    pub relevance: Score,
    /// The weight that eviction would give it, 0..=1.
    pub weight: Score,
    /// Which of its passages is most like the query, where it has any (DH-RAG eq 21).
    pub passage: Option<usize>,
}

impl Recalled {
    /// The passage that is most like the query, where the entry has any.
    pub fn best_passage(&self) -> Option<&Passage> {
        self.entry.passages.get(self.passage?)
    }
}

/// A user turn with the history it is answered from. Immutable from recall on.
#[derive(Clone, Debug)]
pub struct TurnContext {
    /// Which attempt this is.
    pub request: RequestId,
    /// The input.
    pub input: InputId,
    /// Its scope.
    pub scope: Scope,
    /// The turn as it came, turn id filled in.
    pub turn: Turn,
    /// The id of the turn, never absent.
    pub turn_id: TurnId,
    /// When it was said.
    pub event_time: EventTime,
    /// H: the latest utterances of the scope, oldest first; the last is the current user turn.
    /// Never empty.
    pub dialogue: Vec<Utterance>,
    /// Entries recalled from the whole history: the latest ones, latest first, then the others by
    /// falling relevance.
    pub recalled: Vec<Recalled>,
    /// q'_t: the query completed from what was recalled; `None` where it stands for itself.
    pub reconstructed: Option<Reconstructed>,
    /// Why it was recalled by words alone, where the encoder that recall goes by failed.
    pub recall_fault: Option<Fault>,
}

impl TurnContext {
    /// The current user turn's words.
    pub fn query(&self) -> &str {
        &self.turn.text
    }

    /// What is searched with: q'_t where the query was completed, else its words as they came.
    pub fn completed_query(&self) -> &str {
        self.reconstructed.as_ref().map_or(self.query(), |it| &it.query)
    }

    /// What was recalled and is not in the dialogue, each with its place.
    pub fn out_of_sight(&self) -> impl Iterator<Item = (usize, &Recalled)> {
        let in_sight = |turn_id| self.dialogue.iter().any(|said| &said.turn_id == turn_id);
        let recalled = self.recalled.iter().enumerate();
        recalled.filter(move |(_, recalled)| !in_sight(&recalled.entry.turn_id))
    }

    /// The lexicon of the current user turn's language.
    pub fn lexicon(&self) -> &'static Lexicon {
        Lexicon::of_turn(&self.turn)
    }

    /// What the dialogue says, each utterance with the lexicon of its language: the current user
    /// turn's may be named by the turn, the others' is told from their script.
    pub fn utterances(&self) -> impl Iterator<Item = (&'static Lexicon, &str)> {
        let current = self.dialogue.len().saturating_sub(1);
        self.dialogue.iter().enumerate().map(move |(at, utterance)| {
            let text = &*utterance.text;
            (if at == current { self.lexicon() } else { Lexicon::of_text(text) }, text)
        })
    }
}

/// What every turn in flight carries beside its content.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Microseconds per stage so far; empty where the engine measures none.
    pub timings_us: BTreeMap<Stage, u64>,
    /// Why stages failed that were gone without, in flow order; one fault of each.
    pub degraded: Vec<Fault>,
    /// The language models that decided, by stage.
    pub models: BTreeMap<Stage, ModelUsed>,
    /// The parts of the record that stages wrote so far.
    pub written: Written,
}

impl Progress {
    /// Whether a stage failed, and the turn went on without it.
    pub fn is_without(&self, stage: Stage) -> bool {
        self.degraded.iter().any(|fault| fault.stage == stage)
    }

    /// Which stages failed and were gone without.
    #[cfg(test)]
    pub(crate) fn without(&self) -> Vec<Stage> {
        self.degraded.iter().map(|fault| fault.stage).collect()
    }
}

/// What is said as vectors, each of length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// What the dialogue is about: its latest utterances by recency. Facts are ranked by it.
    pub dialogue: Embedding,
    /// What the current user turn alone says, where anything is known in it. Documents are
    /// searched by it, and personas for the most part: what was said before leads away from what
    /// is asked.
    pub utterance: Option<Embedding>,
}

/// A turn on its way through the stages, with all that they decided about it. What a stage has not
/// decided yet, or does not decide for this turn, is empty.
#[derive(Clone, Debug)]
pub struct TurnInFlight {
    /// The turn and its history.
    pub context: Arc<TurnContext>,
    /// The version of the knowledge that all its stages look facts up in.
    pub knowledge: KnowledgeVersion,
    /// Concepts of the graph that the dialogue names, in order of utterance and place.
    pub mentions: Arc<[Mention]>,
    /// Content words of the current utterance that the graph does not have, in order of place.
    pub missing: Arc<[String]>,
    /// Does the turn need knowledge?
    pub gate: GateDecision,
    /// What is said, as vectors of the configured encoder; `None` where there is none, where it
    /// failed, or where it knows no word of it.
    pub embedding: Option<Embedded>,
    /// The sources that are asked, in this order; NULL before they are planned, and where the turn
    /// needs no knowledge.
    pub plan: Plan,
    /// E^Q and E^T, as their stages produced them and then as cross revision left them.
    pub demand: Demand,
    /// How many sources of the plan were asked.
    pub asked: usize,
    /// What they gave, until fact selection chooses from it.
    pub candidates: Candidates,
    /// What the response is made from, selected evidence first in its order.
    pub evidence: Vec<Evidence>,
    /// What was recalled beyond the dialogue, weighed against the evidence; empty where nothing was
    /// weighed.
    pub history: Vec<Attended>,
    /// The response.
    pub draft: Draft,
    /// What self-refinement did so far.
    pub refinement: Refinement,
    /// How it got here.
    pub progress: Progress,
}

impl TurnInFlight {
    /// A turn as it leaves `history`: nothing linked, nothing decided.
    pub fn recalled(context: Arc<TurnContext>, knowledge: KnowledgeVersion) -> Self {
        let mut turn = Self::undecided(context, knowledge);
        turn.progress.written = Written::begun(&[RecordPart::Dialogue, RecordPart::Recalled]);
        turn
    }

    /// The same, without recording what stages write: for turns that do not go through the whole flow.
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
            plan: Plan::default(),
            demand: Demand::default(),
            asked: 0,
            candidates: Candidates::default(),
            evidence: Vec::new(),
            history: Vec::new(),
            draft: Draft::default(),
            refinement: Refinement::default(),
        }
    }

    /// The turn without anything that was retrieved or drafted for it, as one that needs no
    /// knowledge. It demands nothing; what it names and the graph does not have is still told.
    pub fn without_knowledge(self) -> Self {
        use RecordPart::{
            Attention, Candidates, Demand as Demanded, Evidence, Plan, Queries, Topics,
        };
        let Self { context, knowledge, mentions, missing, gate, embedding, mut progress, .. } =
            self;
        let empty = [Plan, Queries, Topics, Demanded, Candidates, Evidence, Attention];
        progress.written.add(&empty);
        let demand = Demand { missing: missing.to_vec(), ..Demand::default() };
        let undecided = Self::undecided(context, knowledge);
        Self { mentions, missing, gate, embedding, demand, progress, ..undecided }
    }

    /// The turn where its sources are asked without a demand.
    pub fn without_demand(mut self) -> Self {
        let empty = [RecordPart::Queries, RecordPart::Topics, RecordPart::Demand];
        self.progress.written.add(&empty);
        self.demand = Demand::default();
        self
    }

    /// The turn before any of its sources is asked.
    pub fn unasked(mut self) -> Self {
        self.progress.written.add(&[RecordPart::Candidates]);
        (self.asked, self.candidates) = (0, Candidates::default());
        self
    }

    /// The turn as it was before a response was drafted for the gate to read.
    pub fn undrafted(self) -> Self {
        let demand = Demand::default();
        let (draft, refinement, evidence) = Default::default();
        Self { demand, draft, refinement, evidence, ..self }
    }

    /// The source that is asked now; `None` where all were.
    pub fn source<'s>(&self, sources: &'s Sources) -> Option<&'s Source> {
        sources.of_name(self.plan.0.get(self.asked)?.as_str())
    }

    /// What the sources gave that the one being asked depends on: of each the most relevant.
    pub fn given<'t>(&'t self, source: &'t Source, sources: &'t Sources) -> Vec<&'t Evidence> {
        let before = source.config.depends_on.iter().filter_map(|name| sources.of_name(name));
        before.filter_map(|before| self.candidates.of(before).next()).collect()
    }

    /// The entries that were recalled from beyond the dialogue and that there is room for: by
    /// falling attention where they were weighed, else as they were recalled.
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

/// What was found for a demand, ranked and cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Facts that join a query and a topic, by falling relevance.
    pub foreseen: Vec<Evidence>,
    /// Facts that touch a query or a topic, by falling relevance; none is foreseen.
    pub unforeseen: Vec<Evidence>,
    /// Sentences of personas, each persona's by falling relevance, in the order of asking.
    pub persona: Vec<Evidence>,
    /// Passages of documents, by falling relevance.
    pub passages: Vec<Evidence>,
    /// Rows of tables, each table's by falling relevance, in the order of asking.
    pub rows: Vec<Evidence>,
}

impl Candidates {
    /// All of them: facts, sentences, passages, rows.
    pub fn iter(&self) -> impl Iterator<Item = &Evidence> {
        let facts = self.foreseen.iter().chain(&self.unforeseen);
        facts.chain(&self.persona).chain(&self.passages).chain(&self.rows)
    }

    /// What a source gave, the most relevant first.
    pub fn of<'c>(&'c self, source: &'c Source) -> impl Iterator<Item = &'c Evidence> {
        let is_graph = source.config.kind == SourceKind::Graph;
        // Facts bear the name of the collection that they are from.
        self.iter().filter(move |found| match &found.fact {
            Some(_) => is_graph,
            None => found.source == source.name,
        })
    }
}

/// The drafts of a response: the one that the gate reads, and rounds in which it is made anew from other evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refinement {
    /// Whether the draft is made before the gate decides, for it to read.
    pub for_gate: bool,
    /// The rounds so far, in order, with the one that is under way.
    pub rounds: Vec<RefinementRound>,
    /// What stood before the round that is under way; `None` while none is.
    pub before: Option<Box<Before>>,
}

/// A draft that was put aside, with what it was made from: it is gone back to where the next one fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Before {
    /// The draft.
    pub draft: Draft,
    /// Its evidence.
    pub evidence: Vec<Evidence>,
    /// Its history.
    pub history: Vec<Attended>,
    /// The thought behind it.
    pub thought: String,
}

/// An entry that was recalled, weighed among everything that the response could be made from
/// (DH-RAG eq 6).
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// Its place in [`TurnContext::recalled`].
    pub place: usize,
    /// Its share of the attention, 0..=1.
    pub attention: Score,
    /// Whether there is no room for it.
    pub left_out: bool,
}

/// The words of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// What is said.
    pub text: String,
    /// How sure the generator was.
    pub confidence: Option<Confidence>,
    /// What wrote it.
    pub model: ModelUsed,
}

/// A turn that a stage could not serve, on its way back to `history`.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The turn.
    pub context: Arc<TurnContext>,
    /// Why.
    pub fault: Fault,
}

/// What a record was when it came, for dead letters and for the headers of all outputs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Original {
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers, `traceparent` among them.
    pub headers: Vec<Header>,
    /// The log's time: milliseconds since 1970. `None` where the log has none.
    pub time_ms: Option<i64>,
}

/// Inputs that ended together, with what they changed. All of it goes into one transaction.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The inputs' partition.
    pub partition: i32,
    /// The generation they were read under; of an older one nothing is committed.
    pub generation: u32,
    /// How each ended, in log order, with what it was when it came.
    pub outcomes: Vec<(Outcome, Arc<Original>)>,
    /// What changed in the history, in order.
    pub changes: Vec<HistoryChange>,
}

impl Finished {
    /// One input that ended and changed nothing.
    pub fn single(request: RequestId, outcome: Outcome, original: Arc<Original>) -> Self {
        Self {
            partition: request.partition,
            generation: request.generation,
            outcomes: vec![(outcome, original)],
            changes: Vec::new(),
        }
    }
}
