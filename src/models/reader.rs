//! The reader behind its port: turns texts into vectors, and reads a turn and a section together,
//! in English and in Chinese, each by a network of its own.
//!
//! A text goes to the network of its language, and a turn is read by that of its question. Vectors
//! of different languages have nothing to do with each other: a question finds what is written in
//! its own language. The Chinese network is unpacked when it is first needed.

use std::hash::Hasher;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHasher;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_ports::model::reader::{READER, ReadRequest, Reading, Section};
use turnstream_ports::script::is_chinese;

use super::ModelError;
use super::batch::Backend;
use super::bert::quantised::on_one_thread;

mod calibration;
mod network;

use network::{MAX_TEXT, MAX_TURN, ReaderNetwork, weights};

/// Changes with the arithmetic, when the same weights begin to give slightly different vectors.
const ARITHMETIC: u8 = 2;

/// What ships for one language: the packed network and its calibration.
#[derive(Clone, Copy)]
struct LanguageFiles {
    packed: &'static [u8],
    calibration: &'static str,
}

const ENGLISH: LanguageFiles = LanguageFiles {
    packed: turnstream_weights::READER,
    calibration: turnstream_weights::READER_CALIBRATION,
};

const CHINESE: LanguageFiles = LanguageFiles {
    packed: turnstream_weights::CHINESE_READER,
    calibration: turnstream_weights::CHINESE_READER_CALIBRATION,
};

/// The reader.
pub struct AnswerReader {
    fingerprint: u64,
    english: ReaderNetwork,
    chinese: OnceLock<Result<ReaderNetwork, String>>,
}

impl AnswerReader {
    /// Returns the reader inside the program. It is unpacked once and shared.
    ///
    /// # Errors
    /// The weights for English are damaged.
    pub fn shipped() -> Result<Arc<Self>, ModelError> {
        static UNPACKED: Mutex<Option<Arc<AnswerReader>>> = Mutex::new(None);
        let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*unpacked {
            return Ok(Arc::clone(reader));
        }
        let refused = |reason| ModelError::Refused { path: "(the shipped reader)".into(), reason };
        let english = ReaderNetwork::from_bytes(ENGLISH, weights).map_err(refused)?;
        let mut hasher = FxHasher::default();
        hasher.write(ENGLISH.packed);
        hasher.write(CHINESE.packed);
        hasher.write_u8(ARITHMETIC);
        let fingerprint = hasher.finish();
        let reader = Arc::new(Self { fingerprint, english, chinese: OnceLock::new() });
        *unpacked = Some(Arc::clone(&reader));
        Ok(reader)
    }

    /// Returns the network of a language.
    fn network(&self, is_chinese: bool) -> Result<&ReaderNetwork, String> {
        if !is_chinese {
            return Ok(&self.english);
        }
        let unpacked = self.chinese.get_or_init(|| ReaderNetwork::from_bytes(CHINESE, weights));
        unpacked.as_ref().map_err(|reason| format!("the shipped reader for Chinese: {reason}"))
    }

    /// Appends the vector of each text.
    fn vectors(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, String> {
        let mut encoded = Encoded::default();
        for text in texts {
            self.network(is_chinese(text))?.vector(text, vectors, &mut encoded)?;
        }
        Ok(encoded)
    }

    /// Reads a question with each of its sections. One without a Chinese word, such as a product's name,
    /// is in the language of the turns before.
    fn read(&self, request: &ReadRequest, tokens: &mut u64) -> Result<Reading, String> {
        let question = &request.question;
        let is_chinese = question.before().chain([&question.utterance]).any(|it| is_chinese(it));
        self.network(is_chinese)?.read(request, tokens)
    }
}

impl Encoder for AnswerReader {
    fn name(&self) -> &str {
        READER
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        self.english.width()
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let failed = |reason| EncodeError { encoder: READER.to_owned(), reason };
        let mut made = Vec::with_capacity(texts.len() * self.dimensions());
        let encoded = on_one_thread(|| self.vectors(texts, &mut made)).map_err(failed)?;
        vectors.append(&mut made);
        Ok(encoded)
    }
}

/// The reader behind the port `Read`.
pub struct ReaderBackend(pub Arc<AnswerReader>);

impl Backend for ReaderBackend {
    type Item = ReadRequest;
    type Output = Reading;

    fn name(&self) -> &str {
        READER
    }

    fn tokens(&self, request: &ReadRequest) -> usize {
        let question = &request.question;
        let before = question.before().map(|text| text.len().min(MAX_TURN * 4)).sum::<usize>();
        let turn = question.utterance.len().min(MAX_TURN * 4) + before;
        let of = |section: &Section| {
            let sentences = section.sentences.iter().map(String::len).sum::<usize>();
            (section.title.len() + sentences).min(MAX_TEXT * 4)
        };
        (turn + request.sections.iter().map(|it| turn + of(it)).sum::<usize>()) / 4
    }

    fn run(&self, requests: &[ReadRequest]) -> Result<(Vec<Reading>, Encoded), String> {
        let mut encoded = Encoded::default();
        let readings = on_one_thread(|| {
            let read = requests.iter().map(|request| self.0.read(request, &mut encoded.tokens));
            read.collect::<Result<Vec<_>, _>>()
        })?;
        Ok((readings, encoded))
    }
}

#[cfg(test)]
mod tests;
