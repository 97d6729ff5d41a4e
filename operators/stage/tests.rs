//! Two stages that ask scripted models, inside the real `history` loop and in virtual time. The
//! models answer with random latencies, errors, panics and silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::dataflow::operators::capture::Event;
use timely::dataflow::operators::vec::{Input as _, Map};
use timely::dataflow::operators::{Capture, Concat, ConnectLoop, Feedback, Probe};
use timely::worker::Worker;
use turnstream_knowledge::KnowledgeVersion;
use turnstream_ports::cache::MemoryCache;
use turnstream_ports::model::scripted::{Act, Line, Scripted};
use turnstream_ports::model::{Generate, GenerateRequest, Generated};
use turnstream_schemas::Outcome;

use super::*;
use crate::flow::{Draft, Epoch, Finished, Original, TurnInFlight};
use crate::history::handover::HandoverConfig;
use crate::history::sequence::Fragmenting;
use crate::history::similarity::Similarity;
use crate::history::{HistoryConfig, Keeping, ResponseSource, Rules, history};
use crate::ingest::{AgentTurns, Input, InputRecord, OnAgentReply, TurnsConfig, ingest};
use crate::testing::runner;

mod contract;

type WordsModel = Scripted<GenerateRequest, Generated>;

/// A reproducible random number for a seed and a place.
fn random(seed: u64, place: u64) -> u64 {
    let mut z = seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A model that repeats its prompt, or fails in one of the ways in which a model can fail.
fn unreliable(name: &str, seed: u64, capacity: usize) -> Arc<WordsModel> {
    let script = move |request: &GenerateRequest, number: u64| {
        let dice = random(seed, number);
        let act = match dice % 16 {
            0 => Act::Error("out of sorts".to_owned()),
            1 => Act::Panic,
            2 => Act::Silence,
            3 => Act::Drop,
            _ => Act::Answer(text(format!("<{}>", request.prompt))),
        };
        Line { after_ms: (dice >> 8) % 50, act }
    };
    Arc::new(Scripted::new(name, capacity, script))
}

fn text(text: String) -> Generated {
    Generated { text, ..Generated::default() }
}

/// A request whose prompt is the query of the turn.
fn asks_for(stage: Stage, turn: &TurnInFlight) -> GenerateRequest {
    GenerateRequest {
        stage,
        system: String::new(),
        prompt: turn.context.query().to_owned(),
        max_tokens: 1,
        temperature: 0.0,
        schema: None,
        seed: 0,
        listener: None,
        origin: None,
    }
}

fn call(model: Arc<Generate>, attempts: u32) -> Call {
    Call::new(model, &CallConfig { timeout_ms: 40, attempts, backoff_ms: 5, busy_retry_ms: 2 })
}

/// A gate that lets a turn pass if its model answers.
struct AskingGate(Call);

impl Decide for AskingGate {
    type Turn = TurnInFlight;
    type Decision = bool;

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        OnFailure::Degrade
    }

    fn call(&self) -> Option<Call> {
        Some(self.0.clone())
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<bool>, Fault> {
        Ok(Step::ask(asks_for(Self::STAGE, turn)))
    }

    fn read(&self, _: &TurnInFlight, _: &Asked, answer: Answer) -> Result<Step<bool>, Fault> {
        answer.of::<Generated>(Self::STAGE).map(|_| Step::decided(true))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> bool {
        false
    }

    fn write(&self, turn: &mut TurnInFlight, retrieve: bool) {
        turn.gate.retrieve = retrieve;
    }
}

/// A generation whose response is the answer of its model.
struct AskingGeneration(Call);

impl Decide for AskingGeneration {
    type Turn = TurnInFlight;
    type Decision = String;

    const STAGE: Stage = Stage::Generation;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        OnFailure::DeadLetter
    }

    fn call(&self) -> Option<Call> {
        Some(self.0.clone())
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<String>, Fault> {
        Ok(Step::ask(asks_for(Self::STAGE, turn)))
    }

    fn read(&self, _: &TurnInFlight, _: &Asked, answer: Answer) -> Result<Step<String>, Fault> {
        answer.of::<Generated>(Self::STAGE).map(|generated| Step::decided(generated.text))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> String {
        String::new()
    }

    fn write(&self, turn: &mut TurnInFlight, text: String) {
        turn.draft = Draft { text, ..Draft::default() };
    }
}

/// The outcome of every input, in the order in which they ended.
fn serve(seed: u64, scopes: u64, inputs: u64, capacity: usize) -> Vec<Outcome> {
    let mut worker =
        Worker::new(WorkerConfig::default(), Allocator::Thread(Thread::default()), None);
    let runner = runner();
    let gate = unreliable("gate", seed, capacity);
    let generate = unreliable("generate", seed.wrapping_add(1), capacity);
    let models: [Arc<WordsModel>; 2] = [Arc::clone(&gate), Arc::clone(&generate)];
    let rules = Rules {
        similarity: Similarity::by_words(),
        response_texts: Arc::default(),
        observer: Observer::none(),
        config: HistoryConfig::default(),
        on_agent_reply: OnAgentReply::Supersede,
        agent_turns: AgentTurns::Beside,
        handover: HandoverConfig::default(),
        fragmenting: Fragmenting::default(),
        source: ResponseSource::Live,
        publish_changes: false,
    };

    let keeping = Keeping {
        cache: Arc::<MemoryCache>::default(),
        timers: runner.timers.clone(),
        awaited: runner.awaited.clone(),
        preparing: None,
    };

    let (mut input, probe, captured) = worker.dataflow::<Epoch, _, _>(|scope| {
        let (input, inputs) = scope.new_input::<Input>();
        let (back, answers) = scope.feedback(1);
        let (turns, refused) = ingest(inputs, TurnsConfig::default(), "turns".into());
        let (asked, finished) = history(turns, answers, rules, keeping, || {});
        let asked =
            asked.map(|context| TurnInFlight::undecided(context, KnowledgeVersion::default()));
        let (gated, gate_faults) = run(asked, AskingGate(call(gate, 1)), &runner);
        let (drafted, faults) = run(gated, AskingGeneration(call(generate, 2)), &runner);
        let faults = faults.concat(gate_faults).map(|failed| Err(Box::new(failed)));
        drafted.map(|drafted| Ok(Box::new(drafted))).concat(faults).connect_loop(back);
        let finished = finished.concat(refused);
        let (probe, finished) = finished.probe();
        (input, probe, finished.capture())
    });

    for offset in 0..inputs {
        input.send(record(seed, offset, scopes));
    }
    input.close();
    let mut now_ms = 0;
    while !probe.done() {
        now_ms += 1;
        assert!(now_ms < 1_000_000, "the loop stands still");
        for model in &models {
            model.advance(now_ms);
        }
        runner.timers.advance(now_ms);
        for _ in 0..4 {
            worker.step();
        }
    }
    let events = captured.into_iter();
    let finished = events.filter_map(|event: Event<Epoch, Vec<Finished>>| match event {
        Event::Messages(_, finished) => Some(finished),
        Event::Progress(_) => None,
    });
    finished.flatten().flat_map(|inputs| inputs.outcomes).map(|(outcome, _)| outcome).collect()
}

/// Mostly user turns of some scopes; sometimes an agent's, sometimes no turn at all.
fn record(seed: u64, offset: u64, scopes: u64) -> Input {
    let dice = random(seed.wrapping_add(2), offset);
    let speaker = if dice.is_multiple_of(11) { "system" } else { "user" };
    let scope = (dice >> 8) % scopes;
    let value = match dice % 29 {
        0 => "not a turn".to_owned(),
        _ => format!(
            r#"{{"conversation_id":"c{scope}","speaker":"{speaker}","text":"say {offset}"}}"#
        ),
    };
    Input::Record(InputRecord {
        offset: offset as i64,
        original: Original { value: Some(value.into_bytes()), ..Original::default() },
        ..InputRecord::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However the models behave, every input ends once, every scope is served in log order, every
    /// response answers its own question, and the loop comes to rest.
    #[test]
    fn every_scope_is_served_in_order(
        seed: u64,
        scopes in 1..6_u64,
        inputs in 1..80_u64,
        capacity in 1..8_usize,
    ) {
        let outcomes = serve(seed, scopes, inputs, capacity);
        let mut offsets: Vec<i64> = outcomes.iter().map(|outcome| outcome.input().offset).collect();
        let mut last_of_scope: BTreeMap<String, i64> = BTreeMap::new();
        for outcome in &outcomes {
            let offset = outcome.input().offset;
            let conversation = match outcome {
                Outcome::Response(response) => {
                    let expected = format!("<say {offset}>");
                    prop_assert_eq!(&response.text, &expected);
                    let degraded = response.is_without(Stage::Gate);
                    prop_assert!(degraded != response.gate.retrieve);
                    response.conversation_id.to_string()
                }
                Outcome::Recorded(recorded) => {
                    recorded.conversation_id.as_ref().expect("named by every turn").to_string()
                }
                Outcome::DeadLetter(letter) if letter.fault.stage == Stage::Ingest => continue,
                Outcome::DeadLetter(letter) => {
                    prop_assert_eq!(letter.fault.stage, Stage::Generation);
                    prop_assert!(letter.fault.reason.contains("attempt 2 of 2"));
                    let value = letter.value.clone().unwrap_or_default().0;
                    let turn: turnstream_schemas::Turn = serde_json::from_slice(&value).unwrap();
                    turn.conversation_id.to_string()
                }
            };
            if let Some(last) = last_of_scope.insert(conversation, offset) {
                prop_assert!(last < offset, "{} ended after {}", offset, last);
            }
        }
        offsets.sort_unstable();
        prop_assert_eq!(offsets, (0..inputs as i64).collect::<Vec<_>>());
    }
}
