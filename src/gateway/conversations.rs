//! Remembers the latest outcomes of conversations, and passes new ones to the requests that wait
//! for them.
//!
//! The number of outcomes is bounded: the oldest are forgotten first, in whichever conversation.
//! Everything here is on the log too.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Events that a slow reader of a conversation may be behind, before it is cut off.
const MOST_BEHIND: usize = 256;

/// How long the outcome of the first turn may be read after that of a repeat, since it is on
/// another topic. It was committed before.
const FIRST_COMES_WITHIN: Duration = Duration::from_secs(1);

/// A conversation: its tenant and its id.
pub(crate) type ConversationKey = (String, String);

/// The key that the agent desks of a tenant listen to.
pub(crate) fn desks_of(tenant: &str) -> ConversationKey {
    (tenant.to_owned(), String::new())
}

/// The kind of an event about a turn or a conversation.
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
    /// A language model is writing a response, which is not committed.
    Partial,
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
            Self::Partial => "partial",
            Self::Conversation { .. } => "conversation",
        }
    }
}

/// A record about a conversation.
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

impl ConversationEvent {
    /// The event as one line of JSON, for transports that carry nothing beside it.
    pub(crate) fn enveloped(&self) -> String {
        let Self { id, kind, json, .. } = self;
        format!("{{\"id\":\"{id}\",\"type\":\"{}\",\"data\":{json}}}", kind.name())
    }

    /// Whether it is the outcome of the turn.
    pub(crate) fn is_outcome_of(&self, turn_id: &str) -> bool {
        self.kind != EventKind::Partial && self.turn_id.as_deref() == Some(turn_id)
    }
}

/// The remembered conversations.
pub(crate) struct KnownConversations {
    state: Mutex<KnownState>,
    most: usize,
}

#[derive(Default)]
struct KnownState {
    conversations: HashMap<ConversationKey, KnownConversation>,
    /// The conversation of each remembered item, oldest first.
    order: VecDeque<ConversationKey>,
    /// The conversations that have listeners: each takes the memory of all events that a listener
    /// may be behind.
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

/// The remembered items of a conversation, oldest first; never empty.
#[derive(Default)]
struct KnownConversation(VecDeque<RememberedItem>);

/// Receives the events of a conversation.
pub(crate) struct ConversationListener {
    conversations: Arc<KnownConversations>,
    key: ConversationKey,
    /// `None` only during the drop.
    events: Option<broadcast::Receiver<ConversationEvent>>,
}

impl ConversationListener {
    /// Returns the next event, whenever it comes.
    ///
    /// # Errors
    /// The listener is too far behind.
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

/// A remembered item of a conversation.
enum RememberedItem {
    Event(ConversationEvent),
    /// This turn was written through this gateway.
    Written(String),
}

impl KnownConversations {
    /// Remembers at most `most` items.
    pub(crate) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), most: most.max(1) }
    }

    /// Notes a record that is too old to be remembered: only whether the user waits.
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

    /// Passes a partial response to the listeners, unless the turn has an outcome.
    pub(crate) fn pass_on(&self, key: &ConversationKey, partial: ConversationEvent) {
        let state = self.lock();
        let Some(listened) = state.listened.get(key) else { return };
        let turn_id = partial.turn_id.as_deref().unwrap_or_default();
        let of = state.conversations.get(key);
        if of.is_none_or(|of| of.is_open(turn_id) || of.outcome(turn_id).is_none()) {
            // Ignore the error: the listeners may be leaving.
            let _ = listened.send(partial);
        }
    }

    /// Remembers a record, and passes it to the listeners. A change of hands also goes to the
    /// tenant's agent desks, which listen under an empty conversation id.
    pub(crate) fn note(&self, key: ConversationKey, event: ConversationEvent) {
        let mut state = self.lock();
        state.waiting.note(&key, &event, self.most);
        if let EventKind::Conversation { .. } = event.kind
            && let Some(desks) = state.listened.get(&desks_of(&key.0))
        {
            let _ = desks.send(event.clone());
        }
        if let Some(listened) = state.listened.get(&key) {
            let _ = listened.send(event.clone());
        }
        state.remember(key, RememberedItem::Event(event), self.most);
    }

    /// Notes that a turn is about to be written. Returns `false` if it was, and has no outcome yet.
    pub(crate) fn write(&self, key: &ConversationKey, turn_id: &str) -> bool {
        let mut state = self.lock();
        let is_open = state.conversations.get(key).is_some_and(|of| of.is_open(turn_id));
        if !is_open {
            state.remember(key.clone(), RememberedItem::Written(turn_id.to_owned()), self.most);
        }
        !is_open
    }

    /// Undoes the note that a turn was written.
    pub(crate) fn unwrite(&self, key: &ConversationKey, turn_id: &str) {
        if let Some(of) = self.lock().conversations.get_mut(key) {
            of.0.iter_mut().for_each(|it| {
                if matches!(it, RememberedItem::Written(id) if id == turn_id) {
                    *it = RememberedItem::Written(String::new());
                }
            });
        }
    }

    /// Returns the outcome of a turn; that of a repeat only if there is no other. `None` also if
    /// the turn was written since and has no outcome yet.
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

    /// Listens to a conversation. Also returns the events after the one with this id, if it is
    /// remembered.
    pub(crate) fn listen(
        self: &Arc<Self>,
        key: &ConversationKey,
        after: Option<&str>,
    ) -> (Vec<ConversationEvent>, ConversationListener) {
        let mut state = self.lock();
        let remembered = state.conversations.get(key).into_iter().flat_map(|of| &of.0);
        let events = remembered.filter_map(RememberedItem::event);
        let mut behind = events.skip_while(|event| after != Some(event.id.as_str()));
        // Skip the event that the reader has seen.
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
        // Earlier events are remembered, and later ones are heard.
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
                Ok(Ok(event)) => Some(event).filter(|event| event.is_outcome_of(turn_id)),
                // The outcome may be among the events that were missed.
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
mod tests;
