use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnstream_ports::model::{Asked, reply};

use super::*;

/// A model that answers each text in capitals while the gate is open.
#[derive(Clone, Default)]
struct Capitals {
    batches: Arc<Mutex<Vec<Vec<String>>>>,
    entered: Arc<AtomicUsize>,
    /// A test holds the lock to stall the model.
    gate: Arc<Mutex<()>>,
}

impl Capitals {
    fn batches(&self) -> Vec<Vec<String>> {
        self.batches.lock().unwrap().clone()
    }
}

impl Backend for Capitals {
    type Item = String;
    type Output = String;

    fn name(&self) -> &str {
        "capitals"
    }

    fn tokens(&self, text: &String) -> usize {
        text.len()
    }

    fn run(&self, texts: &[String]) -> Result<(Vec<String>, Encoded), String> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.batches.lock().unwrap().push(texts.to_vec());
        if texts.iter().any(|text| text == "panic") {
            panic!("told to");
        }
        if texts.iter().any(|text| text == "fail") {
            return Err("told to".to_owned());
        }
        let outputs = texts.iter().filter(|text| *text != "swallow");
        let tokens = texts.iter().map(|text| text.len() as u64).sum();
        Ok((outputs.map(|text| text.to_uppercase()).collect(), Encoded { tokens, cut: 1 }))
    }
}

const LIMITS: Limits = Limits {
    queue: 8,
    batch: Bounds { tokens: 1_000, texts: 4, wait: Duration::ZERO },
    remembered: 0,
};

type Answered = Asked<Vec<String>>;

fn ask(model: &Batched<Capitals>, texts: &[&str]) -> Option<Answered> {
    let (reply, asked) = reply();
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    model.ask(texts, reply).is_ok().then_some(asked)
}

fn answer(model: &Batched<Capitals>, texts: &[&str]) -> Result<Vec<String>, CallError> {
    ask(model, texts).expect("there is room").wait()
}

/// Starts a model whose only thread computes "first" until the guard drops, while other requests
/// queue.
fn start(limits: Limits) -> (Capitals, Batched<Capitals>, ModelMetrics) {
    let (capitals, metrics) = (Capitals::default(), ModelMetrics::unread());
    let model = Batched::start(capitals.clone(), limits, &Threads::new(1), metrics.clone());
    (capitals, model.unwrap(), metrics)
}

fn stall(capitals: &Capitals, model: &Batched<Capitals>) -> Answered {
    let before = capitals.entered.load(Ordering::SeqCst);
    let first = ask(model, &["first"]).unwrap();
    while capitals.entered.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    first
}

#[test]
fn each_request_gets_its_own_and_no_text_is_worked_on_twice() {
    let (capitals, model, metrics) = start(LIMITS);
    let held = capitals.gate.lock().unwrap();
    let first = stall(&capitals, &model);
    let both = ask(&model, &["longer", "b"]).unwrap();
    let none = ask(&model, &[]).unwrap();
    let again = ask(&model, &["b"]).unwrap();
    drop(held);
    assert_eq!(first.wait().unwrap(), ["FIRST"]);
    assert_eq!(both.wait().unwrap(), ["LONGER", "B"]);
    assert_eq!(none.wait().unwrap(), [""; 0]);
    assert_eq!(again.wait().unwrap(), ["B"]);
    assert_eq!(capitals.batches(), [vec!["first"], vec!["b", "longer"]], "sorted by length");
    assert_eq!((metrics.tokens.get(), metrics.cut.get(), metrics.queued.get()), (12, 2, 0));
}

#[test]
fn a_batch_keeps_its_bounds_and_nobody_is_overtaken() {
    let (capitals, model, _) = start(LIMITS);
    let held = capitals.gate.lock().unwrap();
    let first = stall(&capitals, &model);
    let asked: Vec<Answered> =
        ["a", "b", "c", "d", "e", "f"].map(|it| ask(&model, &[it]).unwrap()).into();
    drop(held);
    first.wait().unwrap();
    asked.into_iter().for_each(|asked| drop(asked.wait().unwrap()));
    assert_eq!(capitals.batches()[1..], [vec!["a", "b", "c", "d"], vec!["e", "f"]]);
}

#[test]
fn errors_and_panics_are_answered_and_the_thread_lives_on() {
    let (_, model, metrics) = start(LIMITS);
    assert_eq!(answer(&model, &["fail"]), Err(CallError::Model("told to".to_owned())));
    assert_eq!(answer(&model, &["panic"]), Err(CallError::Panic));
    let short = answer(&model, &["swallow", "b"]).unwrap_err().to_string();
    assert!(short.contains("1 answers to 2 questions"), "{short}");
    assert_eq!(answer(&model, &["well"]).unwrap(), ["WELL"]);
    assert_eq!((metrics.errors.get(), metrics.panics.get()), (2, 1));
}

#[test]
fn a_stalled_model_holds_no_more_than_its_bounds_and_skips_what_is_abandoned() {
    let (capitals, model, metrics) = start(LIMITS);
    let held = capitals.gate.lock().unwrap();
    let first = stall(&capitals, &model);
    let asked: Vec<Option<Answered>> = (0..10_000).map(|_| ask(&model, &["text"])).collect();
    let held_back = asked.iter().filter(|asked| asked.is_none()).count();
    assert_eq!(held_back, 10_000 - LIMITS.queue);
    let counted = (metrics.queued.get(), metrics.refused.get());
    assert_eq!(counted, (LIMITS.queue as i64, held_back as u64));
    drop(asked);
    drop(held);
    assert_eq!(first.wait().unwrap(), ["FIRST"]);
    // The queue is full until the thread skips the abandoned requests.
    let after = loop {
        match ask(&model, &["after"]) {
            Some(after) => break after,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(after.wait().unwrap(), ["AFTER"]);
    assert_eq!(metrics.skipped.get(), LIMITS.queue as u64);
    assert_eq!(capitals.batches(), [vec!["first"], vec!["after"]]);
}

#[test]
fn what_was_worked_on_is_remembered_as_long_as_there_is_room() {
    let (capitals, model, metrics) = start(Limits { remembered: 64, ..LIMITS });
    assert_eq!(answer(&model, &["a", "b"]).unwrap(), ["A", "B"]);
    assert_eq!(answer(&model, &["b", "a"]).unwrap(), ["B", "A"]);
    assert_eq!(answer(&model, &["c", "a"]).unwrap(), ["C", "A"]);
    assert_eq!(capitals.batches(), [vec!["a", "b"], vec!["c"]]);
    assert_eq!(metrics.remembered.get(), 3);
    for number in 0..1_000 {
        answer(&model, &[&number.to_string()]).unwrap();
    }
    let remembered = model.shared.remembered.as_ref().unwrap();
    assert!(remembered.len() <= 64, "{}", remembered.len());
}

#[test]
fn models_share_the_threads() {
    let (capitals, threads) = (Capitals::default(), Threads::new(1));
    let new = || {
        let metrics = ModelMetrics::unread();
        Batched::start(capitals.clone(), LIMITS, &threads, metrics).unwrap()
    };
    let (one, other) = (new(), new());
    let held = capitals.gate.lock().unwrap();
    let first = stall(&capitals, &one);
    let second = ask(&other, &["second"]).unwrap();
    // Long enough for a thread that did not wait to proceed.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(capitals.entered.load(Ordering::SeqCst), 1);
    drop(held);
    assert_eq!(
        (first.wait().unwrap(), second.wait().unwrap()),
        (vec!["FIRST".into()], vec!["SECOND".into()])
    );
}
