//! Small talk: greetings, thanks, closings and other words that only keep a conversation going. The
//! gate detects it, because small talk needs no knowledge, and the realiser answers it.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};
use unicode_segmentation::UnicodeSegmentation;

use crate::language::{Lexicon, has_han};

/// The act of a piece of small talk, in the order in which a turn with several needs an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SmallTalk {
    /// Asks whether the other side is a person.
    WhatAreYou,
    /// Wishes well, on a holiday or a birthday.
    Wishes,
    /// Ends a conversation.
    Closing,
    /// Thanks.
    Thanks,
    /// Asks how the other side is.
    HowAreYou,
    /// Apologises.
    Apology,
    /// Opens a conversation.
    Greeting,
    /// Answers how someone is.
    Wellbeing,
    /// Says no, politely or not.
    Refusal,
    /// Says yes, or that something was understood or liked.
    Acknowledgement,
}

use SmallTalk::{
    Acknowledgement, Apology, Closing, Greeting, HowAreYou, Refusal, Thanks, Wellbeing, WhatAreYou,
    Wishes,
};

/// How a customer asks whether a person answers: each of the first before each of the last.
const ASKING_WHAT: [&str; 6] = [
    "are you",
    "is this",
    "am i talking to",
    "am i speaking to",
    "am i speaking with",
    "am i chatting with",
];
const WHAT: [&str; 14] = [
    "a bot",
    "a robot",
    "a computer",
    "one of these bots",
    "one of those bots",
    "one of these robots",
    "one of those robots",
    "an ai",
    "ai",
    "human",
    "a human",
    "a person",
    "a real person",
    "a real human",
];

