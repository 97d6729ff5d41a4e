//! Measures how much of one encoder's ranking of facts another encoder keeps: the share of the
//! reference's first facts among the first facts of the other. A fact that a fast first stage drops
//! cannot be recovered by a second stage.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use turnstream_knowledge::{FactVectors, QueryVector};
use turnstream_operators::dialogue_vector::embed;
use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::flow::{TurnContext, Utterance};
use turnstream_ports::model::encoder::Encoder;
use turnstream_schemas::{
    ConversationId, EventTime, Fault, InputId, RequestId, Scope, Speaker, Turn,
};

/// The number of the reference's first facts.
pub const TOP: usize = 50;
/// The numbers of the other's first facts.
pub const DEPTHS: [usize; 2] = [100, 200];

/// Selects `most` user turns spread evenly over a log, each with the utterances before it, as the
/// engine sees them.
pub fn contexts(turns: impl IntoIterator<Item = Turn>, most: usize) -> Vec<TurnContext> {
    let mut said: HashMap<ConversationId, Vec<Utterance>> = HashMap::new();
    let mut contexts = Vec::new();
    for (at, turn) in turns.into_iter().enumerate() {
        let dialogue = said.entry(turn.conversation_id.clone()).or_default();
        let turn_id = turn.turn_id.clone().unwrap_or_else(|| at.to_string().as_str().into());
        let (speaker, text) = (turn.speaker, Arc::from(turn.text.as_str()));
        dialogue.push(Utterance { turn_id: turn_id.clone(), speaker, text });
        if speaker != Speaker::User {
            continue;
        }
        let offset = at as i64;
        contexts.push(TurnContext {
            request: RequestId { partition: 0, generation: 1, offset },
            input: InputId { topic: "log".to_owned(), partition: 0, offset },
            scope: Scope::new(None, turn.conversation_id.as_str()),
            turn,
            turn_id,
            event_time: EventTime(offset),
            dialogue: dialogue.clone(),
            recalled: Vec::new(),
            reconstructed: None,
            chosen: None,
            recall_fault: None,
        });
    }
    let all = contexts.len();
    let kept: BTreeSet<usize> = (0..most.min(all)).map(|at| at * all / most.min(all)).collect();
    let mut at = 0;
    contexts.retain(|_| {
        at += 1;
        kept.contains(&(at - 1))
    });
    contexts
}

/// An encoder with its vectors of the facts.
pub struct Ranker<'r> {
    /// The encoder.
    pub encoder: &'r dyn Encoder,
    /// Its vectors of the facts.
    pub vectors: &'r FactVectors,
}

impl Ranker<'_> {
    /// Returns the positions of the first facts by cosine to the dialogue, ties by position; empty
    /// if the dialogue has no vector.
    fn first(
        &self,
        context: &TurnContext,
        config: &EmbeddingConfig,
        most: usize,
    ) -> Result<Vec<usize>, Fault> {
        let Some(embedded) = embed(context, self.encoder, config.latest())? else {
            return Ok(Vec::new());
        };
        let query = QueryVector::new(&embedded.dialogue);
        let facts = self.vectors.header().facts as usize;
        let cosine = |at: usize| self.vectors.at(at).map_or(-1.0, |row| query.cosine(row));
        let mut ranked: Vec<(f32, usize)> = (0..facts).map(|at| (cosine(at), at)).collect();
        let order =
            |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1));
        if most < ranked.len() {
            ranked.select_nth_unstable_by(most, order);
            ranked.truncate(most);
        }
        ranked.sort_unstable_by(order);
        Ok(ranked.into_iter().map(|(_, at)| at).collect())
    }
}

/// Returns, by depth, the share of the reference's first [`TOP`] facts that are among the other's
/// first facts, over all contexts.
///
/// # Errors
/// An encoder failed.
pub fn kept(
    contexts: &[TurnContext],
    ranker: &Ranker<'_>,
    reference: &Ranker<'_>,
    config: &EmbeddingConfig,
) -> Result<BTreeMap<usize, f64>, Fault> {
    let deepest = DEPTHS.into_iter().max().unwrap_or(TOP);
    let (mut wanted, mut found) = (0_usize, BTreeMap::from(DEPTHS.map(|depth| (depth, 0_usize))));
    for context in contexts {
        let top: BTreeSet<usize> = reference.first(context, config, TOP)?.into_iter().collect();
        let ranked = ranker.first(context, config, deepest)?;
        wanted += top.len();
        for (depth, found) in &mut found {
            *found += ranked.iter().take(*depth).filter(|at| top.contains(at)).count();
        }
    }
    let share = |found: usize| found as f64 / wanted.max(1) as f64;
    Ok(found.into_iter().map(|(depth, found)| (depth, share(found))).collect())
}

#[cfg(test)]
mod tests {
    use turnstream_knowledge::{Graph, ImportedFact, VectorsHeader, VectorsWriter};
    use turnstream_ports::model::encoder::{EncodeError, Encoded};

    use super::*;

    /// An encoder that gives every text the same direction.
    struct ConstantEncoder;

    impl Encoder for ConstantEncoder {
        fn name(&self) -> &str {
            "constant"
        }

        fn fingerprint(&self) -> u64 {
            1
        }

        fn dimensions(&self) -> usize {
            2
        }

        fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
            texts.iter().for_each(|_| vectors.extend([1.0, 0.0]));
            Ok(Encoded::default())
        }
    }

    #[test]
    fn what_is_kept_is_counted_at_each_depth() {
        let fact = |at: usize| ImportedFact {
            relation: "RelatedTo".to_owned(),
            head: format!("c{at:03}"),
            tail: "thing".to_owned(),
            weight: 1.0,
            source: "test".to_owned(),
            language: "en".to_owned(),
            sentence: None,
        };
        let graph = Graph::from_facts((0..400).map(fact));
        let folder = tempfile::tempdir().expect("a folder");
        // The reference ranks facts by position; the other encoder moves every second of the first
        // 100 behind 80 others.
        let write = |name: &str, angle: &dyn Fn(usize) -> f32| {
            let path = folder.path().join(name);
            let header = VectorsHeader::new(&graph, "constant", 1, 2);
            let mut writer = VectorsWriter::resume(&path, header).expect("a file");
            for at in 0..400 {
                let angle = angle(at) * std::f32::consts::PI / 400.0;
                writer.append(&[angle.cos(), angle.sin()]).expect("a row");
            }
            writer.finish().expect("complete");
            FactVectors::open(&path, &graph).expect("vectors")
        };
        let reference = write("reference", &|at| at as f32);
        let other = write("other", &|at| match at {
            at if at < 100 && at % 2 == 1 => 180.0 + at as f32 / 1000.0,
            at => at as f32,
        });
        let turn = |text| Turn::new("c", Speaker::User, text);
        let contexts = contexts([turn("one"), turn("two"), turn("three")], 2);
        assert_eq!(contexts.len(), 2);
        assert_eq!(contexts[1].dialogue.len(), 2, "with what was said before");
        let ranker = |vectors| Ranker { encoder: &ConstantEncoder, vectors };
        let config = EmbeddingConfig::default();
        let kept = kept(&contexts, &ranker(&other), &ranker(&reference), &config).expect("ranked");
        assert_eq!(kept, BTreeMap::from([(100, 0.5), (200, 1.0)]));
    }
}
