//! Makes small scenes for the stages' tests: a graph of a few facts and a dialogue of a few lines.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use timely::dataflow::StreamVec;
use timely::dataflow::operators::capture::{Capture, Event};
use timely::dataflow::operators::vec::ToStream;
use turnstream_knowledge::language::has_han;
use turnstream_knowledge::phrasings::Phrasings;
use turnstream_knowledge::{
    FactVectors, Graph, ImportedFact, Knowledge, KnowledgeVersion, VectorsHeader, VectorsWriter,
};
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_ports::model::{
    Busy, CallError, Embedding, Generate, GenerateRequest, Generated, Model, Reply,
};
use turnstream_schemas::{
    Column, DocumentPassage, EventTime, Evidence, EvidenceId, HistoryEntry, InputId, Plan,
    RequestId, Scope, Score, SourceKind, Speaker, TableRow, Turn, TurnId,
};

use crate::awaited::Awaited;
use crate::decision::DecisionTexts;
use crate::flow::{Embedded, Epoch, Failed, Recalled, TurnContext, TurnInFlight, Utterance};
use crate::gate::{GateConfig, decide, find};
use crate::meaning::FactMeaning;
use crate::prompted::Prompting;
use crate::sources::{SourceConfig, Sources};
use crate::stage::{Clock, Observer, StageRunner};
use crate::stage_context::StageContext;
use crate::timers::Timers;

/// Makes a graph of facts `head Relation tail weight`, one a line, words of a concept joined by
/// `_`. Adds a hub with 300 facts, so that concepts are as informative as in a real graph.
pub(crate) fn graph(facts: &str) -> Arc<Graph> {
    let told = facts.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let parts: Vec<String> =
            line.split_whitespace().map(|part| part.replace('_', " ")).collect();
        let [head, relation, tail, weight] = &parts[..] else { panic!("not a fact: {line}") };
        let language = if has_han(line) { "zh" } else { "en" }.to_owned();
        let fact = ImportedFact::new(head, relation, tail, weight.parse().unwrap());
        ImportedFact { language, ..fact }
    });
    let filler =
        (0..300).map(|at| ImportedFact::new("hubword", "RelatedTo", &format!("spoke {at}"), 1.0));
    Arc::new(Graph::from_facts(told.chain(filler)))
}

/// Makes a turn whose dialogue is these lines, `u: …` or `s: …`; the last is the current user turn.
/// The turn ids are `t0`, `t1`, ….
pub(crate) fn context(lines: &[&str]) -> TurnContext {
    context_of(lines, 0)
}

/// Makes a turn like [`context`], with an offset, for dataflows of several turns.
pub(crate) fn context_of(lines: &[&str], offset: i64) -> TurnContext {
    let dialogue: Vec<Utterance> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let (speaker, text) = line.split_once(": ").expect("u: or s:");
            let speaker = if speaker == "u" { Speaker::User } else { Speaker::System };
            Utterance { turn_id: TurnId(format!("t{at}")), speaker, text: text.into() }
        })
        .collect();
    let current = dialogue.last().expect("a current turn");
    let (turn_id, text) = (current.turn_id.clone(), current.text.to_string());
    TurnContext {
        request: RequestId { partition: 0, generation: 1, offset },
        input: InputId { topic: "turns".to_owned(), partition: 0, offset },
        scope: Scope::new(None, "c"),
        turn: Turn::new("c", Speaker::User, &text),
        turn_id,
        event_time: EventTime(0),
        dialogue,
        recalled: Vec::new(),
        reconstructed: None,
        chosen: None,
        recall_fault: None,
    }
}

/// Makes an exchange that was recalled for its relevance.
pub(crate) fn recalled(turn_id: &str, query: &str, response: Option<&str>) -> Recalled {
    let input = InputId { topic: "turns".to_owned(), partition: 0, offset: -1 };
    Recalled {
        entry: Arc::new(HistoryEntry {
            schema_version: 1,
            input,
            query: Some(query.to_owned()),
            turn_id: turn_id.into(),
            user_id: None,
            passages: Vec::new(),
            response: response.map(str::to_owned),
            response_turn_id: None,
            event_time: EventTime(0),
            vector: None,
            extra: serde_json::Map::default(),
        }),
        via: turnstream_schemas::RecalledVia::Relevance,
        relevance: Score::new(0.5),
        weight: Score::new(0.9),
        passage: None,
    }
}

