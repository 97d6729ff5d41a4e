//! Continuous batching: one thread per model serves several requests at once. In each step, every
//! request that is answering gets one token, and the other requests share the rest of the step for
//! their prompts. A request joins at the next step, and leaves when it is done or abandoned. A long
//! prompt therefore delays other requests by at most one step.

use std::sync::Arc;
use std::time::Instant;

use turnstream_ports::model::{Busy, CallError, GenerateRequest, Generated, Model, Reply};
use turnstream_ports::panics::contain;

use crate::metrics::DecoderMetrics;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};

use super::constraint::Constraints;
use super::network::{DecoderNetwork, Piece};
use super::prefixes::Prefixes;
use super::sampling::Sampler;
use super::sequence::{AnswerState, Continuation, Sequence, Surety};
use super::template::Template;
use super::text::Text;
use super::vocabulary::DecoderVocabulary;
use super::{CHARS_PER_TOKEN, LocalConfig};

/// A model that was read from its files.
pub(super) struct Opened {
    pub(super) network: DecoderNetwork,
    pub(super) vocabulary: Arc<DecoderVocabulary>,
    pub(super) template: Template,
    pub(super) constraints: Constraints,
}

/// A language model behind its queue. After a drop, its thread answers all pending requests and
/// ends.
pub(super) struct Decoder {
    name: String,
    queue: Sender<QueuedRequest>,
    metrics: DecoderMetrics,
}

type QueuedRequest = (GenerateRequest, Reply<Generated>);

impl Decoder {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(super) fn start(
        name: &str,
        opened: Opened,
        config: LocalConfig,
        metrics: DecoderMetrics,
    ) -> std::io::Result<Self> {
        let (queue, far_end) = crossbeam_channel::bounded(config.queue_requests.max(1));
        let prefixes = Prefixes::new(config.cache_bytes);
        let engine = Engine {
            name: name.to_owned(),
            opened,
            config,
            metrics: metrics.clone(),
            queue: far_end,
            active: Vec::new(),
            prefixes,
        };
        std::thread::Builder::new().name(format!("decoder {name}")).spawn(|| engine.run())?;
        Ok(Self { name: name.to_owned(), queue, metrics })
    }
}

impl Model<GenerateRequest, Generated> for Decoder {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        // Increment before sending: the thread may take the request at once.
        self.metrics.queued.inc();
        self.queue.try_send((request, reply)).map_err(|error| {
            self.metrics.queued.dec();
            self.metrics.refused.inc();
            let (TrySendError::Full(waiting) | TrySendError::Disconnected(waiting)) = error;
            Busy { request: waiting.0, reply: waiting.1 }
        })
    }
}

/// The thread's state, with the receiving end of the queue.
struct Engine {
    name: String,
    opened: Opened,
    config: LocalConfig,
    metrics: DecoderMetrics,
    queue: Receiver<QueuedRequest>,
    active: Vec<Sequence>,
    prefixes: Prefixes,
}

