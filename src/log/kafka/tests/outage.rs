//! Tests of a broker that is away, or halted, for longer than a transaction's timeout.

use super::*;

/// Sends a signal to the broker's process; `None` if the test did not start the broker.
pub(super) fn signal(broker: &Broker, signal: &str) -> Option<()> {
    let pid = std::fs::read_to_string(broker.data.as_ref()?.path().join("pid")).unwrap();
    let sent = Command::new("kill").args([signal, pid.trim()]).status();
    assert!(sent.unwrap().success());
    Some(())
}

/// Commits until it succeeds. Calls `again` after each failure, with the number of attempts.
pub(super) fn commit_until(
    producer: &mut KafkaProducer,
    transaction: &Transaction,
    mut again: impl FnMut(usize),
) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for tries in 1.. {
        match producer.commit(transaction) {
            Ok(()) => return,
            Err(error) => {
                assert!(!error.is_fatal() && Instant::now() < deadline, "{error}");
                again(tries);
            }
        }
    }
}

/// The process survives a transaction that cannot be aborted and one that the broker aborted
/// meanwhile: another client tries the same again, and all of it becomes visible once.
pub(super) fn a_broker_that_stood_still_is_waited_for(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    bed.0.transaction_timeout_ms = 1_000;
    let (mut member, mut producer) = bed.member("a");
    let said = |value: &str, generation, offset| Transaction {
        outputs: vec![output(Topic::Responses, 0, "k", Some(value))],
        positions: vec![position(0, generation, offset, "")],
    };
    let mut expected = Vec::new();
    // The broker is first halted before the transaction begins, later at any point of one.
    for (nth, wait_ms) in [None, Some(0), Some(3), Some(6), Some(12)].into_iter().enumerate() {
        let value = format!("outcome {nth}");
        let transaction = said(&value, member.held[&0], nth as i64 + 1);
        let mut stands = true;
        let done = std::thread::scope(|threads| {
            let halted = threads.spawn(move || {
                std::thread::sleep(Duration::from_millis(wait_ms.unwrap_or_default()));
                signal(broker, "-STOP")
            });
            if wait_ms.is_none() && halted.join().unwrap().is_none() {
                return None;
            }
            // If the commit was faster than the signal, the next one meets the stopped broker.
            commit_until(&mut producer, &transaction, |tries| {
                if std::mem::take(&mut stands) && tries == 1 {
                    std::thread::sleep(Duration::from_millis(500));
                    signal(broker, "-CONT");
                }
            });
            Some(())
        });
        let Some(()) = done else {
            eprintln!("SKIPPED: the broker is not ours, so it was not made to stand still");
            return;
        };
        signal(broker, "-CONT");
        expected.push(value);
    }
    let seen = bed.committed(Topic::Responses, 0).into_iter().filter_map(|record| record.value);
    let seen: Vec<String> = seen.map(|value| String::from_utf8(value).unwrap()).collect();
    assert_eq!(seen, expected);
    let (result, _) = restore_settled(&mut member.consumer, 0);
    assert_eq!(result.unwrap().position, Some(expected.len() as i64));
    let lost = member.events.iter().any(|event| matches!(event, Event::Lost(_)));
    assert!(!lost, "what is held stays: {:?}", member.events);
}