/// Returns the turn as it leaves the gate.
pub(crate) fn gated(context: TurnContext, graph: &Graph) -> TurnInFlight {
    let config = GateConfig::default();
    let (mentions, missing) = find(graph.view(), &context, &config);
    let gate = decide(&context, &mentions, &config);
    let undecided = TurnInFlight::undecided(Arc::new(context), KnowledgeVersion::default());
    TurnInFlight { mentions: mentions.into(), missing: missing.into(), gate, ..undecided }
}

/// Makes a turn of these lines as it leaves the gate.
pub(crate) fn scene(lines: &[&str], graph: &Graph) -> TurnInFlight {
    gated(context(lines), graph)
}

/// Makes the meaning of a graph's facts: each has the direction of its tail.
pub(crate) fn meaning(graph: &Graph, direction: impl Fn(&str) -> [f32; 2]) -> FactMeaning {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("facts.vectors");
    let header = VectorsHeader::new(graph, "test", 1, 2);
    let mut writer = VectorsWriter::resume(&path, header).unwrap();
    for fact in graph.facts() {
        writer.append(&direction(graph.concept(fact.tail))).unwrap();
    }
    writer.finish().unwrap();
    FactMeaning::new(Arc::new(FactVectors::open(&path, graph).unwrap()), None)
}

/// Returns the turn with this direction as the vector of its dialogue.
pub(crate) fn directed(turn: TurnInFlight, direction: [f32; 2]) -> TurnInFlight {
    TurnInFlight {
        embedding: Some(Embedded { dialogue: direction.into(), utterance: None }),
        ..turn
    }
}

/// Makes the sources graph, persona of turns and documents, under their default names.
pub(crate) fn test_sources() -> Sources {
    let of = |name: &str, kind| (name.to_owned(), SourceConfig::of(kind));
    let config = [
        of("graph", SourceKind::Graph),
        of("persona", SourceKind::UserPersona),
        of("documents", SourceKind::Documents),
    ];
    Sources::new(&config.into()).expect("sources")
}

/// A row with these columns, found by words.
pub(crate) fn table_row(columns: &[(&str, &str)]) -> TableRow {
    let column =
        |(name, value): &(&str, &str)| Column { name: (*name).into(), value: (*value).into() };
    TableRow {
        place: 1,
        columns: columns.iter().map(column).collect(),
        by_words: Score::new(0.5),
        by_meaning: None,
        asked: None,
        cells: None,
    }
}

/// Makes a passage of a document.
pub(crate) fn document(source: &str, id: &str, text: &str, relevance: f64) -> Evidence {
    let passage = DocumentPassage {
        document: id.to_owned(),
        title: String::new(),
        chunk: 0,
        by_words: None,
        by_meaning: None,
    };
    Evidence {
        id: EvidenceId(id.to_owned()),
        source: source.into(),
        text: text.to_owned(),
        set: None,
        fact: None,
        document: Some(passage),
        persona: None,
        row: None,
        relevance: Score::new(relevance),
        consistency: None,
        attention: None,
        selected: false,
    }
}

/// Returns the turn as it comes to the operator that asks this source.
pub(crate) fn asking_source(mut turn: TurnInFlight, name: &str) -> TurnInFlight {
    (turn.plan, turn.asked) = (Plan(vec![name.into()]), 0);
    turn
}

/// Makes a stage runner without a clock or an observer.
pub(crate) fn runner() -> StageRunner {
    StageRunner {
        clock: Clock::none(),
        observer: Observer::none(),
        timers: Timers::default(),
        awaited: Awaited::default(),
    }
}

/// Makes a stage context with a graph only.
pub(crate) fn stage_context(graph: &Arc<Graph>) -> StageContext {
    StageContext {
        runner: runner(),
        knowledge: Knowledge::new(Arc::clone(graph), Phrasings::default()),
        sources: Arc::new(test_sources()),
        tables: Arc::default(),
        documents: None,
        prompting: Prompting::default(),
        read_along: None,
        embed: None,
        encoder: None,
        meaning: None,
        gate: None,
        need_judge: None,
        score: None,
        questions: None,
        response_texts: Arc::new(DecisionTexts::default().response_texts()),
        reader: None,
        unified: None,
        consistency: None,
        attention: None,
    }
}

/// A model that answers at once, with the result of a function of the request.
pub(crate) struct Immediate<F>(pub F);

impl<F: Fn(GenerateRequest) -> Generated + Send + Sync> Model<GenerateRequest, Generated>
    for Immediate<F>
{
    fn name(&self) -> &str {
        "immediate"
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        reply.answer(Ok((self.0)(request)));
        Ok(())
    }
}

