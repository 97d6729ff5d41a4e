//! The unified model (UniMS-RAG) behind its port: one small decoder that plans sources, scores
//! evidence and words responses, on the same network as the language models in this process.
//!
//! `stream` lays out a question in the tokens of the training (`deploy/training`). A dialogue goes
//! through the network once for all questions about it, and a piece of evidence once for its
//! relevance and the response. A piece of evidence attends to the dialogue and to itself alone, so
//! that no piece sees another (the evidence attention mask); the keys and values of all pieces are
//! concatenated to word a response. All evidence begins at the same position, and the response
//! begins after the longest piece.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Error;
use turnstream_ports::model::encoder::Encoded;
use turnstream_ports::model::unified::{
    EvidenceText, Task, UnifiedAnswer, UnifiedRequest, Wording,
};
use turnstream_schemas::SourceKind;

use super::ModelError;
use super::batch::Backend;
use super::decoder::cache::KeyValues;
use super::decoder::network::{DecoderNetwork, Piece};
use super::decoder::prefixes::Prefixes;
use super::decoder::vocabulary::DecoderVocabulary;
use super::decoder::{LocalConfig, files};

mod stream;
#[cfg(test)]
mod tests;
mod weights;

use stream::{Control, References, open_name};
pub use weights::UnifiedWeights;

/// The most bytes of dialogues' key-value caches kept: a dialogue that was planned is scored and
/// worded next.
const KEPT_BYTES: usize = 64 << 20;

/// How often the same two tokens may follow each other in a response; more is a loop.
const MOST_REPEATS: usize = 3;

/// Sampling temperature of all drafts after the first.
const TEMPERATURE: f32 = 0.7;
/// Drafts are drawn from the most probable tokens that together have this share (top-p).
const TOP_SHARE: f32 = 0.9;

/// The unified model.
pub struct UnifiedModel {
    name: String,
    network: DecoderNetwork,
    vocabulary: Arc<DecoderVocabulary>,
    control: Control,
    kept: Mutex<Prefixes>,
}

/// A cache of tokens that went through the network, and the position of the next token.
#[derive(Clone)]
struct Reading {
    cache: KeyValues,
    position: usize,
}

type UnifiedResult<T> = Result<T, Error>;

impl UnifiedModel {
    /// Opens the model with the shipped weights, or with weights that `deploy/training/train
    /// export` wrote.
    ///
    /// # Errors
    /// The weights cannot be read, or are not a unified model's.
    pub fn open(weights: &UnifiedWeights) -> Result<Self, ModelError> {
        let (name, parts) = match weights {
            UnifiedWeights::Shipped => {
                let (bytes, name) = UnifiedWeights::shipped();
                (name.to_owned(), files::parts_of_gguf(bytes, name)?)
            }
            UnifiedWeights::Path(path) => {
                let config = LocalConfig { path: path.clone(), ..LocalConfig::default() };
                let name = path.file_stem().map(|name| name.display().to_string());
                (name.unwrap_or_default(), files::open_parts(&config)?)
            }
        };
        let (network, vocabulary) = parts;
        let refused = |reason| ModelError::Refused { path: weights.to_string().into(), reason };
        let control = Control::find(&vocabulary).map_err(refused)?;
        let kept = Mutex::new(Prefixes::new(KEPT_BYTES));
        Ok(Self { name, network, vocabulary, control, kept })
    }

    /// Runs tokens through the network, each piece after its reading, and returns the logits after
    /// each piece.
    fn read(&self, pieces: &mut [(&[u32], &mut Reading)]) -> UnifiedResult<Vec<Vec<f32>>> {
        let mut parts: Vec<Piece<'_>> = pieces
            .iter_mut()
            .map(|(tokens, reading)| Piece {
                tokens,
                position: reading.position,
                cache: &mut reading.cache,
                wants_logits: true,
            })
            .collect();
        let logits = self.network.forward(&mut parts)?;
        for (tokens, reading) in pieces {
            reading.position += tokens.len();
        }
        Ok(logits)
    }

