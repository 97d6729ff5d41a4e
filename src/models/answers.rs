//! Recorded answers of language models. `--record-answers` writes a file of them; a later run reads
//! the file instead of asking the models. A replay then needs no model, and two configurations can
//! be compared exactly.
//!
//! An answer is found by its input, the stage, the step, the prompt's hash and the model's name in
//! the configuration, if the question is unchanged, and otherwise by the question alone, since a
//! replay of a service's log numbers its inputs anew. A question without a recorded answer goes to
//! the model, if that may be asked. A file holds one answer a line; of two lines with the same key,
//! the later one counts. Failures are recorded too, and a replay repeats them, because a degraded
//! response names the stage that failed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnstream_ports::model::{
    Busy, CallError, Generate, GenerateRequest, Generated, Model, Origin, Reply,
};
use turnstream_schemas::{Confidence, ModelUsed, Stage};

use crate::budget::AnswerCounts;

/// An answer: a line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The model's name in the configuration.
    pub asked: String,
    /// The stage that asked.
    pub stage: Stage,
    /// Identifies the question.
    #[serde(flatten)]
    pub origin: Origin,
    /// The answer; empty after a failure.
    pub text: String,
    /// The failure, if the model gave no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<CallError>,
    /// How sure the model was, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The model that answered.
    pub model: ModelUsed,
    /// The digest of the question; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The question, if questions are recorded. Replays do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Words>,
}

/// The words of a question to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// The instructions: what the model is told about its task.
    pub system: String,
    /// The question, with the dialogue.
    pub prompt: String,
}

/// Identifies an answer.
type AnswerKey = (String, Stage, Origin);

/// Identifies a question to a model.
type QuestionKey = (String, Stage, String);

/// The digest of everything in a question that may decide the answer.
fn digest(request: &GenerateRequest) -> String {
    let GenerateRequest { system, prompt, max_tokens, temperature, schema, seed, .. } = request;
    let told = (system, prompt, max_tokens, temperature.to_bits(), schema.as_deref(), seed);
    // Texts and numbers are JSON.
    let told = serde_json::to_vec(&told).unwrap_or_default();
    Sha256::digest(told).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Why answers cannot be recorded or read.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The file cannot be read or written.
    #[error("the answers in {path}: {source}; check the path and its permissions", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not an answer.
    #[error("{path}, line {line}: {source}; `--record-answers` writes such files", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The parser's error.
        source: serde_json::Error,
    },
}

/// Writes answers to a file. Cheap to clone.
#[derive(Clone)]
pub struct Recording {
    path: PathBuf,
    out: Arc<Mutex<BufWriter<File>>>,
    prompts: bool,
}

impl Recording {
    /// Creates a file, or replaces the one at `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Self, AnswersError> {
        let failed = |source| AnswersError::File { path: path.to_owned(), source };
        Ok(Self::to(path, BufWriter::new(File::create(path).map_err(failed)?)))
    }

    /// Continues a file. Answers about inputs below the offset `below` stay. Later answers are
    /// removed, since their questions are asked again, and so is a last line that was cut short.
    ///
    /// # Errors
    /// The file cannot be read or written, or a line is not an answer; the file is then unchanged.
    pub fn resume(path: &Path, below: i64) -> Result<Self, AnswersError> {
        let failed = |source| AnswersError::File { path: path.to_owned(), source };
        let mut before = BufReader::new(File::open(path).map_err(failed)?);
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let mut out = BufWriter::new(File::create(&name).map_err(failed)?);
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            before.read_until(b'\n', &mut bytes).map_err(failed)?;
            if !bytes.ends_with(b"\n") {
                break;
            }
            let Line { origin, .. } = serde_json::from_slice(&bytes)
                .map_err(|source| AnswersError::Line { path: path.to_owned(), line, source })?;
            if origin.input.offset < below {
                out.write_all(&bytes).map_err(failed)?;
            }
        }
        out.flush().and_then(|()| std::fs::rename(&name, path)).map_err(failed)?;
        Ok(Self::to(path, out))
    }

    fn to(path: &Path, out: BufWriter<File>) -> Self {
        Self { path: path.to_owned(), out: Arc::new(Mutex::new(out)), prompts: false }
    }

    /// Sets whether the file holds the questions as well.
    #[must_use]
    pub fn with_prompts(self, prompts: bool) -> Self {
        Self { prompts, ..self }
    }

    /// Wraps a model so that its answers are recorded under `name`.
    pub fn of(&self, name: &str, model: Arc<Generate>) -> Arc<Generate> {
        Arc::new(Recorded { name: name.to_owned(), model, recording: self.clone() })
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&self) -> Result<(), AnswersError> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.flush().map_err(|source| AnswersError::File { path: self.path.clone(), source })
    }

    fn write(&self, line: &Line) -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Flush at once: a committed response must not rest on an answer that is lost if the
        // process is killed.
        out.write_all(&bytes).and_then(|()| out.flush())
    }
}

