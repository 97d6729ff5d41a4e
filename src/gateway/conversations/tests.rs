use super::*;

fn event(number: usize, kind: EventKind, turn_id: &str) -> ConversationEvent {
    ConversationEvent {
        id: number.to_string(),
        kind,
        turn_id: Some(turn_id.to_owned()),
        json: format!("{{\"number\":{number}}}").into(),
    }
}

fn key(id: &str) -> ConversationKey {
    ("default".to_owned(), id.to_owned())
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn a_turn_is_written_once_until_it_ends() {
    let known = KnownConversations::new(10);
    let c = key("c");
    assert!(known.write(&c, "t") && !known.write(&c, "t") && known.write(&c, "u"));
    assert!(known.write(&key("d"), "t"), "of another conversation");
    known.unwrite(&c, "u");
    assert!(known.write(&c, "u"), "it was not");
    known.note(c.clone(), event(1, EventKind::DeadLetter, "t"));
    assert!(known.outcome(&c, "t").is_some() && !known.is_open(&c, "t"));
    assert!(known.write(&c, "t"), "it may be tried again");
    assert_eq!(known.outcome(&c, "t"), None, "and is");
    known.note(c.clone(), event(2, EventKind::Response, "t"));
    known.note(c.clone(), event(3, EventKind::Repeated, "t"));
    assert_eq!(known.outcome(&c, "t"), Some(event(2, EventKind::Response, "t")));
    known.note(c.clone(), event(4, EventKind::Repeated, "v"));
    assert_eq!(known.outcome(&c, "v"), Some(event(4, EventKind::Repeated, "v")));
}

#[test]
fn the_oldest_are_forgotten_and_nothing_is_left_of_a_conversation() {
    let known = KnownConversations::new(3);
    for number in 0..10 {
        let turn_id = number.to_string();
        known.note(key(&(number % 5).to_string()), event(number, EventKind::Response, &turn_id));
    }
    let state = known.lock();
    assert_eq!((state.conversations.len(), state.order.len()), (3, 3));
    assert!(state.listened.is_empty());
    drop(state);
    assert_eq!(known.outcome(&key("1"), "6"), None);
    assert!(known.outcome(&key("4"), "9").is_some());
}

#[test]
fn a_listener_hears_what_it_missed_and_what_follows() {
    let known = Arc::new(KnownConversations::new(10));
    for number in 0..3 {
        known.note(key("c"), event(number, EventKind::Response, "t"));
    }
    let (missed, mut events) = known.listen(&key("c"), Some("1"));
    assert_eq!(missed, [event(2, EventKind::Response, "t")]);
    assert_eq!(known.listen(&key("c"), Some("lost")).0, []);
    known.note(key("d"), event(3, EventKind::Response, "t"));
    known.note(key("c"), event(4, EventKind::Response, "t"));
    assert_eq!(block(events.next()).unwrap().id, "4");
    assert_eq!(known.lock().listened.len(), 1, "the others have gone");
    (0..300).for_each(|at| known.note(key("c"), event(at, EventKind::Response, "t")));
    assert!(matches!(block(events.next()), Err(RecvError::Lagged(_))), "too slow");
    drop(events);
    assert!(known.lock().listened.is_empty());
}

#[test]
fn what_is_being_written_is_heard_until_the_turn_has_an_outcome() {
    let known = Arc::new(KnownConversations::new(10));
    let (_, mut events) = known.listen(&key("c"), None);
    known.pass_on(&key("c"), event(0, EventKind::Partial, "t"));
    known.pass_on(&key("d"), event(1, EventKind::Partial, "t"));
    known.note(key("c"), event(2, EventKind::Response, "t"));
    known.pass_on(&key("c"), event(3, EventKind::Partial, "t"));
    known.pass_on(&key("c"), event(4, EventKind::Partial, "u"));
    let heard = [(); 3].map(|()| block(events.next()).unwrap().id);
    assert_eq!(heard, ["0", "2", "4"]);
    let waited = block(async {
        let c = key("c");
        let waiting = known.wait(&c, "u", Duration::from_secs(60));
        let writing = async {
            tokio::task::yield_now().await;
            known.pass_on(&c, event(5, EventKind::Partial, "u"));
            known.note(key("c"), event(6, EventKind::Recorded, "u"));
        };
        tokio::join!(waiting, writing).0
    });
    assert_eq!(waited.unwrap().id, "6", "words that are not committed are no outcome");
}

#[test]
fn desks_hear_who_waits_and_can_ask() {
    let known = Arc::new(KnownConversations::new(2));
    let hands = |number: usize, waits: bool| ConversationEvent {
        turn_id: None,
        ..event(number, EventKind::Conversation { waits }, "")
    };
    let (_, mut desk) = known.listen(&desks_of("default"), None);
    known.note_old(&key("old"), &hands(1, true));
    known.note(key("c"), hands(2, true));
    known.note(("other".to_owned(), "c".to_owned()), hands(3, true));
    let waiting = || known.waiting("default").iter().map(|it| it.to_string()).collect::<Vec<_>>();
    assert_eq!(waiting(), ["{\"number\":2}"], "two are kept, and the oldest went");
    known.note(key("c"), hands(4, false));
    assert!(waiting().is_empty() && known.waiting("other").len() == 1);
    let heard = [block(desk.next()).unwrap().id, block(desk.next()).unwrap().id];
    assert_eq!(heard, ["2", "4"], "of its tenant, and nothing old");
    let state = known.lock();
    assert_eq!((state.waiting.records.len(), state.waiting.places.len()), (1, 1));
}

#[test]
fn the_first_outcome_may_be_read_behind_that_of_a_repeat() {
    let known = Arc::new(KnownConversations::new(10));
    let c = key("c");
    known.note(c.clone(), event(0, EventKind::Repeated, "t"));
    let waited = block(async {
        let waiting = known.wait(&c, "t", Duration::from_secs(60));
        let reading = async {
            tokio::task::yield_now().await;
            known.note(c.clone(), event(1, EventKind::Response, "t"));
        };
        tokio::join!(waiting, reading).0
    });
    assert_eq!(waited, Some(event(1, EventKind::Response, "t")));
    known.note(c.clone(), event(2, EventKind::Repeated, "u"));
    let waited = block(known.wait(&c, "u", Duration::from_millis(1)));
    assert_eq!(waited, Some(event(2, EventKind::Repeated, "u")), "it is all that is known");
}

#[test]
fn an_outcome_is_waited_for_and_not_for_ever() {
    let known = Arc::new(KnownConversations::new(1));
    let late = block(known.wait(&key("c"), "t", Duration::from_millis(1)));
    assert_eq!(late, None);
    let writer = Arc::clone(&known);
    let waited = block(async {
        let key_of_c = key("c");
        let waiting = known.wait(&key_of_c, "t", Duration::from_secs(60));
        let writing = async {
            tokio::task::yield_now().await;
            writer.note(key("c"), event(0, EventKind::Response, "other"));
            writer.note(key("c"), event(1, EventKind::Response, "t"));
            writer.note(key("x"), event(2, EventKind::Response, "t"));
        };
        tokio::join!(waiting, writing).0
    });
    assert_eq!(waited, Some(event(1, EventKind::Response, "t")));
}
