//! `demo --chat`: each typed line is a turn.

use std::io::BufRead;
use std::time::{Duration, Instant};

use anyhow::Context;
use turnstream_explain::{Page, Spoken};
use turnstream_schemas::{EventTime, Outcome, Speaker, Turn};

use super::play::Heard;
use super::{frame, print_counts, print_json, show};
use crate::served::Served;

/// The conversation's id.
const CONVERSATION: &str = "chat";

/// The prompt before a typed line.
const PROMPT: &str = "\nyou> ";

/// Serves typed lines until an empty one or the end.
pub(super) fn chat(
    mut page: Page<'_>,
    json: bool,
    mut served: Served,
    stdin: &mut dyn BufRead,
    prompt: bool,
) -> anyhow::Result<()> {
    if !json {
        frame::chat_introduction(&mut page)?;
    }
    let mut spoken = Spoken::default();
    let mut time = Duration::ZERO;
    let mut count = 0;
    loop {
        if prompt && !json {
            write!(page.out(), "{PROMPT}")?;
            page.flush()?;
        }
        let Some(words) = line(stdin)? else { break };
        count += 1;
        let asked = Instant::now();
        let heard = say(&mut served, &words, count)?;
        time += asked.elapsed();
        match &heard.outcome {
            Outcome::Response(response) if json => print_json(page.out(), response)?,
            _ if json => {}
            _ => show::turn(&mut page, &heard, &spoken)?,
        }
        heard.note_in(&mut spoken);
    }
    let summary = served.end()?;
    if json {
        print_counts(page.out(), &summary, time)?;
    } else {
        frame::closing(&mut page, &summary, time)?;
    }
    Ok(())
}

/// The next line without its end; `None` if it is empty or input has ended.
fn line(stdin: &mut dyn BufRead) -> anyhow::Result<Option<String>> {
    let mut bytes = Vec::new();
    stdin.read_until(b'\n', &mut bytes).context("standard input")?;
    let words = String::from_utf8_lossy(&bytes);
    let words = words.trim();
    Ok((!words.is_empty()).then(|| words.to_owned()))
}

/// Puts one turn through the engine.
fn say(served: &mut Served, words: &str, count: u64) -> anyhow::Result<Heard> {
    let mut turn = Turn::new(CONVERSATION, Speaker::User, words);
    turn.turn_id = Some(format!("t{count}").into());
    turn.timestamp = Some(EventTime(jiff::Timestamp::now().as_millisecond()));
    let (input, bytes) = served.say(&turn)?;
    let outcome = served.outcome(&input)?;
    Ok(Heard { bytes, turn: Some(turn), outcome })
}
