//! The features by which the gate decides: six of a turn in its context, each in 0..=1.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use turnstream_knowledge::language::{Lexicon, has_han};
use turnstream_knowledge::linking::Mention;
use turnstream_knowledge::small_talk::{small_talk_in, spoken_words};
use turnstream_schemas::RecalledVia;

use crate::flow::TurnContext;

/// Features of a turn, each in 0..=1. Names are those of [`super::GateWeights`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// 1 for a question mark or a question word in front; 0.8 for an inverted auxiliary ("do you",
    /// "is there"), since spoken text often omits the question mark. In Chinese, 1 for a question word
    /// anywhere, and 0.8 for a final particle (吗) or a verb beside its denial (有没有).
    pub question: f64,
    /// 1 if the turn holds a phrase that asks for something to be done or told.
    pub request: f64,
    /// 1 − e^(−Σ informativeness) over the turn's concepts that no earlier utterance named.
    pub new_concepts: f64,
    /// The informativeness of the most informative concept of the turn. For a Chinese question or
    /// request, concepts of the last six utterances count too, because Chinese leaves out what is
    /// understood.
    pub informativeness: f64,
    /// The largest overlap (Jaccard, content lemmas) with a recalled query that was answered; 0 if it
    /// is below one half, because a weakly similar exchange answers nothing.
    pub answered: f64,
    /// The share of the turn's words that are small talk; 1 if the rest is only filler.
    pub small_talk: f64,
}

/// Words that open a question.
const QUESTION_WORDS: &[&str] = &[
    "how", "how'd", "how's", "what", "what'd", "what're", "what's", "when", "when's", "where",
    "where's", "which", "who", "who's", "whom", "whose", "why", "why's",
];

/// Auxiliaries that open a question when a subject follows.
const AUXILIARIES: &[&str] = &[
    "am",
    "are",
    "aren't",
    "can",
    "can't",
    "could",
    "couldn't",
    "did",
    "didn't",
    "do",
    "does",
    "doesn't",
    "don't",
    "had",
    "has",
    "hasn't",
    "have",
    "haven't",
    "is",
    "isn't",
    "may",
    "might",
    "must",
    "shall",
    "should",
    "shouldn't",
    "was",
    "wasn't",
    "were",
    "weren't",
    "will",
    "won't",
    "would",
    "wouldn't",
];

/// Subjects that follow an inverted auxiliary.
const SUBJECTS: &[&str] = &[
    "a", "an", "any", "anybody", "anyone", "anything", "he", "i", "it", "my", "our", "she", "some",
    "someone", "that", "the", "their", "there", "these", "they", "this", "those", "we", "you",
    "your",
];

/// Words that may precede the first word of a question.
const LEADS: &[&str] = &[
    "ah", "also", "and", "but", "hello", "hey", "hi", "hmm", "oh", "ok", "okay", "please", "right",
    "so", "sorry", "then", "well", "yeah", "yes",
];

/// Phrases of our own that ask for something; lower case, single spaces.
const REQUESTS: &[&str] = &[
    "can i get",
    "can i have",
    "can you",
    "could i get",
    "could i have",
    "could you",
    "do you know",
    "explain",
    "find me",
    "find out",
    "give me",
    "help me",
    "how about",
    "i am interested in",
    "i am looking for",
    "i am searching for",
    "i want",
    "i want to know",
    "i wonder",
    "i would like",
    "i'd like",
    "i'd love",
    "i'm interested in",
    "i'm looking for",
    "i'm searching for",
    "i'm trying to",
    "i need",
    "let me know",
    "let's",
    "look up",
    "may i have",
    "please check",
    "please find",
    "recommend",
    "search for",
    "show me",
    "suggest",
    "tell me",
    "we need",
    "would you",
    "any idea",
    "any ideas",
    "any suggestions",
    "what about",
    "will you",
];

/// The Chinese lists; the head of the file describes them.
const CHINESE: &str = include_str!("chinese.txt");

static CHINESE_LISTS: LazyLock<ChineseLists> = LazyLock::new(ChineseLists::read);

/// The words that mark questions and requests in Chinese.
#[derive(Default)]
struct ChineseLists {
    question: Vec<&'static str>,
    last: Vec<&'static str>,
    inverted: Vec<&'static str>,
    request: Vec<&'static str>,
}

impl ChineseLists {
    fn read() -> Self {
        let mut lists = Self::default();
        for line in CHINESE.lines().filter(|line| !line.starts_with('#')) {
            let (name, words) = line.split_once(':').unwrap_or_default();
            let list = match name {
                "Question" => &mut lists.question,
                "Final" => &mut lists.last,
                "Inverted" => &mut lists.inverted,
                _ => &mut lists.request,
            };
            list.extend(words.split_whitespace());
        }
        lists
    }

