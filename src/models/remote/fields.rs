//! What a server need not know of OpenAI's interface: fields of a request that are left out once
//! it has refused them.
//!
//! A server says no with a status and some words. Where the words name a field that can do without,
//! the request is made again without it; only if that goes well is it taken for known. So a text
//! that happens to hold such a word costs one request and changes nothing.

use reqwest::StatusCode;

use super::failure::Failure;

/// A field that can be left out, or be replaced by something that says the same less well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// `response_format` with a schema; `json_object` without.
    JsonSchema,
    /// `response_format` altogether; the prompt says it.
    JsonObject,
    /// `logprobs`; no confidence without.
    LogProbabilities,
    /// `seed`; the same request may give another text without.
    Seed,
    /// `stream_options`; tokens are not counted without.
    StreamOptions,
    /// `max_tokens`, which newer models call `max_completion_tokens`.
    MaxTokens,
    /// `temperature`, which models that think first have fixed.
    Temperature,
}

impl Field {
    /// In the order in which they are looked for: `stream_options` before what it could hold.
    const ALL: [Self; 7] = [
        Self::JsonSchema,
        Self::JsonObject,
        Self::LogProbabilities,
        Self::StreamOptions,
        Self::MaxTokens,
        Self::Temperature,
        Self::Seed,
    ];

    /// Words by which servers name it.
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

    /// Its name in messages.
    pub(super) fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Which of these fields a failure is about, if any.
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

    /// These and others.
    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without others.
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
        // As OpenAI, llama.cpp, vLLM and text-generation-inference put it.
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
