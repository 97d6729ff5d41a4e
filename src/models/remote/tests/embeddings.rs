//! Embeddings from a server.

use serde_json::json;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::{Embed, EmbedRequest, Embedding};

use super::*;

/// Two numbers for each text, its length and 1, with the last text first.
fn lengths(body: &Value) -> Act {
    let texts = body["input"].as_array().unwrap().iter().enumerate().rev();
    let data: Vec<Value> = texts
        .map(|(index, text)| {
            let length = text.as_str().unwrap().len();
            json!({ "index": index, "embedding": [length, 1], "object": "embedding" })
        })
        .collect();
    Act::json(200, &json!({ "data": data, "usage": { "prompt_tokens": data.len() } }))
}

fn embeddings(server: &Faulty) -> RemoteConfig {
    RemoteConfig { api: Api::Embeddings, batch_texts: 2, attempts: 1, ..config(server) }
}

fn embed(model: &Embed, texts: &[&str]) -> Result<Vec<Embedding>, CallError> {
    let (reply, asked) = reply();
    let texts: EmbedRequest = texts.iter().map(|text| (*text).to_owned()).collect();
    assert!(model.ask(texts, reply).is_ok());
    asked.wait()
}

#[test]
fn embeddings_come_in_order_at_length_one_and_in_batches() {
    let server = Faulty::start(|_, body| lengths(body));
    let metrics = RemoteMetrics::unread();
    let model = RemoteEmbedder::start("ours", &embeddings(&server), metrics.clone()).unwrap();
    let texts = ["a", "bbb", "cc", "dddd", "e"];
    let embedded = embed(&model, &texts).unwrap();
    for (text, vector) in texts.iter().zip(&embedded) {
        let length = (text.len() as f32).hypot(1.0);
        let expected = [text.len() as f32 / length, 1.0 / length];
        assert!(vector.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{vector:?}");
    }
    let sent: Vec<usize> =
        server.seen.bodies().iter().map(|body| body["input"].as_array().unwrap().len()).collect();
    assert_eq!(sent, [1, 2, 2, 1], "the first is to know how many numbers they have");
    assert_eq!(server.seen.path(1), "/v1/embeddings");
    assert_eq!(metrics.prompt_tokens.get(), 6);
    assert_eq!(embed(&model, &[]).unwrap(), Vec::<Embedding>::new());
    let mut vectors = vec![0.5];
    let encoder: &dyn Encoder = &model;
    encoder.encode(&texts, &mut vectors).unwrap();
    assert_eq!((encoder.dimensions(), encoder.name()), (2, "ours"));
    assert_eq!(vectors[1..], embedded.concat());
    let other = RemoteConfig { model: "other".to_owned(), ..embeddings(&server) };
    let other = RemoteEmbedder::start("ours", &other, RemoteMetrics::unread()).unwrap();
    assert_ne!(other.fingerprint(), model.fingerprint());
}

#[test]
fn embeddings_that_cannot_be_right_are_errors() {
    let cases: [(Value, &str); 5] = [
        (json!([{ "embedding": [1, 2, 3] }]), "3 numbers where 2"),
        (json!([]), "0 embeddings for 1 texts"),
        (json!([{ "embedding": [1, 2] }, { "embedding": [1, 2] }]), "2 embeddings for 1"),
        (json!([{ "embedding": [0, 0] }]), "without a direction"),
        (json!([{ "index": 7, "embedding": [1, 2] }]), "1 embeddings for 1"),
    ];
    for (data, says) in cases {
        let server = Faulty::start(move |number, body| match number {
            0 => lengths(body),
            _ => Act::json(200, &json!({ "data": data })),
        });
        let metrics = RemoteMetrics::unread();
        let model = RemoteEmbedder::start("ours", &embeddings(&server), metrics.clone()).unwrap();
        let error = embed(&model, &["text"]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(metrics.fault(RemoteFault::Malformed).get(), 1);
        let mut vectors = vec![0.5];
        assert!(model.encode(&["text"], &mut vectors).is_err());
        assert_eq!(vectors, [0.5]);
    }
}

#[test]
fn an_embedder_without_server_or_with_another_interface_does_not_start() {
    let server = Faulty::start(|_, _| Act::error(404, "no such model"));
    let failed = |config: &RemoteConfig| {
        let started = RemoteEmbedder::start("ours", config, RemoteMetrics::unread());
        started.err().unwrap().to_string()
    };
    assert!(failed(&embeddings(&server)).contains("no such model"));
    assert!(failed(&config(&server)).contains("api must be embeddings"));
    let texts = start("ours", &embeddings(&server), RemoteMetrics::unread());
    assert!(texts.err().unwrap().to_string().contains("chat or completions"));
    let five = RemoteConfig { dimensions: Some(5), ..embeddings(&server) };
    let server = Faulty::start(|_, body| lengths(body));
    let five = RemoteConfig { base_url: format!("http://{}/v1", server.address), ..five };
    assert!(failed(&five).contains("2 numbers where 5"));
}
