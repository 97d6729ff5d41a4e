//! Replaces refused responses by a template mined from the replies of a training split with their
//! values taken out, chosen by the required content, or else by a plain sentence per value.
//!
//! Templates are sentences of the data set, so they are mined for each measurement and not saved.

use std::collections::{BTreeMap, HashMap};

use turnstream_schemas::Column;

use super::{Frame, UnifiedCase};

/// The key of a template: the service, and the actions with their slots and truth values, sorted.
type Signature = (String, Vec<String>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    Words(String),
    /// The value of an action's slot.
    Slot(String),
}

/// The most frequent template of each key.
#[derive(Clone, Debug, Default)]
pub struct Templates(HashMap<Signature, Vec<Part>>);

/// Returns an action with its slot, as a key.
fn key(action: &str, column: &Column) -> String {
    format!("{action} {}", column.name)
}

fn is_truth(value: &str) -> bool {
    matches!(value, "yes" | "no")
}

fn signature(service: &str, frame: &Frame) -> Signature {
    let of = |(action, column): &(String, Column)| match is_truth(&column.value) {
        true => format!("{} {}", key(action, column), column.value),
        false => key(action, column),
    };
    let mut actions: Vec<String> = frame.actions.iter().map(of).collect();
    actions.sort();
    (service.to_owned(), actions)
}

/// Takes the frame's values out of a reply; `None` if a value is missing, or a slot has two values.
fn taken_out(text: &str, frame: &Frame) -> Option<Vec<Part>> {
    let mut parts = vec![Part::Words(text.to_owned())];
    let mut named: Vec<(String, &str)> = frame
        .actions
        .iter()
        .filter(|(_, column)| !column.value.is_empty() && !is_truth(&column.value))
        .map(|(action, column)| (key(action, column), column.value.as_str()))
        .collect();
    let keys: BTreeMap<&str, ()> = named.iter().map(|(key, _)| (key.as_str(), ())).collect();
    if keys.len() < named.len() {
        return None;
    }
    named.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    for (key, value) in named {
        let found = parts.iter().enumerate().find_map(|(at, part)| match part {
            Part::Words(words) => place(words, value).map(|from| (at, from)),
            Part::Slot(_) => None,
        });
        let (at, from) = found?;
        let Part::Words(words) = parts.remove(at) else { return None };
        let around = [
            Part::Words(words[..from].to_owned()),
            Part::Slot(key),
            Part::Words(words[from + value.len()..].to_owned()),
        ];
        parts.splice(at..at, around);
    }
    parts.retain(|part| *part != Part::Words(String::new()));
    Some(parts)
}

/// Finds a value as whole words, ignoring case.
fn place(words: &str, value: &str) -> Option<usize> {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    words.char_indices().map(|(at, _)| at).find(|&at| {
        let Some(found) = words.get(at..at + value.len()) else { return false };
        found.eq_ignore_ascii_case(value)
            && !is_word(words[..at].chars().next_back())
            && !is_word(words[at + value.len()..].chars().next())
    })
}

impl Templates {
    /// Mines the templates of a training split's cases.
    pub fn mined(cases: &[UnifiedCase]) -> Self {
        let mut counted: HashMap<Signature, BTreeMap<Vec<Part>, u32>> = HashMap::new();
        for reply in cases.iter().filter_map(|case| case.reply.as_ref()) {
            let Some(frame) = &reply.frame else { continue };
            let Some(parts) = taken_out(&reply.text, frame) else { continue };
            for service in [frame.service.as_str(), ""] {
                let templates = counted.entry(signature(service, frame)).or_default();
                *templates.entry(parts.clone()).or_default() += 1;
            }
        }
        let most = |templates: BTreeMap<Vec<Part>, u32>| {
            // Of equals, the first.
            let most = templates.into_iter().rev().max_by_key(|(_, count)| *count);
            most.map(|(parts, _)| parts).unwrap_or_default()
        };
        Self(counted.into_iter().map(|(signature, of)| (signature, most(of))).collect())
    }

    /// Returns the number of templates.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fills the template for the required content, of the same service or else of any; `None` if
    /// no training reply has exactly this content.
    pub fn filled(&self, frame: &Frame) -> Option<String> {
        let of = |service| self.0.get(&signature(service, frame));
        let parts = of(frame.service.as_str()).or_else(|| of(""))?;
        let value = |wanted: &str| {
            let mut actions = frame.actions.iter();
            let found = actions.find(|(action, column)| key(action, column) == wanted);
            found.map(|(_, column)| column.value.as_str())
        };
        let text = parts.iter().map(|part| match part {
            Part::Words(words) => Some(words.as_str()),
            Part::Slot(key) => value(key),
        });
        text.collect::<Option<String>>()
    }
}

