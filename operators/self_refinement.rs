//! Self-refinement makes the response anew from better evidence. (UniMS-RAG, algorithm 1.)
//!
//! ```text
//!  scored drafts ──▶ refine ──▶ done
//!        ▲             │
//!        │             └─▶ integration ─▶ generation ─▶ consistency ─┐
//!        └────────────────────────── feedback ───────────────────────┘
//! ```
//!
//! The score of a piece of selected evidence is its relevance × its consistency with the draft. Each round
//! drops the α lowest (`replaced`). The next evidence of the same source that no draft was made from replaces
//! each of them, if retrieval found some and fact selection kept it in the record. Then the same stages make
//! the response anew, for at most `steps` rounds. As in the algorithm, the last draft is the response: drafts
//! have scores for different evidence, so the scores of two drafts are never compared.
//!
//! Key: none. State: none; the turn carries the rounds, and its response lists them. Refinement ends early
//! where there is nothing to drop: every score is good enough, or the last piece of evidence would go.
//! There is no refinement for the NULL plan, nor where generation or consistency failed. A round whose
//! generation fails is taken back: the draft before it is the response, which names the stage under
//! `degraded`. No round repeats a question of an earlier one, since the evidence in it has changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::Branch;
use timely::dataflow::operators::{Concat, Concatenate, ConnectLoop, Feedback};
use turnstream_schemas::{
    Evidence, EvidenceId, Fault, RefinementRound, Score, ScoredEvidence, Stage,
};

use crate::consistency::{ConsistencyConfig, ConsistencyForm, consistency};
use crate::flow::{Before, Epoch, InFlight, Refinement, TurnInFlight};
use crate::generation::{GenerationConfig, generation};
use crate::integration::{IntegrationConfig, integration};
use crate::stage::{DecideByRules, OnFailure, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

const STAGE: Stage = Stage::SelfRefinement;

/// The most rounds that may be configured.
const MOST_STEPS: u32 = 5;

/// How often responses are made anew, and which evidence is replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelfRefinementConfig {
    /// The most rounds, 0..=5; 0 switches the stage off. Each round asks the models of generation
    /// and consistency once more. More than 0 needs `consistency.form`.
    #[schemars(range(max = MOST_STEPS))]
    pub steps: u32,
    /// α: the most pieces of evidence that a round drops, those with the lowest scores; 1..=32.
    #[schemars(range(min = 1, max = 32))]
    pub replaced: u32,
    /// The least score at which a piece of evidence is never dropped, 0..=1. With 1, as in the
    /// paper, every piece that is not perfect may be dropped.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub good_enough: f64,
    /// What happens to a turn where the stage fails; `degrade`: the draft is the response.
    pub on_failure: OnFailure,
}

impl Default for SelfRefinementConfig {
    fn default() -> Self {
        Self { steps: 0, replaced: 1, good_enough: 1.0, on_failure: OnFailure::Degrade }
    }
}

impl StageConfig for SelfRefinementConfig {}

/// The configuration of the stage, and of the stages that make a response anew.
#[derive(Clone, Debug, Default)]
pub struct RefiningConfig {
    /// How often responses are made anew, and which evidence is replaced.
    pub self_refinement: SelfRefinementConfig,
    /// Whether one judge scored the relevance of all evidence ([`relevance`](mod@crate::relevance)).
    pub is_relevance_judged: bool,
    /// How evidence and history are weighed.
    pub integration: IntegrationConfig,
    /// How the response is worded.
    pub generation: GenerationConfig,
    /// How it is compared with its evidence.
    pub consistency: ConsistencyConfig,
}

/// Runs self-refinement over a stream of drafts whose evidence was judged. Returns (turns with
/// their response, faults).
pub fn self_refinement<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: RefiningConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let scope = turns.scope();
    let RefiningConfig { self_refinement: refining, is_relevance_judged, .. } = config;
    let judging = config.consistency;
    if refining.steps == 0 || judging.form == ConsistencyForm::Off {
        return (turns, empty(scope));
    }
    // There is a draft already: where the next one fails, that draft is the response.
    let weighing = IntegrationConfig { on_failure: OnFailure::Degrade, ..config.integration };
    let wording = GenerationConfig { on_failure: OnFailure::Degrade, ..config.generation };
    let (feedback, again) = scope.feedback::<Vec<TurnInFlight>>(1);
    let stage = SelfRefinement { config: refining, is_relevance_judged };
    let (decided, faults) = run(turns.concat(again), stage, &context.runner);
    let (done, anew) = decided.branch(|_, turn| turn.refinement.before.is_some());
    let (weighed, weighing_faults) = integration(anew, weighing, context);
    let (drafted, wording_faults) = generation(weighed, wording, context);
    let (judged, judging_faults) = consistency(drafted, judging, context);
    judged.connect_loop(feedback);
    (done, scope.concatenate([faults, weighing_faults, wording_faults, judging_faults]))
}

