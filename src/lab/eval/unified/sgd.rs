//! Reads Schema-Guided Dialogue as cases. The reply rests on the service's table if it makes a
//! call, or if one of its actions gives the service's answer: a proxy, as for the gate. The
//! required content of a reply is the frame of its actions, worded as in training. The judged
//! evidence is rows of the service's answers, worded as the engine words rows: the row of the
//! reply, another row of the same answer, and a row of an earlier conversation.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use turnstream_formats::sgd::domain;
use turnstream_operators::tables::{Row, surface, words};
use turnstream_ports::model::unified::{EvidenceText, Exchange};
use turnstream_schemas::{Column, SourceKind};

use super::{Frame, JudgedEvidence, Relation, Reply, UnifiedCase};
use crate::eval::retrieval::{EvalError, records};

/// Actions that give the service's answer.
const ANSWERS: [&str; 5] = ["OFFER", "INFORM", "INFORM_COUNT", "NOTIFY_SUCCESS", "NOTIFY_FAILURE"];
/// Actions whose slots have no content.
const BARE: [&str; 2] = ["OFFER_INTENT", "REQUEST"];
/// Rows of earlier conversations that an unfitting row is drawn from.
const FOREIGN: usize = 500;

#[derive(Deserialize)]
struct SgdDialogue {
    turns: Vec<SgdTurn>,
}

#[derive(Deserialize)]
struct SgdTurn {
    speaker: String,
    utterance: String,
    #[serde(default)]
    frames: Vec<SgdFrame>,
}

#[derive(Deserialize)]
struct SgdFrame {
    #[serde(default)]
    service: String,
    #[serde(default)]
    actions: Vec<Action>,
    service_call: Option<Value>,
    #[serde(default)]
    service_results: Vec<Map<String, Value>>,
}

/// An action with its slot and values.
#[derive(Deserialize)]
struct Action(String, String, Vec<String>);

/// Reads the cases of a split's conversations, or of a number of them, drawn with a seed.
///
/// # Errors
/// The file cannot be read, or has no conversation.
pub fn read(
    path: &Path,
    conversations: Option<usize>,
    seed: u64,
) -> Result<Vec<UnifiedCase>, EvalError> {
    let records = records::<SgdDialogue>(path)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..records.len()).collect();
    if let Some(count) = conversations {
        random.shuffle(&mut order);
        order.truncate(count);
        order.sort_unstable();
    }
    let (mut cases, mut foreign) = (Vec::new(), Vec::new());
    for at in order {
        let from = cases.len();
        cases.extend(of_record(at, &records[at], &foreign, &mut random));
        let rows = cases[from..]
            .iter()
            .flat_map(|case| &case.judged)
            .filter(|it| it.relation == Relation::Gold);
        foreign.extend(rows.map(|it| it.piece.clone()));
        foreign.drain(..foreign.len().saturating_sub(FOREIGN));
    }
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn of_record(
    conversation: usize,
    record: &SgdDialogue,
    foreign: &[EvidenceText],
    random: &mut fastrand::Rng,
) -> Vec<UnifiedCase> {
    let (mut cases, mut dialogue) = (Vec::new(), Vec::<Exchange>::new());
    for pair in record.turns.chunks_exact(2) {
        let [user, system] = pair else { continue };
        if !user.speaker.eq_ignore_ascii_case("user") {
            break;
        }
        dialogue.push(Exchange { user: user.utterance.clone(), response: None });
        if let Some(frame) = system.frames.first() {
            let answers = frame.actions.iter().any(|Action(act, ..)| ANSWERS.contains(&&**act));
            let asks = frame.service_call.is_some() || answers;
            let judged = if asks { judged(system, foreign, random) } else { Vec::new() };
            let reply = answers.then(|| reply(system, frame));
            let (dialogue, kind) = (dialogue.clone(), SourceKind::Table);
            cases.push(UnifiedCase { conversation, dialogue, kind, asks, judged, reply });
        }
        if let Some(last) = dialogue.last_mut() {
            last.response = Some(system.utterance.clone());
        }
    }
    cases
}

/// Returns the frame of actions as one text, `offer: airline = Delta, price = $469; inform count:
/// count = 3`.
fn reply(system: &SgdTurn, frame: &SgdFrame) -> Reply {
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    let mut actions: Vec<(String, Column)> = Vec::new();
    for Action(act, slot, values) in &frame.actions {
        let action = words(act);
        let at = texts.iter().position(|(known, _)| *known == action).unwrap_or_else(|| {
            texts.push((action.clone(), Vec::new()));
            texts.len() - 1
        });
        let has_slot = !slot.is_empty() && !BARE.contains(&act.as_str());
        let name = if has_slot { words(slot) } else { String::new() };
        let of = |value: String| (action.clone(), Column { name: name.clone(), value });
        if values.is_empty() || !has_slot {
            actions.push(of(String::new()));
        }
        if !has_slot {
            continue;
        }
        if values.is_empty() {
            texts[at].1.push(name.clone());
        }
        for value in values {
            let value = match value.as_str() {
                "True" | "False" => surface(value),
                other => other.to_owned(),
            };
            texts[at].1.push(format!("{name} = {value}"));
            actions.push(of(value));
        }
    }
    let texts = texts.into_iter().map(|(action, pairs)| match pairs.is_empty() {
        true => action,
        false => format!("{action}: {}", pairs.join(", ")),
    });
    let text = texts.collect::<Vec<_>>().join("; ");
    let columns = actions.iter().map(|(_, column)| column.clone());
    let columns = columns.filter(|column| !column.value.is_empty()).collect();
    Reply {
        text: system.utterance.clone(),
        evidence: vec![EvidenceText { kind: SourceKind::Table, text, columns }],
        frame: Some(Frame { service: domain(&frame.service), actions }),
    }
}