/// Our own phrases, in lower case, with words separated by single spaces. Longer ones win.
const PHRASES: &[(&str, SmallTalk)] = &[
    ("hello", Greeting),
    ("hi", Greeting),
    ("hey", Greeting),
    ("hiya", Greeting),
    ("howdy", Greeting),
    ("greetings", Greeting),
    ("good morning", Greeting),
    ("good afternoon", Greeting),
    ("good evening", Greeting),
    ("good day", Greeting),
    ("nice to meet you", Greeting),
    ("pleased to meet you", Greeting),
    ("long time no see", Greeting),
    ("welcome", Greeting),
    ("how are you", HowAreYou),
    ("how are you doing", HowAreYou),
    ("how are you today", HowAreYou),
    ("how are things", HowAreYou),
    ("how do you do", HowAreYou),
    ("how have you been", HowAreYou),
    ("how is it going", HowAreYou),
    ("how's it going", HowAreYou),
    ("what's up", HowAreYou),
    ("and you", HowAreYou),
    ("how about you", HowAreYou),
    ("what about you", HowAreYou),
    ("i'm fine", Wellbeing),
    ("i am fine", Wellbeing),
    ("i'm good", Wellbeing),
    ("i'm doing well", Wellbeing),
    ("i am doing well", Wellbeing),
    ("fine", Wellbeing),
    ("not bad", Wellbeing),
    ("can't complain", Wellbeing),
    ("thanks", Thanks),
    ("thank you", Thanks),
    ("thank you very much", Thanks),
    ("thank you so much", Thanks),
    ("thanks a lot", Thanks),
    ("many thanks", Thanks),
    ("thx", Thanks),
    ("cheers", Thanks),
    ("i appreciate it", Thanks),
    ("i appreciate that", Thanks),
    ("that's very kind of you", Thanks),
    ("you've been very helpful", Thanks),
    ("you have been very helpful", Thanks),
    ("you've been a great help", Thanks),
    ("that helps", Thanks),
    ("sorry", Apology),
    ("i'm sorry", Apology),
    ("i am sorry", Apology),
    ("my apologies", Apology),
    ("i apologize", Apology),
    ("excuse me", Apology),
    ("pardon me", Apology),
    ("yes", Acknowledgement),
    ("yeah", Acknowledgement),
    ("yep", Acknowledgement),
    ("yup", Acknowledgement),
    ("ok", Acknowledgement),
    ("okay", Acknowledgement),
    ("sure", Acknowledgement),
    ("of course", Acknowledgement),
    ("all right", Acknowledgement),
    ("alright", Acknowledgement),
    ("right", Acknowledgement),
    ("i see", Acknowledgement),
    ("got it", Acknowledgement),
    ("i got it", Acknowledgement),
    ("i understand", Acknowledgement),
    ("understood", Acknowledgement),
    ("great", Acknowledgement),
    ("good", Acknowledgement),
    ("cool", Acknowledgement),
    ("nice", Acknowledgement),
    ("perfect", Acknowledgement),
    ("wonderful", Acknowledgement),
    ("excellent", Acknowledgement),
    ("awesome", Acknowledgement),
    ("amazing", Acknowledgement),
    ("lovely", Acknowledgement),
    ("exactly", Acknowledgement),
    ("indeed", Acknowledgement),
    ("absolutely", Acknowledgement),
    ("really", Acknowledgement),
    ("i agree", Acknowledgement),
    ("me too", Acknowledgement),
    ("that's right", Acknowledgement),
    ("that is right", Acknowledgement),
    ("that's great", Acknowledgement),
    ("that's good", Acknowledgement),
    ("that's nice", Acknowledgement),
    ("that's all", Acknowledgement),
    ("that will be all", Acknowledgement),
    ("that'll be all", Acknowledgement),
    ("that's it", Acknowledgement),
    ("that works", Acknowledgement),
    ("that sounds good", Acknowledgement),
    ("that sounds great", Acknowledgement),
    ("sounds good", Acknowledgement),
    ("sounds great", Acknowledgement),
    ("no problem", Acknowledgement),
    ("you're welcome", Acknowledgement),
    ("you are welcome", Acknowledgement),
    ("never mind", Acknowledgement),
    ("haha", Acknowledgement),
    ("no", Refusal),
    ("nope", Refusal),
    ("nah", Refusal),
    ("not really", Refusal),
    ("no thanks", Refusal),
    ("no thank you", Refusal),
    ("not now", Refusal),
    ("nothing else", Refusal),
    ("bye", Closing),
    ("bye bye", Closing),
    ("goodbye", Closing),
    ("good bye", Closing),
    ("good night", Closing),
    ("see you", Closing),
    ("see you later", Closing),
    ("see you soon", Closing),
    ("see you tomorrow", Closing),
    ("see you then", Closing),
    ("talk to you later", Closing),
    ("take care", Closing),
    ("farewell", Closing),
    ("that is all", Acknowledgement),
    ("that is all i need", Acknowledgement),
    ("that is all i needed", Acknowledgement),
    ("that is all i wanted", Acknowledgement),
    ("that is all i wanted to know", Acknowledgement),
    ("that's all i need", Acknowledgement),
    ("that's all i needed", Acknowledgement),
    ("that's all i wanted to know", Acknowledgement),
    ("that will be all", Acknowledgement),
    ("happy new year", Wishes),
    ("happy holidays", Wishes),
    ("happy easter", Wishes),
    ("happy birthday", Wishes),
    ("merry christmas", Wishes),
    ("merry xmas", Wishes),
    ("have a nice day", Closing),
    ("have a good day", Closing),
    ("have a great day", Closing),
    ("have a good one", Closing),
    ("have a nice evening", Closing),
    ("have a good night", Closing),
    ("have a good weekend", Closing),
    ("i must be going", Closing),
    ("i have to go", Closing),
    ("i've got to go", Closing),
    ("i must be off", Closing),
    ("i gotta go", Closing),
    ("gotta go", Closing),
    ("gotta run", Closing),
    ("i'll think about it", Closing),
    ("i will think about it", Closing),
    ("let me think about it", Closing),
    ("i'll think it over", Closing),
    ("i'll have a think", Closing),
    ("i'll sleep on it", Closing),
    ("i'll get back to you", Closing),
    ("i'll be back", Closing),
    ("i'll be in touch", Closing),
    ("i'll let you know", Closing),
    ("i'll come by", Closing),
    ("i'll order it", Closing),
    ("i'll buy it", Closing),
    ("i'll ask my wife", Closing),
    ("i'll ask my husband", Closing),
    ("i'll talk to my wife", Closing),
    ("i'll talk to my husband", Closing),
    ("i found it", Acknowledgement),
    ("i found it myself", Acknowledgement),
];

/// Words that add nothing to small talk.
const FILLERS: &[&str] = &[
    "a", "again", "ah", "all", "also", "and", "anyway", "as", "aw", "dear", "everyone", "for",
    "friend", "guys", "help", "here", "hm", "hmm", "i'm", "it", "just", "lol", "lot", "ma'am",
    "madam", "man", "mate", "much", "my", "now", "oh", "please", "quite", "sir", "so", "that",
    "that's", "the", "then", "there", "this", "to", "today", "too", "uh", "um", "very", "well",
    "wow", "you", "your",
];

/// The small talk of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmallTalkReading {
    /// The acts of the phrases, in order.
    pub acts: Vec<SmallTalk>,
    /// The share of the text's words that belong to phrases of small talk, 0..=1. 1 also if the
    /// rest is only filler.
    pub share: f64,
}

