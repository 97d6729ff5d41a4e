//! The wire format: requests for text in OpenAI's interface, and the fields of their answers.
//! Unknown fields of answers are ignored.

use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use turnstream_ports::model::{GenerateRequest, Listener};
use turnstream_schemas::{Confidence, ConfidenceKind};

use super::config::{Api, RemoteConfig, SchemaBy};
use super::failure::Failure;
use super::fields::{Field, Fields};
use super::server::{Body, Server};

/// A message of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) role: &'static str,
    pub(super) content: String,
}

/// Tells the model about the schema, for servers that cannot enforce it or whose models need words
/// too.
pub(super) fn schema_instruction(schema: &str) -> String {
    format!(
        "Answer with one JSON value and nothing else: no explanation, no code fence. It must \
         follow this JSON Schema:\n{schema}"
    )
}

/// A request for text: the messages and the form of the answer.
pub(super) struct Asked<'a> {
    pub(super) request: &'a GenerateRequest,
    pub(super) messages: &'a [Message],
    /// The schema, and how the server learns it.
    pub(super) schema: Option<(&'a Value, SchemaBy)>,
    /// Fields that the server refused.
    pub(super) without: Fields,
    pub(super) streamed: bool,
}

impl Asked<'_> {
    /// Optional fields of this request, which a server may refuse.
    pub(super) fn optional(&self, config: &RemoteConfig) -> Fields {
        let mut fields = Fields::default();
        for field in [Field::Seed, Field::Temperature, Field::MaxTokens] {
            fields.set(field);
        }
        if self.streamed {
            fields.set(Field::StreamOptions);
        }
        if config.log_probabilities {
            fields.set(Field::LogProbabilities);
        }
        match self.schema {
            Some((_, SchemaBy::Auto | SchemaBy::JsonSchema)) => fields.set(Field::JsonSchema),
            Some((_, SchemaBy::JsonObject)) => fields.set(Field::JsonObject),
            Some((_, SchemaBy::Prompt)) | None => {}
        }
        fields.except(self.without)
    }

    /// Builds the request's body.
    pub(super) fn body(&self, config: &RemoteConfig) -> Value {
        let Self { request, without, .. } = self;
        let mut body = json!({ "model": config.model });
        match config.api {
            Api::Completions => body["prompt"] = transcript(self.messages).into(),
            Api::Chat | Api::Embeddings => {
                let said =
                    |message: &Message| json!({ "role": message.role, "content": message.content });
                body["messages"] = self.messages.iter().map(said).collect();
            }
        }
        let most = match without.has(Field::MaxTokens) {
            false => "max_tokens",
            true => "max_completion_tokens",
        };
        body[most] = request.max_tokens.into();
        if !without.has(Field::Temperature) {
            // The shortest digits: 0.7, not 0.699999988.
            let digits = request.temperature.to_string();
            body["temperature"] = digits.parse::<f64>().unwrap_or(0.0).into();
        }
        if !without.has(Field::Seed) {
            // The largest seed that every server takes has 31 bits.
            body["seed"] = (request.seed % (1 << 31)).into();
        }
        if config.log_probabilities && !without.has(Field::LogProbabilities) {
            match config.api {
                Api::Completions => body["logprobs"] = 1.into(),
                Api::Chat | Api::Embeddings => {
                    body["logprobs"] = true.into();
                    // llama.cpp returns no log-probabilities for 0.
                    body["top_logprobs"] = 1.into();
                }
            }
        }
        if self.streamed {
            body["stream"] = true.into();
            if !without.has(Field::StreamOptions) {
                body["stream_options"] = json!({ "include_usage": true });
            }
        }
        match self.schema {
            Some((schema, SchemaBy::Auto | SchemaBy::JsonSchema)) => {
                let name = request.stage.name();
                body["response_format"] = json!({
                    "type": "json_schema",
                    "json_schema": { "name": name, "strict": true, "schema": schema },
                });
                if config.api == Api::Completions {
                    // For completions, llama.cpp reads the schema here, not in `response_format`.
                    body["json_schema"] = schema.clone();
                }
            }
            Some((_, SchemaBy::JsonObject)) => {
                body["response_format"] = json!({ "type": "json_object" });
            }
            Some((_, SchemaBy::Prompt)) | None => {}
        }
        body
    }
}