/// A model that answers each item of a request at once, with the result of a function, and keeps the items.
pub(crate) struct Answering<Q, A> {
    of: Box<dyn Fn(&Q) -> A + Send + Sync>,
    asked: Mutex<Vec<Q>>,
}

impl<Q: Clone, A> Answering<Q, A> {
    pub(crate) fn new(of: impl Fn(&Q) -> A + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { of: Box::new(of), asked: Mutex::default() })
    }

    /// Returns the items that it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Q> {
        self.asked.lock().unwrap().clone()
    }
}

impl<Q: Send, A: Send> Model<Vec<Q>, Vec<A>> for Answering<Q, A> {
    fn name(&self) -> &str {
        "answering"
    }

    fn ask(&self, items: Vec<Q>, reply: Reply<Vec<A>>) -> Result<(), Busy<Vec<Q>, Vec<A>>> {
        reply.answer(Ok(items.iter().map(&self.of).collect()));
        self.asked.lock().unwrap().extend(items);
        Ok(())
    }
}

/// Adds a language model that answers at once to a stage context. It marks turns of one partition
/// as awaited, as `history` does when it sends a turn down the flow.
pub(crate) fn asking(
    context: StageContext,
    answer: impl Fn(GenerateRequest) -> Generated + Send + Sync + 'static,
) -> StageContext {
    for offset in 0..8 {
        context.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset });
    }
    let model: Arc<Generate> = Arc::new(Immediate(answer));
    let language_models = [("default".to_owned(), model)].into();
    let prompting = Prompting { language_models, ..context.prompting };
    StageContext { prompting, ..context }
}

/// Runs a stage's dataflow over turns, on one worker, to its end.
pub(crate) fn run_dataflow<I, O, F>(turns: Vec<I>, flow: F) -> (Vec<O>, Vec<Failed>)
where
    I: Clone + Send + Sync + 'static,
    O: Clone + Send + 'static,
    F: for<'s> Fn(
            StreamVec<'s, Epoch, I>,
        ) -> (StreamVec<'s, Epoch, O>, StreamVec<'s, Epoch, Failed>)
        + Send
        + Sync
        + 'static,
{
    let (values, faults) = timely::example(move |scope| {
        let (values, faults) = flow(turns.to_stream(scope));
        (values.capture(), faults.capture())
    });
    (gather(values), gather(faults))
}

/// Returns all records of a stream, in order.
fn gather<T>(events: Receiver<Event<Epoch, Vec<T>>>) -> Vec<T> {
    let given = |event| match event {
        Event::Messages(_, given) => given,
        Event::Progress(_) => Vec::new(),
    };
    events.into_iter().flat_map(given).collect()
}

/// An encoder with two dimensions: how often a text is about the sea, and about bread. Fails on `error`.
pub(crate) struct Counting;

impl Encoder for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        for text in texts {
            if text.contains("error") {
                let (encoder, reason) = ("counting".to_owned(), "asked for".to_owned());
                return Err(EncodeError { encoder, reason });
            }
            let [sea, bread] =
                [["sea", "sail"], ["bread", "bake"]].map(|words| count_of(text, &words));
            let length = (sea * sea + bread * bread).sqrt().max(1.0);
            vectors.extend([sea / length, bread / length]);
        }
        Ok(Encoded::default())
    }
}

fn count_of(text: &str, words: &[&str]) -> f32 {
    words.iter().map(|word| text.matches(word).count()).sum::<usize>() as f32
}

/// [`Counting`] as a model behind the port, which answers on another thread; keeps the texts that
/// it was asked.
#[derive(Default)]
pub(crate) struct CountingElsewhere(pub(crate) Mutex<Vec<Vec<String>>>);

impl Model<Vec<String>, Vec<Embedding>> for CountingElsewhere {
    fn name(&self) -> &str {
        "elsewhere"
    }

    fn ask(
        &self,
        texts: Vec<String>,
        reply: Reply<Vec<Embedding>>,
    ) -> Result<(), Busy<Vec<String>, Vec<Embedding>>> {
        self.0.lock().unwrap().push(texts.clone());
        std::thread::spawn(move || {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut vectors = Vec::new();
            let encoded = Counting.encode(&texts, &mut vectors);
            let answer = encoded.map(|_| vectors.chunks(2).map(Arc::from).collect());
            reply.answer(answer.map_err(|error| CallError::Model(error.to_string())));
        });
        Ok(())
    }
}