/// Words the required content, one sentence per value.
pub fn realised(frame: &Frame) -> String {
    let said = |(action, column): &(String, Column)| match (&*column.name, &*column.value) {
        ("", "") => format!("{}.", capital(action)),
        (name, "") => format!("{}.", capital(name)),
        (name, value) => format!("{} is {value}.", capital(name)),
    };
    frame.actions.iter().map(said).collect::<Vec<_>>().join(" ")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::SourceKind;

    use super::super::Reply;
    use super::*;

    fn frame(service: &str, actions: &[(&str, &str, &str)]) -> Frame {
        let action = |(action, name, value): &(&str, &str, &str)| {
            let column = Column { name: (*name).to_owned(), value: (*value).to_owned() };
            ((*action).to_owned(), column)
        };
        Frame { service: service.to_owned(), actions: actions.iter().map(action).collect() }
    }

    fn case(text: &str, frame: Frame) -> UnifiedCase {
        let reply = Reply { text: text.to_owned(), evidence: Vec::new(), frame: Some(frame) };
        UnifiedCase {
            conversation: 0,
            dialogue: Vec::new(),
            kind: SourceKind::Table,
            asks: true,
            judged: Vec::new(),
            reply: Some(reply),
        }
    }

    #[test]
    fn the_most_frequent_template_says_what_has_to_be_said() {
        let offer = |name: &str, place: &str| {
            [("offer", "name", name.to_owned()), ("offer", "city", place.to_owned())]
        };
        let of = |service: &str, pairs: &[(&str, &str, String)]| {
            let pairs: Vec<(&str, &str, &str)> =
                pairs.iter().map(|(a, b, c)| (*a, *b, &**c)).collect();
            frame(service, &pairs)
        };
        let cases = [
            case("How about Sino in Ulm?", of("Food", &offer("Sino", "Ulm"))),
            case("How about Riva in Bern?", of("Food", &offer("Riva", "Bern"))),
            case("Riva, Bern.", of("Food", &offer("Riva", "Bern"))),
            case("Riva is nice.", of("Food", &offer("Riva", "Bern"))),
            case("Try Nine of Ulm.", of("Bars", &offer("Nine", "Ulm"))),
        ];
        let templates = Templates::mined(&cases);
        // Two services, and the entry for any service.
        assert_eq!(templates.len(), 3);
        let filled = |service: &str| templates.filled(&of(service, &offer("Ahorn", "Chur")));
        assert_eq!(filled("Food").as_deref(), Some("How about Ahorn in Chur?"));
        assert_eq!(filled("Bars").as_deref(), Some("Try Ahorn of Chur."));
        assert_eq!(filled("Music").as_deref(), Some("How about Ahorn in Chur?"));
        let other = frame("Food", &[("inform", "name", "Ahorn")]);
        assert_eq!(templates.filled(&other), None);
        assert_eq!(realised(&other), "Name is Ahorn.");
    }

    #[test]
    fn what_holds_and_what_does_not_have_templates_of_their_own() {
        let wine = |holds: &str| frame("Food", &[("inform", "serves wine", holds)]);
        let cases = [case("They serve wine.", wine("yes")), case("No wine there.", wine("no"))];
        let templates = Templates::mined(&cases);
        assert_eq!(templates.filled(&wine("no")).as_deref(), Some("No wine there."));
        assert_eq!(templates.filled(&wine("yes")).as_deref(), Some("They serve wine."));
    }

    #[test]
    fn values_are_taken_out_as_whole_words() {
        let count = frame("Food", &[("inform count", "count", "1"), ("offer", "name", "One 1")]);
        let parts = taken_out("I found 1 place in 12 streets, ONE 1.", &count).expect("both");
        let slots: Vec<&str> = parts
            .iter()
            .map(|part| match part {
                Part::Words(words) => words.as_str(),
                Part::Slot(key) => key.as_str(),
            })
            .collect();
        assert_eq!(
            slots,
            ["I found ", "inform count count", " place in 12 streets, ", "offer name", "."]
        );
        assert_eq!(taken_out("I found 12.", &count), None);
    }
}
