//! Reads KBP as turns with their candidate evidence.

use std::path::Path;
use std::rc::Rc;

use turnstream_ports::model::unified::{EvidenceText, Exchange};
use turnstream_schemas::SourceKind;

use crate::eval::persona::kbp::joined;
use crate::eval::retrieval::kbp::{Fusion, Lexicon, Order, Record};
use crate::eval::retrieval::{EvalError, records};

/// A user's turn with its candidate evidence and the reply.
#[derive(Clone, Debug)]
pub struct Case {
    /// The number of its conversation.
    pub conversation: usize,
    /// The dialogue so far; the last exchange has no response yet.
    pub dialogue: Vec<Exchange>,
    /// The data set's reply.
    pub reply: String,
    /// The candidate evidence.
    pub known: Rc<Known>,
    /// The indexes of persona sentences that the reply used.
    pub gold_personas: Vec<usize>,
    /// The indexes of documents that the reply used.
    pub gold_documents: Vec<usize>,
    /// The candidates in the order of the fusion.
    pub order: Order,
}

impl Case {
    /// Returns the sources that the reply used.
    pub fn gold_plan(&self) -> Vec<SourceKind> {
        match (self.gold_personas.is_empty(), self.gold_documents.is_empty()) {
            (true, true) => Vec::new(),
            (_, true) => vec![SourceKind::BotPersona],
            (_, false) => vec![SourceKind::BotPersona, SourceKind::Documents],
        }
    }

    /// Returns a persona sentence as evidence.
    pub(super) fn sentence(&self, place: usize) -> EvidenceText {
        evidence_text(SourceKind::BotPersona, &self.known.persona[place])
    }

    /// Returns a document as evidence.
    pub(super) fn document(&self, place: usize) -> EvidenceText {
        evidence_text(SourceKind::Documents, &self.known.documents[place].1)
    }
}

fn evidence_text(kind: SourceKind, text: &str) -> EvidenceText {
    EvidenceText { kind, text: text.to_owned(), columns: Vec::new() }
}

/// The candidate evidence of a dialogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The sentences of the answering side's persona.
    pub persona: Vec<String>,
    /// Documents, each with the index of the persona sentence that it belongs to.
    pub documents: Vec<(usize, String)>,
}

/// Reads the cases of a split of KBP, ranked by a fusion that is trained on another split; without
/// one, they are not ranked.
///
/// # Errors
/// A file cannot be read, or has no exchange.
pub fn read(
    path: &Path,
    train: Option<&Path>,
    conversations: Option<usize>,
    seed: u64,
) -> Result<Vec<Case>, EvalError> {
    let mut lexicon = Lexicon::default();
    let fusion = train.map(|train| Fusion::train(train, &mut lexicon)).transpose()?;
    let records = records::<Record>(path)?;
    let mut chosen: Vec<usize> = (0..records.len()).collect();
    if let Some(count) = conversations {
        fastrand::Rng::with_seed(seed).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
    }
    let of = |at: usize| {
        let record: &Record = &records[at];
        let orders = match &fusion {
            Some(fusion) => fusion.orders(record, &mut lexicon),
            None => vec![Order::default(); record.conversation.len()],
        };
        cases(at, record, orders)
    };
    let cases: Vec<Case> = chosen.into_iter().flat_map(of).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn cases(conversation: usize, record: &Record, orders: Vec<Order>) -> Vec<Case> {
    let (mut ids, mut known) = (Vec::new(), Known::default());
    for (at, (id, sentence)) in record.persona.iter().enumerate() {
        known.persona.push(joined(sentence));
        for (below, text) in record.persona_kg.get(id).into_iter().flatten() {
            ids.push(format!("{id}-{below}"));
            known.documents.push((at, joined(text)));
        }
    }
    let known = Rc::new(known);
    let (mut dialogue, mut cases) = (Vec::<Exchange>::new(), Vec::new());
    for (exchange, order) in record.conversation.iter().zip(orders) {
        dialogue.push(Exchange { user: joined(&exchange.user), response: None });
        let used = |place: usize| exchange.used.get(place).into_iter().flatten();
        let reply = joined(&exchange.system);
        cases.push(Case {
            conversation,
            dialogue: dialogue.clone(),
            reply: reply.clone(),
            known: known.clone(),
            gold_personas: used(0)
                .filter_map(|id| record.persona.keys().position(|it| it == id))
                .collect(),
            gold_documents: used(1).filter_map(|id| ids.iter().position(|it| it == id)).collect(),
            order,
        });
        if let Some(last) = dialogue.last_mut() {
            last.response = Some(reply);
        }
    }
    cases
}