/// The Chinese phrases. The head of the file describes its format.
const CHINESE: &str = include_str!("language/zh/small_talk.txt");

static TABLE: LazyLock<PhraseTable> = LazyLock::new(PhraseTable::read);

/// The phrases and fillers of both languages.
#[derive(Default)]
struct PhraseTable {
    /// By their first word: all words, as [`spoken_words`] returns them.
    phrases: FxHashMap<String, Vec<(Vec<String>, SmallTalk)>>,
    fillers: FxHashSet<String>,
}

impl PhraseTable {
    fn read() -> Self {
        let mut read = Self::default();
        PHRASES.iter().for_each(|(phrase, act)| read.add(phrase, *act));
        for what in WHAT {
            // "Are you a person, or a bot?"
            let ways = ASKING_WHAT.into_iter().chain(["or", "or just"]);
            ways.for_each(|asking| read.add(&format!("{asking} {what}"), WhatAreYou));
        }
        read.add("or what", WhatAreYou);
        read.fillers.extend(FILLERS.iter().map(|filler| (*filler).to_owned()));
        for line in CHINESE.lines().filter(|line| !line.starts_with('#')) {
            let Some((act, phrases)) = line.split_once(':') else { continue };
            let phrases = phrases.split_whitespace();
            match act_named(act) {
                Some(act) => phrases.for_each(|phrase| read.add(phrase, act)),
                None => read.fillers.extend(phrases.map(|phrase| spoken_words(phrase).join(" "))),
            }
        }
        read
    }

    fn add(&mut self, phrase: &str, act: SmallTalk) {
        let words = spoken_words(phrase);
        let Some(first) = words.first() else { return };
        self.phrases.entry(first.clone()).or_default().push((words, act));
    }
}

fn act_named(name: &str) -> Option<SmallTalk> {
    Some(match name {
        "Greeting" => Greeting,
        "HowAreYou" => HowAreYou,
        "Wellbeing" => Wellbeing,
        "Thanks" => Thanks,
        "Apology" => Apology,
        "Wishes" => Wishes,
        "WhatAreYou" => WhatAreYou,
        "Acknowledgement" => Acknowledgement,
        "Refusal" => Refusal,
        "Closing" => Closing,
        _ => return None,
    })
}

/// The words of a text as spoken: lower case, straight apostrophes, no punctuation. Every Chinese
/// character is a word, in its simplified form.
pub fn spoken_words(text: &str) -> Vec<String> {
    let straight = text.replace(['\u{2019}', '\u{2018}', '`'], "'");
    let spoken = |word: &str| {
        if has_han(word) {
            Lexicon::chinese().lemma(word).into_owned()
        } else {
            word.to_lowercase()
        }
    };
    straight.unicode_words().map(spoken).collect()
}

fn is_filler(word: &str) -> bool {
    TABLE.fillers.contains(word)
}

/// The least share of small talk in its words at which a text is nothing else.
const NOTHING_ELSE: f64 = 0.8;

/// Returns the small talk of a text that is hardly anything else.
pub fn nothing_but_small_talk(text: &str) -> Option<SmallTalkReading> {
    let reading = small_talk_in(text, &spoken_words(text));
    (reading.share >= NOTHING_ELSE).then_some(reading)
}

/// Finds small talk in a text, given with its spoken words.
///
/// A Chinese clause is small talk as a whole or not at all, because no space separates its words:
/// 好的 is, and 好 alone, but not the 好 of 好玩 nor the 我知道 of 我知道故宫.
pub fn small_talk_in(text: &str, words: &[String]) -> SmallTalkReading {
    if !has_han(text) {
        return read_small_talk(words);
    }
    let mut reading = SmallTalkReading::default();
    let (mut covered, mut nothing_else) = (0_usize, true);
    for clause in text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'') {
        let words = spoken_words(clause);
        let inside = read_small_talk(&words);
        if inside.share == 1.0 {
            covered += words.len();
            reading.acts.extend(inside.acts);
        } else {
            nothing_else &= words.iter().all(|word| is_filler(word));
        }
    }
    if reading.acts.is_empty() {
        return reading;
    }
    let share = covered as f64 / words.len().max(1) as f64;
    reading.share = if nothing_else { 1.0 } else { share };
    reading
}

