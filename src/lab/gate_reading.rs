//! Converts labelled turns to a gate's input, for training and for evaluation.

use turnstream_models::gate::Gate;
use turnstream_models::gate::network::Variant;
use turnstream_models::gate::reading::{CutTurn, Reader, TurnTokens, assemble};
use turnstream_ports::model::gate::GateFailure;

use crate::labelled::LabelledTurn;

/// Tokenises a labelled turn for a gate. A variant that reads a response receives the turn's reply.
///
/// # Errors
/// The tokenizer fails.
pub fn tokens_of(gate: &Gate, turn: &LabelledTurn) -> Result<TurnTokens, GateFailure> {
    let shape = &gate.card().shape;
    let cut = cut(gate.reader(), turn, shape.variant)?;
    Ok(assemble(&cut, shape, None))
}

/// Tokenises the parts of a labelled turn that a variant reads.
///
/// # Errors
/// The tokenizer fails.
pub fn cut(reader: &Reader, turn: &LabelledTurn, variant: Variant) -> Result<CutTurn, GateFailure> {
    let tokens = |text: &str| reader.cut(text).map_err(|error| GateFailure(error.to_string()));
    let utterances = turn.utterances.iter();
    let utterances = utterances.map(|said| Ok((said.speaker, tokens(&said.text)?)));
    let knowledge = match variant.reads_knowledge() {
        true => turn.knowledge.iter().map(|text| tokens(text)).collect::<Result<_, _>>()?,
        false => Vec::new(),
    };
    let response = turn.reply.as_deref().filter(|_| variant.reads_response());
    Ok(CutTurn {
        utterances: utterances.collect::<Result<_, _>>()?,
        knowledge,
        response: response.map(tokens).transpose()?,
        depth: turn.utterances.len(),
    })
}
