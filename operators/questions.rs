//! The questions that one utterance asks: "how late are you open, and can I bring my dog?"
//!
//! Table retrieval looks for a cell in each part, and the decision reads each question by itself.
//! An utterance in Chinese is one question to the decision: its later clauses leave out what the
//! first is about.

use turnstream_ports::script::is_chinese;

/// Words that ask wherever they stand.
const WORDS: [&str; 10] =
    ["how", "what", "whats", "what's", "whether", "which", "who", "whose", "where", "why"];
/// Verbs that ask where they stand before their subject. Not "did": "did that already".
const VERBS: [&str; 13] = [
    "can", "could", "do", "does", "is", "are", "will", "would", "should", "may", "must", "am",
    "have",
];
const SUBJECTS: [&str; 10] = ["i", "we", "you", "it", "they", "he", "she", "there", "that", "this"];
/// Words that may precede the first word of a question.
const LEADS: [&str; 13] = [
    "also", "and", "but", "hello", "hey", "hi", "oh", "ok", "okay", "please", "so", "then", "well",
];
/// The fewest words of a question.
pub(crate) const LEAST_WORDS: usize = 3;

/// What asks in Chinese wherever it stands, with spaces between.
const CHINESE: &str =
    "吗 什么 啥 怎么 咋 多少 哪 谁 多久 多长 多大 多高 多重 多远 能否 是否 有没有";
/// What stands before 几 where it asks for no number ("好几天").
const SOME: [char; 6] = ['好', '十', '没', '这', '那', '前'];
/// What asks in Chinese at the end.
const CHINESE_ENDS: [char; 4] = ['么', '呢', '不', '没'];

/// Cuts an utterance into the questions that it asks, in their order; one if it is not plain that
/// there are several. What is told before a question stays with it.
pub(crate) fn questions(utterance: &str) -> Vec<&str> {
    let (mut found, mut begin) = (Vec::new(), 0);
    for (end, next) in clause_ends(utterance) {
        if end < begin {
            continue;
        }
        let (left, right) = (part(&utterance[begin..end]), part(&utterance[next..]));
        let is_long = |text| words(text).count() >= LEAST_WORDS;
        let goes_on = opens(right) || left.ends_with('?') && asks(right);
        if is_long(left) && is_long(right) && asks(left) && goes_on {
            found.push(left);
            begin = next;
        }
    }
    found.push(part(&utterance[begin..]));
    found
}

/// Returns the two questions that an utterance is made of, if it is made of two: in Chinese two
/// clauses that ask.
pub(crate) fn two_questions(utterance: &str) -> Option<[&str; 2]> {
    if !is_chinese(utterance) {
        return questions(utterance).try_into().ok().filter(|[_, second]: &[&str; 2]| asks(second));
    }
    let is_inside = |end: &usize| *end < utterance.trim_end().len();
    let ends: Vec<usize> = clause_ends(utterance).into_iter().map(|(end, _)| end).collect();
    let [end] = ends.into_iter().filter(is_inside).collect::<Vec<_>>()[..] else { return None };
    let two = [utterance[..end].trim(), utterance[end..].trim()];
    two.iter().all(|it| asks(it)).then_some(two)
}

/// Returns a part of an utterance without what joins it to the part before.
pub(crate) fn part(text: &str) -> &str {
    text.trim().trim_start_matches("and ")
}

/// Returns where the clauses of a text meet: where the first one ends and the next one begins.
pub(crate) fn clause_ends(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let is_chinese = is_chinese(text);
    for (at, letter) in text.char_indices() {
        let (rest, end) = (&text[at..], at + letter.len_utf8());
        let ends = matches!(letter, '.' | '?' | '!' | ';' | ',' | ':');
        let is_number = text[end..].starts_with(|next: char| next.is_ascii_digit());
        // Not the space of "Note 9".
        let is_latin = text[..at].ends_with(|before: char| before.is_ascii_alphanumeric())
            && text[end..].starts_with(|next: char| next.is_ascii_alphanumeric());
        let ends_in_chinese = is_chinese
            && (ends && !is_number
                || letter == ' ' && !is_latin
                || "，。？！；：、".contains(letter));
        if ends && text[end..].starts_with(' ') || ends_in_chinese {
            found.push((end, end));
        }
        for word in [" and ", " & ", " n ", " - ", " but ", " so ", " also "] {
            if rest.starts_with(word) {
                found.push((at, at + word.len()));
            }
        }
    }
    found
}

/// What stands between two things that are asked in one question, beside where clauses meet.
const JOINTS: [&str; 12] =
    [" plus ", " + ", "/", "\n", "和", "跟", "与", "还有", "以及", "另外", "再就是", "加上"];

/// Cuts an utterance into what may ask for one thing each: "price and size?" into two.
pub(crate) fn segments(utterance: &str) -> Vec<&str> {
    let mut ends = clause_ends(utterance);
    for joint in JOINTS {
        let joints = utterance.match_indices(joint).map(|(at, _)| (at, at + joint.len()));
        ends.extend(joints);
    }
    ends.sort_unstable();
    let (mut found, mut begin) = (Vec::new(), 0);
    for (end, next) in ends {
        if end >= begin {
            found.push(&utterance[begin..end]);
            begin = next;
        }
    }
    found.push(&utterance[begin..]);
    found
}