/// A model whose answers go to a file.
struct Recorded {
    name: String,
    model: Arc<Generate>,
    recording: Recording,
}

impl Model<GenerateRequest, Generated> for Recorded {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        let Some(origin) = request.origin.clone() else { return self.model.ask(request, reply) };
        let (asked, stage) = (self.name.clone(), request.stage);
        let recording = self.recording.clone();
        let question = recording
            .prompts
            .then(|| Words { system: request.system.clone(), prompt: request.prompt.clone() });
        let name = self.model.name().to_owned();
        let digest = Some(digest(&request));
        let reply = reply.heard("recording", move |answer: &Result<Generated, CallError>| {
            // Not recorded: a model may answer the question another time.
            if let Err(CallError::Unasked(_)) = answer {
                return;
            }
            let failed = answer.as_ref().err().cloned();
            let Generated { text, confidence, model } = answer.clone().unwrap_or_else(|_| {
                Generated { model: ModelUsed { name, prompt_hash: None }, ..Generated::default() }
            });
            let line =
                Line { asked, stage, origin, text, failed, confidence, model, digest, question };
            if let Err(error) = recording.write(&line) {
                tracing::error!(path = %recording.path.display(), "answer not recorded: {error}");
            }
        });
        self.model.ask(request, reply)
    }
}

