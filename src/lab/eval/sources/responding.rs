//! Makes one response: plans, searches, words and refines (UniMS-RAG, section 4.4 and algorithm 1).

use turnstream_operators::judge::Judge;
use turnstream_operators::self_refinement::lowest;
use turnstream_ports::model::unified::{EvidenceText, Wording, text_of};
use turnstream_schemas::{Score, SourceKind};

use super::{Asked, Case, FindBy, PlanBy, Sample, Setting, SourcesError};
use crate::eval::consistency::piece;
use crate::eval::unified::MeasureError;

/// A piece of evidence that a response is worded from.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) text: EvidenceText,
    pub(super) relevance: Score,
}

/// The ranked evidence of one source, and how much of it was used.
struct Source {
    kind: SourceKind,
    ranked: Vec<EvidenceText>,
    used: usize,
}

impl Source {
    /// Returns the next piece that no draft has used.
    fn next_unseen(&mut self) -> Option<EvidenceText> {
        let next = self.ranked.get(self.used).cloned();
        self.used += usize::from(next.is_some());
        next
    }
}

/// A response in progress.
pub(super) struct Responding<'a, 'm> {
    case: &'a Case,
    setting: &'a Setting,
    asked: &'a mut Asked<'m>,
    plan: Vec<SourceKind>,
    sources: Vec<Source>,
    evidence: Vec<Found>,
}

impl<'a, 'm> Responding<'a, 'm> {
    /// Responds to a turn.
    pub(super) fn respond(
        case: &'a Case,
        setting: &'a Setting,
        asked: &'a mut Asked<'m>,
        judge: &Judge,
    ) -> Result<Sample, SourcesError> {
        let plan = planned(case, setting, asked)?;
        let (sources, evidence) = (Vec::new(), Vec::new());
        let mut turn = Self { case, setting, asked, plan, sources, evidence };
        turn.search()?;
        let mut last = turn.word()?;
        let mut drafts = Vec::new();
        for _ in 0..setting.steps {
            let response = text_of(&last.said);
            if !turn.replace_the_lowest(&response, judge)? {
                break;
            }
            last = turn.word()?;
            drafts.push(response);
        }
        let evidence = turn.evidence.into_iter();
        let response = text_of(&last.said);
        Ok(Sample {
            user: case.dialogue.last().map_or_else(String::new, |last| last.user.clone()),
            plan: turn.plan,
            evidence: evidence.map(|found| (found.text.text, found.relevance.get())).collect(),
            reply: case.reply.clone(),
            response,
            confidence: f64::from(last.lowest_log_probability),
            drafts,
        })
    }

    /// Searches the planned sources: the persona first, then the documents behind the first
    /// sentence found.
    fn search(&mut self) -> Result<(), MeasureError> {
        if self.plan.is_empty() {
            return Ok(());
        }
        let case = self.case;
        let is_gold = self.setting.retrieval == FindBy::Gold;
        let personas = self.ranked(case.order.personas.clone(), &case.gold_personas, |place| {
            case.sentence(place)
        })?;
        let behind = personas.first().copied();
        self.take(SourceKind::BotPersona, &personas, &case.gold_personas, |at| case.sentence(at))?;
        if self.plan.contains(&SourceKind::Documents) {
            let mut documents = case.order.documents.clone();
            documents.retain(|place| {
                let is_behind = Some(case.known.documents[*place].0) == behind;
                is_behind || (is_gold && case.gold_documents.contains(place))
            });
            let documents =
                self.ranked(documents, &case.gold_documents, |place| case.document(place))?;
            let gold = &case.gold_documents;
            self.take(SourceKind::Documents, &documents, gold, |at| case.document(at))?;
        }
        Ok(())
    }