/// The stage that decides whether a draft is the response.
struct SelfRefinement {
    config: SelfRefinementConfig,
    is_relevance_judged: bool,
}

impl DecideByRules for SelfRefinement {
    type Turn = TurnInFlight;
    type Decision = RoundDecision;

    const STAGE: Stage = STAGE;

    fn on_failure(&self) -> OnFailure {
        self.config.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<RoundDecision, Fault> {
        Ok(refine(turn, &self.config, self.is_relevance_judged))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> RoundDecision {
        RoundDecision::Done
    }

    fn write(&self, turn: &mut TurnInFlight, decision: RoundDecision) {
        let before = turn.refinement.before.take();
        match (decision, before) {
            (RoundDecision::Anew(change), _) => put_aside(turn, change),
            (RoundDecision::TakenBack, Some(before)) => take_back(turn, *before),
            (RoundDecision::TakenBack | RoundDecision::Done, _) => {}
        }
    }
}

/// What happens to a draft.
#[derive(Clone, Debug, PartialEq)]
enum RoundDecision {
    /// It is the response.
    Done,
    /// It failed: the draft before it is the response.
    TakenBack,
    /// It is put aside, and the response made anew.
    Anew(Change),
}

/// The change of evidence for the next draft.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    /// The scored evidence of this draft, in its order.
    scored: Vec<ScoredEvidence>,
    /// The places of dropped evidence, the lowest score first, each with the place of its replacement.
    dropped: Vec<(usize, Option<usize>)>,
}

/// Decides whether a draft is the response. (Algorithm 1, lines 6–14.)
fn refine(
    turn: &TurnInFlight,
    config: &SelfRefinementConfig,
    is_relevance_judged: bool,
) -> RoundDecision {
    let progress = &turn.progress;
    if progress.is_without(Stage::Generation) {
        let is_anew = turn.refinement.before.is_some();
        return if is_anew { RoundDecision::TakenBack } else { RoundDecision::Done };
    }
    // Words that the decision gave stay as they are.
    let is_given = turn.decision.as_ref().and_then(|it| it.said.as_ref()) == Some(&turn.draft.text);
    if is_given || turn.plan.0.is_empty() || turn.round() >= config.steps {
        return RoundDecision::Done;
    }
    let judged = is_relevance_judged && !progress.is_without(Stage::Relevance);
    let scored = scored(&turn.evidence, judged);
    let dropped = dropped(turn, &scored, config);
    if dropped.is_empty() {
        return RoundDecision::Done;
    }
    let scored = scored.into_iter().map(|(_, scored)| scored).collect();
    RoundDecision::Anew(Change { scored, dropped })
}

/// Returns the selected pieces that have a consistency with the draft, each with its place.
fn scored(evidence: &[Evidence], is_relevance_judged: bool) -> Vec<(usize, ScoredEvidence)> {
    let selected = evidence.iter().enumerate().filter(|(_, evidence)| evidence.selected);
    let scored = selected.filter_map(|(place, evidence)| {
        let consistency = evidence.consistency?;
        // Sources score on scales of their own, so their scores cannot be compared.
        let relevance = is_relevance_judged.then_some(evidence.relevance);
        let score = Score::new(relevance.map_or(1.0, Score::get) * consistency.get());
        Some((place, ScoredEvidence { id: evidence.id.clone(), relevance, consistency, score }))
    });
    scored.collect()
}

/// Returns the places of the scores to drop, the lowest first and of equals the later one: at most
/// `replaced` (α), and none that is at least `good_enough`. (Algorithm 1, lines 7 and 8.)
pub fn lowest(scores: &[f64], replaced: u32, good_enough: f64) -> Vec<usize> {
    let mut lowest: Vec<usize> =
        (0..scores.len()).filter(|place| scores[*place] < good_enough).collect();
    lowest.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(b.cmp(a)));
    lowest.truncate(replaced as usize);
    lowest
}

