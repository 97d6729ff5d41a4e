//! What the deciding stages share: the graph, the models, and the clock and timers of
//! the worker.

use std::sync::Arc;

use turnstream_knowledge::Knowledge;
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::form::Form;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, Listener, Score};
use turnstream_schemas::Stage;

use crate::awaited::Awaited;
use crate::call::CallShell;
use crate::consistency::Judge;
use crate::gate::learned::LearnedGate;
use crate::integration::Attention;
use crate::meaning::FactMeaning;
use crate::prompted::{Asking, LanguageModels, PromptedConfig, Prompts};
use crate::sources::Sources;
use crate::stage::{Clock, Observer, OnFailure, Shell};
use crate::tables::Tables;
use crate::timers::Timers;

/// The read-only means of the deciding stages of one worker. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    /// The facts.
    pub knowledge: Knowledge,
    /// The sources that turns can ask.
    pub sources: Arc<Sources>,
    /// The rows of those that are tables.
    pub tables: Arc<Tables>,
    /// The documents, where there are any.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// Measures the stages, where they are measured.
    pub clock: Clock,
    /// Is told of every turn in every stage.
    pub observer: Observer,
    /// Wakes stages that wait for a model.
    pub timers: Timers,
    /// The turns that somebody still waits for.
    pub awaited: Awaited,
    /// The language models, by their names in the configuration.
    pub language_models: LanguageModels,
    /// The prompts of the stages in prompted form.
    pub prompts: Prompts,
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

impl Resources {
    /// The shell of a stage with this failure policy.
    pub fn shell(&self, on_failure: OnFailure) -> Shell {
        Shell { clock: self.clock.clone(), observer: self.observer.clone(), on_failure }
    }

    /// How a stage asks its language model; nothing where it is not prompted, or there is no such
    /// model (which the configuration refuses).
    pub fn asking(
        &self,
        stage: Stage,
        form: Form,
        config: &PromptedConfig,
        on_failure: OnFailure,
    ) -> Option<Asking> {
        let model = self.language_models.get(&config.model).filter(|_| form == Form::Prompted)?;
        let shell = CallShell {
            shell: self.shell(on_failure),
            call: config.call.clone(),
            timers: self.timers.clone(),
            awaited: self.awaited.clone(),
        };
        let prompts = self.prompts.of(stage).or_else(|| Prompts::shipped(stage))?;
        Some(Asking { model: Arc::clone(model), prompts, config: config.clone(), shell })
    }
}
