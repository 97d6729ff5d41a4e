//! Asks the unified model each question once, however many settings share it.

use std::collections::HashMap;

use turnstream_ports::model::unified::{
    EvidenceText, Exchange, Task, UnifiedAnswer, UnifiedRequest, Wording, tenths,
};
use turnstream_schemas::SourceKind;

use super::responding::Found;
use crate::eval::unified::{Ask, MeasureError};

/// The most tokens of a response.
const MAX_TOKENS: u32 = 96;

/// Asks the model and remembers the answers.
pub struct Asked<'a> {
    ask: &'a mut Ask<'a>,
    answers: HashMap<UnifiedRequest, UnifiedAnswer>,
}

impl<'a> Asked<'a> {
    /// Starts without remembered answers.
    pub fn new(ask: &'a mut Ask<'a>) -> Self {
        Self { ask, answers: HashMap::new() }
    }

    /// Answers questions about one dialogue.
    fn ask(
        &mut self,
        dialogue: &[Exchange],
        tasks: Vec<Task>,
    ) -> Result<Vec<UnifiedAnswer>, MeasureError> {
        let requests: Vec<UnifiedRequest> = tasks
            .into_iter()
            .map(|task| UnifiedRequest { dialogue: dialogue.to_vec(), task })
            .collect();
        let mut unknown: Vec<UnifiedRequest> = Vec::new();
        for request in &requests {
            if !self.answers.contains_key(request) && !unknown.contains(request) {
                unknown.push(request.clone());
            }
        }
        if !unknown.is_empty() {
            let answers = (self.ask)(&unknown).map_err(MeasureError::Model)?;
            self.answers.extend(unknown.into_iter().zip(answers));
        }
        let answer = |request: &UnifiedRequest| {
            let none = || MeasureError::Model("no answer came back".to_owned());
            self.answers.get(request).cloned().ok_or_else(none)
        };
        requests.iter().map(answer).collect()
    }

    pub(super) fn plan(&mut self, dialogue: &[Exchange]) -> Result<Vec<SourceKind>, MeasureError> {
        let kinds = vec![SourceKind::BotPersona, SourceKind::Documents];
        match self.ask(dialogue, vec![Task::Plan { kinds }])?.pop() {
            Some(UnifiedAnswer::Plan { kinds, .. }) => Ok(kinds),
            _ => Err(MeasureError::Model("no plan came back".to_owned())),
        }
    }

    pub(super) fn relevance(
        &mut self,
        dialogue: &[Exchange],
        plan: &[SourceKind],
        pieces: Vec<EvidenceText>,
    ) -> Result<Vec<f64>, MeasureError> {
        let task = |evidence| Task::Relevance { plan: plan.to_vec(), evidence };
        let answers = self.ask(dialogue, pieces.into_iter().map(task).collect())?;
        let relevance = |answer| match answer {
            UnifiedAnswer::Relevance(relevance) => Ok(f64::from(relevance)),
            _ => Err(MeasureError::Model("no relevance came back".to_owned())),
        };
        answers.into_iter().map(relevance).collect()
    }

    /// Returns the indexes of evidence by falling relevance.
    pub(super) fn by_relevance(
        &mut self,
        dialogue: &[Exchange],
        plan: &[SourceKind],
        places: Vec<usize>,
        text: impl Fn(usize) -> EvidenceText,
    ) -> Result<Vec<usize>, MeasureError> {
        let texts = places.iter().map(|place| text(*place)).collect();
        let scores = self.relevance(dialogue, plan, texts)?;
        let mut scored: Vec<(usize, f64)> = places.into_iter().zip(scores).collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(scored.into_iter().map(|(place, _)| place).collect())
    }

    /// Returns the most probable draft.
    pub(super) fn response(
        &mut self,
        dialogue: &[Exchange],
        plan: &[SourceKind],
        evidence: &[Found],
    ) -> Result<Wording, MeasureError> {
        let evidence = evidence.iter().map(|found| (found.text.clone(), tenths(found.relevance)));
        let (plan, evidence) = (plan.to_vec(), evidence.collect());
        let task = Task::Response { plan, evidence, max_tokens: MAX_TOKENS, drafts: 1 };
        let draft = match self.ask(dialogue, vec![task])?.pop() {
            Some(UnifiedAnswer::Response(drafts)) => drafts.into_iter().next(),
            _ => None,
        };
        draft.ok_or_else(|| MeasureError::Model("no response came back".to_owned()))
    }
}