/// Returns the places of the evidence to drop, each with the place of its replacement.
fn dropped(
    turn: &TurnInFlight,
    scored: &[(usize, ScoredEvidence)],
    config: &SelfRefinementConfig,
) -> Vec<(usize, Option<usize>)> {
    let scores: Vec<f64> = scored.iter().map(|(_, scored)| scored.score.get()).collect();
    let worst = lowest(&scores, config.replaced, config.good_enough);
    let worst = worst.into_iter().map(|at| scored[at].0);
    let mut taken = Vec::new();
    let mut dropped: Vec<(usize, Option<usize>)> = Vec::new();
    for place in worst {
        let next = next_unseen(turn, place, &taken);
        taken.extend(next);
        dropped.push((place, next));
    }
    let selected = turn.evidence.iter().filter(|evidence| evidence.selected).count();
    if taken.is_empty() && dropped.len() == selected {
        // The best piece stays, so that some evidence is left.
        dropped.pop();
    }
    dropped
}

/// Returns the place of the next evidence of the same source that no draft was made from, and that
/// replaces no other.
fn next_unseen(turn: &TurnInFlight, dropped: usize, taken: &[usize]) -> Option<usize> {
    let (evidence, rounds) = (&turn.evidence, &turn.refinement.rounds);
    let was_there = |id: &EvidenceId| {
        let was_in = |round: &RefinementRound| round.evidence.iter().any(|it| it.id == *id);
        rounds.iter().any(|round| was_in(round) || round.added.contains(id))
    };
    let gone = &evidence[dropped];
    let mut others = evidence.iter().enumerate();
    let next = others.find(|(place, other)| {
        !other.selected
            && is_of_the_same_source(other, gone)
            && !was_there(&other.id)
            && !taken.contains(place)
    });
    next.map(|(place, _)| place)
}

/// Whether two pieces are of one source. Facts have the name of their collection as source, but all of them
/// are of the graph.
fn is_of_the_same_source(one: &Evidence, other: &Evidence) -> bool {
    match (&one.fact, &other.fact) {
        (Some(_), Some(_)) => true,
        (None, None) => one.source == other.source,
        _ => false,
    }
}

/// Takes the last round back: the draft before is the response again.
fn take_back(turn: &mut TurnInFlight, before: Before) {
    let Before { draft, evidence, history, thought } = before;
    turn.refinement.rounds.pop();
    turn.demand.thoughts.generation = thought;
    (turn.draft, turn.evidence, turn.history) = (draft, evidence, history);
    let degraded = &mut turn.progress.degraded;
    let failed = degraded.extract_if(.., |fault| fault.stage == Stage::Generation).next();
    degraded.extend(failed.map(|fault| Fault { stage: STAGE, ..fault }));
}

/// Puts the draft aside, and selects other evidence.
fn put_aside(turn: &mut TurnInFlight, change: Change) {
    let Refinement { mut rounds, .. } = std::mem::take(&mut turn.refinement);
    let id = |place: usize| turn.evidence[place].id.clone();
    rounds.push(RefinementRound {
        round: u32::try_from(rounds.len() + 1).unwrap_or(u32::MAX),
        text: turn.draft.text.clone(),
        evidence: change.scored,
        dropped: change.dropped.iter().map(|(place, _)| id(*place)).collect(),
        added: change.dropped.iter().filter_map(|(_, next)| next.map(id)).collect(),
    });
    let before = Before {
        draft: turn.draft.clone(),
        evidence: turn.evidence.clone(),
        history: std::mem::take(&mut turn.history),
        thought: std::mem::take(&mut turn.demand.thoughts.generation),
    };
    for (place, next) in change.dropped {
        turn.evidence[place].selected = false;
        if let Some(next) = next {
            turn.evidence[next].selected = true;
            turn.evidence.swap(place, next);
        }
    }
    // Selected evidence comes first. Consistency and attention belong to the draft that is put aside.
    turn.evidence.sort_by_key(|evidence| !evidence.selected);
    for evidence in &mut turn.evidence {
        (evidence.consistency, evidence.attention) = (None, None);
    }
    turn.refinement = Refinement { rounds, before: Some(Box::new(before)), for_gate: false };
}

#[cfg(test)]
mod tests;
