//! The producer of the committer, which outlives its clients.
//!
//! A transactional client must be replaced if a transaction can be neither committed nor aborted:
//! its broker is away for longer than the transaction may take, or has aborted the transaction. It
//! must also be replaced if it has lost a broker, since that broker may have
//! [forgotten](super::settling) the end of the latest transaction. The next client takes the
//! transactional id and [sweeps](super::sweep), which ends the open transactions of the client
//! before. What is missing of the latest transaction is then committed again before anything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::super::{LogError, Position, Producer, Transaction};
use super::KafkaConfig;
use super::membership::MemberClient;
use super::producer::{TransactionalClient, Uncommitted};
use super::settling::{Missing, Sent};
use super::sweep::{of_turns, sweep};
use super::topics::Fit;

/// The timeout of one attempt to take the transactional id again.
const TAKE: Duration = Duration::from_secs(2);

/// Commits outcomes with their positions.
pub struct KafkaProducer {
    consumer: Arc<MemberClient>,
    config: KafkaConfig,
    fit: Fit,
    client: Option<TransactionalClient>,
    /// Whether the client has taken the transactional id.
    has_id: bool,
    /// The latest transaction whose commit was requested.
    latest: Option<Sent>,
    /// Whether the broker may have forgotten the end of that transaction.
    is_doubtful: bool,
    patience: Patience,
}

impl KafkaProducer {
    /// Takes the transactional id within `wait`. This fences its earlier holder and aborts that
    /// one's open transaction, also if the broker forgot it.
    pub(super) fn initialise(
        consumer: Arc<MemberClient>,
        config: &KafkaConfig,
        fit: Fit,
        wait: Duration,
    ) -> Result<Self, LogError> {
        let mut producer = Self {
            consumer,
            config: config.clone(),
            fit,
            client: None,
            has_id: false,
            latest: None,
            is_doubtful: false,
            patience: Patience::new(config),
        };
        let deadline = Instant::now() + wait;
        loop {
            match producer.client(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => return Ok(producer),
                Err(error) if error.is_fatal() || Instant::now() >= deadline => return Err(error),
                Err(error) => tracing::debug!(%error, "taking the transactional id; retrying"),
            }
        }
    }

    /// The client, replaced if the one before cannot be used any more.
    fn client(&mut self, wait: Duration) -> Result<&mut TransactionalClient, LogError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                sweep(&self.config, of_turns(self.fit), wait)?;
                let (consumer, accepted) = (Arc::clone(&self.consumer), self.fit.accepted_bytes);
                none.insert(TransactionalClient::new(consumer, &self.config, accepted)?)
            }
        };
        if !self.has_id {
            client.take_id(wait)?;
            self.has_id = true;
        }
        Ok(client)
    }

    fn try_commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        self.client(TAKE)?;
        if self.is_doubtful && self.settle(transaction)? {
            return Ok(());
        }
        if transaction.positions.is_empty() {
            return Ok(());
        }
        let before = self.consumer.context().committed(&transaction.positions);
        let client = self.client(TAKE)?;
        let sent = client.commit(transaction, &transaction.positions);
        let places = client.places();
        match sent {
            Ok(()) => {
                self.note_committed(transaction);
                self.latest = Some(Sent::new(transaction, before, places, true));
                Ok(())
            }
            Err(Uncommitted { error, is_unknown }) => {
                if is_unknown {
                    tracing::warn!(%error, "a transaction may or may not have taken effect");
                    self.latest = Some(Sent::new(transaction, before, places, false));
                }
                Err(error)
            }
        }
    }

    fn note_committed(&self, transaction: &Transaction) {
        for Position { partition, offset, metadata, .. } in &transaction.positions {
            let committed = (Some(*offset), metadata.clone());
            self.consumer.context().note_committed(*partition, committed);
        }
    }

    /// Commits what is missing of the latest transaction. Returns whether that was this
    /// transaction, which then needs no further commit.
    fn settle(&mut self, transaction: &Transaction) -> Result<bool, LogError> {
        let Some(mut latest) = self.latest.take() else {
            self.is_doubtful = false;
            return Ok(false);
        };
        let settled = self.commit_missing(&mut latest);
        let is_this = !latest.acknowledged && latest.finishes(transaction);
        if matches!(settled, Ok(true)) {
            latest.acknowledged = true;
        }
        if !matches!(settled, Ok(false)) {
            self.latest = Some(latest);
        }
        let took_effect = settled?;
        self.is_doubtful = false;
        Ok(took_effect && is_this)
    }

    /// Commits what is missing of `latest`. Returns whether all of it has now taken effect; false
    /// if none of it has.
    fn commit_missing(&mut self, latest: &mut Sent) -> Result<bool, LogError> {
        let missing = latest.missing(&self.config, self.consumer.context())?;
        let Some(Missing { transaction: missing, held }) = missing else { return Ok(false) };
        if missing.positions.is_empty() {
            return Ok(true);
        }
        let partitions: Vec<i32> = missing.positions.iter().map(|it| it.partition).collect();
        tracing::warn!(
            which = ?partitions,
            records = missing.outputs.len(),
            "the broker forgot this part of a committed transaction; committing it again"
        );
        let client = self.client(TAKE)?;
        let sent = client.commit(&missing, &held);
        if !matches!(sent, Err(Uncommitted { is_unknown: false, .. })) {
            latest.sent_again(client.places());
        }
        sent.map_err(|uncommitted| uncommitted.error)?;
        self.note_committed(&missing);
        Ok(true)
    }

    /// Drops the client. The next one settles what this one may have left open.
    fn drop_client(&mut self) {
        (self.client, self.has_id, self.is_doubtful) = (None, false, true);
    }

    /// Behaves as if a broker was lost after this transaction, acknowledged or not.
    #[cfg(test)]
    pub(super) fn doubt(&mut self, sent: Sent) {
        self.drop_client();
        self.latest = Some(sent);
    }

    fn has_lost_a_broker(&self) -> bool {
        self.client.as_ref().is_some_and(TransactionalClient::has_lost_a_broker)
    }
}