    /// Reads the dialogues of requests; common beginnings are read once.
    fn dialogues(&self, requests: &[UnifiedRequest]) -> UnifiedResult<Vec<Reading>> {
        let tokens: Vec<Vec<u32>> = requests
            .iter()
            .map(|request| stream::dialogue(&request.dialogue, &self.vocabulary, &self.control))
            .collect();
        let mut known: HashMap<&[u32], Reading> = HashMap::new();
        let mut unread: Vec<&[u32]> = tokens.iter().map(Vec::as_slice).collect();
        unread.sort_unstable();
        unread.dedup();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for tokens in &unread {
            let cache = kept.find(tokens, std::iter::empty());
            let cache = cache.unwrap_or_else(|| self.network.empty_cache());
            known.insert(tokens, Reading { position: cache.tokens(), cache });
        }
        drop(kept);
        // Known beginnings exclude at least the last token.
        let mut pieces: Vec<(&[u32], &mut Reading)> = known
            .iter_mut()
            .map(|(tokens, reading)| (&tokens[reading.position..], reading))
            .collect();
        self.read(&mut pieces)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (tokens, reading) in &known {
            kept.keep(tokens.to_vec(), reading.cache.clone());
        }
        drop(kept);
        // Every dialogue was read above.
        Ok(tokens.iter().filter_map(|tokens| known.get(tokens.as_slice()).cloned()).collect())
    }

    /// Chooses the most probable plan, token by token.
    fn plan(&self, mut reading: Reading, kinds: &[SourceKind]) -> UnifiedResult<UnifiedAnswer> {
        let control = &self.control;
        let mut logits = self.read(&mut [(&[control.plan], &mut reading)])?.remove(0);
        let (mut planned, mut probability) = (Vec::new(), 1.0);
        loop {
            let left = kinds.iter().filter(|kind| !planned.contains(*kind));
            let mut allowed: Vec<u32> = left.map(|kind| control.source(*kind)).collect();
            allowed.push(if planned.is_empty() { control.null } else { control.planned });
            let (token, share) = most_probable(&logits, &allowed);
            probability *= share;
            let Some(kind) = kinds.iter().find(|kind| control.source(**kind) == token) else {
                return Ok(UnifiedAnswer::Plan { kinds: planned, probability });
            };
            planned.push(*kind);
            logits = self.read(&mut [(&[token], &mut reading)])?.remove(0);
        }
    }

    /// The tokens of a given plan.
    fn planned(&self, plan: &[SourceKind]) -> Vec<u32> {
        let control = &self.control;
        let mut tokens = vec![control.plan];
        match plan {
            [] => tokens.push(control.null),
            kinds => tokens.extend(kinds.iter().map(|kind| control.source(*kind))),
        }
        tokens.push(control.planned);
        tokens
    }

    /// The relevance of a piece of evidence, from the logits after it.
    fn relevance(&self, logits: &[f32]) -> f32 {
        let shares = shares(logits, &self.control.relevance);
        shares.iter().zip(0_u8..).map(|(share, tenth)| share * f32::from(tenth) / 10.0).sum()
    }

    /// Reads each piece of evidence after the same dialogue and plan; returns the logits and the
    /// reading of each.
    fn evidence(
        &self,
        base: &Reading,
        pieces: &[Vec<u32>],
    ) -> UnifiedResult<Vec<(Vec<f32>, Reading)>> {
        let mut readings = vec![base.clone(); pieces.len()];
        let mut parts: Vec<(&[u32], &mut Reading)> =
            pieces.iter().map(Vec::as_slice).zip(&mut readings).collect();
        let logits = self.read(&mut parts)?;
        Ok(logits.into_iter().zip(readings).collect())
    }

    fn respond(&self, base: &Reading, task: &Task) -> UnifiedResult<UnifiedAnswer> {
        let Task::Response { evidence, max_tokens, drafts, .. } = task else {
            return Err(Error::Msg("no response is asked for".to_owned()));
        };
        let whole = self.gathered(base, evidence)?;
        let references = References::of(evidence, &self.vocabulary);
        let count = (*drafts).max(1) as usize;
        let drafts = self.word(&whole, &references, *max_tokens as usize, count)?;
        Ok(UnifiedAnswer::Response(drafts))
    }

