//! Limits of concurrency, rate and memory.

use std::time::Instant;

use super::*;

#[test]
fn concurrent_requests_stay_within_the_limit() {
    let server = Faulty::start(|_, _| Act::Late(Duration::from_millis(20), "late".into()));
    let config = RemoteConfig { max_concurrent: 3, ..config(&server) };
    let metrics = RemoteMetrics::unread();
    let model = start("ours", &config, metrics.clone()).unwrap();
    let asked: Vec<_> = (0..12).map(|_| ask(&*model, request()).unwrap()).collect();
    for asked in asked {
        assert_eq!(asked.wait().unwrap().text, "late");
    }
    assert_eq!(server.seen.most_under_way(), 3);
    wait_until(|| metrics.in_flight.get() == 0);
    assert_eq!(metrics.queued.get(), 0);
}

#[test]
fn a_full_queue_hands_requests_back() {
    let server = Faulty::start(|_, _| Act::Silence);
    let config = RemoteConfig { max_concurrent: 2, queue_requests: 3, ..config(&server) };
    let metrics = RemoteMetrics::unread();
    let model = start("ours", &config, metrics.clone()).unwrap();
    let under_way: Vec<_> = (0..2).map(|_| ask(&*model, request()).unwrap()).collect();
    server.seen.wait_for(2);
    let waiting: Vec<_> = (0..3).map(|_| ask(&*model, request()).unwrap()).collect();
    let (reply, _asked) = reply();
    let busy = model.ask(request(), reply).err().unwrap();
    assert_eq!(busy.request, request());
    assert!(!busy.reply.is_abandoned());
    let counted = (metrics.queued.get(), metrics.refused.get(), metrics.in_flight.get());
    assert_eq!(counted, (3, 1, 2));
    drop((under_way, waiting, busy));
    server.seen.wait_for_disconnected(2);
    wait_until(|| metrics.skipped.get() == 5);
    assert_eq!(server.seen.count(), 2, "those that waited were never sent");
}

#[test]
fn an_abandoned_request_is_closed_whether_it_is_silent_or_speaks() {
    for act in [|| Act::Silence, || Act::Stream(vec![piece("so")], Then::Silence)] {
        let server = Faulty::start(move |_, _| act());
        let metrics = RemoteMetrics::unread();
        let model = start("ours", &config(&server), metrics.clone()).unwrap();
        let asked = ask(&*model, request()).unwrap();
        server.seen.wait_for(1);
        drop(asked);
        server.seen.wait_for_disconnected(1);
        wait_until(|| metrics.skipped.get() == 1 && metrics.in_flight.get() == 0);
    }
}

#[test]
fn what_is_under_way_and_waits_is_cancelled_with_the_model() {
    let server = Faulty::start(|_, _| Act::Silence);
    let config = RemoteConfig { max_concurrent: 1, ..config(&server) };
    let model = start("ours", &config, RemoteMetrics::unread()).unwrap();
    let asked: Vec<_> = (0..3).map(|_| ask(&*model, request()).unwrap()).collect();
    server.seen.wait_for(1);
    drop(model);
    for asked in asked {
        assert_eq!(asked.wait(), Err(CallError::Dropped));
    }
    server.seen.wait_for_disconnected(1);
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn an_answer_without_end_is_broken_off_at_its_bound() {
    let streamed = Faulty::start(|_, _| Act::Stream(vec![piece("on and ")], Then::Endless));
    let whole = Faulty::start(|_, _| Act::Say(200, vec![], "x".repeat(200_000)));
    // One endless line, which an unbounded event reader would keep whole.
    let line = Faulty::start(|_, _| Act::Stream(vec!["y".repeat(200_000)], Then::Silence));
    for server in [&streamed, &whole, &line] {
        let config = RemoteConfig { max_answer_bytes: 100_000, ..config(server) };
        let (answered, metrics) = ask_once(&config, request());
        let error = answered.unwrap_err();
        assert!(error.contains("more than 100000 bytes"), "{error}");
        assert_eq!((server.seen.count(), metrics.fault(RemoteFault::TooLong).get()), (1, 1));
    }
    streamed.seen.wait_for_disconnected(1);
    // An endless error is read in part.
    let error = Faulty::start(|_, _| Act::Say(400, vec![], "z".repeat(1 << 20)));
    let error = ask_once(&config(&error), request()).0.unwrap_err();
    assert!(error.len() < 1_000 && error.contains("zzz"), "{}", error.len());
}

#[test]
fn requests_are_no_more_a_second_than_configured() {
    let server = Faulty::start(|_, _| Act::good("well"));
    let rate = Some(50.0);
    let config = RemoteConfig { requests_per_second: rate, max_concurrent: 8, ..config(&server) };
    let model = start("ours", &config, RemoteMetrics::unread()).unwrap();
    let began = Instant::now();
    let asked: Vec<_> = (0..11).map(|_| ask(&*model, request()).unwrap()).collect();
    asked.into_iter().for_each(|asked| drop(asked.wait().unwrap()));
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}