fn piece(row: &Map<String, Value>) -> EvidenceText {
    let Row { columns, text } = Row::of(row);
    EvidenceText { kind: SourceKind::Table, text, columns }
}

/// Returns the row of the reply and two others; empty if the reply is about no row.
fn judged(
    system: &SgdTurn,
    foreign: &[EvidenceText],
    random: &mut fastrand::Rng,
) -> Vec<JudgedEvidence> {
    let rows: Vec<&Map<String, Value>> =
        system.frames.iter().flat_map(|frame| &frame.service_results).collect();
    let actions = system.frames.iter().flat_map(|frame| &frame.actions);
    let said: Vec<(&str, &str)> = actions
        .filter(|Action(_, slot, values)| !slot.is_empty() && !values.is_empty())
        .map(|Action(_, slot, values)| (slot.as_str(), values[0].as_str()))
        .collect();
    let agrees = |row: &Map<String, Value>| {
        said.iter().any(|(slot, value)| {
            let there = row.get(*slot).and_then(Value::as_str).map(surface);
            there.is_some_and(|there| there.eq_ignore_ascii_case(value))
        })
    };
    let Some(fits) = rows.iter().position(|row| agrees(row)) else { return Vec::new() };
    let judge = |piece: EvidenceText, relation| JudgedEvidence { piece, relation };
    let mut judged = vec![judge(piece(rows[fits]), Relation::Gold)];
    let others: Vec<usize> = (0..rows.len()).filter(|at| !agrees(rows[*at])).collect();
    judged.extend(random.choice(&others).map(|at| judge(piece(rows[*at]), Relation::Same)));
    judged.extend(random.choice(foreign).map(|other| judge(other.clone(), Relation::Other)));
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::testing::Files;

    fn cases(turns: &str) -> Vec<UnifiedCase> {
        let files = Files::new();
        let record = format!("{{\"turns\":[{turns}]}}");
        read(&files.write("dev.jsonl", &[&record]), None, 1).expect("cases")
    }

    const OFFER: &str = r#"
        {"speaker": "USER", "utterance": "A lamp please."},
        {"speaker": "SYSTEM", "utterance": "How about the Oslo at 9:30 am? It dims.", "frames": [{
            "service": "Lamps_2",
            "actions": [["OFFER", "lamp_name", ["Oslo"]], ["OFFER", "time", ["9:30 am"]],
                        ["INFORM", "can_dim", ["True"]], ["NOTIFY_SUCCESS", "", []],
                        ["OFFER_INTENT", "intent", ["BuyLamp"]]],
            "service_call": {},
            "service_results": [{"lamp_name": "Bergen", "time": "10:00"},
                                {"lamp_name": "Oslo", "time": "09:30", "can_dim": "True"}]}]},
        {"speaker": "USER", "utterance": "Thanks."},
        {"speaker": "SYSTEM", "utterance": "Bye.", "frames": [{"actions": [["GOODBYE", "", []]]}]}"#;

    #[test]
    fn a_reply_has_to_say_what_its_actions_do() {
        let cases = cases(OFFER);
        assert_eq!(cases.iter().map(|case| case.asks).collect::<Vec<_>>(), [true, false]);
        let reply = cases[0].reply.as_ref().expect("an answer");
        let text = "offer: lamp name = Oslo, time = 9:30 am; inform: can dim = yes; \
                    notify success; offer intent";
        assert_eq!(reply.evidence[0].text, text);
        let columns = &reply.evidence[0].columns;
        let values: Vec<&str> = columns.iter().map(|column| column.value.as_str()).collect();
        assert_eq!(values, ["Oslo", "9:30 am", "yes"]);
        let frame = reply.frame.as_ref().expect("a frame");
        assert_eq!(frame.required().collect::<Vec<_>>(), ["Oslo", "9:30 am"]);
        assert_eq!((frame.service.as_str(), frame.row().columns.len()), ("Lamps", 3));
        // The second turn follows the first reply.
        assert_eq!(cases[1].dialogue[0].response.as_deref(), Some(&*reply.text));
        assert!(cases[1].reply.is_none() && cases[1].judged.is_empty());
    }

    #[test]
    fn the_row_that_is_spoken_of_fits_and_another_does_not() {
        let cases = cases(OFFER);
        let judged: Vec<(&str, Relation)> =
            cases[0].judged.iter().map(|it| (it.piece.text.as_str(), it.relation)).collect();
        assert_eq!(
            judged,
            [
                ("lamp name = Oslo, time = 9:30 am, can dim = yes", Relation::Gold),
                ("lamp name = Bergen, time = 10:00 am", Relation::Same)
            ]
        );
    }
}