    /// Concatenates all evidence after the dialogue and the plan; each piece was read without the
    /// others.
    fn gathered(&self, base: &Reading, evidence: &[(EvidenceText, u8)]) -> UnifiedResult<Reading> {
        let tokens = |(piece, tenths): &(EvidenceText, u8)| {
            let mut tokens = stream::evidence(piece, &self.vocabulary, &self.control);
            tokens.push(self.control.relevance[usize::from(*tenths).min(10)]);
            tokens
        };
        let pieces: Vec<Vec<u32>> = evidence.iter().map(tokens).collect();
        let mut whole = base.clone();
        for (_, reading) in self.evidence(base, &pieces)? {
            whole.cache.append(&reading.cache, base.cache.tokens());
            whole.position = whole.position.max(reading.position);
        }
        Ok(whole)
    }

    /// Words `count` drafts of a response in parallel, token by token: the first takes the most
    /// probable tokens, the others draw theirs.
    fn word(
        &self,
        reading: &Reading,
        references: &References,
        max_tokens: usize,
        count: usize,
    ) -> UnifiedResult<Vec<Wording>> {
        let control = &self.control;
        let sayable = self.sayable(references);
        let seed = reading.position as u64;
        let mut drafts: Vec<Drafting> = (0..count)
            .map(|at| Drafting {
                reading: reading.clone(),
                next: control.response,
                tokens: Vec::new(),
                lowest: 0.0,
                end: None,
                random: (at > 0).then(|| fastrand::Rng::with_seed(seed + ((at as u64) << 32))),
            })
            .collect();
        for _ in 0..max_tokens {
            let mut open: Vec<&mut Drafting> =
                drafts.iter_mut().filter(|draft| draft.end.is_none()).collect();
            if open.is_empty() {
                break;
            }
            let mut pieces: Vec<(&[u32], &mut Reading)> = open
                .iter_mut()
                .map(|draft| (std::slice::from_ref(&draft.next), &mut draft.reading))
                .collect();
            let logits = self.read(&mut pieces)?;
            for (draft, logits) in open.into_iter().zip(logits) {
                match open_name(&draft.tokens, control) {
                    Some(begun) => {
                        let allowed = references.following(begun, control);
                        draft.go_on(&logits, &allowed, control);
                    }
                    None => draft.go_on(&logits, &sayable, control),
                }
            }
        }
        let wording = |draft: Drafting| {
            let is_whole = draft.end == Some(End::Said);
            Wording {
                said: stream::said(&draft.tokens, references, &self.vocabulary, control),
                lowest_log_probability: draft.lowest,
                is_whole,
                tokens: draft.tokens.len() as u32 + u32::from(is_whole),
            }
        };
        Ok(drafts.into_iter().map(wording).collect())
    }

    /// The tokens that a response may contain outside of names: words, references if there are
    /// values to refer to, and the end.
    fn sayable(&self, references: &References) -> Vec<u32> {
        let control = &self.control;
        let is_sayable = |token: &u32| {
            !control.is_control(*token)
                || *token == control.end
                || (*token == control.value && !references.is_empty())
        };
        (0..self.vocabulary.len() as u32).filter(is_sayable).collect()
    }

    fn answer(&self, base: Reading, task: &Task) -> UnifiedResult<UnifiedAnswer> {
        let mut base = base;
        let plan = match task {
            Task::Plan { kinds } => return self.plan(base, kinds),
            Task::Relevance { plan, .. } | Task::Response { plan, .. } => plan,
        };
        self.read(&mut [(&self.planned(plan), &mut base)])?;
        let Task::Relevance { evidence, .. } = task else { return self.respond(&base, task) };
        let piece = stream::evidence(evidence, &self.vocabulary, &self.control);
        let (logits, _) = self.evidence(&base, &[piece])?.remove(0);
        Ok(UnifiedAnswer::Relevance(self.relevance(&logits)))
    }
}

/// How a draft ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At its end token.
    Said,
    /// In a loop.
    Looped,
}

