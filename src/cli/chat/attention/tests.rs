use turnstream_ports::model::{Origin, Step, reply};
use turnstream_schemas::{ModelUsed, Stage};

use super::*;

/// Holds its reply until told to answer. Takes one request at a time.
#[derive(Default)]
struct Slow {
    held: Mutex<Option<Reply<Generated>>>,
}

impl Slow {
    fn answer(&self, text: &str) {
        let model = ModelUsed { name: "slow".to_owned(), prompt_hash: None };
        let generated = Generated { text: text.to_owned(), confidence: None, model };
        self.held.lock().unwrap().take().expect("asked").answer(Ok(generated));
    }

    fn is_abandoned(&self) -> bool {
        self.held.lock().unwrap().as_ref().expect("asked").is_abandoned()
    }
}

impl Model<GenerateRequest, Generated> for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        let mut held = self.held.lock().unwrap();
        if held.as_ref().is_some_and(|held| !held.is_abandoned()) {
            return Err(Busy { request, reply });
        }
        *held = Some(reply);
        Ok(())
    }
}

fn input(offset: i64) -> InputId {
    InputId { topic: "turns".to_owned(), partition: 0, offset }
}

fn request(offset: i64, prompt: &str) -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Generation,
        system: "the task".to_owned(),
        prompt: prompt.to_owned(),
        max_tokens: 1,
        temperature: 0.0,
        schema: None,
        seed: 0,
        listener: None,
        origin: Some(Origin {
            input: input(offset),
            step: Step::Answer,
            round: 0,
            for_gate: false,
            prompt: "abc".to_owned(),
        }),
    }
}

fn watched() -> (Arc<Slow>, Arc<Generate>, Attention) {
    let (attention, _) = Attention::new();
    let slow = Arc::new(Slow::default());
    let model = attention.of("default", slow.clone());
    (slow, model, attention)
}

#[test]
fn what_was_asked_is_kept_with_its_answer() {
    let (slow, model, attention) = watched();
    attention.begin();
    let (to, asked) = reply();
    assert!(model.ask(request(7, "why?"), to).is_ok());
    slow.answer("one two");
    assert_eq!(asked.wait().unwrap().text, "one two");
    let kept = attention.asked(&input(7));
    assert_eq!((kept.len(), &*kept[0].model, &*kept[0].prompt), (1, "default", "why?"));
    assert_eq!(kept[0].answer.as_deref(), Some("one two"));
    assert!(attention.asked(&input(8)).is_empty());

    // If a question is asked again, the later attempt is kept.
    for prompt in ["why again?", "why for the third time?"] {
        let (to, _) = reply();
        assert!(model.ask(request(7, prompt), to).is_ok());
    }
    let kept = attention.asked(&input(7));
    assert_eq!((kept.len(), &*kept[0].prompt), (1, "why for the third time?"));
    attention.begin();
    assert!(attention.asked(&input(7)).is_empty());
}

#[test]
fn an_interrupted_turn_ends_without_its_model_and_others_do_not() {
    let (slow, model, attention) = watched();
    attention.begin();
    let (to, asked) = reply();
    assert!(model.ask(request(1, ""), to).is_ok());
    attention.interrupt(&input(0));
    assert!(!slow.is_abandoned(), "another turn was interrupted");
    attention.interrupt(&input(1));
    assert!(slow.is_abandoned(), "the model may stop");
    let error = asked.wait().unwrap_err().to_string();
    assert!(error.contains("interrupted"), "{error}");
    // A late piece is dropped, and the stage's next attempt is refused at once.
    slow.answer("late");
    let (to, asked) = reply();
    assert!(model.ask(request(1, ""), to).is_ok());
    assert!(asked.wait().is_err());
    let (to, asked) = reply();
    assert!(model.ask(request(2, ""), to).is_ok());
    slow.answer("fine");
    assert_eq!(asked.wait().unwrap().text, "fine");
}

#[test]
fn a_busy_model_hands_back_and_abandoned_requests_are_dropped() {
    let (slow, model, _attention) = watched();
    let (to, first) = reply();
    assert!(model.ask(request(1, "first"), to).is_ok());
    let (to, second) = reply();
    let Err(Busy { request: again, reply: to }) = model.ask(request(2, "second"), to) else {
        panic!("it takes one at a time");
    };
    assert_eq!(again.prompt, "second");
    drop(first);
    // The first request's stage is gone; the model learns that with the next request.
    assert!(model.ask(again, to).is_ok());
    slow.answer("second");
    assert_eq!(second.wait().unwrap().text, "second");
}
