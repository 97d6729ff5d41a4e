//! Measures salience: how much the concepts that a dialogue names count now. It is their
//! informativeness, weighted by how long ago and by which party they were named. Query production,
//! topic planning and the ranking of facts all use it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_knowledge::language::{Lexicon, has_han};
use turnstream_knowledge::linking::Mention;
use turnstream_knowledge::{ConceptId, View};
use turnstream_schemas::Speaker;

use crate::flow::{TurnContext, Utterance};

/// How the weight of utterances fades.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recency {
    /// Factor per utterance back from the current one; 0..=1. At 0.8, a concept's weight halves in about
    /// three utterances: one exchange and a half.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub per_utterance: f64,
    /// Factor for the system's utterances; 0..=1. Below 1 the user leads, and topics that responses
    /// brought up do not reinforce themselves.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub system: f64,
}

impl Default for Recency {
    fn default() -> Self {
        Self { per_utterance: 0.8, system: 0.5 }
    }
}

impl Recency {
    /// Returns the weight of an utterance of the dialogue, 0..=1; 1 for the current user turn.
    pub fn of(&self, dialogue: &[Utterance], utterance: usize) -> f64 {
        let Some(said) = dialogue.get(utterance) else { return 0.0 };
        let distance = dialogue.len() - 1 - utterance;
        let fade = self.per_utterance.powi(i32::try_from(distance).unwrap_or(i32::MAX));
        match said.speaker {
            Speaker::User => fade,
            Speaker::System => fade * self.system,
        }
    }
}

/// A concept that the dialogue names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named<'m> {
    /// The mention with the highest weight, the latest among equals.
    pub mention: &'m Mention,
    /// Informativeness × recency of that mention, 0..=1.
    pub weight: f64,
    /// Informativeness × the sum of recency over all mentions, 0 and above: high for concepts that are
    /// named often and recently.
    pub salience: f64,
    /// The latest utterance that names it.
    pub latest: u32,
}

impl Named<'_> {
    /// Returns the concept.
    pub fn concept(&self) -> ConceptId {
        self.mention.concept
    }
}

/// Returns the concepts that a dialogue names, each once, rising by concept.
pub fn named_concepts<'m>(
    context: &TurnContext,
    mentions: &'m [Mention],
    recency: &Recency,
) -> Vec<Named<'m>> {
    let fades: Vec<f64> =
        (0..context.dialogue.len()).map(|at| recency.of(&context.dialogue, at)).collect();
    let mut named = BTreeMap::<ConceptId, Named<'m>>::new();
    for mention in mentions {
        let fade = fades.get(mention.utterance as usize).copied().unwrap_or_default();
        let weight = f64::from(mention.informativeness) * fade;
        named
            .entry(mention.concept)
            .and_modify(|known| {
                known.salience += weight;
                known.latest = known.latest.max(mention.utterance);
                if weight >= known.weight {
                    (known.weight, known.mention) = (weight, mention);
                }
            })
            .or_insert(Named { mention, weight, salience: weight, latest: mention.utterance });
    }
    named.into_values().collect()
}

/// Returns the strength of a fact by its weight: 1 − 2^(−weight), 0..1. One ordinary assertion of
/// ConceptNet (weight 1) gives one half, and each further one halves the distance to 1.
pub fn strength(weight: f32) -> f64 {
    1.0 - (-f64::from(weight.max(0.0))).exp2()
}

/// Returns how well a graph knows a concept, 0..1: degree / (degree + 2). A concept with a single
/// fact is mostly a phrase that somebody wrote once, and leads nowhere.
pub fn familiarity(graph: View<'_>, concept: ConceptId) -> f64 {
    let degree = f64::from(graph.degree(concept));
    degree / (degree + 2.0)
}

/// Returns how many words a concept has, in its language.
pub fn word_count(concept: &str) -> u32 {
    Lexicon::of_text(concept).word_count(concept)
}

/// Returns the lemmas of a concept's content words, in its language. English concepts are
/// normalised texts and need no segmentation.
pub fn content_lemmas(concept: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let lexicon = Lexicon::of_text(concept);
    let chinese = has_han(concept);
    let cut = chinese.then(|| lexicon.words(concept)).into_iter().flatten();
    let cut = cut.filter(|word| !word.function_word).map(|word| word.lemma);
    let spaced = if chinese { "" } else { concept }.split([' ', '-']);
    let lemmas = spaced.filter(|word| !word.is_empty()).map(|word| (word, lexicon.lemma(word)));
    let content = move |(word, lemma): &(&str, Cow<'_, str>)| {
        !lexicon.is_function_word(word) && !lexicon.is_function_word(lemma)
    };
    lemmas.filter(content).map(|(_, lemma)| lemma).chain(cut)
}

/// Maps a sum, 0 and above, to a weight in 0..1.
pub fn saturate(sum: f64) -> f64 {
    1.0 - (-sum).exp()
}

/// Every lemma of the dialogue and every concept that it names: everything *in H*.
pub struct Said {
    lemmas: FxHashSet<String>,
    concepts: FxHashSet<ConceptId>,
}

impl Said {
    /// Reads the dialogue.
    pub fn read(context: &TurnContext, mentions: &[Mention]) -> Self {
        let lemmas = context.utterances().flat_map(|(lexicon, text)| {
            lexicon.word_iter(text).map(|word| word.lemma.into_owned())
        });
        Self {
            lemmas: lemmas.collect(),
            concepts: mentions.iter().map(|mention| mention.concept).collect(),
        }
    }

    /// Whether the dialogue names the concept.
    pub fn names(&self, concept: ConceptId) -> bool {
        self.concepts.contains(&concept)
    }

    /// Returns the share of a concept's content lemmas that the dialogue holds, 0..=1; 1 if the
    /// concept has no content lemma, because it then adds nothing.
    pub fn share(&self, concept: &str) -> f64 {
        let (mut content, mut held) = (0_u32, 0_u32);
        for lemma in content_lemmas(concept) {
            content += 1;
            held += u32::from(self.lemmas.contains(lemma.as_ref()));
        }
        if content == 0 { 1.0 } else { f64::from(held) / f64::from(content) }
    }
}

/// Lists words as English does: "tea", "tea and milk", "tea, milk and sugar".
pub fn enumerate(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}
