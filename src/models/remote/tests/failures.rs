//! Failing servers: retries, messages and the circuit breaker.

use std::net::TcpListener;
use std::time::Instant;

use super::*;

/// Asks a server that does one thing first and then answers well.
fn ask_after(
    first: impl Fn() -> Act + Send + Sync + 'static,
) -> (Faulty, Generated, RemoteMetrics) {
    let server =
        Faulty::start(move |number, _| if number == 0 { first() } else { Act::good("well") });
    let config = RemoteConfig { answer_timeout_ms: 5_000, idle_timeout_ms: 250, ..config(&server) };
    let (answered, metrics) = ask_once(&config, request());
    assert_eq!((server.seen.count(), metrics.retries.get()), (2, 1));
    (server, answered.unwrap(), metrics)
}

#[test]
fn transient_failures_are_retried() {
    let (_, generated, metrics) = ask_after(|| Act::error(500, "out of memory"));
    assert_eq!(generated.text, "well");
    assert_eq!(metrics.fault(RemoteFault::Server).get(), 1);
    let (_, _, metrics) = ask_after(|| Act::Stream(vec![piece("so")], Then::Cut));
    assert_eq!(metrics.fault(RemoteFault::Cut).get(), 1);
    let (_, _, metrics) = ask_after(|| Act::Stream(vec![piece("so")], Then::End));
    assert_eq!(metrics.fault(RemoteFault::Cut).get(), 1, "an end in the middle is none");
    let (server, _, metrics) = ask_after(|| Act::Stream(vec![piece("so")], Then::Silence));
    assert_eq!(metrics.fault(RemoteFault::Timeout).get(), 1);
    server.seen.wait_for_disconnected(1);
    let broken = r#"{"error":{"message":"slot lost"}}"#.to_owned();
    let (_, _, metrics) = ask_after(move || Act::Stream(vec![broken.clone()], Then::End));
    assert_eq!(metrics.fault(RemoteFault::Cut).get(), 1);
}

#[test]
fn an_answer_after_a_cut_one_is_heard_from_its_beginning() {
    let server = Faulty::start(|number, _| match number {
        0 => Act::Stream(vec![piece("gr")], Then::Cut),
        _ => Act::Stream([&[piece("black")], &last_pieces()[..]].concat(), Then::End),
    });
    let (request, heard) = listened();
    assert_eq!(ask_once(&config(&server), request).0.unwrap().text, "black");
    assert_eq!(*heard.lock().unwrap(), ["gr", "black"]);
}

#[test]
fn a_server_that_hangs_is_given_up_after_all_attempts() {
    let server = Faulty::start(|_, _| Act::Silence);
    let config = RemoteConfig { answer_timeout_ms: 50, ..config(&server) };
    let (answered, metrics) = ask_once(&config, request());
    let error = answered.unwrap_err();
    assert!(error.contains("within 50 ms") && error.contains("answer_timeout_ms"), "{error}");
    assert!(error.contains(&config.address()) && error.contains("`small`"), "{error}");
    assert_eq!((server.seen.count(), metrics.fault(RemoteFault::Timeout).get()), (3, 3));
    server.seen.wait_for_disconnected(3);
}

#[test]
fn an_answer_that_stops_speaking_is_given_up_before_its_time_is_over() {
    let server = Faulty::start(|_, _| Act::Stream(vec![piece("so")], Then::Silence));
    let config = RemoteConfig {
        attempts: 1,
        answer_timeout_ms: 5_000,
        idle_timeout_ms: 50,
        ..config(&server)
    };
    let error = ask_once(&config, request()).0.unwrap_err();
    assert!(error.contains("stalled for 50 ms (idle_timeout_ms)"), "{error}");
}

