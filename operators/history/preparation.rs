//! Preparation asks models for what recall needs: vectors, from an encoder that does not answer at
//! once, and summaries, from a language model.
//!
//! Preparation is a loop of `history`, before a turn goes down the flow. It embeds the turn's
//! query, and with it the entries of the scope that have no vector yet, usually only the exchange
//! before. Then the turn comes back and `history` recalls entries for it. Entries keep their
//! vectors, which are published with the turn's outcome. At most one group of the history is
//! summarised at the same time ([`SummariesConfig`]); the scope's record keeps the summary. If the
//! encoder fails or takes too long, recall compares words, and the response names `history` under
//! `degraded`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::{Branch, Map};
use turnstream_ports::model::{Embed, Embedding};
use turnstream_schemas::{Fault, FaultKind, GroupSummary, ModelUsed, RequestId, Stage};

use super::likeness::Vector;
use crate::flow::{Epoch, InFlight, Progress, TurnContext};
use crate::prompted::material::of_exchanges;
use crate::prompted::{
    Answered, Prompt, Prompted, PromptedConfig, Prompting, Slot, Think, Words, one_line,
};
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, StageRunner, Step, Without, run,
};
use crate::stage_config::StageConfig;

const STAGE: Stage = Stage::History;

/// Entries embedded with one turn at most; others wait for the next turn.
pub const EXCHANGES_AT_ONCE: usize = 32;

/// `[history.preparation]`: how an encoder that does not answer at once is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PreparationConfig {
    /// Whether such an encoder is asked at all; if not, histories are searched by words alone.
    pub enabled: bool,
    /// How long to wait for it.
    pub call: CallConfig,
}

impl Default for PreparationConfig {
    fn default() -> Self {
        let call = CallConfig { timeout_ms: 2_000, ..CallConfig::default() };
        Self { enabled: true, call }
    }
}

/// How the summary of a group of entries is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SummariesForm {
    /// By extraction from the entries.
    Lexical,
    /// By a language model, in addition to the extract.
    Prompted,
}

/// `[history.summaries]`: how groups of entries in the hierarchy are summarised (DH-RAG eq 19).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SummariesConfig {
    /// An extract of the group's entries (`lexical`), or the extract and what a language model writes about
    /// them (`prompted`).
    pub form: SummariesForm,
    /// Entries that a group needs before the model summarises it, from 1. The model writes a new summary
    /// when their number has doubled or halved.
    #[schemars(range(min = 1))]
    pub min_entries: u32,
    /// Entries that the model is shown at most, from 1: the most central one, and the latest.
    #[schemars(range(min = 1, max = 1024))]
    pub max_shown: u32,
    /// How the language model is asked.
    pub prompted: PromptedConfig,
}

impl Default for SummariesConfig {
    fn default() -> Self {
        let prompted = PromptedConfig { max_tokens: 120, ..PromptedConfig::default() };
        Self { form: SummariesForm::Lexical, min_entries: 3, max_shown: 12, prompted }
    }
}

impl StageConfig for SummariesConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == SummariesForm::Prompted)
    }
}

/// The models that preparation asks.
#[derive(Clone)]
pub struct Preparing {
    /// The encoder, where there is one that does not answer at once.
    encoder: Option<Call>,
    /// The prompt for the language model that writes summaries, where there is one.
    summaries: Option<Prompt>,
    runner: StageRunner,
}

impl Preparing {
    /// Takes the encoder that does not answer at once and the language model for summaries, as far
    /// as the configuration names them. Returns `None` if it names neither.
    pub fn new(
        embed: Option<Arc<Embed>>,
        preparation: &PreparationConfig,
        summaries: &SummariesConfig,
        prompting: &Prompting,
        runner: &StageRunner,
    ) -> Option<Self> {
        let embed = embed.filter(|_| preparation.enabled);
        let encoder = embed.map(|model| Call::new(model, &preparation.call));
        // A summary takes one call without thinking, whatever the configuration says about thinking.
        let at_once =
            |config: &PromptedConfig| PromptedConfig { think: Think::Never, ..config.clone() };
        let config = summaries.prompted().map(at_once);
        let summaries = prompting.prompt::<Words>(STAGE, config.as_ref());
        let asks = encoder.is_some() || summaries.is_some();
        asks.then(|| Self { encoder, summaries, runner: runner.clone() })
    }
}