/// Reads the lines of a file of answers.
///
/// # Errors
/// The file cannot be read, or a line is not an answer.
pub fn lines(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Line, AnswersError>> + use<>, AnswersError> {
    let path = path.to_owned();
    let failed = |source| AnswersError::File { path: path.clone(), source };
    let lines = BufReader::new(File::open(&path).map_err(failed)?).lines();
    Ok(lines.enumerate().map(move |(at, line)| {
        let line = line.map_err(|source| AnswersError::File { path: path.clone(), source })?;
        serde_json::from_str(&line).map_err(|source| AnswersError::Line {
            path: path.clone(),
            line: at + 1,
            source,
        })
    }))
}

/// The recorded result of a question.
type RecordedAnswer = Result<Generated, CallError>;

/// Recorded answers, which replace the models that gave them.
pub struct Answers {
    path: PathBuf,
    /// Each with the digest of the question, if that is recorded.
    by_key: HashMap<AnswerKey, (Option<String>, RecordedAnswer)>,
    by_question: HashMap<QuestionKey, RecordedAnswer>,
}

impl Answers {
    /// Reads a file of answers.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not an answer.
    pub fn read(path: &Path) -> Result<Arc<Self>, AnswersError> {
        let (mut by_key, mut by_question) = (HashMap::new(), HashMap::new());
        for line in lines(path)? {
            let Line { asked, stage, origin, text, failed, confidence, model, digest, .. } = line?;
            let answer = failed.map_or(Ok(Generated { text, confidence, model }), Err);
            if let Some(digest) = &digest {
                by_question.insert((asked.clone(), stage, digest.clone()), answer.clone());
            }
            by_key.insert((asked, stage, origin), (digest, answer));
        }
        Ok(Arc::new(Self { path: path.to_owned(), by_key, by_question }))
    }

    /// Returns a model that answers with what was recorded for `name`, and asks `otherwise` for the
    /// rest.
    pub fn of(
        self: &Arc<Self>,
        name: &str,
        otherwise: Option<Arc<Generate>>,
        counts: &Arc<AnswerCounts>,
    ) -> Arc<Generate> {
        let (answers, counts) = (Arc::clone(self), Arc::clone(counts));
        Arc::new(Answering { name: name.to_owned(), answers, otherwise, counts })
    }

    fn find(&self, name: &str, request: &GenerateRequest) -> Option<&RecordedAnswer> {
        let (name, digest) = (name.to_owned(), digest(request));
        let key = (name, request.stage, request.origin.clone()?);
        match self.by_key.get(&key) {
            Some((was, answer)) if was.as_ref().is_none_or(|was| *was == digest) => Some(answer),
            _ => self.by_question.get(&(key.0, key.1, digest)),
        }
    }
}

/// Replays the recorded answers of one model.
struct Answering {
    name: String,
    answers: Arc<Answers>,
    otherwise: Option<Arc<Generate>>,
    counts: Arc<AnswerCounts>,
}

impl Model<GenerateRequest, Generated> for Answering {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        let Some(answer) = self.answers.find(&self.name, &request).cloned() else {
            if let Some(model) = &self.otherwise {
                return model.ask(request, reply);
            }
            self.counts.unasked.fetch_add(1, Ordering::Relaxed);
            reply.answer(Err(CallError::Unasked(format!(
                "no answer to this question is recorded in {}",
                self.answers.path.display()
            ))));
            return Ok(());
        };
        self.counts.recorded.fetch_add(1, Ordering::Relaxed);
        if let (Some(listener), Ok(answer)) = (&request.listener, &answer) {
            (listener.0)(&answer.text);
        }
        reply.answer(answer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use turnstream_ports::model::{Step, reply};
    use turnstream_schemas::InputId;

    use super::*;
    use crate::budget::{AnswersTold, Budget, ModelLimits};

    /// Answers with the number of the question; fails at the third.
    struct Echo;

    impl Model<GenerateRequest, Generated> for Echo {
        fn name(&self) -> &str {
            "echo"
        }

        fn ask(
            &self,
            request: GenerateRequest,
            reply: Reply<Generated>,
        ) -> Result<(), Busy<GenerateRequest, Generated>> {
            let text = request.prompt;
            let model = ModelUsed { name: "echo-1".to_owned(), prompt_hash: None };
            reply.answer(match &*text {
                "third" => Err(CallError::Model("told to".to_owned())),
                _ => Ok(Generated { text, confidence: None, model }),
            });
            Ok(())
        }
    }

    fn request(prompt: &str, offset: i64, step: Step) -> GenerateRequest {
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        GenerateRequest {
            stage: Stage::Gate,
            system: String::new(),
            prompt: prompt.to_owned(),
            max_tokens: 1,
            temperature: 0.0,
            schema: None,
            seed: 0,
            listener: None,
            origin: Some(Origin {
                input,
                step,
                round: 0,
                for_gate: false,
                prompt: "abc".to_owned(),
            }),
        }
    }

    fn ask(model: &Generate, request: GenerateRequest) -> Result<Generated, CallError> {
        let (reply, asked) = reply();
        assert!(model.ask(request, reply).is_ok());
        asked.wait()
    }

    #[test]
    fn what_is_not_recorded_is_asked_within_the_limits_and_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let [path, more] = ["answers.jsonl", "more.jsonl"].map(|name| folder.path().join(name));
        let recording = Recording::create(&path).unwrap();
        let model = recording.of("default", Arc::new(Echo));
        ask(&*model, request("first", 0, Step::Answer)).unwrap();
        let spent = Arc::new(AtomicU64::new(0));
        let asking = |limits: ModelLimits, recording: &Recording| {
            let counts = Arc::default();
            let budget = Budget::new(limits, Arc::clone(&counts));
            let spent = Arc::clone(&spent);
            let limited =
                budget.of(Arc::new(Echo), Box::new(move || spent.load(Ordering::Relaxed)));
            let model = Answers::read(&path).unwrap().of("default", Some(limited), &counts);
            (recording.of("default", model), counts)
        };
        let recording = Recording::create(&more).unwrap();
        let two = ModelLimits { max_requests: Some(2), ..ModelLimits::default() };
        let (model, counts) = asking(two, &recording);
        for (text, offset) in [("first", 0), ("new", 1), ("newer", 2)] {
            assert_eq!(ask(&*model, request(text, offset, Step::Answer)).unwrap().text, text);
        }
        let refused = ask(&*model, request("newest", 3, Step::Answer)).unwrap_err();
        assert!(refused.to_string().contains("--max-requests 2"), "{refused}");
        assert_eq!(counts.told(), AnswersTold { recorded: 1, asked: 2, unasked: 1 });
        recording.finish().unwrap();
        let told = lines(&more).unwrap().map(|line| line.unwrap().text).collect::<Vec<_>>();
        assert_eq!(told, ["first", "new", "newer"], "what nobody was asked is not recorded");

        let tokens = ModelLimits { max_tokens: Some(10), ..ModelLimits::default() };
        let (model, _) = asking(tokens, &recording);
        spent.store(9, Ordering::Relaxed);
        assert!(ask(&*model, request("new", 1, Step::Answer)).is_ok());
        spent.store(10, Ordering::Relaxed);
        let refused = ask(&*model, request("newer", 2, Step::Answer)).unwrap_err();
        assert!(refused.to_string().contains("--max-tokens 10"), "{refused}");
    }

    #[test]
    fn what_was_recorded_is_answered_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.jsonl");
        let recording = Recording::create(&path).unwrap().with_prompts(true);
        let model = recording.of("default", Arc::new(Echo));
        let first = ask(&*model, request("first", 0, Step::Answer)).unwrap();
        let second = ask(&*model, request("second", 0, Step::Again)).unwrap();
        let third = ask(&*model, request("third", 1, Step::Answer));
        assert_eq!(third, Err(CallError::Model("told to".to_owned())));
        // The stage gave up waiting, so the recorded failure must repeat in a replay.
        let (reply, asked) = reply();
        drop(asked);
        assert!(model.ask(request("late", 2, Step::Answer), reply).is_ok());
        recording.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);

        let questions = lines(&path).unwrap().map(|line| line.unwrap().question.unwrap().prompt);
        assert_eq!(questions.collect::<Vec<_>>(), ["first", "second", "third"]);

        let bare = folder.path().join("bare.jsonl");
        let recording = Recording::create(&bare).unwrap();
        ask(&*recording.of("default", Arc::new(Echo)), request("first", 0, Step::Answer)).unwrap();
        recording.finish().unwrap();
        assert!(lines(&bare).unwrap().all(|line| line.unwrap().question.is_none()));

        let answers = Answers::read(&path).unwrap();
        let counts = Arc::default();
        let model = answers.of("default", None, &counts);
        assert_eq!(ask(&*model, request("first", 0, Step::Answer)).as_ref(), Ok(&first));
        assert_eq!(ask(&*model, request("second", 0, Step::Again)).as_ref(), Ok(&second));
        assert_eq!(ask(&*model, request("third", 1, Step::Answer)), third, "what failed fails");
        let other_place = ask(&*model, request("second", 7, Step::Again));
        assert_eq!(other_place, Ok(second), "a replay of a service's log numbers inputs anew");
        let missing = ask(&*model, request("", 2, Step::Answer)).unwrap_err().to_string();
        assert!(missing.contains("answers.jsonl"), "{missing}");
        let changed = ask(&*model, request("another", 0, Step::Answer));
        assert!(changed.is_err(), "an answer to another question is none");
        let other = answers.of("other", None, &counts);
        assert!(ask(&*other, request("first", 0, Step::Answer)).is_err());
        assert_eq!(counts.told(), AnswersTold { recorded: 4, asked: 0, unasked: 3 });

        // Files from before questions had digests go by the key alone.
        let old = std::fs::read_to_string(&path).unwrap();
        let old = old.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            line.as_object_mut().unwrap().remove("digest").unwrap();
            line.to_string() + "\n"
        });
        std::fs::write(&bare, old.collect::<String>()).unwrap();
        let model = Answers::read(&bare).unwrap().of("default", None, &counts);
        assert_eq!(ask(&*model, request("", 0, Step::Answer)), Ok(first));

        std::fs::write(&path, "{}\n").unwrap();
        let wrong = Answers::read(&path).err().unwrap().to_string();
        assert!(wrong.contains("line 1"), "{wrong}");
    }
}
