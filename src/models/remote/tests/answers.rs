//! Requests, answers, and optional fields.

use turnstream_schemas::{Confidence, ConfidenceKind};

use super::*;
use serde_json::json;

#[test]
fn a_request_says_everything_and_its_answer_is_counted() {
    let server = Faulty::start(|_, _| Act::good("yes"));
    let key = Some(KEY_VARIABLE.to_owned());
    let config = RemoteConfig { api_key_env: key, log_probabilities: true, ..config(&server) };
    let (answered, metrics) = ask_once(&config, request());
    let generated = answered.unwrap();
    assert_eq!((generated.text.as_str(), generated.model.name.as_str()), ("yes", "ours"));
    let kind = ConfidenceKind::LowestLogProbability;
    assert_eq!(generated.confidence, Some(Confidence { kind, value: -2.25 }));
    let expected = json!({
        "model": "small",
        "messages": [
            { "role": "system", "content": "Decide." },
            { "role": "user", "content": "Tea?" },
        ],
        "max_tokens": 20, "temperature": 0.7, "seed": (1_u64 << 40 | 5) % (1 << 31),
        "logprobs": true, "top_logprobs": 1,
    });
    assert_eq!(server.seen.bodies(), [expected]);
    assert_eq!(server.seen.path(0), "/v1/chat/completions");
    assert_eq!(server.seen.header(0, "authorization"), Some(format!("Bearer {KEY}")));
    let tokens = [&metrics.prompt_tokens, &metrics.cached_tokens, &metrics.completion_tokens];
    assert_eq!(tokens.map(|tokens| tokens.get()), [11, 7, 3]);
    assert_eq!((metrics.retries.get(), metrics.queued.get()), (0, 0));
    wait_until(|| metrics.in_flight.get() == 0);
}

#[test]
fn the_completions_interface_has_a_prompt_and_its_own_log_probabilities() {
    let server = Faulty::start(|_, _| {
        let logprobs = json!({ "tokens": ["a", "b"], "token_logprobs": [null, -1.5] });
        Act::json(200, &json!({ "choices": [{ "text": "so", "logprobs": logprobs }] }))
    });
    let api = Api::Completions;
    let config = RemoteConfig { api, log_probabilities: true, ..config(&server) };
    let generated = ask_once(&config, request()).0.unwrap();
    assert_eq!(generated.text, "so");
    assert_eq!(generated.confidence.map(|confidence| confidence.value), Some(-1.5));
    let body = &server.seen.bodies()[0];
    assert_eq!(body["prompt"], "Decide.\n\nTea?\n\n");
    assert_eq!((&body["messages"], &body["logprobs"]), (&Value::Null, &json!(1)));
    assert_eq!(server.seen.path(0), "/v1/completions");
}

#[test]
fn a_streamed_answer_is_heard_while_it_grows() {
    let server = Faulty::start(|_, _| {
        let [last, usage] = last_pieces();
        let role = json!({ "choices": [{ "delta": { "role": "assistant", "content": null } }] });
        let events = [role.to_string(), piece("Gre"), piece("en té"), last, usage];
        Act::Stream([&events[..], &["[DONE]".to_owned()]].concat(), Then::End)
    });
    let (request, heard) = listened();
    let (answered, metrics) = ask_once(&config(&server), request);
    assert_eq!(answered.unwrap().text, "Green té");
    assert_eq!(*heard.lock().unwrap(), ["Gre", "Green té"]);
    let body = &server.seen.bodies()[0];
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!((metrics.prompt_tokens.get(), metrics.completion_tokens.get()), (11, 3));
}

#[test]
fn a_server_that_does_not_stream_is_heard_all_the_same() {
    let server = Faulty::start(|_, _| Act::good("whole"));
    let (request, heard) = listened();
    assert_eq!(ask_once(&config(&server), request).0.unwrap().text, "whole");
    assert_eq!(*heard.lock().unwrap(), ["whole"]);
}

