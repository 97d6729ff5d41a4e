//! The texts of responses that answer nothing, by language.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use turnstream_knowledge::language::Lexicon;
use turnstream_ports::refused::Refused;
use turnstream_schemas::{HandOffReason, Stage};

use crate::response_texts::{AskingText, ResponseTexts};

/// The placeholder for the choices in a question back.
const CHOICES: &str = "{choices}";

/// The placeholder for an id that no row has.
const ROW: &str = "{row}";

/// The placeholder for the titles of passages and the names of tables.
const TITLES: &str = "{titles}";

/// The texts by language: `en` for English and every language without texts, `zh` for Chinese.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionTexts {
    /// English.
    pub en: TextsOfLanguage,
    /// Chinese.
    #[serde(deserialize_with = "over_chinese")]
    pub zh: TextsOfLanguage,
}

/// Reads the given Chinese texts; the others default to the Chinese ones, not to English.
fn over_chinese<'de, D: Deserializer<'de>>(given: D) -> Result<TextsOfLanguage, D::Error> {
    let given = Map::<String, Value>::deserialize(given)?;
    let texts = serde_json::to_value(DecisionTexts::default().zh).map_err(D::Error::custom)?;
    let Value::Object(mut texts) = texts else { return Err(D::Error::custom("no texts")) };
    texts.extend(given);
    serde_json::from_value(Value::Object(texts)).map_err(D::Error::custom)
}

/// The texts of a language. None of them may state a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextsOfLanguage {
    /// Declines because nothing in the knowledge answers.
    pub decline: String,
    /// Declines because the table has no row with the id that the user names; `{row}` stands for it.
    pub no_row: String,
    /// Declines because no row of a table is as the user asks.
    pub none_fits: String,
    /// Asks which row is meant, where the first turn of a conversation names none.
    pub which: String,
    /// Says, after the answer to a part of the turn, that nothing answers the other part.
    pub rest: String,
    /// Ends an answer where `names_sources` is set; `{titles}` stands for the titles of the
    /// passages and the names of the tables.
    pub source: String,
    /// Asks which row or passage is meant; `{choices}` stands for their names. The words beside them
    /// tell the next turn that this was asked.
    pub ask: String,
    /// Separates the names.
    pub or: String,
    /// Hands over because the user asked for a person, or because staff taught so.
    pub hand_off: String,
    /// Hands over because the user complains.
    pub complaint: String,
    /// Hands over because the user speaks of danger to people.
    pub safety: String,
    /// Hands over because nothing was found several times.
    pub nothing_found: String,
}

impl Default for DecisionTexts {
    fn default() -> Self {
        let texts = |[
            decline,
            no_row,
            none_fits,
            which,
            rest,
            source,
            ask,
            or,
            hand_off,
            complaint,
            safety,
            nothing_found,
        ]: [&str; 12]| {
            TextsOfLanguage {
                decline: decline.to_owned(),
                no_row: no_row.to_owned(),
                none_fits: none_fits.to_owned(),
                which: which.to_owned(),
                rest: rest.to_owned(),
                source: source.to_owned(),
                ask: ask.to_owned(),
                or: or.to_owned(),
                hand_off: hand_off.to_owned(),
                complaint: complaint.to_owned(),
                safety: safety.to_owned(),
                nothing_found: nothing_found.to_owned(),
            }
        };
        Self {
            en: texts([
                "I am sorry, I do not know the answer to that. Is there anything else I can help with?",
                "I am sorry, I cannot find {row}. Could you check it?",
                "I am sorry, we have none like that.",
                "Which one do you mean?",
                "I am sorry, I do not know the answer to the rest of your question.",
                "(From: {titles}.)",
                "Do you mean {choices}?",
                " or ",
                "Of course. I will pass you on to a colleague.",
                "I am sorry for the trouble you have had. I will pass you on to a colleague who can look into it.",
                "I take what you write seriously. If anyone is in danger, please call the emergency \
                 services now. I am passing you on to a colleague straight away.",
                "I am sorry that I could not answer your questions. I will pass you on to a colleague.",
            ]),
            zh: texts([
                "抱歉，这个问题我回答不了。还有别的可以帮您吗？",
                "抱歉，我没有找到{row}。请您再核对一下？",
                "抱歉，没有符合这个条件的。",
                "您指的是哪一个？",
                "抱歉，您问的其他部分我回答不了。",
                "（来源：{titles}）",
                "您是指{choices}？",
                "还是",
                "好的，这就为您转接同事。",
                "给您带来麻烦，非常抱歉。这就为您转接同事处理。",
                "您说的情况我很重视。如果有人正处于危险之中，请马上拨打当地的急救或报警电话。我马上为您转接同事。",
                "很抱歉没能回答您的问题，这就为您转接同事。",
            ]),
        }
    }
}

