//! Answers a question from the place that the user chose for it.

use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_ports::model::reader::{ReadRequest, Reading};
use turnstream_schemas::{Action, Evidence};

use super::choice;
use super::{DecidedResponse, ResponseDecision};
use crate::flow::{ActionDecision, TurnInFlight};

/// Returns the evidence that is called so, each piece with its place.
fn called<'t>(turn: &'t TurnInFlight, name: &str) -> Vec<(usize, &'t Evidence)> {
    let evidence = turn.evidence.iter().enumerate();
    evidence.filter(|(_, it)| choice::is_called(it, name)).collect()
}

impl ResponseDecision {
    /// Returns what the reader is asked about a choice: the question that it belongs to, beside the
    /// chosen place alone.
    pub(super) fn request_of_chosen(&self, turn: &TurnInFlight, name: &str) -> Vec<ReadRequest> {
        let question = turn.context.question(&self.response_texts);
        let section = |(_, it): &(usize, &Evidence)| choice::section(it, &turn.taught);
        vec![ReadRequest { question, sections: called(turn, name).iter().map(section).collect() }]
    }

    /// Answers with the best sentences of the chosen place, however sure the reader is; declines if it
    /// was not found again.
    pub(super) fn of_chosen(
        &self,
        turn: &TurnInFlight,
        name: &str,
        reading: &Reading,
    ) -> DecidedResponse {
        let question = turn.context.question(&self.response_texts).utterance;
        let (read, most) = (called(turn, name), self.config.max_sentences as usize);
        let untaught = NearestPhrasings::default();
        let chosen = choice::choose(&read, reading, reading, &question, &untaught, most);
        let said = chosen.and_then(|it| {
            let said =
                choice::said(&turn.evidence[it.place], &it.sentences, turn.context.lexicon())?;
            Some((it.place, said))
        });
        let Some((place, said)) = said else { return self.decline(turn) };
        let decided = ActionDecision { said: Some(said), ..ActionDecision::to(Action::Answer) };
        DecidedResponse { decided: Some(decided), answers: vec![place] }
    }
}
