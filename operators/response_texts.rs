//! What the configured texts of our own responses mean for the turn after them: which of them say
//! nothing, and which ask the user to choose.
//!
//! Recall reads a choice ("the second one") as the question that it belongs to, so that all stages
//! see that question; the decision then answers from the chosen place.

use std::collections::BTreeSet;

use turnstream_knowledge::language::has_han;
use turnstream_knowledge::small_talk::{nothing_but_small_talk, spoken_words};
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::reader::Question;
use turnstream_schemas::Speaker;

use crate::flow::{ChosenPlace, Reconstructed, TurnContext, Utterance};

/// Quotes around names that are asked about.
const QUOTES: [char; 2] = ['“', '”'];

/// What affirms, and what else stands around a choice, in words as spoken. A Chinese character is a
/// word.
const YES: [&str; 11] =
    ["yes", "yeah", "yep", "yup", "sure", "right", "ok", "okay", "是", "对", "嗯"];
const AROUND: [&str; 24] = [
    "the", "one", "that", "that's", "it", "it's", "is", "i", "mean", "meant", "please", "about",
    "my", "of", "option", "number", "thanks", "的", "那", "个", "我", "指", "吧", "请",
];
/// What chooses the first, second and third name, the last one, and none.
const PLACES: [&[&str]; 3] = [
    &["first", "1", "former", "一", "第一", "前者"],
    &["second", "2", "二", "第二"],
    &["third", "3", "三", "第三"],
];
const LAST: [&str; 4] = ["last", "latter", "后者", "最后"];
const NONE: [&str; 11] = [
    "no",
    "nope",
    "neither",
    "none",
    "none these",
    "none them",
    "neither them",
    "something else",
    "不",
    "都不",
    "其他",
];

/// The texts of responses that say nothing of what the next turn may mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseTexts {
    /// Texts that neither answer nor ask anything.
    pub empty: BTreeSet<String>,
    /// Texts that ask which of several places is meant.
    pub asking: Vec<AskingText>,
}

/// A text that asks which of several places is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskingText {
    /// What stands before the names.
    pub before: String,
    /// What stands after them.
    pub after: String,
    /// What separates them.
    pub or: String,
}

impl AskingText {
    /// Returns the text that asks about these names, in quotes where they are titles.
    pub fn about(&self, names: &[String], are_titles: bool) -> String {
        let [open, close] = QUOTES;
        let quoted = |name: &String| format!("{open}{name}{close}");
        let names = names.iter().map(|it| if are_titles { quoted(it) } else { it.clone() });
        let mut names: Vec<String> = names.collect();
        let last = names.pop().unwrap_or_default();
        let comma = if self.or.starts_with(' ') { ", " } else { "、" };
        let names = match names.join(comma) {
            others if others.is_empty() => last,
            others => [&*others, &*self.or, &*last].concat(),
        };
        [&*self.before, &*names, &*self.after].concat()
    }

    /// Returns the names that a response asks about; `None` if it has another text.
    fn names<'t>(&self, response: &'t str) -> Option<Vec<&'t str>> {
        let names = response.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let [open, close] = QUOTES;
        if names.starts_with(open) {
            let quoted = names.split(open).skip(1);
            return Some(quoted.filter_map(|it| it.split(close).next()).collect());
        }
        Some(names.split(&*self.or).collect())
    }
}

impl ResponseTexts {
    /// Whether a response says nothing of what the next turn may mean.
    pub fn says_nothing(&self, response: &str) -> bool {
        self.empty.contains(response) || self.choices(response).is_some()
    }

    /// Returns the names that a response asks about; `None` if it does not ask about any.
    pub fn choices<'t>(&self, response: &'t str) -> Option<Vec<&'t str>> {
        self.asking.iter().find_map(|it| it.names(response))
    }

    /// Returns what the last utterance of a dialogue chooses of what the response before it asks
    /// about; `None` if it chooses nothing.
    pub fn chosen(&self, dialogue: &[Utterance]) -> Option<ChosenPlace> {
        let [.., question, asks, choice] = dialogue else { return None };
        let is_asked = question.speaker == Speaker::User && asks.speaker == Speaker::System;
        let names = self.choices(&asks.text).filter(|_| is_asked)?;
        let name = choose(&names, &choice.text)?;
        Some(ChosenPlace { name: name.map(str::to_owned) })
    }
}

/// Returns the one of the names that an utterance chooses, `None` in it if it chooses none of them;
/// `None` if it does not choose.
fn choose<'t>(names: &[&'t str], utterance: &str) -> Option<Option<&'t str>> {
    let spoken = spoken_words(utterance);
    let spoken: Vec<&str> = spoken.iter().map(String::as_str).collect();
    let says = |words: &[&str], word: &&str| words.contains(word);
    let affirms = spoken.iter().any(|word| says(&YES, word));
    let left = spoken.iter().copied().filter(|it| !says(&AROUND, it) && !says(&YES, it));
    let is_chinese = has_han(utterance);
    let left = left.collect::<Vec<_>>().join(if is_chinese { "" } else { " " });
    let left = left.as_str();
    if left.is_empty() {
        return affirms.then(|| names.first().copied());
    }
    if says(&NONE, &left) {
        return Some(None);
    }
    let place = PLACES.iter().position(|words| says(words, &left));
    if let Some(at) = place.or_else(|| says(&LAST, &left).then_some(names.len() - 1)) {
        return names.get(at).map(|name| Some(*name));
    }
    let said = terms(left);
    let is_named = |name: &&str| {
        let of_name = terms(name);
        !said.is_empty() && said.iter().all(|term| of_name.contains(term))
    };
    let mut named = names.iter().copied().filter(is_named);
    let name = named.next()?;
    named.next().is_none().then_some(Some(name))
}

impl TurnContext {
    /// Makes the turn a choice, if it chooses of what the response before it asks about: its query is
    /// then completed to the question before that, with the name that it chooses in brackets.
    pub fn with_choice(self, texts: &ResponseTexts) -> Self {
        let Some(chosen) = texts.chosen(&self.dialogue) else { return self };
        let reconstructed = self.dialogue.iter().rev().nth(2).map(|question| {
            let query = match &chosen.name {
                Some(name) => format!("{} ({name})", question.text),
                None => question.text.to_string(),
            };
            Reconstructed { query, from: vec![question.turn_id.clone()] }
        });
        Self { chosen: Some(chosen), reconstructed, ..self }
    }

    /// Returns the turn as a question to the reader; a choice as the question that it belongs to. What
    /// says nothing of what "it" may mean is left out: small talk just before it, and a response that
    /// [says nothing](ResponseTexts::says_nothing).
    pub fn question(&self, texts: &ResponseTexts) -> Question {
        let after = if self.chosen.is_some() { 2 } else { 0 };
        let dialogue = &self.dialogue[..self.dialogue.len().saturating_sub(after)];
        let (utterance, mut earlier) = match dialogue.split_last() {
            Some((last, earlier)) => (last.text.to_string(), earlier),
            None => (self.query().to_owned(), &[][..]),
        };
        while let Some(at) = earlier.iter().rposition(|said| said.speaker == Speaker::User)
            && nothing_but_small_talk(&earlier[at].text).is_some()
        {
            earlier = &earlier[..at];
        }
        let by = |speaker| earlier.iter().rfind(|said| said.speaker == speaker);
        let last = |speaker| by(speaker).map(|said| said.text.to_string());
        Question {
            utterance,
            user_before: last(Speaker::User),
            system_before: last(Speaker::System).filter(|it| !texts.says_nothing(it)),
        }
    }
}

#[cfg(test)]
mod tests;
