//! Runs the flow's own persona retrieval on the flow's input: the user turn with the dialogue
//! before it, and the persona in the order of its ids.

use std::sync::Arc;

use turnstream_knowledge::KnowledgeVersion;
use turnstream_operators::dialogue_vector::embed;
use turnstream_operators::flow::{TurnContext, TurnInFlight, Utterance};
use turnstream_operators::persona_retrieval::{Persona, retrieve};
use turnstream_schemas::{EventTime, InputId, RequestId, Scope, SourceName, Speaker, Turn, TurnId};

use super::{EvalError, Record, Stage};

impl Stage<'_> {
    /// Returns, for every reply of a dialogue that used any evidence, the index of the stage's
    /// first sentence, from 0; `None` if the stage finds none.
    pub(super) fn firsts(&self, record: &Record) -> Result<Vec<Option<usize>>, EvalError> {
        let source = SourceName::from("persona");
        let (mut dialogue, mut firsts) = (Vec::new(), Vec::new());
        for exchange in &record.conversation {
            said(&mut dialogue, Speaker::User, &exchange.user);
            if !exchange.used.is_empty() {
                let turn = self.turn(record, &dialogue, &exchange.user)?;
                let sentences = &turn.context.turn.persona;
                let (source, describes, knowledge) = (&source, Speaker::System, Vec::new());
                let persona = Persona { source, describes, sentences, knowledge };
                let found = retrieve(&turn, &persona, self.encoder, self.config)?;
                let first = found.sentences.first().and_then(|found| found.persona.as_ref());
                firsts.push(first.map(|sentence| sentence.place as usize - 1));
            }
            said(&mut dialogue, Speaker::System, &exchange.system);
        }
        Ok(firsts)
    }

    /// Builds the stage's input for a user turn.
    fn turn(
        &self,
        record: &Record,
        dialogue: &[Utterance],
        text: &str,
    ) -> Result<TurnInFlight, EvalError> {
        let mut turn = Turn::new("kbp", Speaker::User, text);
        turn.language = Some("zh".to_owned());
        turn.persona = record.persona.values().cloned().collect();
        let context = TurnContext {
            request: RequestId { partition: 0, generation: 1, offset: 0 },
            input: InputId { topic: "turns".to_owned(), partition: 0, offset: 0 },
            scope: Scope::new(None, "kbp"),
            turn,
            turn_id: dialogue.last().map_or_else(TurnId::default, |last| last.turn_id.clone()),
            event_time: EventTime(0),
            dialogue: dialogue.to_vec(),
            recalled: Vec::new(),
            reconstructed: None,
            chosen: None,
            recall_fault: None,
        };
        let embedding = match self.encoder {
            Some(encoder) => embed(&context, encoder, self.embedding.latest())?,
            None => None,
        };
        Ok(TurnInFlight {
            embedding,
            ..TurnInFlight::undecided(Arc::new(context), KnowledgeVersion::default())
        })
    }
}

fn said(dialogue: &mut Vec<Utterance>, speaker: Speaker, text: &str) {
    let turn_id = TurnId(dialogue.len().to_string());
    dialogue.push(Utterance { turn_id, speaker, text: text.into() });
}