impl Producer for KafkaProducer {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        transaction.check()?;
        if self.has_lost_a_broker() {
            tracing::info!("a broker was lost; checking whether the latest commit took effect");
            self.drop_client();
        }
        if transaction.positions.is_empty() && !self.is_doubtful {
            return Ok(());
        }
        let done = self.try_commit(transaction);
        if matches!(done, Err(LogError::Kafka { fatal: true, .. })) {
            self.drop_client();
        }
        self.patience.judge(done)
    }
}

/// How long an outage may last.
pub(super) struct Patience {
    give_up_after: Option<Duration>,
    /// When the outage began.
    since: Option<Instant>,
}

impl Patience {
    pub(super) fn new(config: &KafkaConfig) -> Self {
        let give_up_after = config.give_up_after_seconds.map(Duration::from_secs);
        Self { give_up_after, since: None }
    }

    /// Makes an error that a new client may recover from non-fatal, until the outage has lasted too
    /// long.
    pub(super) fn judge<T>(&mut self, done: Result<T, LogError>) -> Result<T, LogError> {
        let Err(LogError::Kafka { doing, source, .. }) = done else {
            self.since = None;
            return done;
        };
        let since = self.since.get_or_insert_with(Instant::now).elapsed();
        match self.give_up_after {
            Some(most) if since >= most => {
                let seconds = most.as_secs();
                let doing = format!(
                    "{doing}, without success for {seconds} s (`log.kafka.give_up_after_seconds`)"
                );
                Err(LogError::Kafka { doing, source, fatal: true })
            }
            _ => Err(LogError::Kafka { doing, source, fatal: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};

    use super::*;

    #[test]
    fn it_gives_up_only_if_configured_to() {
        let gone = |fatal| {
            let source = KafkaError::Global(RDKafkaErrorCode::AllBrokersDown);
            Err::<(), _>(LogError::Kafka { doing: "committing".to_owned(), source, fatal })
        };
        let mut endless = Patience::new(&KafkaConfig::default());
        for fatal in [false, true] {
            assert!(!endless.judge(gone(fatal)).unwrap_err().is_fatal());
        }
        let config = KafkaConfig { give_up_after_seconds: Some(3_600), ..KafkaConfig::default() };
        let mut patient = Patience::new(&config);
        assert!(!patient.judge(gone(true)).unwrap_err().is_fatal());
        let hours = Duration::from_secs(2 * 3_600);
        patient.since = patient.since.and_then(|since| since.checked_sub(hours));
        let error = patient.judge(gone(false)).unwrap_err();
        assert!(error.is_fatal() && error.to_string().contains("give_up_after_seconds"), "{error}");
        assert!(patient.judge(Ok(())).is_ok());
        assert!(!patient.judge(gone(false)).unwrap_err().is_fatal(), "another outage");
        let refused = patient.judge(Err::<(), _>(LogError::Refused("no".to_owned())));
        assert!(refused.unwrap_err().is_fatal(), "what every try would meet");
    }
}
