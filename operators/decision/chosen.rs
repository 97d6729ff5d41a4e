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

    /// Answers with the cell that the user chose, if it is one.
    pub(super) fn of_chosen_cell(
        &self,
        turn: &TurnInFlight,
        name: &str,
    ) -> Option<DecidedResponse> {
        let (place, cell) = called(turn, name)
            .into_iter()
            .find_map(|(place, it)| Some((place, choice::cell_called(it, name)?)))?;
        Self::saying(turn, place, &[cell])
    }

    /// Answers with these sentences or cells of a place.
    fn saying(turn: &TurnInFlight, place: usize, chosen: &[usize]) -> Option<DecidedResponse> {
        let said = choice::said(&turn.evidence[place], chosen, turn.context.lexicon())?;
        let decided = ActionDecision { said: Some(said), ..ActionDecision::to(Action::Answer) };
        Some(DecidedResponse { decided: Some(decided), answers: vec![place] })
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
        let said = chosen.and_then(|it| Self::saying(turn, it.place, &it.sentences));
        said.unwrap_or_else(|| self.decline(turn))
    }
}