/// A draft of a response.
struct Drafting {
    reading: Reading,
    /// The next token to run through the network.
    next: u32,
    tokens: Vec<u32>,
    lowest: f32,
    end: Option<End>,
    /// Draws the tokens; `None` takes the most probable ones.
    random: Option<fastrand::Rng>,
}

impl Drafting {
    /// Appends a token, chosen by the logits.
    fn go_on(&mut self, logits: &[f32], allowed: &[u32], control: &Control) {
        let (token, share) = match &mut self.random {
            None => most_probable(logits, allowed),
            Some(random) => drawn(logits, allowed, random),
        };
        if token == control.end {
            self.end = Some(End::Said);
            return;
        }
        self.lowest = self.lowest.min(share.ln());
        self.tokens.push(token);
        self.next = token;
        // Names may repeat tokens.
        let is_in_name = token == control.value_end || open_name(&self.tokens, control).is_some();
        if !is_in_name && loops(&self.tokens) {
            self.end = Some(End::Looped);
        }
    }
}

impl Backend for UnifiedModel {
    type Item = UnifiedRequest;
    type Output = UnifiedAnswer;

    fn name(&self) -> &str {
        &self.name
    }

    fn tokens(&self, request: &UnifiedRequest) -> usize {
        let said = request.dialogue.iter();
        let said = said.map(|it| it.user.len() + it.response.as_ref().map_or(0, String::len));
        let evidence = match &request.task {
            Task::Plan { .. } => 0,
            Task::Relevance { evidence, .. } => evidence.text.len(),
            Task::Response { evidence, .. } => evidence.iter().map(|(it, _)| it.text.len()).sum(),
        };
        (said.sum::<usize>() + evidence) / 4 + 8
    }

    fn run(&self, requests: &[UnifiedRequest]) -> Result<(Vec<UnifiedAnswer>, Encoded), String> {
        let failed = |error: Error| error.to_string();
        let readings = self.dialogues(requests).map_err(failed)?;
        let answers = readings.into_iter().zip(requests);
        let answers = answers.map(|(reading, request)| self.answer(reading, &request.task));
        let answers = answers.collect::<UnifiedResult<Vec<_>>>().map_err(failed)?;
        Ok((answers, Encoded::default()))
    }
}

/// The probabilities of some tokens among themselves.
fn shares(logits: &[f32], among: &[u32]) -> Vec<f32> {
    let of = |token: &u32| logits.get(*token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let highest = among.iter().map(of).fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = among.iter().map(|token| (of(token) - highest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The most probable of some tokens (the first of equals), and its probability among them.
fn most_probable(logits: &[f32], among: &[u32]) -> (u32, f32) {
    let shares = shares(logits, among);
    let pairs = among.iter().copied().zip(shares);
    pairs.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or((0, 0.0))
}

/// Draws one of the most probable of some tokens; returns it with its probability among all of
/// them.
fn drawn(logits: &[f32], among: &[u32], random: &mut fastrand::Rng) -> (u32, f32) {
    let shares = shares(logits, among);
    let mut order: Vec<usize> = (0..among.len()).collect();
    order.sort_by(|one, other| shares[*other].total_cmp(&shares[*one]));
    let mut left = TOP_SHARE;
    let kept = order.iter().take_while(|at| {
        let is_kept = left > 0.0;
        left -= shares[**at];
        is_kept
    });
    let daring: Vec<(usize, f32)> =
        kept.map(|at| (*at, shares[*at].powf(1.0 / TEMPERATURE))).collect();
    let mut place = random.f32() * daring.iter().map(|(_, share)| share).sum::<f32>();
    let found = daring.iter().find(|(_, share)| {
        place -= share;
        place < 0.0
    });
    let at = found.or(daring.last()).map_or(0, |(at, _)| *at);
    (among.get(at).copied().unwrap_or(0), shares.get(at).copied().unwrap_or(0.0))
}

/// Whether the last two tokens occurred side by side too often.
fn loops(tokens: &[u32]) -> bool {
    let [.., a, b] = tokens else { return false };
    tokens.windows(2).filter(|pair| pair == &[*a, *b]).count() > MOST_REPEATS
}
