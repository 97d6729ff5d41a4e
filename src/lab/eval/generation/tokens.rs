//! Tokenises texts for each measure as its reference implementation does.
//!
//! - BLEU and Distinct-2: sacrebleu's `13a` for English, its `zh` for Chinese. Both separate
//!   punctuation, except within numbers; `zh` makes each Chinese character a token.
//! - ROUGE: rouge-score's tokens without stemming: runs of a–z and 0–9 in lower case. rouge-score
//!   drops Chinese, so here each Chinese character is a token as well.
//! - F1: SQuAD's tokens: lower case, without ASCII punctuation and without a, an and the, split at
//!   spaces. In Chinese, runs of letters and digits, and each Chinese character.

use std::sync::LazyLock;

use regex::Regex;
use turnstream_knowledge::language::{Lexicon, is_han};

/// The tokenisation of a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenisation {
    /// Words: `13a`.
    English,
    /// Characters: `zh`.
    Chinese,
}

/// The common end of sacrebleu's tokenisations: patterns and replacements, in order.
static CUTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let cuts = [
        // ASCII punctuation except . , - and '; the range from space to & is one of them.
        (r"([{-~\[-` -&(-+:-@/])", " $1 "),
        // A point or comma that does not follow a digit, then one that does not precede a digit.
        (r"([^0-9])([.,])", "$1 $2 "),
        (r"([.,])([^0-9])", " $1 $2"),
        // A dash after a digit.
        (r"([0-9])(-)", "$1 $2 "),
    ];
    // The constant patterns are valid; an invalid one would be left out and fail the tests.
    cuts.into_iter().filter_map(|(cut, by)| Some((Regex::new(cut).ok()?, by))).collect()
});

impl Tokenisation {
    /// Returns the tokenisation of a corpus: Chinese if most of its texts are.
    pub fn of_corpus<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let chinese = Lexicon::chinese().language();
        let (mut all, mut in_chinese) = (0_usize, 0_usize);
        for text in texts.into_iter().filter(|text| !text.trim().is_empty()) {
            all += 1;
            in_chinese += usize::from(Lexicon::of_text(text).language() == chinese);
        }
        if in_chinese * 2 > all { Self::Chinese } else { Self::English }
    }

    /// Returns sacrebleu's name of the tokenisation.
    pub fn name(self) -> &'static str {
        match self {
            Self::English => "13a",
            Self::Chinese => "zh",
        }
    }

    /// Returns the tokens of BLEU, exactly as sacrebleu's.
    pub fn bleu(self, text: &str) -> Vec<String> {
        let text = text.trim_end_matches(is_space);
        let mut text = match self {
            Self::English => {
                let text = text.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
                let text = text.replace("&quot;", "\"").replace("&amp;", "&");
                format!(" {} ", text.replace("&lt;", "<").replace("&gt;", ">"))
            }
            Self::Chinese => {
                let mut apart = String::with_capacity(text.len() * 2);
                for letter in text.trim_start_matches(is_space).chars() {
                    if stands_alone(letter) {
                        apart.extend([' ', letter, ' ']);
                    } else {
                        apart.push(letter);
                    }
                }
                apart
            }
        };
        for (cut, by) in CUTS.iter() {
            text = cut.replace_all(&text, *by).into_owned();
        }
        text.split(is_space).filter(|token| !token.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the tokens of ROUGE.
    pub fn rouge(self, text: &str) -> Vec<String> {
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        runs(&text.to_lowercase(), plain, self == Self::Chinese)
    }

    /// Returns the tokens of F1.
    pub fn f1(self, text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        if self == Self::Chinese {
            return runs(&lower, char::is_alphanumeric, true);
        }
        let bare = lower.replace(|letter: char| letter.is_ascii_punctuation(), "");
        // A word is an article only if no letters adjoin it, as in “the.
        let mut kept = String::with_capacity(bare.len());
        let mut rest = bare.as_str();
        while !rest.is_empty() {
            let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            kept.push_str(if matches!(word, "a" | "an" | "the") { " " } else { word });
            let next = behind.find(char::is_alphanumeric).unwrap_or(behind.len());
            kept.push_str(&behind[..next]);
            rest = &behind[next..];
        }
        kept.split(is_space).filter(|token| !token.is_empty()).map(str::to_owned).collect()
    }
}

/// Returns runs of letters, with each Chinese character alone if `han` is set.
fn runs(text: &str, belongs: impl Fn(char) -> bool, han: bool) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut run = String::new();
    for letter in text.chars() {
        let alone = han && is_han(letter);
        if !alone && belongs(letter) {
            run.push(letter);
            continue;
        }
        if !run.is_empty() {
            tokens.push(std::mem::take(&mut run));
        }
        if alone {
            tokens.push(letter.to_string());
        }
    }
    tokens.extend((!run.is_empty()).then_some(run));
    tokens
}