impl Default for TextsOfLanguage {
    fn default() -> Self {
        DecisionTexts::default().en
    }
}

impl DecisionTexts {
    /// Returns what these texts mean for the turn after them.
    pub fn response_texts(&self) -> ResponseTexts {
        let empty = |of: &TextsOfLanguage| {
            let TextsOfLanguage { decline, hand_off, complaint, safety, nothing_found, .. } = of;
            [decline, &of.none_fits, hand_off, complaint, safety, nothing_found].map(String::clone)
        };
        ResponseTexts {
            empty: [&self.en, &self.zh].into_iter().flat_map(empty).collect(),
            asking: [&self.en, &self.zh].map(TextsOfLanguage::asking).to_vec(),
        }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        let Self { en, zh } = self;
        for (key, text, placeholder, needs) in [
            ("texts.en.ask", &en.ask, CHOICES, "`{choices}` in the text"),
            ("texts.zh.ask", &zh.ask, CHOICES, "`{choices}` in the text"),
            ("texts.en.source", &en.source, TITLES, "`{titles}` in the text"),
            ("texts.zh.source", &zh.source, TITLES, "`{titles}` in the text"),
            ("texts.en.no_row", &en.no_row, ROW, "`{row}` in the text"),
            ("texts.zh.no_row", &zh.no_row, ROW, "`{row}` in the text"),
        ] {
            if !text.contains(placeholder) {
                return Err(Refused { stage: Stage::Decision, key, needs });
            }
        }
        for (key, of) in [("texts.en.ask", en), ("texts.zh.ask", zh)] {
            let AskingText { before, after, .. } = of.asking();
            if ![before, after].iter().any(|it| it.contains(char::is_alphanumeric)) {
                let needs = "words beside `{choices}`, by which the user's choice is recognised";
                return Err(Refused { stage: Stage::Decision, key, needs });
            }
        }
        Ok(())
    }

    pub(super) fn of(&self, lexicon: &Lexicon) -> &TextsOfLanguage {
        let is_chinese = lexicon.is_chinese();
        if is_chinese { &self.zh } else { &self.en }
    }
}

impl TextsOfLanguage {
    /// Returns the text that hands a conversation over.
    pub(super) fn hand_off(&self, reason: HandOffReason) -> &str {
        match reason {
            HandOffReason::Asked | HandOffReason::Taught => &self.hand_off,
            HandOffReason::Complaint => &self.complaint,
            HandOffReason::Safety => &self.safety,
            HandOffReason::NothingFound => &self.nothing_found,
        }
    }

    /// Returns the text that declines because no row has this id.
    pub(super) fn no_row(&self, id: &str) -> String {
        self.no_row.replace(ROW, id)
    }

    /// Returns the text that names the passages and tables of an answer.
    pub(super) fn source(&self, titles: &[String]) -> String {
        self.source.replace(TITLES, &titles.join("; "))
    }

    /// Returns the text that asks which of several is meant.
    pub(super) fn asking(&self) -> AskingText {
        let (before, after) = self.ask.split_once(CHOICES).unwrap_or((&self.ask, ""));
        let [before, after, or] = [before, after, &self.or].map(str::to_owned);
        AskingText { before, after, or }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_given_is_the_default_of_its_language() {
        let given = r#"{"en": {"or": " / "}, "zh": {"decline": "不知道。"}}"#;
        let texts: DecisionTexts = serde_json::from_str(given).expect("texts");
        let of = DecisionTexts::default();
        assert_eq!(texts.en, TextsOfLanguage { or: " / ".to_owned(), ..of.en });
        assert_eq!(texts.zh, TextsOfLanguage { decline: "不知道。".to_owned(), ..of.zh });
        assert!(serde_json::from_str::<DecisionTexts>(r#"{"zh": {"dcline": ""}}"#).is_err());
    }

    #[test]
    fn a_question_back_needs_words_by_which_it_is_recognised() {
        let asking = |ask: &str| {
            let mut texts = DecisionTexts::default();
            texts.en.ask = ask.to_owned();
            texts.check().map_err(|refused| refused.needs)
        };
        assert_eq!(asking("{choices}, or what?"), Ok(()));
        let needs = asking("{choices}?").expect_err("any question ends so");
        assert!(needs.contains("beside `{choices}`"), "{needs}");
        assert!(asking("Which one?").expect_err("no names").contains("in the text"));
    }
}
