//! What is known of conversations: the latest outcomes, and who waits for the next ones.
//!
//! Bounded by the number of outcomes, the oldest of which are forgotten first, whatever conversation they
//! are of. Nothing here is more than the log has.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Events that a slow reader of a conversation may be behind, before it is cut off.
const MOST_BEHIND: usize = 256;

/// How much later than the outcome of a repeat that of the first turn may be read, since it is on another
/// topic. It was committed before.
const FIRST_COMES_WITHIN: Duration = Duration::from_secs(1);

/// A conversation: its tenant and its id.
pub(crate) type ConversationKey = (String, String);

/// What the agent desks of a tenant listen to.
pub(crate) fn desks_of(tenant: &str) -> ConversationKey {
    (tenant.to_owned(), String::new())
}

/// What became of a turn, or of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The turn was answered.
    Response,
    /// The turn was recorded.
    Recorded,
    /// The turn is a repeat of an earlier one.
    Repeated,
    /// The turn could not be served.
    DeadLetter,
    /// The conversation changed hands.
    Conversation {
        /// Whether its user waits for an agent from then on.
        waits: bool,
    },
}

impl EventKind {
    /// The name that clients see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Recorded | Self::Repeated => "recorded",
            Self::DeadLetter => "dead_letter",
            Self::Conversation { .. } => "conversation",
        }
    }
}

/// A committed record about a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConversationEvent {
    /// Topic, partition and offset of the record.
    pub(crate) id: String,
    pub(crate) kind: EventKind,
    /// The turn that it is about, if it is about one.
    pub(crate) turn_id: Option<String>,
    /// The record, as one line of JSON.
    pub(crate) json: Arc<str>,
}

/// The conversations.
pub(crate) struct KnownConversations {
    state: Mutex<KnownState>,
    most: usize,
}

#[derive(Default)]
struct KnownState {
    conversations: HashMap<ConversationKey, KnownConversation>,
    /// The conversation of each thing that is remembered, oldest first.
    order: VecDeque<ConversationKey>,
    /// Of the conversations that somebody listens to: each takes the room of all events that one may be
    /// behind.
    listened: HashMap<ConversationKey, broadcast::Sender<ConversationEvent>>,
    waiting: WaitingUsers,
}

/// The conversations whose users wait for an agent, in the order in which they began to.
#[derive(Default)]
struct WaitingUsers {
    begun: u64,
    records: BTreeMap<u64, (ConversationKey, ConversationEvent)>,
    places: HashMap<ConversationKey, u64>,
}

impl WaitingUsers {
    fn note(&mut self, key: &ConversationKey, event: &ConversationEvent, most: usize) {
        let EventKind::Conversation { waits } = event.kind else { return };
        if let Some(place) = self.places.remove(key) {
            self.records.remove(&place);
        }
        if waits {
            self.begun += 1;
            self.places.insert(key.clone(), self.begun);
            self.records.insert(self.begun, (key.clone(), event.clone()));
        }
        while self.records.len() > most {
            let Some((_, (oldest, _))) = self.records.pop_first() else { break };
            self.places.remove(&oldest);
        }
    }
}

/// What is remembered of a conversation, oldest first; never empty.
#[derive(Default)]
struct KnownConversation(VecDeque<RememberedItem>);

/// Hears what is committed in a conversation.
pub(crate) struct ConversationListener {
    conversations: Arc<KnownConversations>,
    key: ConversationKey,
    /// `None` only while it is dropped.
    events: Option<broadcast::Receiver<ConversationEvent>>,
}

impl ConversationListener {
    /// The next event, whenever it comes.
    ///
    /// # Errors
    /// It is too far behind.
    pub(crate) async fn next(&mut self) -> Result<ConversationEvent, RecvError> {
        match &mut self.events {
            Some(events) => events.recv().await,
            None => Err(RecvError::Closed),
        }
    }
}

impl Drop for ConversationListener {
    fn drop(&mut self) {
        let mut state = self.conversations.lock();
        self.events = None;
        if state.listened.get(&self.key).is_some_and(|events| events.receiver_count() == 0) {
            state.listened.remove(&self.key);
        }
    }
}

/// What is remembered of a conversation.
enum RememberedItem {
    Event(ConversationEvent),
    /// This turn was written through this gateway.
    Written(String),
}

