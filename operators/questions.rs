//! The questions that one utterance asks: "how late are you open, and can I bring my dog?"
//!
//! Table retrieval looks for a cell in each part, and the decision reads each question by itself.
//! English only: elsewhere an utterance is one question.

/// Words that ask wherever they stand.
const WORDS: [&str; 9] =
    ["how", "what", "whats", "what's", "which", "who", "whose", "where", "why"];
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
const LEAST_WORDS: usize = 3;

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

/// Returns a part of an utterance without what joins it to the part before.
pub(crate) fn part(text: &str) -> &str {
    text.trim().trim_start_matches("and ")
}

/// Returns where the clauses of a text meet: where the first one ends and the next one begins.
pub(crate) fn clause_ends(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        let (rest, end) = (&text[at..], at + letter.len_utf8());
        let ends = matches!(letter, '.' | '?' | '!' | ';' | ',' | ':');
        if ends && text[end..].starts_with(' ') {
            found.push((end, end));
        }
        for word in [" and ", " & ", " - ", " but ", " so "] {
            if rest.starts_with(word) {
                found.push((at, at + word.len()));
            }
        }
    }
    found
}

/// Whether a part of an utterance asks something: it has a question mark or a question word, or a
/// verb before its subject.
pub(crate) fn asks(text: &str) -> bool {
    let words: Vec<String> = words(text).collect();
    let is = |word: &String, of: &[&str]| of.contains(&&**word);
    text.contains('?')
        || opens(text)
        || words.iter().any(|it| is(it, &WORDS))
        || words.windows(2).any(|pair| is(&pair[0], &VERBS) && is(&pair[1], &SUBJECTS))
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
}
