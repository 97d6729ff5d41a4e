//! What an utterance is for, beside a question: whether it calls for a person, or is small talk.

use std::sync::LazyLock;

use turnstream_knowledge::language::has_han;
use turnstream_knowledge::small_talk::{small_talk_in, spoken_words};
use turnstream_ports::model::reader::{Intent, Reading};
use turnstream_schemas::HandOffReason;

/// The head of the file describes its format.
const CUES: &str = include_str!("cues.txt");

static PLAIN: LazyLock<Vec<(HandOffReason, &'static str)>> = LazyLock::new(|| {
    let lines = CUES.lines().filter(|line| !line.starts_with('#'));
    let cues = lines.filter_map(|line| {
        let (reason, words) = line.split_once(" | ")?;
        let reason = match reason {
            "asked" => HandOffReason::Asked,
            "complaint" => HandOffReason::Complaint,
            "safety" => HandOffReason::Safety,
            _ => return None,
        };
        Some((reason, words))
    });
    cues.collect()
});

/// The reasons, what most needs a person first, with the least probability at which the reader calls
/// for one: where people are in danger, one hand-over too many is the lesser mistake.
const LEAST: [(HandOffReason, Intent, f32); 3] = [
    (HandOffReason::Safety, Intent::Safety, 0.3),
    (HandOffReason::Asked, Intent::HandOff, 0.5),
    (HandOffReason::Complaint, Intent::Complaint, 0.6),
];
/// The least probability at which the reader calls an utterance small talk.
const SMALL_TALK: f32 = 0.6;
/// The least share of small talk in its words at which an utterance is small talk.
const SMALL_TALK_SHARE: f64 = 0.8;

/// Why the utterance calls for a person: by its words or by the reader.
pub(super) fn hand_off(utterance: &str, reading: Option<&Reading>) -> Option<HandOffReason> {
    let spaced = format!(" {} ", spoken_words(utterance).join(" "));
    let says = |words: &str| {
        if has_han(words) {
            utterance.contains(words)
        } else {
            spaced.contains(&format!(" {words} "))
        }
    };
    let by_words = |reason| PLAIN.iter().any(|(of, words)| *of == reason && says(words));
    let by_reader = |intent, least| reading.is_some_and(|it| probability(it, intent) >= least);
    let reasons = LEAST.into_iter();
    let mut reasons =
        reasons.filter(|(reason, intent, least)| by_words(*reason) || by_reader(*intent, *least));
    reasons.next().map(|(reason, ..)| reason)
}

/// Whether the utterance only keeps the conversation going: by its words or by the reader.
pub(super) fn is_small_talk(utterance: &str, reading: Option<&Reading>) -> bool {
    small_talk_in(utterance, &spoken_words(utterance)).share >= SMALL_TALK_SHARE
        || reading.is_some_and(|it| probability(it, Intent::SmallTalk) >= SMALL_TALK)
}

fn probability(reading: &Reading, intent: Intent) -> f32 {
    reading.intents[intent as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_call_for_a_person() {
        for (said, reason) in [
            ("Can I talk to someone, please?", Some(HandOffReason::Asked)),
            ("我要转人工", Some(HandOffReason::Asked)),
            ("This is the third time it broke!", Some(HandOffReason::Complaint)),
            ("There is a gas leak, I want to speak to a human", Some(HandOffReason::Safety)),
            ("Do you sell gas cookers?", None),
            ("How many people does the tent sleep?", None),
        ] {
            assert_eq!(hand_off(said, None), reason, "{said}");
        }
        let lines = CUES.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(PLAIN.len(), lines, "every line is a cue");
    }

    #[test]
    fn the_reader_calls_for_a_person_too() {
        let reading = |intents| Reading { intents, ..Reading::default() };
        let said = "is anybody there";
        assert_eq!(
            hand_off(said, Some(&reading([0.4, 0.1, 0.5, 0.0, 0.0]))),
            Some(HandOffReason::Asked)
        );
        assert_eq!(
            hand_off(said, Some(&reading([0.7, 0.0, 0.0, 0.0, 0.3]))),
            Some(HandOffReason::Safety)
        );
        assert_eq!(hand_off(said, Some(&reading([0.5, 0.0, 0.0, 0.5, 0.0]))), None);
        assert!(is_small_talk(said, Some(&reading([0.3, 0.7, 0.0, 0.0, 0.0]))));
        assert!(is_small_talk("thanks a lot!", None) && !is_small_talk(said, None));
    }
}
