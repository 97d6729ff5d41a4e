//! Says which right answers phrasings would turn wrong, and which wrong ones right, by a gold file.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use turnstream_console::InputRefused;
use turnstream_sources::gold::{AnswerVerdict, GoldFile, GoldKind};

use crate::diff::comparison::Said;
use crate::diff::{name_of, print_sides};
use crate::responses::each_response;
use crate::utterances::Utterance;

use AnswerVerdict::{Abstained, Right, Wrong};

/// The changes of a verdict, in the order of the report: harm first.
const CHANGES: [(AnswerVerdict, AnswerVerdict); 6] = [
    (Right, Wrong),
    (Abstained, Wrong),
    (Right, Abstained),
    (Wrong, Right),
    (Abstained, Right),
    (Wrong, Abstained),
];

/// Turns by verdict.
#[derive(Debug, Default, Serialize)]
struct VerdictCounts {
    right: u64,
    wrong: u64,
    abstained: u64,
}

/// A turn with another verdict than before.
#[derive(Debug, Serialize)]
struct TurnedVerdict {
    turn: String,
    kind: GoldKind,
    before: AnswerVerdict,
    after: AnswerVerdict,
    /// What the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    a: Said,
    b: Said,
}

/// The verdicts on two replays of a log.
#[derive(Debug, Default, Serialize)]
pub(super) struct VerdictComparison {
    /// Turns of the gold file that both replays answer.
    pub(super) judged: u64,
    /// Turns that the gold file does not have.
    unknown: u64,
    /// The verdicts on A.
    before: VerdictCounts,
    /// The verdicts on B.
    after: VerdictCounts,
    /// Turns with another verdict: right ones that turn wrong first.
    turned: Vec<TurnedVerdict>,
}

impl VerdictCounts {
    fn count(&mut self, verdict: AnswerVerdict) {
        *match verdict {
            Right => &mut self.right,
            Wrong => &mut self.wrong,
            Abstained => &mut self.abstained,
        } += 1;
    }
}

impl VerdictComparison {
    /// Judges the responses of two replays, without and with the phrasings.
    ///
    /// # Errors
    /// A file cannot be read, or a line is not a response.
    pub(super) fn of(
        [a, b]: &[PathBuf; 2],
        gold: &GoldFile,
        users: &HashMap<String, Utterance>,
    ) -> Result<Self, InputRefused> {
        let mut known: HashMap<String, (AnswerVerdict, Said)> = HashMap::new();
        each_response(a, |_, response| {
            if let Some(expected) = gold.turn(&response) {
                let judged = (expected.judge(&response), Said::of(&response));
                known.insert(name_of(&response), judged);
            }
        })?;
        let mut compared = Self::default();
        each_response(b, |_, response| {
            let Some(expected) = gold.turn(&response) else { return compared.unknown += 1 };
            let turn = name_of(&response);
            let Some((before, a)) = known.remove(&turn) else { return };
            let after = expected.judge(&response);
            compared.judged += 1;
            compared.before.count(before);
            compared.after.count(after);
            if before != after {
                let user = users.get(&turn).map(|said| said.text.clone());
                let (kind, b) = (expected.kind, Said::of(&response));
                compared.turned.push(TurnedVerdict { turn, kind, before, after, user, a, b });
            }
        })?;
        let place = |it: &TurnedVerdict| CHANGES.iter().position(|of| *of == (it.before, it.after));
        // Turns of the same change stay in the order of the log.
        compared.turned.sort_by_key(place);
        Ok(compared)
    }

