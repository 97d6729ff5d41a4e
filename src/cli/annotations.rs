//! Compares responses with the annotations of a data set: whether the concepts of the logged reply
//! were linked, and whether its facts were found. For data sets whose annotations are triples
//! (`kdconv`) or texts (`kbp`).
//!
//! The comparison runs after a replay and reads the log again beside the responses. A turn's
//! annotation belongs to the logged *reply*, which the engine never sees. The links that are
//! compared come from the dialogue up to the turn.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use turnstream_knowledge::language::Lexicon;
use turnstream_schemas::{EvidenceSet, Response, Speaker};

use turnstream_formats::{Format, LoggedTurn};

/// Counts over the user turns with a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Annotated {
    /// User turns with a response.
    pub turns: u64,
    /// User turns with at least one link: an explicit query.
    pub linked: u64,
    /// User turns with at least one foreseen fact.
    pub foreseen: u64,
    /// User turns whose logged reply is annotated. The counts below include only these.
    pub annotated: u64,
    /// The dialogue so far names the head or the tail of an annotated triple. Only for annotations
    /// that are triples.
    pub named: u64,
    /// At least one link is correct: its concept is the head or the tail of an annotated triple,
    /// or, for annotations that are texts, one of them contains its concept.
    pub correctly_linked: u64,
    /// At least one foreseen fact.
    pub annotated_foreseen: u64,
    /// An annotated triple is among the selected facts.
    pub fact_selected: u64,
}

/// The parts of a response that are compared.
struct Made {
    /// Keys of the explicit queries' concepts.
    links: BTreeSet<String>,
    foreseen: bool,
    /// Selected facts: keys of head, relation and tail.
    selected: BTreeSet<[String; 3]>,
}

/// Responses by conversation and turn.
#[derive(Default)]
pub(crate) struct Responses(BTreeMap<(String, String), Made>);

/// The key by which two texts are equal.
fn key(text: &str) -> String {
    Lexicon::of_text(text).key(text)
}

impl Responses {
    /// Adds a response.
    pub(crate) fn add(&mut self, response: &Response) {
        let links = response.demand.queries.explicit.iter().map(|query| key(&query.concept));
        let selected = response.evidence.iter().filter(|evidence| evidence.selected);
        let facts = selected.filter_map(|evidence| evidence.fact.as_ref());
        let foreseen = Some(EvidenceSet::Foreseen);
        let made = Made {
            links: links.collect(),
            foreseen: response.evidence.iter().any(|evidence| evidence.set == foreseen),
            selected: facts.map(|fact| triple(&fact.head, &fact.relation, &fact.tail)).collect(),
        };
        let conversation = response.conversation_id.as_str().to_owned();
        self.0.insert((conversation, response.turn_id.as_str().to_owned()), made);
    }

    /// Compares the responses with the annotations of a log, in its order.
    pub(crate) fn compare(
        &self,
        format: Format,
        log: impl IntoIterator<Item = LoggedTurn>,
    ) -> Annotated {
        let mut counts = Annotated::default();
        let mut so_far = (String::new(), Vec::<String>::new());
        for LoggedTurn { turn, labels, .. } in log {
            let conversation = turn.conversation_id.as_str();
            if so_far.0 != conversation {
                so_far = (conversation.to_owned(), Vec::new());
            }
            so_far.1.push(key(&turn.text));
            let id = turn.turn_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
            if turn.speaker != Speaker::User {
                continue;
            }
            if let Some(made) = self.0.get(&(so_far.0.clone(), id)) {
                let annotation = match format {
                    Format::Kbp => Annotation::Texts(labels.texts.iter().map(|t| key(t)).collect()),
                    _ => Annotation::triples(&labels.gold),
                };
                counts.count(made, &annotation, &so_far.1);
            }
        }
        counts
    }
}

/// A data set's annotation of the reply to a turn.
enum Annotation {
    /// Keys of head, relation and tail.
    Triples(Vec<[String; 3]>),
    /// Keys of texts.
    Texts(Vec<String>),
}

