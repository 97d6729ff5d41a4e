//! Collects what stages are made from: the graph, the sources, the models and the stage runner.

use std::sync::Arc;

use turnstream_knowledge::Knowledge;
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::gate::{LearnedGate, NeedJudge};
use turnstream_ports::model::reader::Read;
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, Score};

use crate::attention::Attention;
use crate::judge::Judge;
use crate::meaning::FactMeaning;
use crate::prompted::{Prompting, ReadAlong};
use crate::response_texts::ResponseTexts;
use crate::sources::Sources;
use crate::stage::StageRunner;
use crate::tables::Tables;

/// What the stages of one worker are made from. Cheap to clone; a stage takes what it needs.
#[derive(Clone)]
pub struct StageContext {
    /// Runs the stages.
    pub runner: StageRunner,
    /// The facts.
    pub knowledge: Knowledge,
    /// The sources that turns can ask.
    pub sources: Arc<Sources>,
    /// The rows of the sources that are tables.
    pub tables: Arc<Tables>,
    /// The documents, if there are any.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// The language models, and the prompts of the stages in prompted form.
    pub prompting: Prompting,
    /// Gives the listeners that receive responses while models write them, if there are any.
    pub read_along: Option<ReadAlong>,
    /// The trained gate, if the configuration names one.
    pub gate: Option<Arc<dyn LearnedGate>>,
    /// The language model with an adapter of the gate, if the configuration names one.
    pub need_judge: Option<NeedJudge>,
    /// The encoder that embeds dialogues, if stages have to wait for it.
    pub embed: Option<Arc<Embed>>,
    /// The encoder that embeds dialogues if there is no `embed`. It takes microseconds, so stages call
    /// it in place.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// The reader as an encoder of questions, if documents or tables are searched by its vectors.
    pub questions: Option<Arc<Embed>>,
    /// What the texts of our own responses mean for the turn after them.
    pub response_texts: Arc<ResponseTexts>,
    /// The reader of questions and sections, if the decision asks it.
    pub reader: Option<Arc<Read>>,
    /// Ranks facts by meaning, if facts have vectors.
    pub meaning: Option<FactMeaning>,
    /// The unified model, if one is configured.
    pub unified: Option<Arc<Unified>>,
    /// The trained judge of consistency, if the configuration names one.
    pub consistency: Option<Judge>,
    /// The trained weights of attention, if the configuration names some.
    pub attention: Option<Arc<Attention>>,
    /// The scorer of pairs of texts, if one is configured.
    pub score: Option<Arc<Score>>,
}