/// Whether Python treats the character as white space.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{1c}'..='\u{1f}')
}

/// Whether sacrebleu's `zh` treats the character as Chinese. Its table writes two ranges beyond 16
/// bits in a way that Python reads as two characters each. U+2001 to U+2A6D (dashes, quotation
/// marks, dots, arrows) and U+2F81 to U+2FA1 therefore count, and the intended ranges do not.
fn stands_alone(letter: char) -> bool {
    matches!(
        letter,
        '\u{3400}'..='\u{4db5}'
            | '\u{4e00}'..='\u{9fbb}'
            | '\u{f900}'..='\u{fa2d}'
            | '\u{fa30}'..='\u{fa6a}'
            | '\u{fa70}'..='\u{fad9}'
            | '\u{2001}'..='\u{2a6d}'
            | '\u{2e80}'..='\u{2fdf}'
            | '\u{2ff0}'..='\u{303f}'
            | '\u{3100}'..='\u{312f}'
            | '\u{31a0}'..='\u{31bf}'
            | '\u{31c0}'..='\u{31ef}'
            | '\u{3200}'..='\u{33ff}'
            | '\u{fe10}'..='\u{fe1f}'
            | '\u{fe30}'..='\u{fe4f}'
            | '\u{ff00}'..='\u{ffef}'
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHINESE, ENGLISH};
    use super::*;

    #[test]
    fn tokens_of_bleu_are_those_of_sacrebleu() {
        let by_sacrebleu = [
            "The kettle , at 1,500 watts , boils in 3.5 minutes .",
            "I'd say : bring an umbrella - it's raining . . .",
            "Café “Luna” opens at 7 : 30 — naïve , isn’t it ?",
            "",
            "yes yes yes yes",
            "Tom & Ann paid $ 20 ( 10 - 12 people ) for R & D .",
            "Sleep well .",
        ];
        for ((text, _), tokens) in ENGLISH.iter().zip(by_sacrebleu) {
            assert_eq!(Tokenisation::English.bleu(text).join(" "), tokens);
        }
        let by_sacrebleu = [
            "北 京 的 故 宫 很 大 ， 要 走 一 整 天 。",
            "门 票 60 元 ， wifi 免 费 ！",
            "“ 好 的 ” … … 我 们 走 吧",
            "",
        ];
        for ((text, _), tokens) in CHINESE.iter().zip(by_sacrebleu) {
            assert_eq!(Tokenisation::Chinese.bleu(text).join(" "), tokens);
        }
    }

    #[test]
    fn tokens_of_f1_are_squads() {
        let english = |text| Tokenisation::English.f1(text).join(" ");
        assert_eq!(
            english("The cat's “the” toy, a 3.5-metre one_two"),
            "cats “ ” toy 35metre onetwo"
        );
        assert_eq!(Tokenisation::Chinese.f1("门票60元，WiFi！").join(" "), "门 票 60 元 wifi");
    }

    #[test]
    fn a_corpus_is_chinese_where_most_of_it_is() {
        let of = |texts: &[&str]| Tokenisation::of_corpus(texts.iter().copied()).name();
        assert_eq!(of(&["hello", "你好", "我们走吧", ""]), "zh");
        assert_eq!(of(&["hello", "你好", " "]), "13a");
        assert_eq!(of(&[]), "13a");
    }
}
