//! Compares two responses to one turn: finds the first stage, in the order of the flow, at which
//! they differ.

use std::collections::BTreeSet;

use serde::Serialize;
use turnstream_schemas::{Action, Evidence, HandOffReason, InputId, Response, Stage};

/// What a stage made of a turn, without numbers: a difference in numbers alone is another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    stage: Stage,
    what: Vec<String>,
}

/// A response in comparable form.
#[derive(Clone, Debug)]
pub(crate) struct ComparedResponse {
    /// What the stages made, in the order of the flow.
    made: Vec<Made>,
    /// Stages that failed.
    degraded: BTreeSet<Stage>,
    /// The checksum of the record without what differs from run to run.
    rest: u32,
    /// Whether the record is brief: it lacks what the stages made.
    brief: bool,
    pub(crate) said: Said,
    /// The sources of its evidence.
    pub(crate) sources: BTreeSet<String>,
    pub(crate) tenant: Option<String>,
}

/// The part of a response that reaches the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Said {
    /// The action of the response; absent if no stage decides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<Action>,
    /// Why the conversation is handed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hand_off: Option<HandOffReason>,
    pub(crate) text: String,
}

impl Said {
    pub(crate) fn of(response: &Response) -> Self {
        Self { action: response.action, hand_off: response.hand_off, text: response.text.clone() }
    }
}

/// How two responses to a turn differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseDifference {
    /// Not at all.
    None,
    /// Only in scores or in the order of the evidence.
    Numbers,
    /// From this stage on.
    From(Stage),
}

impl ComparedResponse {
    pub(crate) fn of(response: Response) -> Self {
        let Response { demand, evidence, refinement, .. } = &response;
        let ids = |of: &mut dyn Iterator<Item = &Evidence>| -> Vec<String> {
            let ids: BTreeSet<String> = of.map(|it| it.id.0.clone()).collect();
            ids.into_iter().collect()
        };
        let found = |stage, is_of: fn(&Evidence) -> bool| Made {
            stage,
            what: ids(&mut evidence.iter().filter(|it| is_of(it))),
        };
        let recalled = response.history.iter().map(|it| it.turn_id.to_string());
        let queries = &demand.queries;
        let asked = queries.explicit.iter().map(|it| it.concept.clone());
        let implied = queries.implicit.iter().map(|it| it.concept.clone());
        let topics = demand.topics.maintained.iter().chain(&demand.topics.extended);
        let revised = demand.revisions.iter().map(|it| it.what.clone());
        let said = Said::of(&response);
        let action = said.action.map(|it| it.name().to_owned());
        let hand_off = said.hand_off.map(|it| it.name().to_owned());
        let replaced = refinement.iter().flat_map(|round| &round.evidence);
        let of = |stage, what| Made { stage, what };
        let made = vec![
            of(Stage::History, recalled.chain(response.query_reconstructed.clone()).collect()),
            of(Stage::Gate, vec![response.gate.retrieve.to_string()]),
            of(Stage::SourcePlanning, response.plan.0.iter().map(ToString::to_string).collect()),
            of(Stage::QueryProduction, asked.chain(implied).collect()),
            of(Stage::TopicPlanning, topics.map(|it| it.concept.clone()).collect()),
            of(Stage::CrossRevision, revised.collect()),
            found(Stage::FactRetrieval, |it| it.fact.is_some()),
            found(Stage::TableRetrieval, |it| it.row.is_some()),
            found(Stage::PersonaRetrieval, |it| it.persona.is_some()),
            found(Stage::DocumentRetrieval, |it| it.document.is_some()),
            // The decision can mark evidence as unused, so it is compared before the selection.
            of(Stage::Decision, action.into_iter().chain(hand_off).collect()),
            of(Stage::FactSelection, ids(&mut evidence.iter().filter(|it| it.selected))),
            of(Stage::Generation, vec![said.text.clone(), response.model.name.clone()]),
            of(Stage::SelfRefinement, replaced.map(|it| it.id.0.clone()).collect()),
        ];
        Self {
            made,
            degraded: response.degraded.iter().map(|it| it.stage()).collect(),
            brief: response.brief,
            sources: evidence.iter().map(|it| it.source.0.clone()).collect(),
            tenant: response.tenant_id.as_ref().map(ToString::to_string),
            said,
            rest: rest(response),
        }
    }

    /// Compares this response with another to the same turn.
    pub(crate) fn difference(&self, other: &Self) -> ResponseDifference {
        let is_brief = self.brief || other.brief;
        let compared = |made: &&(&Made, &Made)| {
            !is_brief || matches!(made.0.stage, Stage::Decision | Stage::Generation)
        };
        let failed: BTreeSet<Stage> =
            self.degraded.symmetric_difference(&other.degraded).copied().collect();
        let made: Vec<(&Made, &Made)> = self.made.iter().zip(&other.made).collect();
        let parted = made
            .iter()
            .filter(compared)
            .find(|(one, two)| one != two || failed.contains(&one.stage));
        match parted {
            Some((one, _)) => ResponseDifference::From(one.stage),
            None if failed.is_empty() => {
                let is_same = is_brief || self.rest == other.rest;
                if is_same { ResponseDifference::None } else { ResponseDifference::Numbers }
            }
            // The stage leaves nothing of its own in the record.
            None => failed
                .first()
                .map_or(ResponseDifference::None, |stage| ResponseDifference::From(*stage)),
        }
    }
}

/// A checksum of the record without what differs from run to run: the timings, the fingerprint, and
/// the offsets of its input and of the knowledge's changes, which a replay reads from elsewhere or
/// not at all.
fn rest(mut response: Response) -> u32 {
    response.timings_us.clear();
    response.fingerprint = None;
    response.knowledge.offsets.clear();
    response.input = InputId { topic: String::new(), partition: 0, offset: 0 };
    response.response_id = response.input.response_id();
    crc32fast::hash(&serde_json::to_vec(&response).unwrap_or_default())
}
