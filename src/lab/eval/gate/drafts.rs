//! Drafts responses for gates that read one: the unified model words them from the dialogue alone,
//! as the paper's synthetic responses (RAGate-PEFT).

use turnstream_ports::model::unified::{Exchange, Task, UnifiedAnswer, UnifiedRequest, text_of};

use super::GateError;
use crate::eval::unified::Ask;
use crate::labelled::{LabelledTurn, Said};

/// Turns drafted at once.
const BATCH: usize = 16;
/// The most tokens of a draft.
const MAX_TOKENS: u32 = 48;

/// Replaces the reply of each turn by the most probable response to its dialogue; an empty one
/// becomes `None`. Calls `progress` once per turn.
///
/// # Errors
/// [`GateError::Failed`] if the model fails, or does not respond to every turn.
pub fn draft(
    turns: &mut [LabelledTurn],
    ask: &mut Ask<'_>,
    progress: &dyn Fn(),
) -> Result<(), GateError> {
    for batch in turns.chunks_mut(BATCH) {
        let requests: Vec<UnifiedRequest> = batch.iter().map(request).collect();
        let mut answers = ask(&requests).map_err(failed)?.into_iter();
        for turn in batch {
            let wording = match answers.next() {
                Some(UnifiedAnswer::Response(drafts)) => drafts.into_iter().next(),
                _ => None,
            };
            let wording = wording.ok_or_else(|| failed("no response came back".to_owned()))?;
            let text = text_of(&wording.said);
            turn.reply = (!text.is_empty()).then_some(text);
            progress();
        }
    }
    Ok(())
}

fn failed(error: String) -> GateError {
    GateError::Failed { gate: "with drafts of the unified model".to_owned(), source: error.into() }
}

/// The request for a response without evidence.
fn request(turn: &LabelledTurn) -> UnifiedRequest {
    let (plan, evidence) = (Vec::new(), Vec::new());
    let task = Task::Response { plan, evidence, max_tokens: MAX_TOKENS, drafts: 1 };
    UnifiedRequest { dialogue: exchanges(&turn.utterances), task }
}

/// Pairs utterances. Whoever said the last one, which is answered, is the user here: in some data
/// sets either speaker is answered. Successive utterances of one speaker are joined. If the other
/// speaker begins, the user's words of the first exchange are empty.
fn exchanges(utterances: &[Said]) -> Vec<Exchange> {
    let asker = utterances.last().map(|said| said.speaker);
    let mut exchanges: Vec<Exchange> = Vec::new();
    for said in utterances {
        let text = said.text.trim();
        match (Some(said.speaker) == asker, exchanges.last_mut()) {
            (true, Some(Exchange { user: words, response: None }))
            | (false, Some(Exchange { response: Some(words), .. })) => {
                words.push(' ');
                words.push_str(text);
            }
            (true, _) => exchanges.push(Exchange { user: text.to_owned(), response: None }),
            (false, Some(last)) => last.response = Some(text.to_owned()),
            (false, None) => {
                exchanges.push(Exchange { user: String::new(), response: Some(text.to_owned()) });
            }
        }
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use turnstream_formats::Need;
    use turnstream_ports::model::unified::{Said as Part, Wording};
    use turnstream_schemas::Speaker;

    use super::*;

    /// A turn with a reply of its data set, after lines such as `u: Hello.`
    fn turn(lines: &[&str]) -> LabelledTurn {
        let said = |line: &&str| {
            let (speaker, text) = line.split_once(": ").unwrap();
            let speaker = if speaker == "u" { Speaker::User } else { Speaker::System };
            Said { speaker, text: text.to_owned() }
        };
        LabelledTurn {
            conversation: "1".to_owned(),
            position: 1,
            domain: None,
            utterances: lines.iter().map(said).collect(),
            knowledge: vec!["What the gold reply rests on.".to_owned()],
            reply: Some("The gold reply.".to_owned()),
            need: Need::Unstructured,
        }
    }

    /// Words a response to the last utterance, and an empty one to "Bye."
    fn respond(request: &UnifiedRequest) -> UnifiedAnswer {
        let last = request.dialogue.last().map_or("", |exchange| &exchange.user);
        let words = if last == "Bye." { " ".to_owned() } else { format!(" To: {last}") };
        UnifiedAnswer::Response(vec![Wording {
            said: vec![Part::Words(words)],
            lowest_log_probability: -0.1,
            is_whole: true,
            tokens: 3,
        }])
    }

    #[test]
    fn responses_are_drafted_from_the_dialogue_alone() {
        let lines = ["s: Hello.", "u: A pool?", "u: Heated?", "s: Yes.", "s: Both.", "u: Wifi?"];
        let mut turns =
            vec![turn(&lines), turn(&["u: Owls hunt.", "s: When?"]), turn(&["u: Bye."])];
        turns.extend(std::iter::repeat_n(turn(&["u: Parking?"]), 15));
        let mut asked: Vec<Vec<UnifiedRequest>> = Vec::new();
        let mut ask = |requests: &[UnifiedRequest]| -> Result<Vec<UnifiedAnswer>, String> {
            asked.push(requests.to_vec());
            Ok(requests.iter().map(respond).collect())
        };
        let done = Cell::new(0);
        draft(&mut turns, &mut ask, &|| done.set(done.get() + 1)).unwrap();

        assert_eq!(done.get(), turns.len());
        assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [16, 2]);
        let exchange = |user: &str, response: Option<&str>| Exchange {
            user: user.to_owned(),
            response: response.map(str::to_owned),
        };
        let paired = [
            exchange("", Some("Hello.")),
            exchange("A pool? Heated?", Some("Yes. Both.")),
            exchange("Wifi?", None),
        ];
        assert_eq!(asked[0][0].dialogue, paired);
        let turned = [exchange("", Some("Owls hunt.")), exchange("When?", None)];
        assert_eq!(asked[0][1].dialogue, turned);
        let (plan, evidence) = (Vec::new(), Vec::new());
        let task = Task::Response { plan, evidence, max_tokens: 48, drafts: 1 };
        assert!(asked.iter().flatten().all(|request| request.task == task));
        assert!(!format!("{asked:?}").contains("gold"), "{asked:?}");

        assert_eq!(turns[0].reply.as_deref(), Some("To: Wifi?"));
        assert_eq!(turns[1].reply.as_deref(), Some("To: When?"));
        assert_eq!(turns[2].reply, None, "an empty draft");
        assert_eq!(turns[17].reply.as_deref(), Some("To: Parking?"));
    }

    #[test]
    fn a_model_must_respond_to_every_turn() {
        let refused = |answers: Result<Vec<UnifiedAnswer>, String>| {
            let mut ask = |_: &[UnifiedRequest]| answers.clone();
            draft(&mut [turn(&["u: Wifi?"])], &mut ask, &|| ()).unwrap_err().to_string()
        };
        assert!(refused(Err("out of memory".to_owned())).contains("out of memory"));
        let empty = UnifiedAnswer::Response(Vec::new());
        for answers in [Vec::new(), vec![UnifiedAnswer::Relevance(0.5)], vec![empty]] {
            assert!(refused(Ok(answers)).contains("no response came back"));
        }
    }
}
