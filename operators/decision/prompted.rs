//! The decision by a language model: what the response does, its words and what they rest on, in one call.

use turnstream_schemas::{
    Action, DecisionAnswer, Evidence, Fault, FaultKind, HandOffCall, HandOffReason,
};

use super::claims::unfounded;
use super::{DecidedResponse, ResponseDecision, STAGE, is_text};
use crate::flow::{ActionDecision, TurnInFlight};
use crate::generation::is_prose;
use crate::prompted::fence::fenced;
use crate::prompted::material;
use crate::prompted::{Answered, Prompted, Slot};
use crate::sources::SpokenFacts;

impl Prompted for ResponseDecision {
    type Answer = DecisionAnswer;

    const NAMES_ITS_MODEL: bool = true;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        match slot {
            Slot::Evidence => {
                let shown = self.shown(turn).into_iter().enumerate();
                fenced(slot.name(), shown.map(|(at, (_, it))| line(at + 1, it)))
            }
            slot => material::of_context(&turn.context, slot),
        }
    }

    fn understand(
        &self,
        turn: &TurnInFlight,
        said: Answered<DecisionAnswer>,
    ) -> Result<DecidedResponse, Fault> {
        let DecisionAnswer { action, reply, evidence, reason } = said.answer;
        match action {
            Action::Decline => return Ok(self.decline(turn)),
            Action::HandOff => {
                let reason = match reason {
                    HandOffCall::Safety => HandOffReason::Safety,
                    HandOffCall::Complaint => HandOffReason::Complaint,
                    HandOffCall::Asked | HandOffCall::None => HandOffReason::Asked,
                };
                let handed_over = self.handed_over_for(turn, reason);
                return Ok(handed_over.unwrap_or_else(|| self.decline(turn)));
            }
            Action::Answer | Action::Ask | Action::Social => {}
        }
        let unfit = |reason: String| Err(Fault::new(STAGE, FaultKind::Unfit, reason));
        if !is_prose(&reply) {
            return unfit("the reply is not prose".to_owned());
        }
        let shown = self.shown(turn);
        let texts = shown.iter().map(|(_, it)| line(0, it));
        let texts: Vec<String> =
            texts.chain(turn.context.dialogue.iter().map(|it| it.text.to_string())).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if let Some(claim) = unfounded(&reply, &texts) {
            return unfit(format!("`{claim}` is neither in the evidence nor in the dialogue"));
        }
        let cited = evidence.iter().filter_map(|at| shown.get((*at as usize).checked_sub(1)?));
        let mut answers: Vec<usize> = Vec::new();
        for (place, _) in cited {
            if !answers.contains(place) {
                answers.push(*place);
            }
        }
        if action == Action::Answer && answers.is_empty() {
            return unfit("the answer cites no evidence".to_owned());
        }
        let reply = Some(reply.trim().to_owned());
        let decided = ActionDecision { said: reply, ..ActionDecision::to(action) };
        Ok(DecidedResponse { decided: Some(decided), answers })
    }
}

impl ResponseDecision {
    /// Returns the evidence that the model is shown, each piece with its place: passages and rows,
    /// and other evidence that may be said.
    fn shown<'t>(&self, turn: &'t TurnInFlight) -> Vec<(usize, &'t Evidence)> {
        let mut shown = self.read_evidence(turn, is_text, 1);
        let is_text = |it: &Evidence| it.document.is_some() || it.row.is_some();
        let others = turn.evidence.iter().enumerate().filter(|(_, it)| it.selected && !is_text(it));
        let may_be_said = self.facts == SpokenFacts::Selected;
        shown.extend(others.filter(|(_, it)| it.fact.is_none() || may_be_said));
        shown
    }
}

fn line(number: usize, evidence: &Evidence) -> String {
    let title = evidence.document.as_ref().map_or("", |passage| passage.title.trim());
    let between = if title.is_empty() { "" } else { ": " };
    format!("{number}. {title}{between}{}", evidence.text)
}