#[test]
fn a_schema_is_told_as_strictly_as_the_server_can_and_that_is_remembered() {
    let server = Faulty::start(|_, body| match body["response_format"]["type"].as_str() {
        Some(kind) => Act::error(400, &format!("response_format of type {kind} is unknown")),
        None => Act::good(r#"{"use":true}"#),
    });
    let model = start("ours", &config(&server), RemoteMetrics::unread()).unwrap();
    for _ in 0..2 {
        assert_eq!(answer(&*model, with_schema()).unwrap().text, r#"{"use":true}"#);
    }
    let bodies = server.seen.bodies();
    let kinds: Vec<Option<&str>> =
        bodies.iter().map(|body| body["response_format"]["type"].as_str()).collect();
    assert_eq!(kinds, [Some("json_schema"), Some("json_object"), None, None]);
    let told = &bodies[0]["response_format"]["json_schema"];
    assert_eq!((&told["name"], &told["strict"]), (&json!("gate"), &json!(true)));
    assert_eq!(told["schema"], serde_json::from_str::<Value>(SCHEMA).unwrap());
    let system = |body: &Value| body["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_eq!(system(&bodies[0]), "Decide.");
    for body in &bodies[1..] {
        assert!(system(body).starts_with("Decide.\n\n") && system(body).contains(SCHEMA));
    }
    // A configured way is not replaced by another.
    let by = SchemaBy::JsonSchema;
    let error = ask_once(&RemoteConfig { schema_by: by, ..config(&server) }, with_schema());
    assert!(error.0.unwrap_err().contains("type json_schema is unknown"));
}

#[test]
fn a_field_that_is_refused_is_left_out_from_then_on() {
    let server = Faulty::start(|_, body| {
        let wrong = ["seed", "max_tokens", "logprobs", "temperature"];
        match wrong.iter().find(|field| !body[**field].is_null()) {
            Some(field) => Act::error(422, &format!("{field}: extra inputs are not permitted")),
            None => Act::good("well"),
        }
    });
    let config = RemoteConfig { log_probabilities: true, ..config(&server) };
    let model = start("ours", &config, RemoteMetrics::unread()).unwrap();
    answer(&*model, request()).unwrap();
    assert_eq!(server.seen.count(), 5);
    answer(&*model, request()).unwrap();
    assert_eq!(server.seen.count(), 6);
    assert_eq!(server.seen.bodies()[5]["max_completion_tokens"], 20);
}

#[test]
fn a_word_in_a_text_that_is_refused_leaves_nothing_out_for_good() {
    let server = Faulty::start(|_, body| match body["messages"][1]["content"].as_str() {
        Some("Tea?") => Act::good("well"),
        _ => Act::error(400, "the prompt 'plant a seed' is too long"),
    });
    let model = start("ours", &config(&server), RemoteMetrics::unread()).unwrap();
    let long = GenerateRequest { prompt: "plant a seed".to_owned(), ..request() };
    assert!(answer(&*model, long).unwrap_err().contains("too long"));
    answer(&*model, request()).unwrap();
    assert!(!server.seen.bodies().last().unwrap()["seed"].is_null());
}

#[test]
fn an_answer_that_does_not_follow_its_schema_is_repaired_once() {
    let server = Faulty::start(|number, _| match number {
        0 => Act::good(r#"Perhaps: {"use":"maybe"}"#),
        _ => Act::good("```json\n{\"use\": false}\n```"),
    });
    let (answered, metrics) = ask_once(&config(&server), with_schema());
    assert_eq!(answered.unwrap().text, r#"{"use": false}"#);
    let messages = &server.seen.bodies()[1]["messages"];
    assert_eq!(messages[2]["role"], "assistant");
    assert_eq!(messages[2]["content"], r#"Perhaps: {"use":"maybe"}"#);
    let told = messages[3]["content"].as_str().unwrap();
    assert!(told.contains(r#"/use: "maybe" is not of type "boolean""#), "{told}");
    // The server accepted the schema but did not enforce it; from now on the prompt states it as
    // well.
    let systems = server.seen.bodies();
    let systems = systems.iter().map(|body| body["messages"][0]["content"].as_str().unwrap());
    let tells: Vec<bool> = systems.map(|system| system.contains(SCHEMA)).collect();
    assert_eq!(tells, [false, true]);
    assert_eq!((metrics.repairs.get(), metrics.completion_tokens.get()), (1, 6));
}

#[test]
fn an_answer_that_never_follows_its_schema_is_an_error() {
    let server = Faulty::start(|_, _| Act::good("I would rather talk."));
    let (answered, metrics) = ask_once(&config(&server), with_schema());
    let error = answered.unwrap_err();
    assert!(error.contains("no JSON") && error.contains("I would rather talk."), "{error}");
    assert_eq!(server.seen.count(), 2, "one repair, and no more");
    assert_eq!(metrics.fault(RemoteFault::Unfit).get(), 1);
    let unusable = GenerateRequest { schema: Some("{".into()), ..request() };
    let (answered, metrics) = ask_once(&config(&server), unusable);
    let error = answered.unwrap_err();
    assert!(error.contains("the schema cannot be used"), "{error}");
    assert_eq!(metrics.fault(RemoteFault::Unfit).get(), 1, "no failure goes uncounted");
}