/// Finds small talk in spoken words (see [`spoken_words`]), longest phrase first.
fn read_small_talk(words: &[String]) -> SmallTalkReading {
    let (mut acts, mut covered, mut fillers, mut at) = (Vec::new(), 0_usize, 0_usize, 0_usize);
    while at < words.len() {
        if let Some((length, act)) = longest_phrase(&words[at..]) {
            acts.push(act);
            covered += length;
            at += length;
        } else {
            fillers += usize::from(is_filler(&words[at]));
            at += 1;
        }
    }
    if acts.is_empty() {
        return SmallTalkReading::default();
    }
    let nothing_else = covered + fillers == words.len();
    let share = if nothing_else { 1.0 } else { covered as f64 / words.len() as f64 };
    SmallTalkReading { acts, share }
}

/// The longest phrase at the beginning of the words: its number of words and its act.
fn longest_phrase(words: &[String]) -> Option<(usize, SmallTalk)> {
    let phrases = TABLE.phrases.get(words.first()?)?.iter();
    let fits = phrases.filter(|(phrase, _)| words.starts_with(phrase));
    fits.map(|(phrase, act)| (phrase.len(), *act)).max_by_key(|(length, _)| *length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_talk_is_told_from_talk() {
        let check = |text: &str, acts: &[SmallTalk], all: bool| {
            let reading = small_talk_in(text, &spoken_words(text));
            assert_eq!(reading.acts, acts, "{text}");
            assert_eq!(reading.share == 1.0, all, "{text}: {}", reading.share);
        };
        check("Hello!", &[Greeting], true);
        check("Hi there, how are you today?", &[Greeting, HowAreYou], true);
        check("Are you a real person, or a robot?", &[WhatAreYou, WhatAreYou], true);
        check("is this a bot", &[WhatAreYou], true);
        check("are you a bot or what lol", &[WhatAreYou, WhatAreYou], true);
        check("are you human, or one of those robots", &[WhatAreYou, WhatAreYou], true);
        check("is this a bot or a toy?", &[WhatAreYou], false);
        check("Merry Christmas to you all!", &[Wishes], true);
        check("你是真人还是机器人？", &[WhatAreYou], true);
        check("在吗在吗", &[Greeting], true);
        check("中秋快乐！", &[Wishes], true);
        check(
            "OK. Thank you so much for your help, bye!",
            &[Acknowledgement, Thanks, Closing],
            true,
        );
        check("That’s great.", &[Acknowledgement], true);
        check("right, i'll sleep on it. bye for now", &[Acknowledgement, Closing, Closing], true);
        check("行，我跟家里人商量一下，再见", &[Acknowledgement, Closing, Closing], true);
        check("I'll order it if it fits a window of 80 cm", &[Closing], false);
        check("No thanks, that's all.", &[Refusal, Acknowledgement], true);
        check("Thanks, that is all I wanted to know.", &[Thanks, Acknowledgement], true);
        check("Hi, can you find me a restaurant?", &[Greeting], false);
        check("I need a strong coffee.", &[], false);
        check("", &[], false);
        check("你好！", &[Greeting], true);
        check("早上好，妳最近怎麼樣？", &[Greeting, HowAreYou], true);
        check("好的，謝謝您，再见啦", &[Acknowledgement, Thanks, Closing], true);
        check("不用了，谢谢", &[Refusal, Thanks], true);
        check("我也这么觉得呢。", &[Acknowledgement], true);
        check("你好，故宫的门票多少钱？", &[Greeting], false);
        check("故宫", &[], false);
        check("我知道故宫", &[], false);
        check("是不是很好玩", &[], false);
        check("嗯，好，那，再见！", &[Acknowledgement, Acknowledgement, Closing], true);
    }

    #[test]
    fn a_word_among_many_of_small_talk_changes_nothing() {
        let acts = |text: &str| nothing_but_small_talk(text).map(|it| it.acts);
        let expected = vec![Acknowledgement, Closing, Thanks];
        assert_eq!(acts("perfect, I'll order it tonight, thank you so much"), Some(expected));
        assert_eq!(acts("I'll order it if it is 80 cm wide, thanks"), None);
        assert_eq!(acts("is it open tonight"), None);
    }

    #[test]
    fn chinese_phrases_are_written_folded_and_each_line_is_known() {
        let lines = CHINESE.lines().filter(|line| !line.starts_with('#'));
        let acts = lines.filter(|line| act_named(line.split(':').next().unwrap()).is_some());
        assert_eq!(acts.count(), 10, "every act has its line");
        for (phrase, _) in TABLE.phrases.values().flatten() {
            assert_eq!(spoken_words(&phrase.join(" ")), *phrase);
        }
        assert!(TABLE.fillers.len() > FILLERS.len() + 20);
    }

    #[test]
    fn phrases_are_written_as_words_are_read() {
        for (phrase, _) in PHRASES {
            assert_eq!(spoken_words(phrase).join(" "), *phrase);
        }
    }
}
