//! Tests knowledge that changes while turns flow, on a real Kafka: every response is exactly what
//! the state of the knowledge that it names implies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use turnstream_knowledge::{Builder, Change, ImportedFact, Upsert};
use turnstream_log::Topic;
use turnstream_log::kafka::{KafkaConfig, write};
use turnstream_schemas::{EvidenceSet, FactKey, Response};

use crate::broker::Broker;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{Read, read_all, send_lines};

const CONCEPTS: [&str; 6] =
    ["coffee", "insomnia", "kitchen", "umbrella", "espresso bar", "moka pot"];
const RELATIONS: [&str; 4] = ["Causes", "AtLocation", "NotDesires", "SoldAt"];
const SOURCES: [&str; 2] = ["base", "ours"];

/// Rounds of changes and turns; the engine is killed in the middle.
const ROUNDS: usize = 24;
const CHANGES_A_ROUND: usize = 12;
const TURNS_A_ROUND: usize = 6;

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// The weight of each statement that is known.
type State = BTreeMap<FactKey, f32>;

/// Random numbers from a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }

    fn statement(&mut self, sources: usize, concepts: usize, relations: usize) -> FactKey {
        FactKey {
            source: SOURCES[self.below(sources)].to_owned(),
            head: CONCEPTS[self.below(concepts)].to_owned(),
            relation: RELATIONS[self.below(relations)].to_owned(),
            tail: CONCEPTS[self.below(concepts)].to_owned(),
        }
    }

    fn change(&mut self) -> Change {
        let key = self.statement(SOURCES.len(), CONCEPTS.len(), RELATIONS.len());
        let weight = [1.0, 2.0, -1.0][self.below(3)];
        let stands = self.below(5) < 3;
        let upsert = stands.then(|| Upsert::new(weight, "en"));
        Change { key, upsert }
    }
}

#[test]
fn every_response_is_what_its_named_knowledge_implies() {
    let test = "every_response_is_what_its_named_knowledge_implies";
    let Some(broker) = Broker::start_alone(test, &[]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut numbers = Numbers(41);
    let base = base(&mut numbers);
    let snapshot = folder.path().join("base.snapshot");
    compile(&base, &snapshot);
    let config = folder.path().join("turnstream.toml");
    let text = format!(
        "[run]\nworkers = 2\n[gate]\nthreshold = 0.0\n[knowledge]\nsnapshot = {snapshot:?}\n\
         [fact_retrieval]\nmax_foreseen = 1000\nmax_unforeseen = 1000\n\
         [source_planning]\nform = \"off\"\n[fact_selection]\nmax_unselected_in_record = 1000\n\
         [log.kafka]\nbootstrap_servers = \"{}\"\ncreate_topics = true\ncreate_partitions = 2\n\
         create_knowledge_partitions = 3\n",
        broker.bootstrap()
    );
    std::fs::write(&config, text).expect("written");
    let mut engine = start(&config, &folder.path().join("first.log"));

    let kafka =
        KafkaConfig { bootstrap_servers: broker.bootstrap().to_owned(), ..KafkaConfig::default() };
    let mut writer = write(&kafka, Topic::Knowledge).expect("the topic of knowledge");
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            engine.kill();
            engine = start(&config, &folder.path().join("second.log"));
        }
        let turns: Vec<Vec<u8>> =
            (0..TURNS_A_ROUND).map(|at| turn(&mut numbers, &format!("c-{round}-{at}"))).collect();
        // Changes before, beside and after the turns.
        for at in 0..CHANGES_A_ROUND {
            if at == CHANGES_A_ROUND / 3 {
                send_lines(&broker, &turns, &[], false);
            }
            let change = numbers.change();
            let (key, lasting) = change.record();
            // Retract in both ways.
            let tombstone = change.upsert.is_none() && numbers.below(2) == 0;
            writer.write_one(&key, (!tombstone).then_some(&lasting));
        }
        // However slow the machine, the turns of the next round meet a later state. The kill meets
        // turns without an answer.
        if round + 1 != ROUNDS / 2 {
            let answered = (round + 1) * TURNS_A_ROUND;
            until(&mut engine, "the round's answers", || responses(&broker).len() >= answered);
        }
    }
    // Turns that come after everything was applied read everything.
    let total = ROUNDS * TURNS_A_ROUND;
    let changes = read_all(&broker, "knowledge");
    let ends = ends(&changes);
    let mut late = 0;
    until(&mut engine, "an answer from the last state", || {
        late += 1;
        send_lines(&broker, &[turn(&mut numbers, &format!("late-{late}"))], &[], false);
        until_answered(&broker, total + late);
        responses(&broker).iter().any(|(_, response)| response.knowledge.offsets == ends)
    });
    engine.stop();

    let responses = responses(&broker);
    let states: BTreeSet<Vec<(i32, i64)>> = responses
        .iter()
        .map(|(_, response)| response.knowledge.offsets.clone().into_iter().collect())
        .collect();
    println!("{} responses from {} states", responses.len(), states.len());
    assert!(states.len() > ROUNDS / 2, "turns and changes must have met: {states:?}");
    let mut facts = 0;
    for (at, response) in &responses {
        let state = state(&base, &changes, &response.knowledge.offsets);
        facts += check(response, &state).unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
    }
    assert!(facts > total, "hardly any facts were found: {facts}");
}

trait WriteOne {
    fn write_one(&mut self, key: &[u8], value: Option<&Vec<u8>>);
}

