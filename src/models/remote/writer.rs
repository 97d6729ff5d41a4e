//! Generates texts through a server: builds the request, drops fields that the server refuses, and
//! asks again if an answer does not follow its schema.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use turnstream_ports::model::{CallError, GenerateRequest, Generated};
use turnstream_schemas::ModelUsed;

use super::config::{SchemaBy, Streaming};
use super::failure::Failure;
use super::fields::{Field, Fields};
use super::fit::{Schema, repair, shown};
use super::queue::Work;
use super::server::{Body, Server};
use super::wire::{Asked, Message, Written, schema_instruction};

/// The most compiled schemas kept. The stages use about ten.
const SCHEMAS: usize = 64;

/// Generates texts through a server.
pub(super) struct Writer {
    name: String,
    server: Server,
    /// Fields that the server refused.
    without: Cell<Fields>,
    schemas: RefCell<FxHashMap<Arc<str>, Rc<Known>>>,
}

/// A compiled schema, and how the server learns it, as far as known.
struct Known {
    schema: Schema,
    by: Cell<SchemaBy>,
    /// Whether an answer showed that the server does not enforce the schema.
    is_ignored: Cell<bool>,
}

impl Work<GenerateRequest, Generated> for Writer {
    async fn work(&self, request: &GenerateRequest) -> Result<Generated, CallError> {
        let written = self.write(request).await;
        written.map_err(|failure| self.server.error(&failure))
    }
}

impl Writer {
    pub(super) fn new(name: String, server: Server) -> Self {
        let (without, schemas) = (Cell::default(), RefCell::default());
        Self { name, server, without, schemas }
    }

    async fn write(&self, request: &GenerateRequest) -> Result<Generated, Failure> {
        let mut messages = vec![
            Message { role: "system", content: request.system.clone() },
            Message { role: "user", content: request.prompt.clone() },
        ];
        messages.retain(|message| !message.content.is_empty());
        let Some(schema) = &request.schema else {
            let written = self.ask(request, &messages, None).await?;
            return Ok(self.generated(written.text.clone(), &written));
        };
        let known = self.known(schema).inspect_err(|failure| {
            self.server.metrics.fault(failure.fault()).inc();
        })?;
        let short = |text: &str| self.server.excerpt(text);
        let first = self.ask(request, &messages, Some((schema, &known))).await?;
        let wrong = match known.schema.check(&first.text, short) {
            Ok(json) => return Ok(self.generated(json.to_owned(), &first)),
            Err(wrong) => wrong,
        };
        self.server.metrics.repairs.inc();
        tracing::debug!(model = self.name, stage = %request.stage, wrong, "asking to repair");
        let cut_short = first.finish.as_deref() == Some("length");
        if !cut_short {
            // From now on, the prompt states the schema as well.
            known.is_ignored.set(true);
        }
        messages.push(Message { role: "assistant", content: shown(&first.text) });
        messages.push(Message { role: "user", content: repair(&wrong, cut_short) });
        let second = self.ask(request, &messages, Some((schema, &known))).await?;
        match known.schema.check(&second.text, short) {
            Ok(json) => Ok(self.generated(json.to_owned(), &second)),
            Err(wrong) => {
                let failure = Failure::Unfit { wrong, said: self.server.excerpt(&second.text) };
                self.server.metrics.fault(failure.fault()).inc();
                Err(failure)
            }
        }
    }

    /// Sends a request, and repeats it without optional fields that the server refuses.
    async fn ask(
        &self,
        request: &GenerateRequest,
        messages: &[Message],
        schema: Option<(&Arc<str>, &Rc<Known>)>,
    ) -> Result<Written, Failure> {
        let config = &self.server.config;
        let mut without = self.without.get();
        let mut by = schema.map_or(SchemaBy::Prompt, |(_, known)| known.by.get());
        loop {
            let in_words = matches!(by, SchemaBy::JsonObject | SchemaBy::Prompt);
            let told = schema.filter(|(_, known)| in_words || known.is_ignored.get());
            let messages = told.map_or_else(
                || messages.to_vec(),
                |(schema, _)| with_instruction(messages, &schema_instruction(schema)),
            );
            let asked = Asked {
                request,
                messages: &messages,
                schema: schema.map(|(_, known)| (&known.schema.value, by)),
                without,
                streamed: match config.stream {
                    Streaming::Always => true,
                    Streaming::Listened => request.listener.is_some(),
                    Streaming::Never => false,
                },
            };
            let listener = request.listener.as_ref();
            let read = async |body: Body<'_>| Written::read(body, listener).await;
            let failure = match self.server.post(&asked.body(config), read).await {
                Ok(written) => {
                    self.without.set(self.without.get().and(without));
                    if let Some((_, known)) = schema {
                        known.by.set(by);
                    }
                    self.count(&written);
                    return Ok(written);
                }
                Err(failure) => failure,
            };
            let Some(field) = Field::refused(&failure, asked.optional(config)) else {
                return Err(failure);
            };
            match (field, config.schema_by) {
                (Field::JsonSchema, SchemaBy::Auto) => by = SchemaBy::JsonObject,
                (Field::JsonObject, SchemaBy::Auto) => by = SchemaBy::Prompt,
                (Field::JsonSchema | Field::JsonObject, _) => return Err(failure),
                (field, _) => without.set(field),
            }
            let (field, failure) = (field.name(), self.server.describe(&failure));
            tracing::warn!(field, failure, "asking again without the refused field");
        }
    }

    /// Returns the compiled schema.
    fn known(&self, text: &Arc<str>) -> Result<Rc<Known>, Failure> {
        if let Some(known) = self.schemas.borrow().get(text) {
            return Ok(Rc::clone(known));
        }
        let schema = Schema::read(text).map_err(Failure::Schema)?;
        let by = Cell::new(self.server.config.schema_by);
        let known = Rc::new(Known { schema, by, is_ignored: Cell::new(false) });
        let mut schemas = self.schemas.borrow_mut();
        if schemas.len() >= SCHEMAS {
            schemas.clear();
        }
        schemas.insert(Arc::clone(text), Rc::clone(&known));
        Ok(known)
    }

    fn count(&self, written: &Written) {
        let metrics = &self.server.metrics;
        metrics.prompt_tokens.inc_by(written.usage.prompt_tokens);
        metrics.cached_tokens.inc_by(written.usage.cached_tokens());
        metrics.completion_tokens.inc_by(written.usage.completion_tokens);
    }

    fn generated(&self, text: String, written: &Written) -> Generated {
        let model = ModelUsed { name: self.name.clone(), prompt_hash: None };
        Generated { text, confidence: written.confidence(), model }
    }
}

/// Appends an instruction to the first message.
fn with_instruction(messages: &[Message], instruction: &str) -> Vec<Message> {
    let mut messages = messages.to_vec();
    match messages.first_mut() {
        Some(first) if first.role == "system" => {
            first.content.push_str("\n\n");
            first.content.push_str(instruction);
        }
        _ => {
            let content = instruction.to_owned();
            messages.insert(0, Message { role: "system", content });
        }
    }
    messages
}