    /// Returns how surely a Chinese text without a question mark is a question, 0..=1.
    fn question(&self, text: &str) -> f64 {
        let holds = |list: &[&str]| list.iter().any(|word| text.contains(word));
        if holds(&self.question) {
            1.0
        } else if holds(&self.inverted) || self.last.iter().any(|word| text.ends_with(word)) {
            0.8
        } else {
            0.0
        }
    }
}

impl Features {
    /// Reads the features of the current user turn.
    pub fn read(context: &TurnContext, mentions: &[Mention]) -> Self {
        let words = spoken_words(context.query());
        let current = context.dialogue.len().saturating_sub(1) as u32;
        let earlier: BTreeSet<_> = mentions
            .iter()
            .filter(|mention| mention.utterance < current)
            .map(|mention| mention.concept)
            .collect();
        let (mut seen, mut fresh, mut most) = (BTreeSet::new(), 0.0_f64, 0.0_f64);
        for mention in mentions.iter().filter(|mention| mention.utterance == current) {
            let informativeness = f64::from(mention.informativeness);
            most = most.max(informativeness);
            if !earlier.contains(&mention.concept) && seen.insert(mention.concept) {
                fresh += informativeness;
            }
        }
        let question = question(context.query(), &words);
        let request = f64::from(u8::from(requests(context.query(), &words)));
        if question + request > 0.0 && has_han(context.query()) {
            most = most.max(understood(mentions, current));
        }
        Self {
            question,
            request,
            new_concepts: 1.0 - (-fresh).exp(),
            informativeness: most,
            answered: answered(context),
            small_talk: small_talk_in(context.query(), &words).share,
        }
    }
}

/// How many utterances back the gate looks for what a Chinese question leaves out: three exchanges.
const UNDERSTOOD_UTTERANCES: u32 = 6;

/// Returns the informativeness of what a Chinese question leaves out. Chinese neither repeats what
/// is understood (门票多少钱？) nor puts a pronoun for it, so the question is taken to be about the most
/// informative concept of the last utterances.
fn understood(mentions: &[Mention], current: u32) -> f64 {
    let lately = mentions.iter().filter(|mention| {
        (1..=UNDERSTOOD_UTTERANCES).contains(&current.saturating_sub(mention.utterance))
    });
    lately.map(|mention| f64::from(mention.informativeness)).fold(0.0, f64::max)
}

/// Returns how surely a text is a question, 0..=1.
fn question(text: &str, words: &[String]) -> f64 {
    if text.contains(['?', '？', '؟']) {
        return 1.0;
    }
    if has_han(text) {
        return CHINESE_LISTS.question(&words.concat());
    }
    let is_one_of = |word: &String, list: &[&str]| list.contains(&word.as_str());
    let mut rest = words.iter().skip_while(|word| is_one_of(word, LEADS));
    match (rest.next(), rest.next()) {
        (Some(first), _) if is_one_of(first, QUESTION_WORDS) => 1.0,
        (Some(first), Some(second))
            if is_one_of(first, AUXILIARIES) && is_one_of(second, SUBJECTS) =>
        {
            0.8
        }
        _ => 0.0,
    }
}

/// Whether the words hold a request.
fn requests(text: &str, words: &[String]) -> bool {
    if has_han(text) {
        let spoken = words.concat();
        return CHINESE_LISTS.request.iter().any(|phrase| spoken.contains(phrase));
    }
    REQUESTS.iter().any(|phrase| {
        let length = phrase.split(' ').count();
        words.windows(length).any(|window| phrase.split(' ').zip(window).all(|(a, b)| a == b))
    })
}

/// Returns how far a recalled exchange already answers the query, 0..=1.
fn answered(context: &TurnContext) -> f64 {
    let asked = content_lemmas(context.query(), context.lexicon());
    if asked.is_empty() {
        return 0.0;
    }
    let overlaps = context.recalled.iter().filter_map(|recalled| {
        // The latest exchange is recalled because it is the latest. If the user asks the same again,
        // its response did not help.
        if recalled.via == RecalledVia::Recent || recalled.entry.response.is_none() {
            return None;
        }
        let query = recalled.entry.query.as_deref()?;
        let other = content_lemmas(query, Lexicon::of_text(query));
        let both = asked.intersection(&other).count() as f64;
        Some(both / ((asked.len() + other.len()) as f64 - both))
    });
    let most = overlaps.fold(0.0, f64::max);
    if most < 0.5 { 0.0 } else { most }
}

/// Returns the content lemmas of a text.
fn content_lemmas(text: &str, lexicon: &Lexicon) -> BTreeSet<String> {
    let words = lexicon.words(text);
    words.iter().filter(|word| !word.function_word).map(|word| word.lemma.to_string()).collect()
}
