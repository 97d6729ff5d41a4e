use super::*;

/// A log that fails its next calls; the field says how many.
struct Away(u32);

impl Producer for Away {
    fn commit(&mut self, _: &Transaction) -> Result<(), LogError> {
        let away = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        if away { Err(LogError::Unsettled { what: "the log".to_owned() }) } else { Ok(()) }
    }
}

/// The process that waits to restore the partition may be this one, which reports nothing before.
#[test]
fn an_unconfirmed_commit_is_settled_without_further_reports() {
    let (config, flow) = (CommitConfig::default(), Arc::new(FlowControl::new(1, 1)));
    let mut committer = Committer::new(config, Box::new(Away(2)), flow);
    let (settled, is_settled) = crossbeam_channel::bounded(1);
    committer.take(Report::Lost { partitions: vec![0], settled }, 0).unwrap();
    assert_eq!(committer.due_ms(), Some(200));
    committer.wake(200).unwrap();
    assert_eq!(committer.due_ms(), Some(400));
    assert!(is_settled.try_recv().is_err(), "who would restore it waits");
    committer.wake(400).unwrap();
    assert_eq!((committer.due_ms(), is_settled.try_recv()), (None, Ok(())));
}

/// A single outcome is committed at once; those that follow it share a transaction.
#[test]
fn an_outcome_waits_only_after_a_commit_has_begun() {
    let (config, flow) = (CommitConfig::default(), Arc::new(FlowControl::new(9, 9)));
    let mut committer = Committer::new(config, Box::new(Away(0)), flow);
    let assignment = Assignment { partition: 0, generation: 1 };
    let (position, metadata) = (Some(0), String::new());
    committer.take(Report::Assigned { assignment, position, metadata }, 0).unwrap();
    committer.take(Report::Polled { assignment, offsets: vec![0, 1, 2] }, 0).unwrap();
    let ended = |offset| {
        Report::Ended(Box::new(EncodedBatch {
            partition: 0,
            generation: 1,
            offsets: vec![offset],
            outputs: Vec::new(),
            tally: Tally::default(),
        }))
    };
    committer.take(ended(0), 1_000).unwrap();
    assert_eq!(committer.due_ms(), Some(1_000));
    committer.wake(1_000).unwrap();
    assert_eq!(committer.due_ms(), None);
    for (offset, now_ms) in [(1, 1_010), (2, 1_020)] {
        committer.take(ended(offset), now_ms).unwrap();
        assert_eq!(committer.due_ms(), Some(1_050));
    }
}
