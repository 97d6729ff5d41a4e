//! Lays out a question in the tokens that the model was trained on;
//! `deploy/training/unified/stream.py` does the same.
//!
//! ```text
//! <s> ([USER] utterance [RESPONSE] text </s>)* [USER] utterance          the dialogue
//! [PLAN] [SOURCE]… [EOS]                                                 its plan
//! [EVIDENCE] [SOURCE] text [EOE] [RELEVANCE_0.7]                         each piece of evidence
//! [RESPONSE] wording </s>
//! ```
//!
//! In a wording, values of the evidence are references, `[VALUE] price [EOV]`: the model names the
//! column, and the value replaces the reference. The words of users and documents never become
//! control tokens.

use std::collections::BTreeSet;

use turnstream_ports::model::unified::{EvidenceText, Exchange, Said};
use turnstream_schemas::{Column, SourceKind};

use crate::decoder::vocabulary::{DecoderVocabulary, Prompt};

/// The most tokens of earlier exchanges, the latest whole ones that fit: windows of the training
/// begin with fewer and end with more.
const HISTORY: usize = 192;

/// The control tokens of a vocabulary.
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
    /// Relevance from 0.0 to 1.0.
    pub(super) relevance: [u32; 11],
    sources: [(SourceKind, u32); 5],
    pub(super) value: u32,
    pub(super) value_end: u32,
    all: Vec<u32>,
}

impl Control {
    /// Finds the control tokens of a vocabulary.
    ///
    /// # Errors
    /// A token is missing, so the vocabulary belongs to another model.
    pub(super) fn find(vocabulary: &DecoderVocabulary) -> Result<Self, String> {
        let token = |name: &str| {
            vocabulary.control_token(name).ok_or_else(|| {
                format!("it has no token {name}; `deploy/training/train` did not make it")
            })
        };
        let mut relevance = [0; 11];
        for (tenth, at) in relevance.iter_mut().enumerate() {
            *at = token(&format!("[RELEVANCE_{:.1}]", tenth as f64 / 10.0))?;
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
            value: token("[VALUE]")?,
            value_end: token("[EOV]")?,
            all: vocabulary.control_tokens(),
        })
    }

    /// The token that stands for a kind of source.
    pub(super) fn source(&self, kind: SourceKind) -> u32 {
        self.sources.iter().find(|(of, _)| *of == kind).map_or(self.null, |(_, token)| *token)
    }

    pub(super) fn is_control(&self, token: u32) -> bool {
        self.all.binary_search(&token).is_ok()
    }
}

/// The values that a response can refer to, by name: those of the most relevant evidence with that
/// name. Of all rows, only the most relevant one counts. The k-th use of a name refers to its k-th
/// value, and later uses to the last value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct References(Vec<Named>);

#[derive(Clone, Debug, PartialEq)]
struct Named {
    name: String,
    tokens: Vec<u32>,
    values: Vec<String>,
}

impl References {
    /// Collects the references of evidence, each with its relevance in tenths.
    pub(super) fn of(evidence: &[(EvidenceText, u8)], vocabulary: &DecoderVocabulary) -> Self {
        let mut order: Vec<&(EvidenceText, u8)> = evidence.iter().collect();
        order.sort_by_key(|(_, tenths)| std::cmp::Reverse(*tenths));
        let (mut all, mut has_row) = (Vec::<Named>::new(), false);
        for (piece, _) in order {
            if piece.kind == SourceKind::Table && std::mem::replace(&mut has_row, true) {
                continue;
            }
            let known = all.len();
            for Column { name, value } in &piece.columns {
                // Truth values are worded, not referred to.
                if name.is_empty() || value.is_empty() || matches!(value.as_str(), "yes" | "no") {
                    continue;
                }
                match all.iter().position(|named| named.name == *name) {
                    Some(at) if at >= known => all[at].values.push(value.clone()),
                    Some(_) => {}
                    None => all.push(Named {
                        name: name.clone(),
                        tokens: spelt(&format!(" {name}"), vocabulary),
                        values: vec![value.clone()],
                    }),
                }
            }
        }
        Self(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tokens that may continue a name after `begun`, ascending.
    pub(super) fn following(&self, begun: &[u32], control: &Control) -> Vec<u32> {
        let rest = self.0.iter().filter_map(|named| named.tokens.strip_prefix(begun));
        let next = rest.map(|rest| rest.first().copied().unwrap_or(control.value_end));
        let next: BTreeSet<u32> = next.collect();
        next.into_iter().collect()
    }

    /// The value of a name that was used `uses` times before.
    fn value(&self, name: &[u32], uses: usize) -> Option<Column> {
        let named = self.0.iter().find(|named| named.tokens == name)?;
        let value = named.values.get(uses).or(named.values.last())?;
        Some(Column { name: named.name.clone(), value: value.clone() })
    }
}

/// The tokens of an unfinished name at the end of a wording, if any.
pub(super) fn open_name<'t>(tokens: &'t [u32], control: &Control) -> Option<&'t [u32]> {
    let from = tokens.iter().rposition(|token| *token == control.value)? + 1;
    (!tokens[from..].contains(&control.value_end)).then(|| &tokens[from..])
}

/// Tokenises foreign text, without control tokens.
pub(super) fn spelt(text: &str, vocabulary: &DecoderVocabulary) -> Vec<u32> {
    if text.is_empty() {
        return Vec::new();
    }
    let whole = 0..text.len();
    let prompt = Prompt { text: text.to_owned(), foreign: vec![whole], adds_special: false };
    vocabulary.encode(&prompt).unwrap_or_default()
}

/// Lays out the dialogue: the latest whole exchanges that fit, and the current utterance.
pub(super) fn dialogue(
    exchanges: &[Exchange],
    vocabulary: &DecoderVocabulary,
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

/// Lays out a piece of evidence, up to the relevance token.
pub(super) fn evidence(
    piece: &EvidenceText,
    vocabulary: &DecoderVocabulary,
    control: &Control,
) -> Vec<u32> {
    let mut tokens = vec![control.evidence, control.source(piece.kind)];
    tokens.extend(spelt(&format!(" {}", piece.text), vocabulary));
    tokens.push(control.evidence_end);
    tokens
}

/// Converts a wording's tokens to words and values.
pub(super) fn said(
    tokens: &[u32],
    references: &References,
    vocabulary: &DecoderVocabulary,
    control: &Control,
) -> Vec<Said> {
    let (mut said, mut words) = (Vec::new(), Vec::new());
    let flush = |said: &mut Vec<Said>, words: &mut Vec<u8>| {
        if !words.is_empty() {
            said.push(Said::Words(String::from_utf8_lossy(words).into_owned()));
            words.clear();
        }
    };
    let mut used: Vec<&[u32]> = Vec::new();
    let mut left = tokens;
    while let Some((token, rest)) = left.split_first() {
        left = rest;
        if *token != control.value {
            words.extend_from_slice(vocabulary.bytes(*token));
            continue;
        }
        let length = rest.iter().position(|token| *token == control.value_end);
        let (name, behind) = rest.split_at(length.unwrap_or(rest.len()));
        left = behind.get(1..).unwrap_or_default();
        let uses = used.iter().filter(|known| **known == name).count();
        if let Some(value) = references.value(name, uses) {
            flush(&mut said, &mut words);
            said.push(Said::Value(value));
            used.push(name);
        }
    }
    flush(&mut said, &mut words);
    said
}
