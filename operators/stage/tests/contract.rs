//! What the runner does with each step of a stage, checked turn by turn with a scripted stage.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use timely::dataflow::StreamVec;
use turnstream_ports::model::{Generate, Generated};
use turnstream_schemas::RecordPart;

use super::{asks_for, text};
use crate::flow::{Epoch, Failed, TurnInFlight, Written};
use crate::stage::*;
use crate::testing::{Immediate, context, gated, graph, run_dataflow, runner};

/// A stage that does with a turn what the turn's words tell it.
#[derive(Clone)]
struct ScriptedStage {
    on_failure: OnFailure,
    model: Option<Arc<Generate>>,
}

/// A decision, in words.
type Decided = String;

impl Decide for ScriptedStage {
    type Turn = TurnInFlight;
    type Decision = Decided;

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.on_failure
    }

    fn call(&self) -> Option<Call> {
        let config = CallConfig { attempts: 1, ..CallConfig::default() };
        self.model.clone().map(|model| Call::new(model, &config))
    }

    fn concerns(&self, turn: &TurnInFlight) -> bool {
        turn.context.query() != "pass"
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Decided>, Fault> {
        let request = || asks_for(Self::STAGE, turn);
        match turn.context.query() {
            "decide" => Ok(Step::decided("by rules".to_owned())),
            "panic" => panic!("scripted"),
            "think" => Ok(Step::Ask(Question::new(request()).or(Question::new(request())))),
            "repeat" => Ok(Step::Ask(Question::new(request()).repeated())),
            "other port" => Ok(Step::ask(vec!["a text".to_owned()])),
            _ => Ok(Step::ask(request())),
        }
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<Decided>, Fault> {
        let said = answer.of::<Generated>(Self::STAGE)?.text;
        assert!(said != "panic", "scripted");
        if asked.is_dispensable() {
            return Ok(Step::Ask(Question::new(asks_for(Self::STAGE, turn)).after(said)));
        }
        if said == "unfit" {
            let fault = Fault::new(Self::STAGE, FaultKind::Unfit, "unfit");
            let again = Step::Repeat(asks_for(Self::STAGE, turn).into());
            return if asked.may_repeat() { Ok(again) } else { Err(fault) };
        }
        let thought = asked.thought().to_owned();
        let by = ModelUsed { name: "scripted".to_owned(), prompt_hash: None };
        Ok(Step::Decided(format!("{thought}/{said}"), Some(by)))
    }

    fn without(&self, _: &TurnInFlight, why: Without<'_>) -> Decided {
        match why {
            Without::Off => "off".to_owned(),
            Without::Failed(_) => format!("without/{}", why.thought()),
            Without::ByRules(_) => panic!("rules that panic are contained"),
        }
    }

    fn write(&self, turn: &mut TurnInFlight, told: Decided) {
        turn.missing = [told].into();
    }
}

/// Counts what the observer is told.
#[derive(Default)]
struct Counts {
    entered: AtomicU32,
    asked_again: AtomicU32,
    left: Mutex<Vec<(Option<FaultKind>, bool)>>,
    models: Mutex<Vec<FaultKind>>,
}

impl StageObserver for Counts {
    fn entered(&self, _: Stage) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, _: Stage, passage: Passage) {
        self.left.lock().unwrap().push((passage.fault, passage.degraded));
    }

    fn asked_again(&self, _: Stage) {
        self.asked_again.fetch_add(1, Ordering::Relaxed);
    }

    fn model_failed(&self, _: &str, fault: &Fault) {
        self.models.lock().unwrap().push(fault.kind);
    }

    fn persona_sentences_passed_over(&self, _: u64) {}

    fn scopes_changed(&self, _: i64) {}
}

/// Runs the stage over one turn, with a model that gives these answers one after the other.
fn run_over(
    said: &str,
    answers: &'static [&'static str],
    on_failure: OnFailure,
) -> (Result<TurnInFlight, Failed>, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let observer = Arc::clone(&counts);
    let turn = gated(context(&[&format!("u: {said}")]), &graph(""));
    let (mut values, mut faults) =
        run_dataflow(vec![turn], move |turns: StreamVec<'_, Epoch, TurnInFlight>| {
            let asked = AtomicU32::new(0);
            let answer = move |_| {
                let at = asked.fetch_add(1, Ordering::Relaxed) as usize;
                text(answers[at].to_owned())
            };
            let model = (!answers.is_empty()).then(|| Arc::new(Immediate(answer)) as Arc<Generate>);
            let mut runner = runner();
            runner.observer = Observer::new(Arc::clone(&observer) as _);
            runner.awaited.ask(context(&["u: it is awaited"]).request);
            run(turns, ScriptedStage { on_failure, model }, &runner)
        });
    assert_eq!(values.len() + faults.len(), 1, "a turn leaves once");
    (values.pop().ok_or_else(|| faults.remove(0)), counts)
}

fn told(ended: &Result<TurnInFlight, Failed>) -> &str {
    &ended.as_ref().expect("it goes on").missing[0]
}

