//! A question as the tokens that the model was trained on; `deploy/training/unified/stream.py` lays out the
//! same.
//!
//! ```text
//! <s> ([USER] utterance [RESPONSE] text </s>)* [USER] utterance          the dialogue
//! [PLAN] [SOURCE]… [EOS]                                                 its plan
//! [EVIDENCE] [SOURCE] text [EOE] [RELEVANCE_0.7]                         each piece of evidence
//! [RESPONSE] text </s>
//! ```
//!
//! Names, times and amounts in evidence are placeholders, in it and in the response: to word them is to
//! point at them. What people and documents say never becomes a control token.

use turnstream_operators::model::unified::{EvidenceText, Exchange, Said};
use turnstream_operators::sources::SourceKind;

use crate::model::decoder::vocabulary::{Prompt, Vocabulary};

/// Placeholders that there are.
const PLACEHOLDERS: usize = 32;

/// Tokens of what was said before the current utterance; the latest whole exchanges that fit. As in the
/// training.
const HISTORY: usize = 128;

/// The control tokens.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) user: u32,
    pub(super) plan: u32,
    pub(super) planned: u32,
    pub(super) null: u32,
    pub(super) evidence: u32,
    pub(super) evidence_end: u32,
    pub(super) response: u32,
    /// From 0.0 to 1.0.
    pub(super) relevance: [u32; 11],
    sources: [(SourceKind, u32); 5],
    values: [u32; PLACEHOLDERS],
    all: Vec<u32>,
}

impl Control {
    /// Those of a vocabulary.
    ///
    /// # Errors
    /// One is not there: it is another model's.
    pub(super) fn find(vocabulary: &Vocabulary) -> Result<Self, String> {
        let token = |name: &str| {
            vocabulary.control_token(name).ok_or_else(|| {
                format!("it has no token {name}; it is no model of `deploy/training/train`")
            })
        };
        let mut relevance = [0; 11];
        for (tenth, at) in relevance.iter_mut().enumerate() {
            *at = token(&format!("[RELEVANCE_{:.1}]", tenth as f64 / 10.0))?;
        }
        let mut values = [0; PLACEHOLDERS];
        for (at, value) in values.iter_mut().enumerate() {
            *value = token(&format!("[VALUE_{at}]"))?;
        }
        let source = |kind: SourceKind| {
            Ok::<_, String>((kind, token(&format!("[{}]", kind.name().to_uppercase()))?))
        };
        Ok(Self {
            start: token("<s>")?,
            end: token("</s>")?,
            user: token("[USER]")?,
            plan: token("[PLAN]")?,
            planned: token("[EOS]")?,
            null: token("[NULL]")?,
            evidence: token("[EVIDENCE]")?,
            evidence_end: token("[EOE]")?,
            response: token("[RESPONSE]")?,
            relevance,
            sources: [
                source(SourceKind::Graph)?,
                source(SourceKind::Table)?,
                source(SourceKind::UserPersona)?,
                source(SourceKind::BotPersona)?,
                source(SourceKind::Documents)?,
            ],
            values,
            all: vocabulary.control_tokens(),
        })
    }

    /// The acting token of a kind of source.
    pub(super) fn source(&self, kind: SourceKind) -> u32 {
        self.sources.iter().find(|(of, _)| *of == kind).map_or(self.null, |(_, token)| *token)
    }

    /// Whether it is one of the control tokens.
    pub(super) fn is_control(&self, token: u32) -> bool {
        self.all.binary_search(&token).is_ok()
    }
}

/// Whether a value is pointed at: names, times and amounts are; `yes`, `2` and `cheap` are spelt.
fn is_named(value: &str) -> bool {
    let marked = |c: char| c.is_uppercase() || c.is_numeric() || c == ' ';
    value.chars().count() > 1 && value.chars().any(marked)
}

/// Which placeholder stands for which value.
#[derive(Clone, Debug, Default)]
pub(super) struct Placeholders {
    values: Vec<String>,
}

impl Placeholders {
    /// Gives the values that are named placeholders, while there are any.
    pub(super) fn see(&mut self, values: &[String]) {
        for value in values.iter().filter(|value| is_named(value)) {
            let is_known = self.values.iter().any(|known| known.eq_ignore_ascii_case(value));
            if !is_known && self.values.len() < PLACEHOLDERS {
                self.values.push(value.clone());
            }
        }
    }

