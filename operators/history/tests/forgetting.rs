//! Demands to forget: what they remove, what stays, and their place in the order of the scope.

use turnstream_schemas::{Evicted, EvictionCounts, EvictionReason, Recorded, ScopeRecord};

use super::*;

impl Talk {
    fn forget(&mut self, change: impl FnOnce(&mut ArrivedDirective)) {
        self.direct(DirectiveKind::Forget, change);
    }

    /// The outcome of the last demand to forget.
    fn forgotten(&self) -> &Recorded {
        let outcomes = self.ended.iter().flat_map(|finished| &finished.outcomes);
        let mut recorded = outcomes.filter_map(|(outcome, _)| match outcome {
            Outcome::Recorded(it) if it.reason == RecordedReason::Forgotten => Some(&**it),
            _ => None,
        });
        recorded.next_back().expect("a demand that was obeyed")
    }

    /// The tombstones so far, by offset, each with its eviction.
    fn gone(&self) -> Vec<(i64, &Evicted)> {
        let changes = self.ended.iter().flat_map(|finished| &finished.changes);
        let gone = changes.filter_map(|change| match change {
            HistoryChange::Gone { key, evicted } => Some((key.entry?.offset, evicted.as_deref()?)),
            _ => None,
        });
        gone.collect()
    }

    /// The scope's own record as last published.
    fn record(&self) -> &ScopeRecord {
        let changes = self.ended.iter().flat_map(|finished| &finished.changes);
        let mut records = changes.filter_map(|change| match change {
            HistoryChange::Scope { record, .. } => Some(&**record),
            _ => None,
        });
        records.next_back().expect("a record")
    }
}

#[test]
fn what_was_said_before_is_gone_and_the_next_turn_sees_nothing_of_it() {
    let mut talk = Talk::new(rules());
    talk.user("my parcel is late");
    talk.answer(0, "which parcel");
    talk.user("the parcel from Rome");
    talk.forget(|_| {});
    talk.user("where is it");
    assert_eq!(talk.outcomes(), "[1:which parcel]", "it waits behind the answer");
    talk.answer(1, "on its way");
    assert_eq!(talk.outcomes(), "[1:which parcel] [2:on its way] [3:forgotten]");

    let next = &talk.asked[2];
    let heard: Vec<_> = next.dialogue.iter().map(|said| &*said.text).collect();
    assert_eq!(heard, ["where is it"]);
    assert!(next.recalled.is_empty() && next.reconstructed.is_none(), "{next:?}");
    talk.answer(2, "what do you mean");
    assert_eq!(talk.history(), "where is it/what do you mean");

    let told = &talk.forgotten().evicted;
    assert_eq!(talk.gone(), [(2, &told[0]), (1, &told[1])], "each beside its tombstone");
    let said: Vec<_> = told.iter().map(|it| (it.turn_id.as_str(), it.rank, it.reason)).collect();
    assert_eq!(said, [("0-2", 1, EvictionReason::Forget), ("0-1", 2, EvictionReason::Forget)]);
}

#[test]
fn what_leaves_is_weighed_as_eviction_does() {
    let mut rules = rules();
    rules.config.half_life_seconds = 10;
    rules.config.alpha = 0.25;
    rules.config.importance_share = 0.0;
    let mut talk = Talk::new(rules);
    for (place, time_ms) in [1_000, 11_000].into_iter().enumerate() {
        talk.say(Speaker::User, "is it here", |turn| turn.event_time = EventTime(time_ms));
        talk.answer(place, "not yet");
    }
    talk.forget(|_| {});
    let [later, earlier] = &talk.forgotten().evicted[..] else { panic!("{:?}", talk.forgotten()) };
    assert_eq!((later.relevance.get(), later.recency.get(), later.importance), (0.0, 1.0, None));
    assert_eq!((earlier.relevance.get(), earlier.recency.get()), (0.0, 0.5));
    assert!((earlier.weight.get() - 0.75 * 0.5).abs() < 1e-12, "{earlier:?}");
}

#[test]
fn the_scope_keeps_what_it_goes_on_by() {
    let mut talk = Talk::new(rules());
    talk.user("my parcel is late");
    talk.answer(0, "which parcel");
    let before = talk.record().clone();
    assert_eq!((before.categories.len(), before.chains.len()), (1, 1));
    assert_eq!((before.next_cluster, before.next_chain), (0, 0), "they follow the highest");
    talk.forget(|_| {});
    let after = talk.record();
    let expected = ScopeRecord {
        last_applied_offset: 2,
        remembered_turns: [&"0-1".into(), &"0-2".into()].into_iter().collect(),
        turns: 2,
        evictions: 1,
        evictions_by_reason: EvictionCounts { forget: 1, ..EvictionCounts::default() },
        categories: Vec::new(),
        chains: Vec::new(),
        next_cluster: 2,
        next_chain: 1,
        ..before
    };
    assert_eq!(*after, expected, "numbers of clusters and chains are not given again");

    talk.say(Speaker::User, "my parcel is late", |turn| turn.turn_id = "0-1".into());
    assert!(talk.outcomes().ends_with("[2:forgotten] [3:duplicate_of]"), "{}", talk.outcomes());
    assert_eq!(talk.history(), "", "words that come again under their id stay forgotten");
}