#[test]
fn a_stage_decides_at_once_or_after_an_answer_and_names_the_model() {
    let (ended, counts) = run_over("decide", &["nobody asks"], OnFailure::Degrade);
    assert_eq!(told(&ended), "by rules");
    assert!(ended.unwrap().progress.models.is_empty());
    assert_eq!(*counts.left.lock().unwrap(), [(None, false)]);

    let (ended, _) = run_over("ask", &["yes"], OnFailure::Degrade);
    assert_eq!(told(&ended), "/yes");
    assert_eq!(ended.unwrap().progress.models[&Stage::Gate].name, "scripted");
}

#[test]
fn a_turn_that_is_of_no_concern_passes_uncounted() {
    let (ended, counts) = run_over("pass", &["nobody asks"], OnFailure::DeadLetter);
    assert_eq!(told(&ended), "off");
    assert_eq!(counts.entered.load(Ordering::Relaxed), 0);
    assert!(counts.left.lock().unwrap().is_empty());
}

#[test]
fn a_panic_anywhere_is_a_fault_of_that_turn() {
    for (said, answers) in [("panic", &[][..]), ("ask", &["panic"])] {
        let (ended, _) = run_over(said, answers, OnFailure::DeadLetter);
        let fault = ended.expect_err("a dead letter").fault;
        assert_eq!((fault.stage, fault.kind), (Stage::Gate, FaultKind::Panic));
        // The rules that stand in for the failed stage panic as well.
        let (ended, _) = run_over(said, answers, OnFailure::Lexical);
        assert_eq!(told(&ended), "without/");
        assert_eq!(ended.unwrap().progress.without(), [Stage::Gate]);
    }
}

#[test]
fn what_was_thought_first_stands_in_the_next_question_and_outlives_a_failure() {
    let (ended, counts) = run_over("think", &["hm", "yes"], OnFailure::Degrade);
    assert_eq!(told(&ended), "hm/yes");
    assert_eq!(counts.entered.load(Ordering::Relaxed), 2, "each question is a passage");
    assert_eq!(*counts.left.lock().unwrap(), [(None, false), (None, false)]);
    assert_eq!(counts.asked_again.load(Ordering::Relaxed), 0, "and none a repetition");

    let (ended, _) = run_over("think", &["hm", "panic"], OnFailure::Degrade);
    assert_eq!(told(&ended), "without/hm");
}

#[test]
fn a_failed_thought_is_skipped_if_the_policy_allows_it() {
    let (ended, counts) = run_over("think", &["panic", "yes"], OnFailure::Degrade);
    assert_eq!(told(&ended), "/yes");
    assert_eq!(ended.unwrap().progress.without(), [Stage::Gate]);
    assert_eq!(*counts.left.lock().unwrap(), [(Some(FaultKind::Panic), true), (None, false)]);
    let (ended, _) = run_over("think", &["panic"], OnFailure::DeadLetter);
    assert!(ended.is_err());
}

#[test]
fn an_answer_that_cannot_be_used_is_asked_for_once_more_and_no_more() {
    let (ended, counts) = run_over("repeat", &["unfit", "yes"], OnFailure::Degrade);
    assert_eq!(told(&ended), "/yes");
    assert_eq!(counts.asked_again.load(Ordering::Relaxed), 1);
    assert!(counts.models.lock().unwrap().is_empty());

    let (ended, counts) = run_over("repeat", &["unfit", "unfit"], OnFailure::DeadLetter);
    assert_eq!(ended.expect_err("unfit twice").fault.kind, FaultKind::Unfit);
    assert_eq!(*counts.models.lock().unwrap(), [FaultKind::Unfit]);
}

/// A gate that drafts a response.
struct Straying;

impl DecideByRules for Straying {
    type Turn = TurnInFlight;
    type Decision = ();

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self) -> OnFailure {
        OnFailure::Degrade
    }

    fn decide(&self, _: &TurnInFlight) -> Result<(), Fault> {
        Ok(())
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) {}

    fn write(&self, turn: &mut TurnInFlight, (): ()) {
        turn.draft.text = "Hello.".to_owned();
    }
}

#[test]
#[should_panic(expected = "gate changed Some(Draft), which its row does not list")]
fn a_stage_that_writes_what_its_row_does_not_list_panics() {
    let turn = gated(context(&["u: hello"]), &graph(""));
    run_dataflow(vec![turn], |turns| run(turns, Straying, &runner()));
}

#[test]
#[should_panic(expected = "gate reads a part of the record that no earlier stage wrote")]
fn a_stage_that_reads_what_is_not_yet_written_panics() {
    let mut turn = gated(context(&["u: hello"]), &graph(""));
    turn.progress.written = Written::begun(&[RecordPart::Dialogue]);
    run_dataflow(vec![turn], |turns| run(turns, Straying, &runner()));
}

#[test]
fn a_question_without_its_model_is_a_fault() {
    for (said, answers, says) in [
        ("ask", &[][..], "the stage has no model to ask"),
        ("other port", &["unheard"], "the model dropped the request"),
    ] {
        let (ended, _) = run_over(said, answers, OnFailure::DeadLetter);
        let fault = ended.expect_err("nobody can answer").fault;
        assert!(fault.reason.contains(says), "{fault}");
    }
}