    /// Returns the indexes of a source's evidence in the setting's order.
    fn ranked(
        &mut self,
        mut places: Vec<usize>,
        gold: &[usize],
        text: impl Fn(usize) -> EvidenceText,
    ) -> Result<Vec<usize>, MeasureError> {
        match self.setting.retrieval {
            FindBy::Fusion => {}
            FindBy::Model => {
                let dialogue = &self.case.dialogue;
                places = self.asked.by_relevance(dialogue, &self.plan, places, text)?;
            }
            FindBy::Gold => places.sort_by_key(|place| !gold.contains(place)),
        }
        Ok(places)
    }

    /// Takes the first pieces of a source: as many as the setting asks for, or all that the reply
    /// used.
    fn take(
        &mut self,
        kind: SourceKind,
        places: &[usize],
        gold: &[usize],
        text: impl Fn(usize) -> EvidenceText,
    ) -> Result<(), MeasureError> {
        let is_known = self.setting.retrieval == FindBy::Gold && !gold.is_empty();
        let count = if is_known { gold.len() } else { self.setting.pieces };
        let ranked: Vec<EvidenceText> = places.iter().map(|place| text(*place)).collect();
        let used = count.min(ranked.len());
        let found = self.judged(ranked[..used].to_vec())?;
        self.evidence.extend(found);
        self.sources.push(Source { kind, ranked, used });
        Ok(())
    }

    /// Adds the model's relevance to pieces.
    fn judged(&mut self, texts: Vec<EvidenceText>) -> Result<Vec<Found>, MeasureError> {
        let scores = self.asked.relevance(&self.case.dialogue, &self.plan, texts.clone())?;
        let found = |(text, score)| Found { text, relevance: Score::new(score) };
        Ok(texts.into_iter().zip(scores).map(found).collect())
    }

    fn word(&mut self) -> Result<Wording, MeasureError> {
        self.asked.response(&self.case.dialogue, &self.plan, &self.evidence)
    }

    /// Makes a round of self-refinement: replaces the pieces with the lowest relevance ×
    /// consistency. Returns whether the response must be worded anew; never for the NULL plan.
    fn replace_the_lowest(&mut self, response: &str, judge: &Judge) -> Result<bool, SourcesError> {
        if self.evidence.is_empty() {
            return Ok(false);
        }
        let pieces: Vec<_> = self.evidence.iter().map(|found| piece(&found.text.text)).collect();
        let consistency = judge.judge(response, &pieces.iter().collect::<Vec<_>>())?;
        let scores = self.evidence.iter().zip(&consistency);
        let scores: Vec<f64> =
            scores.map(|(found, consistency)| found.relevance.get() * consistency).collect();
        let mut gone = Vec::new();
        let mut has_new = false;
        for place in lowest(&scores, self.setting.replaced, 1.0) {
            let kind = self.evidence[place].text.kind;
            let source = self.sources.iter_mut().find(|source| source.kind == kind);
            match source.and_then(Source::next_unseen) {
                Some(next) => {
                    has_new = true;
                    self.evidence[place] = self.judged(vec![next])?.remove(0);
                }
                None => gone.push(place),
            }
        }
        if gone.len() == self.evidence.len() {
            // Keep at least the best piece.
            gone.pop();
        }
        gone.sort_unstable();
        gone.iter().rev().for_each(|place| drop(self.evidence.remove(*place)));
        Ok(has_new || !gone.is_empty())
    }
}

/// Returns the sources to ask; documents bring along the persona that they depend on.
fn planned(
    case: &Case,
    setting: &Setting,
    asked: &mut Asked<'_>,
) -> Result<Vec<SourceKind>, MeasureError> {
    let both = vec![SourceKind::BotPersona, SourceKind::Documents];
    Ok(match setting.plan {
        PlanBy::Model => {
            let plan = asked.plan(&case.dialogue)?;
            if plan.contains(&SourceKind::Documents) { both } else { plan }
        }
        PlanBy::Gold => case.gold_plan(),
        PlanBy::Every => both,
        PlanBy::None => Vec::new(),
    })
}
