use proptest::prelude::*;
use timely::dataflow::StreamVec;
use turnstream_schemas::{Queries, Topics};

use super::*;
use crate::stage::{DecideByRules, OnFailure, Without, run};
use crate::testing::{context_of, gated, graph, run_dataflow, runner};

/// What happens to a turn in one half.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Well,
    Error,
    Panic,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![3 => Just(Fate::Well), 1 => Just(Fate::Error), 1 => Just(Fate::Panic)]
}

fn meet_fate<T: Default>(fate: Fate, of: Stage) -> Result<T, Fault> {
    match fate {
        Fate::Well => Ok(T::default()),
        Fate::Error => Err(Fault::new(of, FaultKind::Error, "scripted error")),
        Fate::Panic => panic!("scripted panic"),
    }
}

/// The fates of turns, by offset.
struct Fates {
    fates: Arc<Vec<(Fate, Fate)>>,
    on_failure: OnFailure,
}

impl Fates {
    fn of(&self, turn: &TurnInFlight) -> (Fate, Fate) {
        self.fates[turn.context.request.offset as usize]
    }
}

/// A scripted query production.
struct ScriptedQueries(Fates);

impl DecideByRules for ScriptedQueries {
    type Turn = TurnInFlight;
    type Decision = Queries;

    const STAGE: Stage = Stage::QueryProduction;

    fn on_failure(&self) -> OnFailure {
        self.0.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<Queries, Fault> {
        meet_fate(self.0.of(turn).0, Stage::QueryProduction)
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Queries {
        Queries::default()
    }

    fn write(&self, turn: &mut TurnInFlight, queries: Queries) {
        turn.demand.queries = queries;
    }
}

/// A scripted topic planning.
struct ScriptedTopics(Fates);

impl DecideByRules for ScriptedTopics {
    type Turn = TurnInFlight;
    type Decision = Topics;

    const STAGE: Stage = Stage::TopicPlanning;

    fn on_failure(&self) -> OnFailure {
        self.0.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<Topics, Fault> {
        meet_fate(self.0.of(turn).1, Stage::TopicPlanning)
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Topics {
        Topics::default()
    }

    fn write(&self, turn: &mut TurnInFlight, topics: Topics) {
        turn.demand.topics = topics;
    }
}

/// The two scripted stages and the join behind them.
fn flow<'s>(
    turns: StreamVec<'s, Epoch, TurnInFlight>,
    fates: &Arc<Vec<(Fate, Fate)>>,
    on_failure: OnFailure,
) -> Streams<'s, TurnInFlight> {
    let fates = || Fates { fates: Arc::clone(fates), on_failure };
    let queried = halves(run(turns.clone(), ScriptedQueries(fates()), &runner()));
    join(queried, halves(run(turns, ScriptedTopics(fates()), &runner())))
}

fn turns(count: usize) -> Vec<TurnInFlight> {
    let graph = graph("tea IsA drink 1");
    (0..count).map(|at| gated(context_of(&["u: tea"], at as i64), &graph)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_turn_leaves_once_whatever_its_halves_do(
        fates in prop::collection::vec((fate(), fate()), 0..24),
        degrade in any::<bool>(),
    ) {
        let on_failure = if degrade { OnFailure::Degrade } else { OnFailure::DeadLetter };
        let shared = Arc::new(fates.clone());
        let (whole, failed): (Vec<TurnInFlight>, _) =
            run_dataflow(turns(fates.len()), move |turns| flow(turns, &shared, on_failure));
        let mut left: Vec<i64> = whole
            .iter()
            .map(|turn| turn.context.request.offset)
            .chain(failed.iter().map(|failed| failed.context.request.offset))
            .collect();
        left.sort_unstable();
        prop_assert_eq!(left, (0..fates.len() as i64).collect::<Vec<_>>());
        for failed in &failed {
            let (query, topic) = fates[failed.context.request.offset as usize];
            let first =
                if query == Fate::Well { Stage::TopicPlanning } else { Stage::QueryProduction };
            prop_assert_eq!(failed.fault.stage, first);
            let both = query != Fate::Well && topic != Fate::Well;
            prop_assert_eq!(failed.fault.reason.contains("topic_planning: "), both);
        }
        for turn in whole {
            let (query, topic) = fates[turn.context.request.offset as usize];
            let mut degraded = Vec::new();
            if query != Fate::Well { degraded.push(Stage::QueryProduction); }
            if topic != Fate::Well { degraded.push(Stage::TopicPlanning); }
            prop_assert!(degrade || degraded.is_empty());
            prop_assert_eq!(turn.progress.without(), degraded);
        }
    }

    #[test]
    fn nothing_waits_once_all_halves_are_here(
        order in Just((0..16_usize).flat_map(|at| [(at, true), (at, false)]).collect::<Vec<_>>())
            .prop_shuffle(),
    ) {
        let turns = turns(16);
        let mut waiting = WaitingHalves::default();
        let mut left = Vec::new();
        for (at, is_query) in order {
            let turn = turns[at].clone();
            let side = if is_query { Side::Queries } else { Side::Topics };
            let whole = waiting.arrive(side, Ok(turn));
            left.extend(whole.map(|turn| turn.unwrap().context.request.offset));
        }
        prop_assert!(waiting.0.is_empty());
        left.sort_unstable();
        prop_assert_eq!(left, (0..16).collect::<Vec<i64>>());
    }
}

#[test]
fn a_side_that_answers_twice_is_a_fault_and_leaves_nothing_behind() {
    let turn = turns(1).remove(0);
    let mut waiting = WaitingHalves::default();
    assert!(waiting.arrive(Side::Queries, Ok(turn.clone())).is_none());
    let failed = waiting.arrive(Side::Queries, Ok(turn)).unwrap().unwrap_err();
    assert!(failed.fault.reason.contains("twice"));
    assert!(waiting.0.is_empty());
}

#[test]
fn the_timings_of_both_halves_are_kept() {
    let turn = turns(1).remove(0);
    let timed = |stage, us| {
        let mut turn = turn.clone();
        turn.progress.timings_us.insert(stage, us);
        turn
    };
    let queried = timed(Stage::QueryProduction, 3);
    let whole = whole(Ok(queried), Ok(timed(Stage::TopicPlanning, 5))).unwrap();
    assert_eq!(whole.progress.timings_us.values().copied().collect::<Vec<_>>(), [3, 5]);
}