#[test]
fn a_throttling_server_is_given_the_time_that_it_asks_for() {
    let retry_after = |after: &str| Act::Say(429, vec![("retry-after", after.into())], "".into());
    let began = Instant::now();
    let (_, _, metrics) = ask_after(move || retry_after("1"));
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(metrics.fault(RemoteFault::Throttled).get(), 1);
    // A date, longer away than any limit.
    let server = Faulty::start(move |_, _| retry_after("Fri, 31 Dec 2100 23:59:59 GMT"));
    let error = ask_once(&config(&server), request()).0.unwrap_err();
    assert!(error.contains("429") && error.contains("asks us to wait"), "{error}");
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn a_refused_key_is_not_tried_again_and_never_shown() {
    // The server repeats the key in its error.
    let server = Faulty::start(|_, _| Act::error(401, &format!("no such key: {KEY}")));
    let key = Some(KEY_VARIABLE.to_owned());
    let config = RemoteConfig { api_key_env: key, ..config(&server) };
    let (answered, metrics) = ask_once(&config, request());
    let error = answered.unwrap_err();
    assert!(error.contains("no such key: ********") && !error.contains(KEY), "{error}");
    assert!(error.contains("api_key_env"), "{error}");
    assert_eq!((server.seen.count(), metrics.fault(RemoteFault::Client).get()), (1, 1));
    assert!(!format!("{config:?}").contains(KEY));
    // The model repeats the key in its answer.
    let server = Faulty::start(|_, _| Act::good(&format!("key {KEY}")));
    let config = RemoteConfig { base_url: format!("http://{}", server.address), ..config };
    let error = ask_once(&config, with_schema()).0.unwrap_err();
    assert!(error.contains("********") && !error.contains(KEY), "{error}");
}

#[test]
fn a_key_is_masked_before_its_text_is_cut() {
    // Only the key's beginning lies before the cut.
    let said = format!("{}{KEY}", "x".repeat(296));
    let broken = serde_json::json!({ "error": { "message": said } }).to_string();
    let refuses = serde_json::json!({ "choices": [{ "message": { "refusal": said } }] });
    let wrong = serde_json::json!({ "choices": said }).to_string();
    let acts: [Box<dyn Fn() -> Act + Send + Sync>; 3] = [
        Box::new(move || Act::Stream(vec![broken.clone()], Then::End)),
        Box::new(move || Act::json(200, &refuses)),
        Box::new(move || Act::Say(200, vec![], wrong.clone())),
    ];
    for act in acts {
        let server = Faulty::start(move |_, _| act());
        let key = Some(KEY_VARIABLE.to_owned());
        let config = RemoteConfig { api_key_env: key, ..config(&server) };
        let error = ask_once(&config, request()).0.unwrap_err();
        assert!(error.contains("xxx") && !error.contains(&KEY[..3]), "{error}");
    }
}

#[test]
fn a_key_that_is_not_there_is_named_by_its_variable() {
    let server = Faulty::start(|_, _| Act::Silence);
    let key = Some("TURNSTREAM_NO_SUCH_KEY".to_owned());
    let config = RemoteConfig { api_key_env: key, ..config(&server) };
    let error = start("ours", &config, RemoteMetrics::unread()).err().unwrap().to_string();
    assert!(error.contains("TURNSTREAM_NO_SUCH_KEY"), "{error}");
}

#[test]
fn a_server_that_is_not_there_or_is_another_is_named_with_the_remedy() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base_url = format!("http://127.0.0.1:{port}/v1");
    let server = Faulty::start(|_, _| Act::Say(200, vec![], "<html>welcome</html>".into()));
    let (answered, metrics) = ask_once(&RemoteConfig { base_url, ..config(&server) }, request());
    let error = answered.unwrap_err();
    assert!(error.contains("Connection refused") && error.contains("start the server"), "{error}");
    assert_eq!(metrics.fault(RemoteFault::Connection).get(), 3);
    let (answered, metrics) = ask_once(&config(&server), request());
    let error = answered.unwrap_err();
    assert!(error.contains("it says: <html>welcome</html>; base_url may not be"), "{error}");
    assert_eq!(metrics.fault(RemoteFault::Malformed).get(), 1);
    let elsewhere = Faulty::start(|_, _| Act::good("a key went astray"));
    let location = format!("http://{}/v1/chat/completions", elsewhere.address);
    let pointing =
        Faulty::start(move |_, _| Act::Say(307, vec![("location", location.clone())], "".into()));
    let error = ask_once(&config(&pointing), request()).0.unwrap_err();
    assert!(error.contains("307") && error.contains("set base_url"), "{error}");
    assert_eq!(elsewhere.seen.count(), 0);
}

#[test]
fn an_answer_without_text_is_an_error_that_says_why() {
    for (body, says) in [
        (completion(""), "wrote nothing (stop)"),
        (serde_json::json!({ "choices": [] }), "wrote nothing (no reason given)"),
        (
            serde_json::json!({ "choices": [{ "message": { "refusal": "I would not." } }] }),
            "the model refuses: I would not.",
        ),
    ] {
        let server = Faulty::start(move |_, _| Act::json(200, &body));
        let (answered, metrics) = ask_once(&config(&server), request());
        let error = answered.unwrap_err();
        assert!(error.contains(says), "{error}");
        assert_eq!(server.seen.count(), 1);
        assert_eq!(metrics.fault(RemoteFault::Malformed).get(), 1);
    }
}

#[test]
fn a_server_that_fails_again_and_again_is_left_alone_until_a_probe_finds_it_well() {
    let well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let server =
        Faulty::start(move |_, _| match is_well.load(std::sync::atomic::Ordering::SeqCst) {
            true => Act::good("well"),
            false => Act::error(503, "loading"),
        });
    let open_ms = 300;
    let config = RemoteConfig {
        attempts: 1,
        breaker_failures: 2,
        breaker_open_ms: open_ms,
        ..config(&server)
    };
    let metrics = RemoteMetrics::unread();
    let model = start("ours", &config, metrics.clone()).unwrap();
    for _ in 0..2 {
        assert!(answer(&*model, request()).unwrap_err().contains("503"));
    }
    assert_eq!(metrics.breaker_open.get(), 1);
    let opened = Instant::now();
    let error = answer(&*model, request()).unwrap_err();
    // If this thread was delayed past the breaker's time, there is nothing to check.
    if opened.elapsed() < Duration::from_millis(open_ms / 2) {
        assert!(error.contains("not asked: 2 attempts in a row failed"), "{error}");
        assert!(error.contains("503 Service Unavailable: loading"), "{error}");
        assert_eq!((server.seen.count(), metrics.fault(RemoteFault::Open).get()), (2, 1));
    }
    well.store(true, std::sync::atomic::Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(open_ms * 2));
    assert_eq!(answer(&*model, request()).unwrap().text, "well");
    assert_eq!(metrics.breaker_open.get(), 0);
    assert_eq!(answer(&*model, request()).unwrap().text, "well");
}