    /// Prints the verdicts, and at most `show` turns of each change.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(super) fn print(&self, show: usize, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { judged, unknown, before, after, turned } = self;
        writeln!(out, "{judged} turns are in the gold file, {unknown} are not")?;
        writeln!(out, "\n   right wrong abstained")?;
        for (side, VerdictCounts { right, wrong, abstained }) in [("A", before), ("B", after)] {
            writeln!(out, "{side}  {right:5} {wrong:5} {abstained:9}")?;
        }
        for (before, after) in CHANGES {
            let changed = (before, after);
            let turns: Vec<_> =
                turned.iter().filter(|it| (it.before, it.after) == changed).collect();
            if turns.is_empty() {
                continue;
            }
            writeln!(out, "\n{} → {}: {}", before.name(), after.name(), turns.len())?;
            for TurnedVerdict { turn, kind, user, a, b, .. } in turns.into_iter().take(show) {
                writeln!(out, "\n{turn}: {}", kind.name())?;
                print_sides(user.as_deref(), [a, b], out)?;
            }
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GOLD: &str = r#"{"turn_id": "1", "kind": "document", "must": ["thirty"]}
{"turn_id": "2", "kind": "out_of_domain"}
{"turn_id": "3", "kind": "document", "must": ["shop"]}
{"turn_id": "5", "kind": "hand_off"}
"#;

    fn response(turn: &str, action: &str, text: &str) -> String {
        let full = include_str!("../../../tests/fixtures/records/v1/response.json");
        let mut response: Value = serde_json::from_str(full).expect("a response");
        response["conversation_id"] = "c".into();
        response["turn_id"] = turn.into();
        response["action"] = action.into();
        response["text"] = text.into();
        response.to_string()
    }

    /// Compares the verdicts on these turns: id, and action and text of both responses.
    fn compared(turns: &[(&str, [&str; 2], [&str; 2])]) -> VerdictComparison {
        let folder = tempfile::tempdir().expect("a folder");
        let files = ["a.jsonl", "b.jsonl"].map(|name| folder.path().join(name));
        for (side, file) in files.iter().enumerate() {
            let lines: Vec<String> = turns
                .iter()
                .map(|(turn, actions, texts)| response(turn, actions[side], texts[side]))
                .collect();
            std::fs::write(file, lines.join("\n")).expect("written");
        }
        let gold = folder.path().join("gold.jsonl");
        std::fs::write(&gold, GOLD).expect("written");
        let said = Utterance { text: "who painted it?".to_owned(), reply: None, is_echoed: false };
        let users = HashMap::from([("c/2".to_owned(), said)]);
        let gold = GoldFile::read(&gold).expect("gold");
        VerdictComparison::of(&files, &gold, &users).expect("compared")
    }

    fn turns() -> VerdictComparison {
        compared(&[
            ("1", ["answer", "answer"], ["Within fourteen days.", "Within thirty days."]),
            ("2", ["decline", "answer"], ["I do not know.", "Tastings are on Fridays."]),
            ("3", ["decline", "answer"], ["I do not know.", "In the shop."]),
            ("4", ["decline", "answer"], ["I do not know.", "By bus."]),
            ("5", ["hand_off", "hand_off"], ["A colleague comes.", "A colleague comes."]),
        ])
    }

    #[test]
    fn what_turns_wrong_comes_first() {
        let found = serde_json::to_value(turns()).expect("JSON");
        assert_eq!((&found["judged"], &found["unknown"]), (&json!(4), &json!(1)));
        assert_eq!(found["before"], json!({ "right": 2, "wrong": 1, "abstained": 1 }));
        assert_eq!(found["after"], json!({ "right": 3, "wrong": 1, "abstained": 0 }));
        let turned = found["turned"].as_array().expect("turns");
        let change = |it: &Value| json!([it["turn"], it["before"], it["after"]]);
        let expected = [
            json!(["c/2", "right", "wrong"]),
            json!(["c/1", "wrong", "right"]),
            json!(["c/3", "abstained", "right"]),
        ];
        assert_eq!(turned.iter().map(change).collect::<Vec<_>>(), expected);
        let wrong = json!({
            "turn": "c/2", "kind": "out_of_domain", "before": "right", "after": "wrong",
            "user": "who painted it?",
            "a": { "action": "decline", "hand_off": "asked", "text": "I do not know." },
            "b": { "action": "answer", "hand_off": "asked", "text": "Tastings are on Fridays." },
        });
        assert_eq!(turned[0], wrong);
    }

    #[test]
    fn people_see_the_verdicts_and_some_turns_of_each_change() {
        let shown = |show| {
            let mut out = Vec::new();
            turns().print(show, &mut out).expect("printed");
            String::from_utf8(out).expect("UTF-8")
        };
        let all = shown(1);
        let begin = "4 turns are in the gold file, 1 are not\n\n   right wrong abstained\n\
                     A      2     1         1\nB      3     1         0\n\n\
                     right → wrong: 1\n\nc/2: out_of_domain\n  user  who painted it?\n  \
                     A     decline  I do not know.\n  B     answer   Tastings are on Fridays.\n\n\
                     wrong → right: 1\n\nc/1: document\n";
        assert!(all.starts_with(begin), "{all}");
        let none = shown(0);
        assert!(none.contains("abstained → right: 1\n") && !none.contains("c/3"), "{none}");
    }
}
