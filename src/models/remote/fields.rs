//! Optional fields of OpenAI's interface, which are left out after a server refuses them.
//!
//! A server refuses a request with a status and a text. If the text names an optional field, the
//! request is repeated without the field; only if that succeeds is the field left out from then on.
//! A text that merely contains such a word therefore costs one request and changes nothing.

use reqwest::StatusCode;

use super::failure::Failure;

/// A field that can be left out or replaced by a weaker one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// `response_format` with a schema; replaced by `json_object`.
    JsonSchema,
    /// `response_format`; replaced by words in the prompt.
    JsonObject,
    /// `logprobs`; without it, answers have no confidence.
    LogProbabilities,
    /// `seed`; without it, the same request may give different texts.
    Seed,
    /// `stream_options`; without it, streamed tokens are not counted.
    StreamOptions,
    /// `max_tokens`, which newer models call `max_completion_tokens`.
    MaxTokens,
    /// `temperature`, which reasoning models fix.
    Temperature,
}

impl Field {
    /// In search order: `stream_options` comes before fields whose names it contains.
    const ALL: [Self; 7] = [
        Self::JsonSchema,
        Self::JsonObject,
        Self::LogProbabilities,
        Self::StreamOptions,
        Self::MaxTokens,
        Self::Temperature,
        Self::Seed,
    ];

    /// Words by which servers name the field.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::JsonSchema => {
                &["response_format", "json_schema", "json schema", "grammar", "guided"]
            }
            Self::JsonObject => &["response_format", "json_object"],
            Self::LogProbabilities => &["logprobs"],
            Self::Seed => &["seed"],
            Self::StreamOptions => &["stream_options", "include_usage"],
            Self::MaxTokens => &["max_tokens"],
            Self::Temperature => &["temperature"],
        }
    }

    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        self.words()[0]
    }

    /// The field that a failure is about, if any.
    pub(super) fn refused(failure: &Failure, asked: Fields) -> Option<Self> {
        let Failure::Status { status, said, field, .. } = failure else { return None };
        let refusing = [
            StatusCode::BAD_REQUEST,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::NOT_IMPLEMENTED,
        ];
        if !refusing.contains(status) {
            return None;
        }
        let named = field.as_deref().unwrap_or(said).to_ascii_lowercase();
        let is_named = |it: &Self| it.words().iter().any(|word| named.contains(word));
        Self::ALL.into_iter().find(|it| asked.has(*it) && is_named(it))
    }
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(u8);

impl Fields {
    pub(super) fn has(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    pub(super) fn set(&mut self, field: Field) {
        self.0 |= 1 << field as u8;
    }

    /// Set union.
    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Set difference.
    pub(super) fn except(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn refused(status: u16, body: &str, asked: &[Field]) -> Option<Field> {
        let status = StatusCode::from_u16(status).unwrap();
        let failure = Failure::status(status, &HeaderMap::new(), body.as_bytes(), None);
        let mut fields = Fields::default();
        asked.iter().for_each(|field| fields.set(*field));
        Field::refused(&failure, fields)
    }

    #[test]
    fn a_refused_field_is_told_by_the_servers_own_words() {
        // Messages of OpenAI, llama.cpp, vLLM and text-generation-inference.
        for (status, body, field) in [
            (
                400,
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens'","param":"max_tokens"}}"#,
                Field::MaxTokens,
            ),
            (
                400,
                r#"{"error":{"message":"Invalid schema: 'temperature' is missing","param":"response_format"}}"#,
                Field::JsonSchema,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"JSON schema error at #/x: unrecognized type"}}"#,
                Field::JsonSchema,
            ),
            (
                422,
                r#"{"detail":"body.stream_options: Extra inputs are not permitted"}"#,
                Field::StreamOptions,
            ),
            (501, "logprobs is not supported with tools + stream", Field::LogProbabilities),
        ] {
            assert_eq!(refused(status, body, &Field::ALL), Some(field), "{body}");
        }
        assert_eq!(refused(400, "seed", &[Field::Temperature]), None, "it was not asked for");
        assert_eq!(refused(400, "prompt too long", &Field::ALL), None);
        assert_eq!(refused(500, "seed", &Field::ALL), None);
        assert_eq!(refused(400, "response_format", &[Field::JsonObject]), Some(Field::JsonObject));
    }
}