impl Annotation {
    fn triples(gold: &[String]) -> Self {
        let parts = |gold: &String| {
            let mut parts = gold.split('\t');
            Some(triple(parts.next()?, parts.next()?, parts.next()?))
        };
        Self::Triples(gold.iter().filter_map(parts).collect())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Triples(triples) => triples.is_empty(),
            Self::Texts(texts) => texts.is_empty(),
        }
    }
}

fn triple(head: &str, relation: &str, tail: &str) -> [String; 3] {
    [key(head), key(relation), key(tail)]
}

impl Annotated {
    fn count(&mut self, made: &Made, annotation: &Annotation, so_far: &[String]) {
        self.turns += 1;
        self.linked += u64::from(!made.links.is_empty());
        self.foreseen += u64::from(made.foreseen);
        if annotation.is_empty() {
            return;
        }
        self.annotated += 1;
        self.annotated_foreseen += u64::from(made.foreseen);
        let correct = match annotation {
            Annotation::Triples(triples) => {
                let mut ends = triples.iter().flat_map(|[head, _, tail]| [head, tail]);
                let named = |end: &String| {
                    !end.is_empty() && so_far.iter().any(|text| text.contains(end.as_str()))
                };
                self.named += u64::from(ends.clone().any(named));
                let selected = triples.iter().any(|triple| made.selected.contains(triple));
                self.fact_selected += u64::from(selected);
                ends.any(|end| made.links.contains(end))
            }
            Annotation::Texts(texts) => {
                made.links.iter().any(|link| texts.iter().any(|text| text.contains(link)))
            }
        };
        self.correctly_linked += u64::from(correct);
    }
}

#[cfg(test)]
mod tests {
    use turnstream_formats::Labels;
    use turnstream_schemas::Turn;

    use super::*;

    fn made(links: &[&str], selected: &[[&str; 3]], foreseen: bool) -> Made {
        let fact = |fact: &[&str; 3]| triple(fact[0], fact[1], fact[2]);
        Made {
            links: links.iter().map(|link| key(link)).collect(),
            foreseen,
            selected: selected.iter().map(fact).collect(),
        }
    }

    fn logged(id: &str, speaker: Speaker, text: &str, gold: &[&str], texts: &[&str]) -> LoggedTurn {
        let mut turn = Turn::new("c", speaker, text);
        turn.turn_id = Some(id.into());
        let owned = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect();
        let labels = Labels { gold: owned(gold), texts: owned(texts), ..Labels::default() };
        LoggedTurn { line: 1, turn, last_of_scope: false, labels }
    }

    #[test]
    fn triples_match_by_link_and_by_fact() {
        let mut responses = Responses::default();
        let mut add = |id: &str, made| responses.0.insert(("c".to_owned(), id.to_owned()), made);
        add("1", made(&["老桥"], &[["老桥", "建成时间", "1890年"]], true));
        add("3", made(&["新桥"], &[], false));
        add("5", made(&[], &[], true));
        let gold = ["老橋\t建成时间\t1890年"];
        let log = [
            logged("1", Speaker::User, "老橋在哪？", &gold, &[]),
            logged("2", Speaker::System, "不知道。", &gold, &[]),
            logged("3", Speaker::User, "那个呢？", &gold, &[]),
            logged("5", Speaker::User, "好的", &[], &[]),
            logged("7", Speaker::User, "没有回答", &gold, &[]),
        ];
        let counts = responses.compare(Format::Kdconv, log);
        let expected = Annotated {
            turns: 3,
            linked: 2,
            foreseen: 2,
            annotated: 2,
            named: 2,
            correctly_linked: 1,
            annotated_foreseen: 1,
            fact_selected: 1,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn texts_match_a_link_that_they_contain() {
        let mut responses = Responses::default();
        let mut add = |id: &str, made| responses.0.insert(("c".to_owned(), id.to_owned()), made);
        add("1", made(&["天蝎座"], &[], false));
        add("3", made(&["巨蟹座"], &[], false));
        let texts = ["天蠍座 的 守护星"];
        let log = [
            logged("1", Speaker::User, "天蝎座？", &["B2"], &texts),
            logged("3", Speaker::User, "巨蟹座？", &["B2"], &texts),
        ];
        let counts = responses.compare(Format::Kbp, log);
        assert_eq!((counts.annotated, counts.correctly_linked, counts.named), (2, 1, 0));
    }
}
