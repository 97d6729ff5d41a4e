//! Orders recalled entries by their attention (DH-RAG eq 6), as `integration` weighs them, and
//! collects questions to train the weights.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use turnstream_operators::attention::{Attention, Compared};
use turnstream_operators::integration::text_of_exchange;
use turnstream_ports::model::encoder::Encoder;
use turnstream_schemas::{HistoryEntry, TurnId};

use super::evidence::Measure;
use super::held::{Held, RankedEntries, utterances};
use super::material::{Conversation, Gold, Step};
use crate::attention_training::Example;

/// The number of first recalled entries that are weighed.
pub const WEIGHED: usize = 25;

/// Reorders the first recalled entries.
#[derive(Clone)]
pub struct Attending {
    /// W.
    pub attention: Attention,
    /// The encoder of the texts, besides their words.
    pub encoder: Option<Arc<dyn Encoder>>,
}

impl fmt::Debug for Attending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoder = self.encoder.as_ref().map(|encoder| encoder.name().to_owned());
        f.debug_struct("Attending").field("encoder", &encoder).finish_non_exhaustive()
    }
}

impl Attending {
    /// Sorts the first places by falling attention, keeping the order of equals; the other places
    /// follow.
    pub fn order(&self, question: &str, entries: &[&HistoryEntry], places: &mut [usize]) {
        let weighed = places.len().min(WEIGHED);
        let texts = places[..weighed].iter().map(|place| compared(entries[*place], self));
        let texts: Vec<Compared> = texts.collect();
        let question = Compared::by(question, self.encoder.as_deref());
        let logits = self.attention.logits(&question, &texts);
        let mut order: Vec<(f64, usize)> =
            logits.into_iter().zip(places[..weighed].iter().copied()).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        places.iter_mut().zip(order).for_each(|(place, (_, ordered))| *place = ordered);
    }
}

fn compared(entry: &HistoryEntry, attending: &Attending) -> Compared {
    Compared::by(&text_of_exchange(entry, None), attending.encoder.as_deref())
}

/// Returns the questions of a conversation, each with its first recalled entries.
pub fn examples(
    measure: &Measure,
    attending: &Attending,
    conversation: &Conversation,
    progress: &dyn Fn(),
) -> Vec<Example> {
    let keeping = measure.keeping(conversation);
    let mut held = Held::new(&keeping);
    let mut examples = Vec::new();
    for step in &conversation.steps {
        match step {
            Step::Said(said) => held.hear(said),
            Step::Asked(question) => {
                let Gold::Evidence(named) = &question.gold else { continue };
                let gold: BTreeSet<TurnId> = named.iter().map(|id| TurnId(id.clone())).collect();
                examples.push(example(&held.ask(), &question.text, &gold, attending));
                progress();
            }
        }
    }
    examples
}

fn example(
    ranked: &RankedEntries<'_>,
    question: &str,
    gold: &BTreeSet<TurnId>,
    attending: &Attending,
) -> Example {
    let entries = ranked.entries();
    let recalled: Vec<&HistoryEntry> =
        ranked.recall(question).into_iter().take(WEIGHED).map(|place| entries[place]).collect();
    let holds = |entry: &&HistoryEntry| utterances(entry).any(|id| gold.contains(id));
    Example {
        query: Compared::by(question, attending.encoder.as_deref()),
        gold: recalled.iter().map(holds).collect(),
        texts: recalled.into_iter().map(|entry| compared(entry, attending)).collect(),
    }
}
