//! Learned generation: the unified model words rows of tables, which is what it was trained for.
//! (UniMS-RAG, L_response.)
//!
//! The model is asked only where the first selected evidence is a row, in English, and the utterance is not
//! small talk. The first of its drafts that is [faithful](crate::faithful) to the row and says
//! [nothing more](super::grounded) becomes the response. If there is none, the realiser answers and says the
//! columns as they are. The response's `model.name` says which of the two answered.

use turnstream_knowledge::language::Lexicon;
use turnstream_ports::model::unified::{
    Task, UnifiedAnswer, UnifiedRequest, Wording, evidence_text, text_of,
};
use turnstream_schemas::{
    Confidence, ConfidenceKind, Evidence, Fault, FaultKind, ModelUsed, SourceKind, TableRow,
};

use super::{LearnedGenerationConfig, STAGE, grounded};
use crate::faithful;
use crate::flow::{Draft, TurnInFlight};
use crate::stage::Answer;
use crate::unified::exchanges;

/// Most rows that the model is shown.
const MOST_ROWS: usize = 3;
/// The relevance that the request gives the leading row, and the other rows, in tenths as in
/// training. The turn's own relevances are on another scale.
const LEADING: u8 = 10;
const BESIDE: u8 = 3;

/// Returns the row to make the response from; `None` if other evidence leads, or the turn is not in
/// English.
pub(super) fn leading_row(turn: &TurnInFlight) -> Option<&TableRow> {
    let english = turn.context.lexicon().language() == Lexicon::english().language();
    let first = turn.evidence.first().filter(|first| first.selected && english)?;
    first.row.as_ref()
}

/// Returns the rows that the model is shown, the leading one first.
fn rows(turn: &TurnInFlight) -> impl Iterator<Item = &Evidence> {
    let selected = turn.evidence.iter().take_while(|evidence| evidence.selected);
    selected.filter(|evidence| evidence.row.is_some()).take(MOST_ROWS)
}

/// Makes the request for a turn.
pub(super) fn request(turn: &TurnInFlight, config: &LearnedGenerationConfig) -> UnifiedRequest {
    let relevances = std::iter::once(LEADING).chain(std::iter::repeat(BESIDE));
    let evidence = rows(turn).map(|row| evidence_text(row, SourceKind::Table)).zip(relevances);
    let task = Task::Response {
        plan: vec![SourceKind::Table],
        evidence: evidence.collect(),
        max_tokens: config.max_tokens,
        drafts: config.drafts,
    };
    UnifiedRequest { dialogue: exchanges(&turn.context), task }
}

/// Returns the first draft that passes both checks; `None` if none does.
///
/// # Errors
/// If the answer is not a response.
pub(super) fn read(
    turn: &TurnInFlight,
    answer: Answer,
    model: &str,
) -> Result<Option<Draft>, Fault> {
    let answers: Vec<UnifiedAnswer> = answer.of(STAGE)?;
    let Some(UnifiedAnswer::Response(drafts)) = answers.into_iter().next() else {
        return Err(Fault::new(STAGE, FaultKind::Unfit, "the model's answer is not a response"));
    };
    let Some(row) = leading_row(turn) else { return Ok(None) };
    let context = &turn.context;
    let dialogue = context.dialogue.iter().map(|said| &*said.text);
    let known: Vec<&str> = dialogue.chain(turn.evidence.iter().map(|it| &*it.text)).collect();
    let is_faithful = |draft: &Wording| {
        let Wording { said, is_whole, .. } = draft;
        let asked = context.query();
        faithful::check(said, *is_whole, row, asked, &known).is_ok()
            && grounded::check(said, row, asked).is_ok()
    };
    Ok(drafts.into_iter().find(is_faithful).map(|draft| {
        let value = f64::from(draft.lowest_log_probability);
        let kind = ConfidenceKind::LowestLogProbability;
        let model = ModelUsed { name: model.to_owned(), prompt_hash: None };
        Draft {
            text: text_of(&draft.said),
            confidence: Some(Confidence { kind, value }),
            model,
            citations: turn.evidence.first().map(Into::into).into_iter().collect(),
        }
    }))
}

#[cfg(test)]
mod tests;
