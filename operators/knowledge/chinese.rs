//! Chinese facts in words. `chinese_clauses.txt` has a clause for each relation.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::relation::positive_name;
use crate::language::has_han;

/// The clauses. The head of the file describes its format.
const CLAUSES: &str = include_str!("chinese_clauses.txt");

/// The name of the line for all other relations.
const OPEN: &str = "*";

/// Relation → (clause of a positive fact, clause of a negated one).
static WAYS: LazyLock<FxHashMap<&'static str, (&'static str, &'static str)>> =
    LazyLock::new(|| CLAUSES.lines().filter_map(parse_line).collect());

fn parse_line(line: &'static str) -> Option<(&'static str, (&'static str, &'static str))> {
    let mut parts = line.split('|').map(str::trim);
    let (relation, holds, denied) = (parts.next()?, parts.next()?, parts.next()?);
    (!relation.starts_with('#')).then_some((relation, (holds, denied)))
}

/// Words a fact as a Chinese clause without a full stop: 故宫的周边景点有天坛. Returns `None` if neither end
/// is written in Chinese, or if no clause fits the relation. A negated fact gets a negated clause
/// or none.
pub fn chinese_clause(head: &str, relation: &str, tail: &str, negated: bool) -> Option<String> {
    let ended = |text: &str| -> String {
        let ends = |letter: char| letter.is_whitespace() || "。．.！!？?；;，,、".contains(letter);
        text.trim_matches(ends).to_owned()
    };
    let (head, tail) = (ended(head), ended(tail));
    if head.is_empty() || tail.is_empty() || !(has_han(&head) || has_han(&tail)) {
        return None;
    }
    let positive = positive_name(relation);
    let (base, denied) = (positive.unwrap_or(relation), negated || positive.is_some());
    let way = WAYS.get(base).or_else(|| WAYS.get(OPEN).filter(|_| has_han(base)))?;
    let words = if denied { way.1 } else { way.0 };
    if words.is_empty() {
        return None;
    }
    // Marks are replaced in the clause alone, never in the texts that replaced earlier marks.
    let mut clause = String::with_capacity(words.len() + head.len() + tail.len());
    let mut rest = words;
    while let Some((before, mark, after)) = next_mark(rest) {
        clause.push_str(before);
        clause.push_str(match mark {
            "head" => &head,
            "relation" => base,
            _ => &tail,
        });
        // 甜的 already ends with 的.
        rest = if clause.ends_with('的') { after.trim_start_matches('的') } else { after };
    }
    clause.push_str(rest);
    Some(clause)
}

/// The text before the next `{mark}`, the mark, and the text after it.
fn next_mark(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (mark, after) = rest.split_once('}')?;
    Some((before, mark, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_said() {
        let check = |head, relation, tail, negated, said: Option<&str>| {
            assert_eq!(chinese_clause(head, relation, tail, negated).as_deref(), said);
        };
        check("故宫", "周边景点", "天坛", false, Some("故宫的周边景点有天坛"));
        check(
            "故宫",
            "地址",
            "北京市东城区景山前街4号。",
            false,
            Some("故宫的地址是北京市东城区景山前街4号"),
        );
        check("故宫", "电话", "010-1", true, Some("故宫的电话不是010-1"));
        check("狗", "CapableOf", "飞", true, Some("狗不会飞"));
        check("狗", "NotCapableOf", "飞", false, Some("狗不会飞"));
        check("糖", "HasProperty", "甜的", false, Some("糖是甜的"));
        check("糖", "HasProperty", "甜", false, Some("糖是甜的"));
        check("睡觉", "HasFirstSubevent", "躺下", true, None);
        check("dog", "CapableOf", "bark", false, None);
        check("故宫", "OwnedBy", "国家", false, None);
        check("{tail}故宫", "IsA", "{head}", false, Some("{tail}故宫是{head}"));
        check("故宫", "地址", "。", false, None);
    }

    #[test]
    fn every_denial_denies_and_nothing_that_holds_does() {
        let lines = CLAUSES.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(WAYS.len(), lines, "every line is read, each relation once");
        for (relation, (holds, denied)) in &*WAYS {
            let denies = |words: &str| words.contains(['不', '没']);
            assert!(denied.is_empty() || denies(denied), "{relation}: {denied}");
            // 不是一回事 is positive; no other positive clause may contain a negation.
            assert!(!denies(holds) || *relation == "DistinctFrom", "{relation}: {holds}");
            for words in [holds, denied] {
                let ends = ["{head}", "{tail}"].iter().all(|mark| words.matches(mark).count() == 1);
                assert!(words.is_empty() || ends, "{relation}: {words}");
            }
        }
    }
}
