//! What stages are made from: the graph, the sources, the models, and what runs them.

use std::sync::Arc;

use turnstream_knowledge::Knowledge;
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, Listener, Score};

use crate::attention::Attention;
use crate::judge::Judge;
use crate::meaning::FactMeaning;
use crate::prompted::Prompting;
use crate::sources::Sources;
use crate::stage::StageRunner;
use crate::tables::Tables;

/// What the stages of one worker are made from. Cheap to clone; a stage takes what it needs.
#[derive(Clone)]
pub struct StageContext {
    /// Runs them.
    pub runner: StageRunner,
    /// The facts.
    pub knowledge: Knowledge,
    /// The sources that turns can ask.
    pub sources: Arc<Sources>,
    /// The rows of those that are tables.
    pub tables: Arc<Tables>,
    /// The documents, where there are any.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// The language models, and the prompts of the stages in prompted form.
    pub prompting: Prompting,
    /// Is told of responses as they are written, where somebody reads along.
    pub listener: Option<Listener>,
    /// The trained gate, where the configuration names one.
    pub gate: Option<Arc<dyn LearnedGate>>,
    /// The sentence encoder that dialogues are embedded by, where it has to be waited for.
    pub embed: Option<Arc<Embed>>,
    /// The encoder that dialogues are embedded by where there is no `embed`: one that takes
    /// microseconds.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// What facts are ranked by in meaning, where they have vectors.
    pub meaning: Option<FactMeaning>,
    /// The unified model, where it is configured.
    pub unified: Option<Arc<Unified>>,
    /// The trained judge of consistency, where the configuration names one.
    pub consistency: Option<Judge>,
    /// Trained weights of attention, where the configuration names some.
    pub attention: Option<Arc<Attention>>,
    /// What scores pairs of texts, where it is configured.
    pub score: Option<Arc<Score>>,
}
