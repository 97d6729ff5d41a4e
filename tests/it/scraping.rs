//! Asks a process what a scraper and an orchestrator ask: its metrics and its health, over HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

/// Sends a request, and returns the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let kind = if path == "/metrics" { "application/openmetrics-text" } else { "application/json" };
    assert!(
        status == 404 || head.to_lowercase().contains(&format!("content-type: {kind}")),
        "{head}"
    );
    (status, body.to_owned())
}

/// Returns the status of a probe and the names of the checks that fail.
pub(crate) fn probe(address: SocketAddr, path: &str) -> (u16, Vec<String>) {
    let (status, body) = get(address, path);
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["ok"], status == 200, "{body}");
    let checks = body["checks"].as_array().expect("checks").iter();
    let failing = checks.filter(|check| check["ok"] == false).map(|check| {
        assert!(!check["reason"].as_str().expect("a reason").is_empty(), "{check}");
        check["name"].as_str().expect("a name").to_owned()
    });
    (status, failing.collect())
}

/// Parses a scraped text: each sample's value by its name with labels.
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().unwrap_or_else(|e| panic!("{line}: {e}")))
    });
    samples.collect()
}

/// Returns the sum over the samples of a metric, whatever their labels.
pub(crate) fn sum(samples: &BTreeMap<String, f64>, metric: &str) -> u64 {
    find_sum(samples, metric).unwrap_or_else(|| panic!("{metric} is missing"))
}

/// Returns the same as [`sum`]; `None` if there is no such sample.
pub(crate) fn find_sum(samples: &BTreeMap<String, f64>, metric: &str) -> Option<u64> {
    let of_it = |(name, _): &(&String, &f64)| name.split('{').next() == Some(metric);
    let values: Vec<f64> = samples.iter().filter(of_it).map(|(_, value)| *value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}