/// Whether a part of an utterance asks something: it has a question mark or a question word, or a
/// verb before its subject.
pub(crate) fn asks(text: &str) -> bool {
    if is_chinese(text) {
        return asks_in_chinese(text);
    }
    let has_word = words(text).any(|it| WORDS.contains(&&*it));
    text.contains('?') || opens(text) || has_word || is_inverted(text)
}

/// Whether a text has a verb before its subject: "can he".
fn is_inverted(text: &str) -> bool {
    let words: Vec<String> = words(text).collect();
    let is = |word: &String, of: &[&str]| of.contains(&&**word);
    words.windows(2).any(|pair| is(&pair[0], &VERBS) && is(&pair[1], &SUBJECTS))
}

/// Whether a part of an utterance asks something beside another part: it begins as a question does, has
/// a verb before its subject, or a question word where a question mark tells it from "so I know how".
pub(crate) fn asks_beside(text: &str, other: &str) -> bool {
    if is_chinese(text) {
        return asks_in_chinese(text);
    }
    let is_marked = text.contains('?') || other.trim_end().ends_with('?');
    let asks_by_word = words(text).any(|it| WORDS.contains(&&*it));
    opens(text) || is_inverted(text) || is_marked && asks_by_word
}

/// Whether a part of an utterance in Chinese asks something: by a word, by its end, by a verb with
/// and without "not" (能不能), or by a choice (是…还是).
fn asks_in_chinese(text: &str) -> bool {
    let letters: Vec<char> = text.chars().filter(|it| it.is_alphanumeric()).collect();
    let is_either = |it: &[char]| it[0] == it[2] && matches!(it[1], '不' | '没');
    let asks_how_many = |at: usize| {
        letters[at] == '几'
            && at.checked_sub(1).is_none_or(|before| !SOME.contains(&letters[before]))
    };
    text.contains(['?', '？'])
        || CHINESE.split(' ').any(|word| text.contains(word))
        || letters.last().is_some_and(|last| CHINESE_ENDS.contains(last))
        || letters.windows(3).any(is_either)
        || text.split_once("还是").is_some_and(|(either, _)| either.contains('是'))
        || (0..letters.len()).any(asks_how_many)
}

/// Whether a text begins as a question does.
fn opens(text: &str) -> bool {
    let first = words(text).find(|word| !LEADS.contains(&&**word));
    let asks = |word: &str| word == "when" || WORDS.contains(&word) || VERBS.contains(&word);
    first.is_some_and(|word| asks(&word))
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let letters = |letter: char| !(letter.is_alphanumeric() || matches!(letter, '\'' | '’'));
    let words = text.split(letters).filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase().replace('’', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_utterance_is_cut_where_a_further_question_begins() {
        for (utterance, parts) in [
            ("how late are you open and can i bring my dog?", 2),
            ("Do you do gift cards? How long are they good for?", 2),
            ("is there parking, what does it cost, and when does it close", 3),
            ("how late are you open n can i bring my dog", 2),
            ("when do you open also is there parking", 2),
            ("what does it cost to park there? my van is two metres high, is that fine", 2),
            // What is told before a question stays with it.
            ("i lost my key and my phone, what do i do", 1),
            ("my parcel says delivered. where is it", 1),
            ("bread and butter, do you sell both", 1),
            ("ok did that already. how long does it take", 1),
            // Nothing is asked twice.
            ("when do you open? thanks a lot", 1),
            ("how much? and now?", 1),
            ("where is it so i can pick it up", 1),
            ("", 1),
        ] {
            let found = questions(utterance);
            assert_eq!(found.len(), parts, "{utterance}: {found:?}");
        }
        let two = questions("Is it open on sundays and can I bring my dog?");
        assert_eq!(two, ["Is it open on sundays", "can I bring my dog?"]);
        let two = questions("is it open on sundays, and can I bring my dog?");
        assert_eq!(two, ["is it open on sundays,", "can I bring my dog?"]);
        let told = questions("where do i park? i come by van, where does that go");
        assert_eq!(told, ["where do i park?", "i come by van, where does that go"]);
    }

    #[test]
    fn clauses_ask_in_chinese() {
        for text in [
            "能便宜点不",
            "好几天了还没到，咋回事",
            "可不可以退",
            "要几天",
            "门票呢",
            "是现磨的还是速溶的",
        ] {
            assert!(asks(text), "{text}");
        }
        for text in ["我等了好几天", "我家刚满九岁", "不要太贵", "十几个人一起来", "我还是想退"]
        {
            assert!(!asks(text), "{text}");
        }
        let clauses = |text: &str| clause_ends(text).len();
        assert_eq!(clauses("1.8米的床，多少钱？还有 早餐呢"), 3);
        assert_eq!(clauses("Note 9换屏多少钱"), 0);
        assert_eq!(questions("家庭房多少钱，早餐另外算吗"), ["家庭房多少钱，早餐另外算吗"]);
    }
}
