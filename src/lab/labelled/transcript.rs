//! Turns written text into simulated speech transcripts, to measure a gate without speech data.

use std::collections::BTreeMap;

use super::LabelledTurn;

/// One in this many misheard words is lost; the others are replaced.
const LOST: usize = 4;

/// What English speakers say between words, one word each.
const FILLERS: &[&str] = &["uh", "um", "er", "like", "well", "so"];

/// Replaces the utterances of the turns, of both sides, by transcripts: lower case, no punctuation
/// except the apostrophe within a word, and a share `errors` (0..=1) of the words lost or replaced.
/// The replacement is another word of the same turns that begins with the same letter and differs
/// in length by at most one letter, if there is one; frequent words are likelier. Before half that
/// share of the words stands a filler, or the word once more. The same text is always misheard in
/// the same way; `seed` changes how.
///
/// For languages that separate words by spaces; the fillers are English.
pub fn transcribe(turns: &mut [LabelledTurn], errors: f64, seed: u64) {
    let mut heard = Heard::default();
    for turn in &*turns {
        words(turn.last()).for_each(|word| heard.learn(word));
    }
    for said in turns.iter_mut().flat_map(|turn| &mut turn.utterances) {
        let of_text = u64::from(crc32fast::hash(said.text.as_bytes()));
        let seed = seed ^ (of_text << 16);
        let mut random = fastrand::Rng::with_seed(seed);
        // What is added has its own draws, so that it does not change which words are misheard.
        let mut of_added = fastrand::Rng::with_seed(!seed);
        let transcript = words(&said.text).flat_map(|word| {
            let added = added_before(&word, errors / 2.0, &mut of_added);
            let read = match random.f64() < errors {
                false => Some(word),
                true if random.usize(..LOST) == 0 => None,
                true => Some(heard.instead(&word, &mut random)),
            };
            added.into_iter().chain(read)
        });
        said.text = transcript.collect::<Vec<_>>().join(" ");
    }
}

/// Returns the words of a text, as in a transcript.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter_map(|word| {
        let word = word.trim_matches('\'').to_lowercase();
        (!word.is_empty()).then_some(word)
    })
}

/// Returns what precedes a word with the probability `share`: a filler or, as often, the word
/// itself.
fn added_before(word: &str, share: f64, random: &mut fastrand::Rng) -> Option<String> {
    if random.f64() >= share {
        return None;
    }
    Some(match random.bool() {
        true => FILLERS[random.usize(..FILLERS.len())].to_owned(),
        false => word.to_owned(),
    })
}

/// Replacement words by first letter and length in characters, as often as they occur.
#[derive(Default)]
struct Heard(BTreeMap<(char, usize), Vec<String>>);

impl Heard {
    fn learn(&mut self, word: String) {
        let Some(first) = word.chars().next() else { return };
        self.0.entry((first, word.chars().count())).or_default().push(word);
    }

    /// Returns a word that sounds similar, or the word itself if there is none.
    fn instead(&self, word: &str, random: &mut fastrand::Rng) -> String {
        let Some(first) = word.chars().next() else { return String::new() };
        let length = word.chars().count();
        let near = (length - 1..=length + 1).filter_map(|length| self.0.get(&(first, length)));
        let near: Vec<&String> = near.flatten().filter(|other| *other != word).collect();
        match near.is_empty() {
            true => word.to_owned(),
            false => near[random.usize(..near.len())].clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use turnstream_formats::Need;
    use turnstream_schemas::Speaker;

    use super::*;
    use crate::labelled::Said;

    fn turn(text: &str) -> LabelledTurn {
        LabelledTurn {
            conversation: "c".to_owned(),
            position: 1,
            domain: None,
            utterances: vec![Said { speaker: Speaker::User, text: text.to_owned() }],
            knowledge: vec!["Kept, as it is.".to_owned()],
            reply: Some("This, too!".to_owned()),
            need: Need::None,
        }
    }

    #[test]
    fn a_transcript_without_errors_has_the_words_in_lower_case() {
        let mut turns = [turn("Isn't the Harbour Inn's bar 'open' at 10:30, please?")];
        transcribe(&mut turns, 0.0, 1);
        assert_eq!(turns[0].last(), "isn't the harbour inn's bar open at 10 30 please");
        assert_eq!(turns[0].knowledge, ["Kept, as it is."]);
        assert_eq!(turns[0].reply.as_deref(), Some("This, too!"));
    }

    #[test]
    fn the_share_of_words_is_lost_or_heard_as_another_that_sounds_like_it() {
        let said = ["bat", "bath", "boat", "bus", "tram", "train", "trail", "toast"];
        let mut random = fastrand::Rng::with_seed(3);
        let text = |random: &mut fastrand::Rng| -> String {
            (0..40).map(|_| format!("{} ", said[random.usize(..said.len())])).collect()
        };
        let texts: Vec<String> = (0..200).map(|_| text(&mut random)).collect();
        let transcript = |errors: f64, seed: u64| {
            let mut turns: Vec<LabelledTurn> = texts.iter().map(|text| turn(text)).collect();
            transcribe(&mut turns, errors, seed);
            turns.iter().map(|turn| turn.last().to_owned()).collect::<Vec<_>>()
        };
        let heard = transcript(0.2, 1);
        assert_eq!(heard, transcript(0.2, 1));
        assert_ne!(heard, transcript(0.2, 2));
        // 8,000 words, 1,600 errors, 400 of them lost, and 800 words added: within four standard
        // deviations, of 33 each (8,000 × (.05 × .95 + .1 × .9) is its square).
        let count = heard.iter().map(|text| text.split(' ').count()).sum::<usize>();
        assert!((8_268..=8_532).contains(&count), "{count}");
        // Here nothing is lost, but every word becomes another one with the same first letter.
        let mut heard = Heard::default();
        said.iter().for_each(|word| heard.learn((*word).to_owned()));
        for word in said {
            let other = heard.instead(word, &mut random);
            assert!(other != word && other.starts_with(&word[..1]), "{word} heard as {other}");
            assert!(other.len().abs_diff(word.len()) <= 1, "{word} heard as {other}");
        }
        assert_eq!(heard.instead("zebra", &mut random), "zebra");
    }

    #[test]
    fn fillers_and_repetitions_stand_between_the_words_that_were_said() {
        // No two of these words sound alike, so they are only lost.
        let words = ["alpha", "bravo", "charlie", "delta", "foxtrot", "golf", "hotel", "india"];
        let said = words.repeat(20);
        let mut turns = [turn(&said.join(" "))];
        transcribe(&mut turns, 0.4, 1);
        let mut heard: Vec<&str> = turns[0].last().split(' ').collect();
        let all = heard.len();
        heard.retain(|word| !FILLERS.contains(word));
        let without_fillers = heard.len();
        heard.dedup();
        assert!(heard.len() < without_fillers && without_fillers < all, "{heard:?} of {all}");
        // Without them, the words are the same in the same order, but for the lost ones.
        let mut rest = said.iter();
        assert!(heard.iter().all(|word| rest.any(|said| said == word)), "{heard:?}");
    }
}
