//! One conversation with an engine of this process.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Receiver;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::Summary;
use turnstream_explain::{Asked, Shown, Spoken};
use turnstream_log::embedded::{EmbeddedLog, partition_of};
use turnstream_schemas::{EventTime, Outcome, Response, Speaker, Turn};

use super::attention::{Attention, TextSoFar};
use super::view::View;
use super::{ChatArgs, wording};
use crate::explain::{shown, words};
use crate::served::Served;

/// A conversation, and what was said in it.
pub(super) struct Session {
    served: Served,
    attention: Attention,
    written: Receiver<TextSoFar>,
    /// A turn without words.
    blank: Turn,
    spoken: Spoken,
    /// Turns that the log already had.
    earlier: u64,
    latest: Option<Box<Response>>,
    wording: String,
    threshold: f64,
}

impl Session {
    /// Starts the engine on a log, and reads the conversation that the log has.
    pub(super) fn start(
        args: &ChatArgs,
        log: EmbeddedLog,
        dependencies: Dependencies,
        attention: Attention,
        written: Receiver<TextSoFar>,
    ) -> anyhow::Result<Self> {
        let mut blank = Turn::new(&args.conversation, Speaker::User, "");
        blank.persona.clone_from(&args.persona);
        blank.language.clone_from(&args.language);
        blank.user_id = args.user.as_deref().map(Into::into);
        let mut spoken = Spoken::default();
        let partition = partition_of(args.conversation.as_bytes(), log.partitions());
        let earlier = words::conversation(&log, partition, &args.conversation, &mut spoken)?;
        let (wording, threshold) =
            (wording(&dependencies.config), dependencies.config.gate.threshold);
        let served = Served::start(log, dependencies)?;
        let latest = None;
        Ok(Self { served, attention, written, blank, spoken, earlier, latest, wording, threshold })
    }

    /// The introduction for a person who begins to type.
    pub(super) fn introduction(&self) -> String {
        let Self { blank, earlier, wording, .. } = self;
        let earlier = match earlier {
            0 => String::new(),
            1 => ", which has 1 turn".to_owned(),
            turns => format!(", which has {turns} turns"),
        };
        let conversation = &blank.conversation_id;
        format!(
            "conversation {conversation}{earlier}; responses are worded by {wording}. /help lists \
             commands, Ctrl-D ends it"
        )
    }

    /// Puts one turn through the engine, and shows its response while it is written.
    pub(super) fn turn(
        &mut self,
        words: &str,
        view: &mut View<'_>,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Outcome> {
        let Self { served, attention, written, blank, spoken, latest, .. } = self;
        let now = EventTime(jiff::Timestamp::now().as_millisecond());
        let mut turn = Turn { text: words.to_owned(), timestamp: Some(now), ..blank.clone() };
        attention.begin();
        let (input, _) = served.say(&turn)?;
        // The id that the engine gives it. It is unique also in a continued conversation.
        turn.turn_id = Some(input.turn_id());
        spoken.note_turn(&turn);
        let mut told = false;
        let outcome = served.outcome_while(&input, &mut || {
            for TextSoFar { text, .. } in
                written.try_iter().filter(|so_far| so_far.input == input && !told)
            {
                view.written(&text)?;
            }
            if !told && interrupted.load(Ordering::Relaxed) {
                told = true;
                attention.interrupt(&input);
                view.interrupted()?;
            }
            Ok(())
        })?;
        view.outcome(&outcome, spoken)?;
        if let Outcome::Response(response) = &outcome {
            spoken.note_response(response);
            *latest = Some(response.clone());
        }
        Ok(outcome)
    }

    /// The requests to the models for the last response.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.latest.as_ref().map_or(Vec::new(), |latest| self.attention.asked(&latest.input))
    }

    /// The path of the last response; `None` if there is none.
    pub(super) fn explained(&self, with: Shown<'_>, colour: bool) -> Option<String> {
        let with = Shown { threshold: Some(self.threshold), ..with };
        self.latest.as_ref().map(|latest| shown(latest, &self.spoken, with, colour))
    }

    /// Ends the conversation and the engine.
    pub(super) fn end(self) -> anyhow::Result<Summary> {
        self.served.end()
    }
}
