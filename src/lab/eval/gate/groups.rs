//! Counts needed and predicted knowledge, by the turn's position in its conversation and by domain.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::Scored;
use crate::labelled::LabelledTurn;

/// The turns of one position or one domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// Turns.
    pub n: u64,
    /// Turns of the class.
    pub positives: u64,
    /// Turns predicted to have the class.
    pub predicted: u64,
    /// True positives.
    pub tp: u64,
}

/// The group of turns without a domain.
pub const NO_DOMAIN: &str = "not told";

/// Groups turns by their position in the conversation, from 1.
pub fn by_position(turns: &[LabelledTurn], scored: &Scored) -> BTreeMap<u32, Group> {
    grouped(turns, scored, |turn| turn.position)
}

/// Groups turns by domain, with [`NO_DOMAIN`] for turns without one; empty if the data set has no
/// domains.
pub fn by_domain(turns: &[LabelledTurn], scored: &Scored) -> BTreeMap<String, Group> {
    if turns.iter().all(|turn| turn.domain.is_none()) {
        return BTreeMap::new();
    }
    grouped(turns, scored, |turn| turn.domain.clone().unwrap_or_else(|| NO_DOMAIN.to_owned()))
}

fn grouped<K: Ord>(
    turns: &[LabelledTurn],
    scored: &Scored,
    key: impl Fn(&LabelledTurn) -> K,
) -> BTreeMap<K, Group> {
    let mut groups: BTreeMap<K, Group> = BTreeMap::new();
    for (turn, (positive, predicted)) in
        turns.iter().zip(scored.positive.iter().zip(&scored.predicted))
    {
        let group = groups.entry(key(turn)).or_default();
        group.n += 1;
        group.positives += u64::from(*positive);
        group.predicted += u64::from(*predicted);
        group.tp += u64::from(*positive && *predicted);
    }
    groups
}