impl KnownConversations {
    /// Remembers so many things at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), most: most.max(1) }
    }

    /// Takes note of a record that is older than what is remembered: only of whose users wait.
    pub(crate) fn note_old(&self, key: &ConversationKey, event: &ConversationEvent) {
        self.lock().waiting.note(key, event, self.most);
    }

    /// The records of the tenant's conversations whose users wait for an agent, the longest wait first.
    pub(crate) fn waiting(&self, tenant: &str) -> Vec<Arc<str>> {
        let state = self.lock();
        let records = state.waiting.records.values();
        let of_tenant = records.filter(|((of, _), _)| of == tenant);
        of_tenant.map(|(_, event)| Arc::clone(&event.json)).collect()
    }

    /// Takes note of a record, and passes it to those who wait. A change of hands is also heard by who listens
    /// to the conversation without an id, which is none.
    pub(crate) fn note(&self, key: ConversationKey, event: ConversationEvent) {
        let mut state = self.lock();
        state.waiting.note(&key, &event, self.most);
        if let EventKind::Conversation { .. } = event.kind
            && let Some(desks) = state.listened.get(&desks_of(&key.0))
        {
            let _ = desks.send(event.clone());
        }
        if let Some(listened) = state.listened.get(&key) {
            // Those who listened may be going just now.
            let _ = listened.send(event.clone());
        }
        state.remember(key, RememberedItem::Event(event), self.most);
    }

    /// Takes note that a turn is about to be written; `false` if it was, and has no outcome yet.
    pub(crate) fn write(&self, key: &ConversationKey, turn_id: &str) -> bool {
        let mut state = self.lock();
        let is_open = state.conversations.get(key).is_some_and(|of| of.is_open(turn_id));
        if !is_open {
            state.remember(key.clone(), RememberedItem::Written(turn_id.to_owned()), self.most);
        }
        !is_open
    }

    /// Takes back that a turn was written.
    pub(crate) fn unwrite(&self, key: &ConversationKey, turn_id: &str) {
        if let Some(of) = self.lock().conversations.get_mut(key) {
            of.0.iter_mut().for_each(|it| {
                if matches!(it, RememberedItem::Written(id) if id == turn_id) {
                    *it = RememberedItem::Written(String::new());
                }
            });
        }
    }

    /// What is known of a turn: its outcome, that of a repeat only if there is no other. `None` too if it was
    /// written since and has no outcome yet.
    pub(crate) fn outcome(
        &self,
        key: &ConversationKey,
        turn_id: &str,
    ) -> Option<ConversationEvent> {
        let state = self.lock();
        let of = state.conversations.get(key).filter(|of| !of.is_open(turn_id))?;
        of.outcome(turn_id).cloned()
    }

    /// Whether a turn was written through this gateway and has no outcome yet.
    pub(crate) fn is_open(&self, key: &ConversationKey, turn_id: &str) -> bool {
        self.lock().conversations.get(key).is_some_and(|of| of.is_open(turn_id))
    }

    /// Listens to a conversation: the events behind the one with this id, if it is remembered, and those to
    /// come.
    pub(crate) fn listen(
        self: &Arc<Self>,
        key: &ConversationKey,
        after: Option<&str>,
    ) -> (Vec<ConversationEvent>, ConversationListener) {
        let mut state = self.lock();
        let remembered = state.conversations.get(key).into_iter().flat_map(|of| &of.0);
        let events = remembered.filter_map(RememberedItem::event);
        let mut behind = events.skip_while(|event| after != Some(event.id.as_str()));
        // The one that was seen.
        behind.next();
        let missed = behind.cloned().collect();
        let listened = state.listened.entry(key.clone());
        let listened = listened.or_insert_with(|| broadcast::Sender::new(MOST_BEHIND));
        let events = Some(listened.subscribe());
        (missed, ConversationListener { conversations: Arc::clone(self), key: key.clone(), events })
    }

    /// Waits for the outcome of a turn; `None` if it does not come in time.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        key: &ConversationKey,
        turn_id: &str,
        most: Duration,
    ) -> Option<ConversationEvent> {
        let (_, mut events) = self.listen(key, None);
        let deadline = Instant::now() + most;
        let mut repeated = None;
        // Whatever came before is remembered, and what comes from here on is heard.
        let mut known = self.outcome(key, turn_id);
        loop {
            match known {
                Some(first) if first.kind != EventKind::Repeated => return Some(first),
                Some(repeat) if repeated.is_none() => {
                    repeated = Some((repeat, deadline.min(Instant::now() + FIRST_COMES_WITHIN)));
                }
                _ => {}
            }
            let until = repeated.as_ref().map_or(deadline, |(_, until)| *until);
            known = match tokio::time::timeout_at(until, events.next()).await {
                Ok(Ok(event)) => Some(event).filter(|it| it.turn_id.as_deref() == Some(turn_id)),
                // So much was said meanwhile that it may have been among it.
                Ok(Err(RecvError::Lagged(_))) => self.outcome(key, turn_id),
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => return repeated.map(|(repeated, _)| repeated),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownState {
    fn remember(&mut self, key: ConversationKey, what: RememberedItem, most: usize) {
        self.conversations.entry(key.clone()).or_default().0.push_back(what);
        self.order.push_back(key);
        while self.order.len() > most {
            let Some(oldest) = self.order.pop_front() else { break };
            let Some(of) = self.conversations.get_mut(&oldest) else { continue };
            of.0.pop_front();
            if of.0.is_empty() {
                self.conversations.remove(&oldest);
            }
        }
    }
}

impl KnownConversation {
    fn outcome(&self, turn_id: &str) -> Option<&ConversationEvent> {
        let of_turn = || {
            let events = self.0.iter().filter_map(RememberedItem::event);
            events.filter(|event| event.turn_id.as_deref() == Some(turn_id))
        };
        let first = of_turn().rfind(|event| event.kind != EventKind::Repeated);
        first.or_else(|| of_turn().next_back())
    }

    fn is_open(&self, turn_id: &str) -> bool {
        let last = self.0.iter().rev().find(|it| match it {
            RememberedItem::Event(event) => event.turn_id.as_deref() == Some(turn_id),
            RememberedItem::Written(id) => id == turn_id,
        });
        matches!(last, Some(RememberedItem::Written(_)))
    }
}

impl RememberedItem {
    fn event(&self) -> Option<&ConversationEvent> {
        match self {
            Self::Event(event) => Some(event),
            Self::Written(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
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
            known
                .note(key(&(number % 5).to_string()), event(number, EventKind::Response, &turn_id));
        }
        let state = known.lock();
        assert_eq!((state.conversations.len(), state.order.len()), (3, 3));
        assert!(state.listened.is_empty());
        drop(state);
        assert_eq!(known.outcome(&key("1"), "6"), None);
        assert!(known.outcome(&key("4"), "9").is_some());
    }

    #[test]
    fn who_listens_hears_what_came_after_and_what_comes() {
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
        let waiting =
            || known.waiting("default").iter().map(|it| it.to_string()).collect::<Vec<_>>();
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
}