    /// The value that a token stands for.
    pub(super) fn value(&self, token: u32, control: &Control) -> Option<&str> {
        let at = control.values.iter().position(|value| *value == token)?;
        self.values.get(at).map(String::as_str)
    }

    /// The longest value that stands at the beginning of `text`, as whole words, and its place.
    fn at(&self, text: &str) -> Option<(usize, usize)> {
        let stands = |value: &&String| {
            text.get(..value.len()).is_some_and(|start| start.eq_ignore_ascii_case(value))
                && !text[value.len()..].starts_with(is_word)
        };
        let longest = self.values.iter().filter(stands).map(String::len).max()?;
        let place =
            self.values.iter().position(|value| value.len() == longest && stands(&value))?;
        Some((place, longest))
    }

    /// The tokens of a text, with the values that are known as placeholders; each stands for the space
    /// before it too.
    pub(super) fn encode(
        &self,
        text: &str,
        vocabulary: &Vocabulary,
        control: &Control,
    ) -> Vec<u32> {
        let text = format!(" {text}");
        let (mut tokens, mut from, mut at) = (Vec::new(), 0, 0);
        let mut before = None;
        while let Some(letter) = text[at..].chars().next() {
            let space = usize::from(letter == ' ');
            let begins = space == 1 || !before.is_some_and(is_word);
            if begins && let Some((place, length)) = self.at(&text[at + space..]) {
                tokens.extend(spelt(&text[from..at], vocabulary));
                tokens.push(control.values[place]);
                at += space + length;
                from = at;
                before = text[..at].chars().next_back();
                continue;
            }
            before = Some(letter);
            at += letter.len_utf8();
        }
        tokens.extend(spelt(&text[from..], vocabulary));
        tokens
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The tokens of what others say: none is a control token.
fn spelt(text: &str, vocabulary: &Vocabulary) -> Vec<u32> {
    if text.is_empty() {
        return Vec::new();
    }
    let whole = 0..text.len();
    let prompt = Prompt { text: text.to_owned(), foreign: vec![whole], adds_special: false };
    vocabulary.encode(&prompt).unwrap_or_default()
}

/// What was said: the latest whole exchanges that there is room for, and the current utterance.
pub(super) fn dialogue(
    exchanges: &[Exchange],
    vocabulary: &Vocabulary,
    control: &Control,
) -> Vec<u32> {
    let user = |text: &str| [&[control.user], &*spelt(&format!(" {text}"), vocabulary)].concat();
    let Some((current, before)) = exchanges.split_last() else { return vec![control.start] };
    let mut kept: Vec<Vec<u32>> = Vec::new();
    let mut room = HISTORY;
    for exchange in before.iter().rev() {
        let response = exchange.response.as_deref().unwrap_or_default();
        let mut tokens = user(&exchange.user);
        tokens.push(control.response);
        tokens.extend(spelt(&format!(" {response}"), vocabulary));
        tokens.push(control.end);
        let Some(left) = room.checked_sub(tokens.len()) else { break };
        room = left;
        kept.push(tokens);
    }
    kept.push(vec![control.start]);
    kept.reverse();
    kept.push(user(&current.user));
    kept.concat()
}

/// A piece of evidence up to where its relevance stands.
pub(super) fn evidence(
    piece: &EvidenceText,
    placeholders: &Placeholders,
    vocabulary: &Vocabulary,
    control: &Control,
) -> Vec<u32> {
    let mut tokens = vec![control.evidence, control.source(piece.kind)];
    tokens.extend(placeholders.encode(&piece.text, vocabulary, control));
    tokens.push(control.evidence_end);
    tokens
}

/// The words and values of a response's tokens.
pub(super) fn said(
    tokens: &[u32],
    placeholders: &Placeholders,
    vocabulary: &Vocabulary,
    control: &Control,
) -> Vec<Said> {
    let (mut said, mut words) = (Vec::new(), Vec::new());
    let flush = |said: &mut Vec<Said>, words: &mut Vec<u8>| {
        if !words.is_empty() {
            said.push(Said::Words(String::from_utf8_lossy(words).into_owned()));
            words.clear();
        }
    };
    for token in tokens {
        match placeholders.value(*token, control) {
            Some(value) => {
                flush(&mut said, &mut words);
                said.push(Said::Value(value.to_owned()));
            }
            None => words.extend_from_slice(vocabulary.bytes(*token)),
        }
    }
    flush(&mut said, &mut words);
    said
}
