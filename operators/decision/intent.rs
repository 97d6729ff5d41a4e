//! Recognises what an utterance is for, other than a question: to call for a person, or small talk.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use turnstream_knowledge::language::has_han;
use turnstream_knowledge::small_talk::{SmallTalk, nothing_but_small_talk, spoken_words};
use turnstream_ports::model::reader::{Intent, Reading};
use turnstream_schemas::HandOffReason;

/// The cues. The head of the file describes its format.
const CUES: &str = include_str!("cues.txt");

/// The cues, compiled into one search, and the reason of each.
struct Cues {
    search: AhoCorasick,
    reasons: Vec<HandOffReason>,
}

static PLAIN: LazyLock<Cues> = LazyLock::new(|| {
    let (mut texts, mut reasons) = (Vec::new(), Vec::new());
    for line in CUES.lines().filter(|line| !line.starts_with('#')) {
        let Some((reason, words)) = line.split_once(" | ") else { continue };
        let reason = HandOffReason::ALL.into_iter().find(|it| it.name() == reason);
        let Some(reason) = reason else { continue };
        // Chinese cues are searched as written, others as whole words between spaces.
        texts.push(if has_han(words) { words.to_owned() } else { format!(" {words} ") });
        reasons.push(reason);
    }
    let search = AhoCorasick::new(texts).unwrap_or_else(|error| unreachable!("our cues: {error}"));
    Cues { search, reasons }
});

impl Cues {
    /// Marks the reasons for which the utterance has cues.
    fn said_in(&self, utterance: &str) -> [bool; REASONS.len()] {
        let spaced = format!(" {} ", spoken_words(utterance).join(" "));
        let texts = [spaced.as_str(), utterance];
        let found = texts.iter().flat_map(|text| self.search.find_overlapping_iter(*text));
        let mut said = [false; REASONS.len()];
        for cue in found {
            let reason = self.reasons[cue.pattern()];
            let place = REASONS.iter().position(|it| it.reason == reason);
            place.into_iter().for_each(|place| said[place] = true);
        }
        said
    }
}

/// When an utterance calls for a person for a reason.
struct CallsForPerson {
    reason: HandOffReason,
    intent: Intent,
    /// The least probability of the intent, by the reader.
    least: f32,
    /// The least probability where the utterance has a cue of it. A cue alone may be a name or a topic:
    /// "is the film Suicide Squad in stock".
    least_with_cue: f32,
    /// The least probability where nothing answers the utterance: declining it helps nobody.
    least_unanswered: f32,
}

/// The reasons, the most urgent first. Where people are in danger, one hand-off too many is the
/// lesser mistake.
const REASONS: [CallsForPerson; 3] = [
    CallsForPerson {
        reason: HandOffReason::Safety,
        intent: Intent::Safety,
        least: 0.3,
        least_with_cue: 0.05,
        least_unanswered: 0.2,
    },
    CallsForPerson {
        reason: HandOffReason::Asked,
        intent: Intent::HandOff,
        least: 0.4,
        least_with_cue: 0.1,
        least_unanswered: 0.3,
    },
    CallsForPerson {
        reason: HandOffReason::Complaint,
        intent: Intent::Complaint,
        least: 0.5,
        least_with_cue: 0.1,
        least_unanswered: 0.2,
    },
];
/// The least probability at which the reader calls an utterance small talk, and that of danger from
/// which it does not: "I have a rope, I am calm" sounds like it.
const SMALL_TALK: f32 = 0.45;
const NO_SMALL_TALK: f32 = 0.1;

/// Returns why the utterance calls for a person: by the reader, which its words make surer, or
/// without one by its words alone.
pub(super) fn hand_off(utterance: &str, reading: Option<&Reading>) -> Option<HandOffReason> {
    // "Are you a real person?" names one, and does not ask for one.
    let asks_what_we_are = nothing_but_small_talk(utterance)
        .is_some_and(|it| it.acts.contains(&SmallTalk::WhatAreYou));
    let mut reasons = REASONS.iter().zip(PLAIN.said_in(utterance));
    let reason = reasons.find(|(it, has_cue)| {
        let least = if *has_cue { it.least_with_cue } else { it.least };
        let is_meant = reading.map_or(*has_cue, |read| probability(read, it.intent) >= least);
        is_meant && !(asks_what_we_are && it.reason == HandOffReason::Asked)
    });
    reason.map(|(it, _)| it.reason)
}