/// A turn before preparation.
#[derive(Clone, Debug)]
pub struct Unprepared {
    /// The turn; nothing is recalled for it yet.
    pub context: Arc<TurnContext>,
    /// The offsets and texts of entries that have no vector.
    pub exchanges: Vec<(i64, String)>,
    /// The group to summarise.
    pub group: Option<Grouped>,
}

/// A group for a language model to summarise.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// Its number.
    pub group: u32,
    /// How many entries it has.
    pub entries: u32,
    /// The entries shown to the model: query and response of each.
    pub shown: Vec<[Option<String>; 2]>,
}

impl Unprepared {
    /// Makes a turn with the entries of its scope that have no vector, and a group without a
    /// summary.
    pub fn new(
        context: TurnContext,
        exchanges: Vec<(i64, String)>,
        group: Option<Grouped>,
    ) -> Self {
        Self { context: Arc::new(context), exchanges, group }
    }
}

/// A turn after preparation, ready for recall.
#[derive(Clone, Debug)]
pub struct Prepared {
    unprepared: Unprepared,
    vectors: ScopeVectors,
    summary: Option<(u32, GroupSummary)>,
    progress: Progress,
}

/// The encoder's vectors of a turn's texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeVectors {
    /// The vector of the query; `None` if the encoder knows nothing in it, or failed.
    pub query: Option<Vector>,
    /// The vectors of entries, with their offsets.
    pub exchanges: Vec<(i64, Vector)>,
    /// The fault of the encoder, if it failed.
    pub failed: Option<Fault>,
}

impl Prepared {
    /// Makes a turn that came back with its vectors.
    pub fn new(unprepared: Unprepared, vectors: ScopeVectors) -> Self {
        Self { unprepared, vectors, summary: None, progress: Progress::default() }
    }

    /// Returns how many entries its group has.
    fn entries(&self) -> u32 {
        self.unprepared.group.as_ref().map_or(0, |grouped| grouped.entries)
    }

    /// Returns the turn.
    pub fn context(&self) -> &Arc<TurnContext> {
        &self.unprepared.context
    }

    /// Returns the attempt to serve the turn.
    pub fn request(&self) -> RequestId {
        self.unprepared.context.request
    }

    /// Returns the vectors, and the number and summary of a group, if one was to be summarised.
    pub fn into_parts(self) -> (ScopeVectors, Option<(u32, GroupSummary)>) {
        (self.vectors, self.summary)
    }
}

impl InFlight for Prepared {
    fn context(&self) -> &Arc<TurnContext> {
        &self.unprepared.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }
}

/// Asks the encoder and the language model for every turn; turns come out with the answers. Without
/// a model no turn comes out.
pub fn preparation<'scope>(
    turns: StreamVec<'scope, Epoch, Unprepared>,
    preparing: Option<Preparing>,
) -> StreamVec<'scope, Epoch, Prepared> {
    let Some(Preparing { encoder, summaries, runner }) = preparing else {
        return turns.flat_map(|_| None);
    };
    // Both steps degrade when they fail, so there are no faults.
    let turns = turns.map(|turn| Prepared::new(turn, ScopeVectors::default()));
    let prepared = match encoder {
        Some(call) => run(turns, ScopeEmbedding { call }, &runner).0,
        None => turns,
    };
    match summaries {
        Some(prompt) => {
            let (plain, grouped) = prepared.branch(|_, turn| turn.unprepared.group.is_some());
            plain.concat(run(grouped, GroupSummaries { prompt }, &runner).0)
        }
        None => prepared,
    }
}