impl Engine {
    /// The thread's main loop. A panic fails the active requests only.
    fn run(mut self) {
        loop {
            match contain(|| self.step()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    self.metrics.panics.inc_by(self.active.len().max(1) as u64);
                    for sequence in self.active.drain(..) {
                        sequence.reply.answer(Err(CallError::Panic));
                    }
                }
            }
            self.metrics.active.set(self.active.len() as i64);
        }
    }

    /// Admits requests and computes one step for all; returns false when the queue is closed and
    /// empty.
    fn step(&mut self) -> bool {
        if !self.admit() {
            return false;
        }
        // Drop abandoned requests: the stage that gave up may ask again.
        for gone in self.active.extract_if(.., |sequence| sequence.reply.is_abandoned()) {
            self.metrics.skipped.inc();
            self.prefixes.keep(gone.tokens, gone.cache);
        }
        self.metrics.active.set(self.active.len() as i64);
        if self.active.is_empty() {
            return true;
        }
        let started = Instant::now();
        let shares = shares(&self.active, &self.config);
        let wants = wants(&self.active, &shares);
        match self.forward(&shares, &wants) {
            Ok(logits) => self.take(&wants, logits),
            Err(error) => {
                // After an error, some layers hold keys and values that others lack, so every
                // active request fails.
                for sequence in self.active.drain(..) {
                    self.metrics.errors.inc();
                    sequence.reply.answer(Err(CallError::Model(error.to_string())));
                }
            }
        }
        self.metrics.step.observe(started.elapsed().as_secs_f64());
        true
    }

    /// Admits requests, and waits for one if none is active; returns false when the queue is closed
    /// and empty.
    fn admit(&mut self) -> bool {
        while self.active.len() < self.config.max_sequences {
            let waiting = if self.active.is_empty() {
                match self.queue.recv() {
                    Ok(waiting) => waiting,
                    Err(_) => return false,
                }
            } else {
                match self.queue.try_recv() {
                    Ok(waiting) => waiting,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
                }
            };
            self.metrics.queued.dec();
            let (request, reply) = waiting;
            if reply.is_abandoned() {
                self.metrics.skipped.inc();
                continue;
            }
            match self.prepare(&request) {
                Ok((tokens, answer)) => {
                    let others = self.active.iter().map(|of| (of.tokens.as_slice(), &of.cache));
                    let cache = self.prefixes.find(&tokens, others);
                    let cache = cache.unwrap_or_else(|| self.opened.network.empty_cache());
                    let prompt = tokens.len();
                    self.metrics.prompt_tokens.inc_by(prompt as u64);
                    self.metrics.kept_tokens.inc_by(cache.tokens() as u64);
                    self.active.push(Sequence { reply, tokens, prompt, cache, answer });
                }
                Err(reason) => {
                    self.metrics.errors.inc();
                    reply.answer(Err(CallError::Model(reason)));
                }
            }
        }
        true
    }

    /// Tokenises a request's prompt and prepares its answer.
    fn prepare(&self, request: &GenerateRequest) -> Result<(Vec<u32>, AnswerState), String> {
        let Opened { vocabulary, template, constraints, network } = &self.opened;
        let context = self.config.context(network.shape().positions);
        let too_long = |tokens: usize| {
            format!(
                "the prompt has {tokens} tokens and the answer may have {}, but the context has \
                 {context}: shorten the history or the evidence, or raise context_tokens",
                request.max_tokens
            )
        };
        // No prompt averages more bytes per token than the limit, so a longer prompt is refused
        // without tokenising it.
        let length = request.system.len() + request.prompt.len();
        if length / CHARS_PER_TOKEN > context {
            return Err(too_long(length / CHARS_PER_TOKEN));
        }
        let prompt = template.render(&request.system, &request.prompt)?;
        let tokens = vocabulary.encode(&prompt)?;
        let max_tokens = request.max_tokens.max(1) as usize;
        if tokens.is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        if tokens.len() + max_tokens > context {
            return Err(too_long(tokens.len()));
        }
        let schema = request.schema.as_ref();
        let constraint = schema.map(|schema| constraints.json(schema)).transpose()?;
        let sampling = self.config.sampling.clone();
        let stops: &[String] = if schema.is_some() { &[] } else { &self.config.stop };
        let answer = AnswerState {
            sampler: Sampler::new(sampling, request.temperature, request.seed),
            constraint,
            text: Text::new(request.listener.clone(), stops, vocabulary.strips_space()),
            max_tokens,
            surety: Surety::new(self.config.confidence.kind()),
        };
        Ok((tokens, answer))
    }

    /// Runs each sequence's share through the network.
    fn forward(&mut self, shares: &[usize], wants: &[bool]) -> candle_core::Result<Vec<Vec<f32>>> {
        let parts = self.active.iter_mut().zip(shares).zip(wants);
        let parts = parts.filter(|((_, share), _)| **share > 0);
        let mut pieces: Vec<Piece<'_>> = parts
            .map(|((sequence, share), wants_logits)| {
                let start = sequence.cache.tokens();
                let tokens = &sequence.tokens[start..start + share];
                Piece::next(tokens, &mut sequence.cache, *wants_logits)
            })
            .collect();
        self.opened.network.forward(&mut pieces)
    }

    /// Hands the logits to the sequences that wanted them, and removes finished sequences.
    fn take(&mut self, wants: &[bool], logits: Vec<Vec<f32>>) {
        let mut logits = logits.into_iter();
        let vocabulary = &self.opened.vocabulary;
        let mut going = Vec::with_capacity(self.active.len());
        for (mut sequence, wants) in self.active.drain(..).zip(wants) {
            if !wants {
                going.push(sequence);
                continue;
            }
            let before = sequence.tokens.len();
            // The network returned as many rows as were wanted.
            let logits = logits.next().unwrap_or_default();
            let next = sequence.advance(&logits, vocabulary);
            self.metrics.answer_tokens.inc_by((sequence.tokens.len() - before) as u64);
            match next {
                Ok(Continuation::More) => going.push(sequence),
                Ok(next) => {
                    let (answer, tokens, cache) = sequence.finish(next, &self.name);
                    self.metrics.errors.inc_by(u64::from(!answer));
                    self.prefixes.keep(tokens, cache);
                }
                Err(reason) => {
                    self.metrics.errors.inc();
                    sequence.reply.answer(Err(CallError::Model(reason)));
                }
            }
        }
        self.active = going;
        self.metrics.kept.set(self.prefixes.bytes() as i64);
    }
}

/// Divides the step's tokens among the sequences; answering sequences come first.
fn shares(active: &[Sequence], config: &LocalConfig) -> Vec<usize> {
    let mut left = config.step_tokens;
    // An answering sequence has more than one token if a schema forced tokens.
    let each = (config.step_tokens / (2 * config.max_sequences)).max(1);
    let mut shares: Vec<usize> = active
        .iter()
        .map(|sequence| {
            let is_answering = sequence.is_answering();
            let share = if is_answering { sequence.pending().len().min(each) } else { 0 };
            left = left.saturating_sub(share);
            share
        })
        .collect();
    for (share, sequence) in shares.iter_mut().zip(active) {
        if *share == 0 {
            *share = sequence.pending().len().min(left);
            left -= *share;
        }
    }
    shares
}

/// The sequences whose tokens are all through the network after this step.
fn wants(active: &[Sequence], shares: &[usize]) -> Vec<bool> {
    active.iter().zip(shares).map(|(of, share)| of.pending().len() == *share).collect()
}