/// Returns why an utterance that nothing answers probably calls for a person.
pub(super) fn hand_off_unanswered(reading: &Reading) -> Option<HandOffReason> {
    let reason = REASONS.iter().find(|it| probability(reading, it.intent) >= it.least_unanswered);
    reason.map(|it| it.reason)
}

/// Whether the utterance only keeps the conversation going: by its words or by the reader.
pub(super) fn is_small_talk(utterance: &str, reading: Option<&Reading>) -> bool {
    let by_reader = |read: &Reading| {
        probability(read, Intent::SmallTalk) >= SMALL_TALK
            && probability(read, Intent::Safety) < NO_SMALL_TALK
    };
    nothing_but_small_talk(utterance).is_some() || reading.is_some_and(by_reader)
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
            ("are you a real person or a robot?", None),
            ("你是真人吗", None),
            ("Are you a real person? I want one.", Some(HandOffReason::Asked)),
            ("你是真人吗，我要转人工", Some(HandOffReason::Asked)),
            ("我要转人工", Some(HandOffReason::Asked)),
            ("机器人听不懂，让你们同事来一下", Some(HandOffReason::Asked)),
            ("你们的人只会敷衍，我问了好几次", Some(HandOffReason::Complaint)),
            ("我妈在店里晕倒了，叫不醒", Some(HandOffReason::Safety)),
            ("送货前会打电话给我吗，有接客服务吗", None),
            ("这款有跳楼价吗，需要报警器和转接头吗", None),
            ("怎么跟踪我的包裹，你们同事说有什么破损可以退", None),
            ("我没有意识到要杀菌，能一起火锅吗", None),
            ("客服小姐姐真耐心，这不是骗人的吧", None),
            ("换块屏得大出血吧", None),
            ("她生完突然大出血，怎么办", Some(HandOffReason::Safety)),
            ("This is the third time it broke!", Some(HandOffReason::Complaint)),
            ("the flat is so empty, dont think ill see the weekend", Some(HandOffReason::Safety)),
            ("there's a guy with a knife in your hall", Some(HandOffReason::Safety)),
            ("can i cut on the board with a knife, and do you sell pills here", None),
            ("i've written four times, where is it", Some(HandOffReason::Complaint)),
            ("see you at the weekend", None),
            ("the brakes have gone, we are on the motorway", Some(HandOffReason::Safety)),
            ("do you replace brakes on site", None),
            ("我又割自己了", Some(HandOffReason::Safety)),
            ("There is a gas leak, I want to speak to a human", Some(HandOffReason::Safety)),
            ("Do you sell gas cookers?", None),
            ("How many people does the tent sleep?", None),
        ] {
            assert_eq!(hand_off(said, None), reason, "{said}");
        }
        let lines = CUES.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(PLAIN.reasons.len(), lines, "every line is a cue");
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
            hand_off(said, Some(&reading([0.6, 0.0, 0.0, 0.0, 0.4]))),
            Some(HandOffReason::Safety)
        );
        assert_eq!(hand_off(said, Some(&reading([0.6, 0.0, 0.0, 0.4, 0.0]))), None);
        for (said, of, reason) in [
            ("is Suicide Squad in stock", [0.98, 0.0, 0.0, 0.0, 0.02], None),
            ("it smells of gas", [0.9, 0.0, 0.0, 0.0, 0.1], Some(HandOffReason::Safety)),
            ("this is a shambles", [0.8, 0.0, 0.0, 0.2, 0.0], Some(HandOffReason::Complaint)),
        ] {
            assert_eq!(hand_off(said, Some(&reading(of))), reason, "{said}");
        }
        assert!(is_small_talk(said, Some(&reading([0.3, 0.7, 0.0, 0.0, 0.0]))));
        assert!(!is_small_talk(said, Some(&reading([0.0, 0.8, 0.0, 0.0, 0.2]))));
        assert!(is_small_talk("thanks a lot!", None) && !is_small_talk(said, None));
    }
}