impl<W: turnstream_log::write::Writer> WriteOne for W {
    fn write_one(&mut self, key: &[u8], value: Option<&Vec<u8>>) {
        self.write(key, value.map(Vec::as_slice)).expect("written");
        self.finish().expect("delivered");
    }
}

/// Returns the snapshot's statements: of the first concepts, relations and source.
fn base(numbers: &mut Numbers) -> State {
    (0..30).map(|_| (numbers.statement(1, 4, 3), [1.0, 2.0, -1.0][numbers.below(3)])).collect()
}

fn compile(base: &State, snapshot: &Path) {
    let mut builder = Builder::new();
    for (FactKey { source, head, relation, tail }, weight) in base {
        let fact = ImportedFact {
            source: source.clone(),
            ..ImportedFact::new(head, relation, tail, *weight)
        };
        builder.add(&fact).expect("a fact");
    }
    builder.write(snapshot).expect("written");
}

fn start(config: &Path, log: &Path) -> Engine {
    let mut engine = Engine::start(config, log);
    let deadline = Instant::now() + PATIENCE;
    while !engine.log().contains("restored") {
        engine.assert_running();
        assert!(Instant::now() < deadline, "does not begin\n{}", engine.log_end());
        std::thread::sleep(Duration::from_millis(20));
    }
    engine
}

/// Returns a turn that names two concepts, in a conversation of its own.
fn turn(numbers: &mut Numbers, conversation: &str) -> Vec<u8> {
    let (one, other) = (numbers.below(CONCEPTS.len()), numbers.below(CONCEPTS.len()));
    let text = format!("What of {} and {}?", CONCEPTS[one], CONCEPTS[other]);
    let turn = json!({"conversation_id": conversation, "speaker": "user", "text": text});
    format!("{conversation}\t{turn}").into_bytes()
}

fn until(engine: &mut Engine, what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        engine.assert_running();
        assert!(Instant::now() < deadline, "{what} does not come\n{}", engine.log_end());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn until_answered(broker: &Broker, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while responses(broker).len() < count {
        assert!(Instant::now() < deadline, "no answer {count}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn responses(broker: &Broker) -> Vec<(String, Response)> {
    let parse = |read: Read| {
        let value = read.value.expect("a response");
        let at = format!("traces-{}-{}", read.partition, read.offset);
        (at, serde_json::from_slice(&value).expect("a response"))
    };
    read_all(broker, "traces").into_iter().map(parse).collect()
}

/// Returns the offsets after the last change of each partition.
fn ends(changes: &[Read]) -> BTreeMap<i32, i64> {
    let mut ends: BTreeMap<i32, i64> = (0..3).map(|partition| (partition, 0)).collect();
    for change in changes {
        ends.insert(change.partition, change.offset + 1);
    }
    ends
}

/// Returns the oracle's state: the snapshot, and every change before the offsets, one after the
/// other.
fn state(base: &State, changes: &[Read], offsets: &BTreeMap<i32, i64>) -> State {
    let mut state = base.clone();
    for read in changes {
        if read.offset >= offsets.get(&read.partition).copied().unwrap_or(0) {
            continue;
        }
        let key = read.key.as_deref().expect("a key");
        let Change { key, upsert } = Change::read(key, read.value.as_deref()).expect("a change");
        match upsert {
            Some(upsert) => state.insert(key, upsert.weight),
            None => state.remove(&key),
        };
    }
    state
}

/// A fact as evidence has it: the statement, its weight's bits, whether it is denied, its set.
type FoundFact = (FactKey, u32, bool, EvidenceSet);

/// Checks whether a response's evidence is what a scan of the state by DCRAG's words gives for its
/// demand. Returns how many facts it has.
fn check(response: &Response, state: &State) -> Result<usize, String> {
    let demand = &response.demand;
    let queries: BTreeSet<&str> = demand.query_concepts().collect();
    let topics: BTreeSet<&str> = demand.topic_concepts().collect();
    let names: BTreeSet<&str> =
        state.keys().flat_map(|key| [key.head.as_str(), key.tail.as_str()]).collect();
    if let Some(unknown) = queries.union(&topics).find(|concept| !names.contains(*concept)) {
        return Err(format!("it demands {unknown}, of which no fact stands"));
    }
    let expected: BTreeSet<FoundFact> = state
        .iter()
        .filter_map(|(key, weight)| {
            let (head, tail) = (key.head.as_str(), key.tail.as_str());
            let joins = |one, other| queries.contains(one) && topics.contains(other);
            let touched =
                [head, tail].iter().any(|end| queries.contains(end) || topics.contains(end));
            let set = match joins(head, tail) || joins(tail, head) {
                true => EvidenceSet::Foreseen,
                false => touched.then_some(EvidenceSet::Unforeseen)?,
            };
            let negated = *weight < 0.0 || key.relation.starts_with("Not");
            Some((key.clone(), weight.abs().to_bits(), negated, set))
        })
        .collect();
    let found: BTreeSet<FoundFact> = response
        .evidence
        .iter()
        .map(|evidence| {
            let fact = evidence.fact.clone().expect("a fact");
            let source = evidence.source.0.clone();
            let key = FactKey { source, head: fact.head, relation: fact.relation, tail: fact.tail };
            (key, fact.weight.to_bits(), fact.negated, evidence.set.expect("a set"))
        })
        .collect();
    if found != expected {
        let missing: Vec<_> = expected.difference(&found).collect();
        let extra: Vec<_> = found.difference(&expected).collect();
        return Err(format!(
            "at {:?} it lacks {missing:?} and has {extra:?}",
            response.knowledge.offsets
        ));
    }
    Ok(found.len())
}
