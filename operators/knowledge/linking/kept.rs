//! Links the utterances of dialogues, and keeps the mentions of those that came last: an utterance
//! comes again with each of the turns after it.

use std::cell::RefCell;

use quick_cache::unsync::Cache;
use rustc_hash::FxHashMap;

use super::{LinkingConfig, Mention, bounded, link_one};
use crate::View;
use crate::language::Lexicon;

/// The most utterances of a language that are kept: a few MiB.
const MOST_UTTERANCES: usize = 16_384;
/// The most bytes of such an utterance.
const LONGEST: usize = 1_024;

/// Links as [`link`](super::link) does, each utterance once while it is kept and the knowledge stays
/// the same.
pub struct KeptLinks {
    config: LinkingConfig,
    kept: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The version of the knowledge that the mentions are of.
    version: u64,
    /// By language, then by utterance.
    mentions: FxHashMap<&'static str, Cache<Box<str>, Box<[Mention]>>>,
}

impl KeptLinks {
    /// Starts without mentions.
    pub fn new(config: LinkingConfig) -> Self {
        Self { config, kept: RefCell::default() }
    }

    /// Returns the concepts that the utterances name, in order of utterance and place; `version` is
    /// that of the knowledge. Each utterance comes with the lexicon of its language.
    pub fn link<'u>(
        &self,
        knowledge: View<'_>,
        version: u64,
        utterances: impl IntoIterator<Item = (&'static Lexicon, &'u str)>,
    ) -> Vec<Mention> {
        let mut kept = self.kept.borrow_mut();
        if kept.version != version {
            *kept = Kept { version, ..Kept::default() };
        }
        let mut mentions = Vec::new();
        for (utterance, (lexicon, text)) in (0..).zip(utterances) {
            if text.len() > LONGEST {
                mentions.extend(link_one(knowledge, (lexicon, text), &self.config, utterance));
                continue;
            }
            let of_language = kept.mentions.entry(lexicon.language());
            let of_language = of_language.or_insert_with(|| Cache::new(MOST_UTTERANCES));
            if let Some(known) = of_language.get(text) {
                mentions.extend(known.iter().map(|it| Mention { utterance, ..*it }));
                continue;
            }
            let found = link_one(knowledge, (lexicon, text), &self.config, utterance);
            mentions.extend(&found);
            of_language.insert(text.into(), found.into());
        }
        bounded(mentions, &self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::super::link;
    use super::super::tests::{chinese, graph_of};
    use super::*;

    #[test]
    fn utterances_that_come_again_are_linked_as_before_and_anew_in_another_version() {
        let (before, after) = (graph_of(&[("coffee", 3)]), graph_of(&[("tea", 3)]));
        let kept = KeptLinks::new(LinkingConfig::default());
        let english = Lexicon::english();
        let dialogue = [(english, "I drink coffee"), (english, "or tea?"), (english, "no coffee")];
        let again = [dialogue[2], dialogue[0], dialogue[1]];
        for said in [dialogue, again, dialogue] {
            let expected = link(before.view(), said, &LinkingConfig::default());
            assert!(!expected.is_empty());
            assert_eq!(kept.link(before.view(), 0, said), expected);
        }
        let expected = link(after.view(), dialogue, &LinkingConfig::default());
        assert_eq!(kept.link(after.view(), 1, dialogue), expected);
        assert_ne!(expected, link(before.view(), dialogue, &LinkingConfig::default()));
        let few = LinkingConfig { max_mentions: 1, ..LinkingConfig::default() };
        let expected = link(before.view(), dialogue, &few);
        assert_eq!(KeptLinks::new(few).link(before.view(), 0, dialogue), expected);
    }

    #[test]
    fn the_same_words_are_linked_in_the_language_of_each() {
        let concepts = [("latte", "en", 3), ("latte咖啡", "zh", 3), ("咖啡", "zh", 3)];
        let graph = chinese::graph_of(&concepts);
        let kept = KeptLinks::new(LinkingConfig::default());
        let linked = [Lexicon::english(), Lexicon::chinese()].map(|lexicon| {
            let said = [(lexicon, "latte 咖啡")];
            let expected = link(graph.view(), said, &LinkingConfig::default());
            assert_eq!(kept.link(graph.view(), 0, said), expected);
            expected.len()
        });
        assert_eq!(linked, [2, 1]);
    }
}