/// The step that embeds a turn's query and the entries of its scope.
struct ScopeEmbedding {
    call: Call,
}

impl Decide for ScopeEmbedding {
    type Turn = Prepared;
    type Decision = ScopeVectors;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &Prepared) -> OnFailure {
        OnFailure::Degrade
    }

    fn call(&self) -> Option<Call> {
        Some(self.call.clone())
    }

    fn begin(&self, turn: &Prepared) -> Result<Step<ScopeVectors>, Fault> {
        let exchanges = turn.unprepared.exchanges.iter().map(|(_, text)| text.clone());
        let texts = std::iter::once(turn.unprepared.context.query().to_owned()).chain(exchanges);
        Ok(Step::ask(texts.collect::<Vec<_>>()))
    }

    fn read(
        &self,
        turn: &Prepared,
        _: &Asked,
        answer: Answer,
    ) -> Result<Step<ScopeVectors>, Fault> {
        let vectors: Vec<Embedding> = answer.of(STAGE)?;
        let mut vectors = vectors.iter().map(|vector| Vector::of(vector));
        let query = vectors.next().flatten();
        let offsets = turn.unprepared.exchanges.iter().map(|(offset, _)| *offset);
        let exchanges = offsets.zip(vectors).filter_map(|(at, vector)| Some((at, vector?)));
        Ok(Step::decided(ScopeVectors { query, exchanges: exchanges.collect(), failed: None }))
    }

    fn without(&self, _: &Prepared, _: Without<'_>) -> ScopeVectors {
        ScopeVectors::default()
    }

    fn write(&self, turn: &mut Prepared, vectors: ScopeVectors) {
        // The stage runner noted a failure on the turn. No other stage has seen the turn yet, so the
        // last note is this one's.
        let failed = turn.progress.degraded.pop();
        turn.vectors = ScopeVectors { failed, ..vectors };
    }
}

/// The step in which a language model summarises groups.
struct GroupSummaries {
    prompt: Prompt,
}

impl Decide for GroupSummaries {
    type Turn = Prepared;
    type Decision = GroupSummary;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &Prepared) -> OnFailure {
        OnFailure::Degrade
    }

    fn call(&self) -> Option<Call> {
        Some(self.prompt.call())
    }

    fn begin(&self, turn: &Prepared) -> Result<Step<GroupSummary>, Fault> {
        Ok(self.prompt.begin(self, turn))
    }

    fn read(
        &self,
        turn: &Prepared,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<GroupSummary>, Fault> {
        self.prompt.read(self, turn, asked, answer)
    }

    fn without(&self, turn: &Prepared, _: Without<'_>) -> GroupSummary {
        let model = ModelUsed { name: self.prompt.model().to_owned(), prompt_hash: None };
        GroupSummary { text: None, entries: turn.entries(), model }
    }

    fn write(&self, turn: &mut Prepared, summary: GroupSummary) {
        turn.summary = turn.unprepared.group.as_ref().map(|grouped| (grouped.group, summary));
    }
}

impl Prompted for GroupSummaries {
    type Answer = Words;

    const NAMES_ITS_MODEL: bool = true;
    const REPEATS: bool = false;

    fn fill(&self, turn: &Prepared, slot: Slot) -> String {
        match (slot, &turn.unprepared.group) {
            (Slot::Exchanges, Some(grouped)) => {
                of_exchanges(&turn.unprepared.context, &grouped.shown)
            }
            _ => String::new(),
        }
    }

    fn understand(&self, turn: &Prepared, said: Answered<Words>) -> Result<GroupSummary, Fault> {
        let text = one_line(&said.answer.0);
        if text.is_empty() {
            return Err(Fault::new(STAGE, FaultKind::Unfit, "the model said nothing"));
        }
        Ok(GroupSummary { text: Some(text), entries: turn.entries(), model: said.model })
    }
}

#[cfg(test)]
mod tests;
