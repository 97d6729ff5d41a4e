//! The ways to say a fact, read from `templates.txt`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use turnstream_schemas::FactStatement;

use super::grammar::{Grammar, PhraseSlot};

/// The templates; the head of the file describes their format.
const TEMPLATES: &str = include_str!("templates.txt");

static ENGLISH: LazyLock<Templates> = LazyLock::new(|| Templates::parse(TEMPLATES));

/// One way to say the facts of a relation.
struct FactTemplate {
    head: PhraseSlot,
    tail: PhraseSlot,
    holds: &'static str,
    denied: &'static str,
}

/// All templates, by relation, in the order to try them.
pub(super) struct Templates(FxHashMap<&'static str, Vec<FactTemplate>>);

impl Templates {
    /// Returns the templates of English.
    pub(super) fn english() -> &'static Self {
        &ENGLISH
    }

    fn parse(lines: &'static str) -> Self {
        let mut templates = FxHashMap::<_, Vec<_>>::default();
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            if let Some((relation, template)) = parse_line(line) {
                templates.entry(relation).or_default().push(template);
            }
        }
        Self(templates)
    }

    /// Returns a fact as a clause, lower case and without a full stop; `None` if no template says
    /// it well. A denied fact is said as denied or not at all.
    pub(super) fn clause(&self, fact: &FactStatement, grammar: &Grammar) -> Option<String> {
        let named_as_denied = fact
            .relation
            .strip_prefix("Not")
            .filter(|rest| rest.starts_with(|first: char| first.is_uppercase()));
        let relation = named_as_denied.unwrap_or(&fact.relation);
        let denied = fact.negated || named_as_denied.is_some();
        let ways = self.0.get(relation)?;
        ways.iter().find_map(|way| way.fill(fact, denied, grammar))
    }
}

/// Reads a line: `relation | head | tail | holds | denied`.
fn parse_line(line: &'static str) -> Option<(&'static str, FactTemplate)> {
    let mut parts = line.split('|').map(str::trim);
    let relation = parts.next()?;
    let (head, tail) = (PhraseSlot::parse(parts.next()?)?, PhraseSlot::parse(parts.next()?)?);
    let (holds, denied) = (parts.next()?, parts.next()?);
    Some((relation, FactTemplate { head, tail, holds, denied }))
}

impl FactTemplate {
    /// Returns the clause if both ends of the fact fit their slots.
    fn fill(&self, fact: &FactStatement, denied: bool, grammar: &Grammar) -> Option<String> {
        let text = if denied { self.denied } else { self.holds };
        if text.is_empty() {
            return None;
        }
        let (head_name, tail_name) = (fact.head_name.as_deref(), fact.tail_name.as_deref());
        let head = if self.head == PhraseSlot::Thing && text.starts_with("{head}") {
            grammar.subject_named(&fact.head, head_name)?
        } else {
            grammar.say_named(&fact.head, head_name, self.head)?
        };
        let tail = grammar.say_named(&fact.tail, tail_name, self.tail)?;
        let mut clause = text.replace("{head}", &head).replace("{tail}", &tail);
        for (mark, concept) in [("{head:ing}", &fact.head), ("{tail:ing}", &fact.tail)] {
            if clause.contains(mark) {
                clause = clause.replace(mark, &grammar.going_on(concept)?);
            }
        }
        Some(clause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_template() {
        let written = TEMPLATES.lines().filter(|line| !line.starts_with('#')).count();
        let read: usize = Templates::english().0.values().map(Vec::len).sum();
        assert_eq!(read, written);
    }

    #[test]
    fn every_denial_denies() {
        for template in Templates::english().0.values().flatten() {
            let denial = template.denied;
            let words = ["not", "cannot", "no", "hardly", "little"];
            let denies = denial.split(' ').any(|word| words.contains(&word));
            assert!(denial.is_empty() || denies, "{denial}");
            // "is not the same as" affirms; no other text that affirms may deny.
            let holds = template.holds;
            assert!(!holds.contains(" not ") || holds.contains("not the same"), "{holds}");
        }
    }

    #[test]
    fn facts_are_said() {
        let check = |head: &str, relation: &str, tail: &str, negated, said: Option<&str>| {
            let fact = FactStatement {
                head: head.to_owned(),
                relation: relation.to_owned(),
                tail: tail.to_owned(),
                weight: 1.0,
                negated,
                ..FactStatement::default()
            };
            let clause = Templates::english().clause(&fact, Grammar::english());
            assert_eq!(clause.as_deref(), said, "{fact:?}");
        };
        check("coffee", "HasProperty", "bitter", false, Some("coffee can be bitter"));
        check("dog", "CapableOf", "bark", false, Some("a dog can bark"));
        check("dog", "CapableOf", "fly", true, Some("a dog cannot fly"));
        check("vegetarian", "NotCapableOf", "eat meat", true, Some("a vegetarian cannot eat meat"));
        check(
            "vegetarian",
            "NotCapableOf",
            "eat meat",
            false,
            Some("a vegetarian cannot eat meat"),
        );
        check("coffee", "AtLocation", "cup", false, Some("you can find coffee in a cup"));
        check("oven", "UsedFor", "bake bread", false, Some("you can use an oven to bake bread"));
        check(
            "drink coffee",
            "Causes",
            "insomnia",
            false,
            Some("drinking coffee can lead to insomnia"),
        );
        check("sleep", "MotivatedByGoal", "go bed", true, None);
        check("coffee", "UnknownRelation", "cup", false, None);
        check("apple", "ReceivesAction", "eat", false, Some("an apple can be eaten"));
    }
}