/// Joins messages into one text, for models without a chat template to continue.
fn transcript(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages.iter().filter(|message| !message.content.is_empty()) {
        text.push_str(&message.content);
        text.push_str("\n\n");
    }
    text
}

/// A whole answer, or a piece of a streamed answer.
#[derive(Debug, Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: Option<Said>,
    delta: Option<Said>,
    text: Option<String>,
    finish_reason: Option<String>,
    logprobs: Option<LogProbabilities>,
}

#[derive(Debug, Deserialize)]
struct Said {
    content: Option<String>,
    refusal: Option<String>,
}

/// The formats of the chat interface and of the older completions interface.
#[derive(Debug, Deserialize)]
struct LogProbabilities {
    content: Option<Vec<Token>>,
    token_logprobs: Option<Vec<Option<f64>>>,
}

#[derive(Debug, Deserialize)]
struct Token {
    logprob: Option<f64>,
}

/// The server's token counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    prompt_tokens_details: Option<PromptTokens>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
struct PromptTokens {
    cached_tokens: Option<u64>,
}

impl Usage {
    /// Tokens of the prompt in the server's cache.
    pub(super) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

/// A text that a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) text: String,
    refusal: String,
    /// Why the text ended, if it did.
    pub(super) finish: Option<String>,
    lowest: Option<f64>,
    pub(super) usage: Usage,
}

impl Written {
    /// Reads an answer, and tells `listener` its text as it arrives.
    pub(super) async fn read(body: Body<'_>, listener: Option<&Listener>) -> Result<Self, Failure> {
        let (mut written, server) = (Self::default(), body.server());
        if body.is_events() {
            let mut events = Box::pin(body.events());
            let mut done = false;
            while let Some(data) = events.next().await {
                let data = data?;
                if data.trim() == "[DONE]" {
                    done = true;
                    break;
                }
                written.add(data.as_bytes(), listener, server)?;
            }
            if !done && written.finish.is_none() {
                return Err(Failure::Cut("the stream ended before the answer did".to_owned()));
            }
        } else {
            written.add(&body.whole().await?, listener, server)?;
        }
        if !written.refusal.is_empty() {
            return Err(Failure::NoText(format!(
                "the model refuses: {}",
                server.excerpt(&written.refusal)
            )));
        }
        if written.text.is_empty() {
            let why = written.finish.as_deref().unwrap_or("no reason given");
            return Err(Failure::NoText(format!(
                "the model wrote nothing ({why}); a model that thinks first may need more \
                 max_tokens"
            )));
        }
        Ok(written)
    }

    fn add(
        &mut self,
        json: &[u8],
        listener: Option<&Listener>,
        server: &Server,
    ) -> Result<(), Failure> {
        let completion: Completion = serde_json::from_slice(json)
            .map_err(|error| server.malformed("not an answer of a model", &error, json))?;
        if let Some(error) = completion.error {
            let said = error.get("message").and_then(Value::as_str).map(str::to_owned);
            let said = said.unwrap_or_else(|| error.to_string());
            return Err(Failure::Cut(server.excerpt(&said)));
        }
        self.usage = completion.usage.unwrap_or(self.usage);
        // The request asked for one choice.
        let Some(choice) = completion.choices.into_iter().next() else { return Ok(()) };
        let (content, refusal) = choice
            .message
            .or(choice.delta)
            .map_or((choice.text, None), |said| (said.content, said.refusal));
        let content = content.unwrap_or_default();
        self.text.push_str(&content);
        if let Some(Listener(tell)) = listener.filter(|_| !content.is_empty()) {
            tell(&self.text);
        }
        self.refusal.push_str(&refusal.unwrap_or_default());
        self.finish = choice.finish_reason.or(self.finish.take());
        let chat = choice.logprobs.as_ref().and_then(|all| all.content.as_ref());
        let older = choice.logprobs.as_ref().and_then(|all| all.token_logprobs.as_ref());
        let chat = chat.into_iter().flatten().filter_map(|token| token.logprob);
        let older = older.into_iter().flatten().filter_map(|logprob| *logprob);
        self.lowest = chat.chain(older).chain(self.lowest).min_by(f64::total_cmp);
        Ok(())
    }

    /// The model's confidence, if the server gave log-probabilities.
    pub(super) fn confidence(&self) -> Option<Confidence> {
        let kind = ConfidenceKind::LowestLogProbability;
        self.lowest.map(|value| Confidence { kind, value })
    }
}