#[test]
fn a_repeated_demand_takes_nothing_that_came_since() {
    let mut talk = Talk::new(rules());
    let named = |forget: &mut ArrivedDirective| forget.turn_id = "f".into();
    talk.user("one");
    talk.answer(0, "first");
    talk.forget(named);
    talk.user("two");
    talk.answer(1, "second");
    talk.forget(named);
    assert_eq!(talk.outcomes(), "[1:first] [2:forgotten] [3:second] [4:duplicate_of]");
    assert_eq!(talk.history(), "two/second");
}

#[test]
fn an_agent_who_overtakes_brings_nothing_back() {
    let mut talk = Talk::new(rules());
    talk.user("one");
    talk.user("two");
    talk.forget(|_| {});
    talk.user("three");
    talk.agent("let me see");
    assert_eq!(
        talk.outcomes(),
        "[1:superseded_by 2:superseded_by 3:forgotten 4:superseded_by 5:system]"
    );
    assert_eq!(talk.history(), "three/let me see");
    let told: Vec<_> = talk.forgotten().evicted.iter().map(|it| it.turn_id.as_str()).collect();
    assert_eq!(told, ["0-2", "0-1"]);
    assert!(!talk.answer(0, "too late"));
}

#[test]
fn an_agents_words_do_not_complete_what_was_forgotten() {
    let mut talk = Talk::new(rules());
    talk.user("one");
    talk.fail(0);
    talk.forget(|_| {});
    talk.agent("to whom it may concern");
    assert_eq!(talk.history(), "-/to whom it may concern");
}

#[test]
fn what_is_restored_is_what_was_not_forgotten() {
    let mut talk = Talk::new(rules());
    for (place, said) in ["one", "two"].into_iter().enumerate() {
        talk.user(said);
        talk.answer(place, "ok");
    }
    talk.forget(|_| {});
    talk.user("three");
    talk.answer(2, "ok");

    let mut restored = Talk::new(rules());
    restored.assign(1);
    let changes = talk.ended.iter().flat_map(|finished| &finished.changes);
    restored.cache.put(0, 1, changes.map(on_the_changelog).collect()).unwrap();
    assert_eq!(restored.cache.len(0), 2, "the scope's record and one entry");
    restored.next_offset = AtomicI64::new(50);
    restored.user("four");
    assert_eq!(restored.history(), "three/ok");
    assert_eq!(restored.asked[0].recalled.len(), 1);
}

#[test]
fn nothing_to_forget_is_forgotten_all_the_same() {
    let mut talk = Talk::new(rules());
    talk.forget(|_| {});
    assert_eq!(talk.outcomes(), "[1:forgotten]");
    assert_eq!((talk.forgotten().evicted.len(), talk.record().turns), (0, 1));
}

#[test]
fn an_outcome_tells_of_so_many_and_the_changes_of_all() {
    let many = sequence::TOLD_EVICTIONS + 10;
    let mut rules = rules();
    rules.config.max_entries = many;
    let mut talk = Talk::new(rules);
    for place in 0..many {
        talk.user("hm");
        talk.answer(place, "ok");
    }
    talk.forget(|_| {});
    assert_eq!(talk.forgotten().evicted.len(), sequence::TOLD_EVICTIONS);
    assert_eq!(talk.gone().len(), many);
    assert_eq!(talk.record().evictions, many as u64);
    assert_eq!(talk.history(), "");
}

#[test]
fn a_demand_may_be_the_last_of_its_scope() {
    let mut talk = Talk::new(rules());
    talk.assign(1);
    talk.user("one");
    talk.forget(|forget| forget.last_of_scope = true);
    assert_eq!(talk.scopes.in_memory(), 1);
    talk.answer(0, "first");
    assert_eq!(talk.outcomes(), "[1:first] [2:forgotten]");
    assert_eq!(talk.scopes.in_memory(), 0);
}

#[test]
fn an_entry_names_the_user_of_its_turn() {
    let mut talk = Talk::new(rules());
    talk.say(Speaker::User, "one", |turn| turn.turn.user_id = Some("mara".into()));
    talk.answer(0, "first");
    talk.agent("by the way");
    let sequence = talk.scopes.sequences().next().expect("a scope");
    let users = sequence.database().entries().map(|entry| entry.user_id.as_ref());
    let users: Vec<_> = users.map(|user| user.map(|user| user.as_str())).collect();
    assert_eq!(users, [Some("mara"), None]);
}
