//! Trains a gate. The regressions of its definitions ([`regressions`]) come first; then the encoder:
//! batches of turns of similar length, gradients on several threads, AdamW, and the weights of the
//! pass with which both together are best on the development split.
//!
//! All random draws come from the seed: the same data, options and number of threads give the same
//! weights. A stopped training resumes after its last complete pass, and ends with the same result
//! as an uninterrupted one.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{Device, Tensor, Var};
use serde::{Deserialize, Serialize};
use turnstream_formats::Need;
use turnstream_models::gate::card::{Card, Definition};
use turnstream_models::gate::network::{Dropout, Initial, Network};
use turnstream_models::gate::ngrams::NgramRegression;
use turnstream_models::gate::reading::{CutTurn, MARKS, Noise, Reader, TurnTokens, assemble};
use turnstream_models::gate::{GateError, regression_parameters, table_of};
use turnstream_models::static_table::StaticTable;

use crate::gate_reading::cut;
use crate::labelled::LabelledTurn;

mod batches;
mod figures;
mod optimiser;
mod regressions;
mod state;
mod vocabulary;

use batches::Batches;
pub use figures::{best_threshold, figures};
use optimiser::{AdamW, Gradients};
pub use regressions::regressions;
pub use state::{State, StateError};
pub use vocabulary::vocabulary;

/// The hyperparameters. The shipped gate's are in its card, and not all of them are the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// The most passes over the training split.
    pub epochs: u32,
    /// Passes without improvement after which training stops.
    pub patience: u32,
    /// Turns per step.
    pub batch: usize,
    /// The most turns of each data set per pass, drawn anew for each pass; 0 for all. A set that has
    /// fewer than a quarter of them is repeated up to that, so that the larger ones leave room for it.
    pub turns_per_epoch: usize,
    /// The peak learning rate, which rises over the first twentieth of the steps and falls to 0.
    pub rate: f64,
    /// AdamW's weight decay.
    pub decay: f64,
    /// The dropout rate, 0..1.
    pub dropout: f32,
    /// The probability that a turn loses its punctuation, 0..=1.
    pub bare: f32,
    /// The probability that a token is lost, 0..=1.
    pub lost: f32,
    /// The probability that a token is misheard, 0..=1.
    pub misheard: f32,
    /// Seeds all random draws.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            epochs: 12,
            patience: 4,
            batch: 32,
            turns_per_epoch: 0,
            rate: 1e-3,
            decay: 0.01,
            dropout: 0.1,
            bare: 0.5,
            lost: 0.03,
            misheard: 0.05,
            seed: 1,
            threads: 2,
        }
    }
}

/// A training data set.
pub struct Lesson {
    /// Turns for training.
    pub train: Vec<LabelledTurn>,
    /// Turns for early stopping.
    pub development: Vec<LabelledTurn>,
}

/// The progress of a training.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The pass, from 1.
    pub epoch: u32,
    /// Completed steps of this pass.
    pub step: usize,
    /// Steps per pass.
    pub steps: usize,
    /// The mean loss of the pass so far.
    pub loss: f64,
    /// The mean area under the ROC curve on the development splits, at the end of a pass.
    pub development: Option<f64>,
}

/// A training that runs pass by pass.
pub struct Trainer {
    card: Card,
    regressions: Vec<NgramRegression>,
    options: TrainOptions,
    table: Option<Arc<StaticTable>>,
    lessons: Vec<TokenisedSet>,
    state: State,
}

/// A tokenised data set.
struct TokenisedSet {
    train: Vec<ClassExample>,
    development: Vec<ClassExample>,
}

/// A turn with its class among all columns of the output.
struct ClassExample {
    turn: CutTurn,
    definition: usize,
    class: usize,
    /// The regression's logit; of development turns, if the definition has a regression.
    regression: Option<f64>,
}

impl Trainer {
    /// Starts a training from a card, with one lesson per definition in the card's order, and one
    /// regression, or none at all if the encoder decides alone.
    ///
    /// # Errors
    /// A text cannot be tokenised, or a turn has a class that its definition lacks.
    pub fn new(
        card: Card,
        options: TrainOptions,
        lessons: &[Lesson],
        regressions: Vec<NgramRegression>,
    ) -> Result<Self, GateError> {
        let table = table_of(card.vocabulary.kind)?;
        let reader = Reader::new(&card.vocabulary, table.clone());
        let mut cuts = Vec::new();
        for (at, lesson) in lessons.iter().enumerate() {
            let train = examples(&card, &reader, at, &lesson.train)?;
            let mut development = examples(&card, &reader, at, &lesson.development)?;
            for (example, turn) in development.iter_mut().zip(&lesson.development) {
                example.regression = regressions.get(at).map(|it| it.logit(turn.last()));
            }
            cuts.push(TokenisedSet { train, development });
        }
        let mut random = fastrand::Rng::with_seed(options.seed);
        let begun = card.parameters(table.as_deref()).into_iter().map(|(name, shape, initial)| {
            let count = shape.iter().product();
            let mut numbers: Vec<f32> = match initial {
                Initial::Constant(value) => vec![value; count],
                Initial::Uniform(bound) => {
                    (0..count).map(|_| (random.f32() * 2.0 - 1.0) * bound).collect()
                }
            };
            if name == "words" && matches!(initial, Initial::Constant(_)) {
                // The marks have no vector in the table.
                let width = card.shape.width;
                let bound = (3.0 / width as f32).sqrt();
                let marks = &mut numbers[..MARKS * width];
                marks.iter_mut().for_each(|x| *x = (random.f32() * 2.0 - 1.0) * bound);
            }
            (name, shape, numbers)
        });
        let state = State::begin(begun);
        Ok(Self { card, regressions, options, table, lessons: cuts, state })
    }

    /// Continues from the state of a training with the same card and options.
    ///
    /// # Errors
    /// The state belongs to another training.
    pub fn resume(&mut self, state: State) -> Result<(), StateError> {
        self.state.fits(&state)?;
        self.state = state;
        Ok(())
    }

    /// Returns the state, for saving between passes.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether training is complete.
    pub fn is_done(&self) -> bool {
        let State { epoch, best_epoch, .. } = self.state;
        epoch >= self.options.epochs || epoch >= best_epoch + self.options.patience
    }

    /// Runs one pass over the training splits, and evaluates the development splits.
    ///
    /// # Errors
    /// The arithmetic fails.
    pub fn pass(&mut self, progress: &mut dyn FnMut(Progress)) -> candle_core::Result<()> {
        let epoch = self.state.epoch + 1;
        let batches = self.batches(epoch);
        let steps = batches.count();
        let all = steps * self.options.epochs as usize;
        let (mut losses, mut turns) = (0.0, 0);
        for (at, batch) in batches.iter().enumerate() {
            let place = (epoch as usize - 1) * steps + at;
            let rate = self.options.rate * schedule(place, all);
            let (gradients, loss) = self.gradients(batch, place as u64)?;
            let decay = self.options.decay;
            AdamW { rate, decay }.step(&mut self.state, gradients);
            losses += loss * batch.len() as f64;
            turns += batch.len();
            let loss = losses / turns as f64;
            progress(Progress { epoch, step: at + 1, steps, loss, development: None });
        }
        self.state.epoch = epoch;
        let development = self.develop()?;
        if development > self.state.best {
            self.state.keep(development);
        }
        let loss = losses / turns.max(1) as f64;
        let development = Some(development);
        progress(Progress { epoch, step: steps, steps, loss, development });
        Ok(())
    }

    /// Draws the steps of a pass, as (lesson, index) of examples.
    fn batches(&self, epoch: u32) -> Batches {
        let mut random = fastrand::Rng::with_seed(self.options.seed ^ (u64::from(epoch) << 32));
        let mut drawn = Vec::new();
        for (lesson, cut) in self.lessons.iter().enumerate() {
            let places = batches::turns(cut.train.len(), self.options.turns_per_epoch, &mut random);
            drawn.extend(places.into_iter().map(|place| (lesson, place)));
        }
        let most = self.card.shape.max_tokens;
        let length = |&(lesson, place): &(usize, usize)| {
            self.lessons[lesson].train[place].tokens().min(most)
        };
        Batches::draw(drawn, self.options.batch, length, &mut random)
    }

    /// Computes the gradients and the mean loss of one step. Threads share the turns.
    fn gradients(
        &self,
        batch: &[(usize, usize)],
        place: u64,
    ) -> candle_core::Result<(Gradients, f64)> {
        let threads = self.options.threads.clamp(1, batch.len().max(1));
        let part = |thread: usize| {
            let seed = self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = fastrand::Rng::with_seed(seed ^ (place << 8) ^ (thread as u64 + 1));
            let examples = batch.iter().skip(thread).step_by(threads);
            let examples: Vec<&ClassExample> =
                examples.map(|&(lesson, place)| &self.lessons[lesson].train[place]).collect();
            self.backward(&examples, batch.len(), &mut random)
        };
        let parts = std::thread::scope(|scope| {
            let part = &part;
            let others: Vec<_> =
                (1..threads).map(|thread| scope.spawn(move || part(thread))).collect();
            let mut parts = vec![part(0)];
            let panicked = || Err(candle_core::Error::Msg("a thread panicked".to_owned()));
            parts.extend(
                others.into_iter().map(|other| other.join().unwrap_or_else(|_| panicked())),
            );
            parts
        });
        let (mut gradients, mut loss) = (Gradients::new(), 0.0);
        for part in parts {
            let (others, other_loss) = part?;
            optimiser::add(&mut gradients, others);
            loss += other_loss;
        }
        Ok((gradients, loss))
    }

    /// Computes the gradients of some examples from a batch of `of`, and their part of its mean
    /// loss.
    fn backward(
        &self,
        examples: &[&ClassExample],
        of: usize,
        random: &mut fastrand::Rng,
    ) -> candle_core::Result<(Gradients, f64)> {
        let TrainOptions { bare, lost, misheard, dropout, .. } = self.options;
        let tokens: Vec<TurnTokens> = examples
            .iter()
            .map(|example| {
                let noise = Noise { bare, lost, misheard, random: &mut *random };
                assemble(&example.turn, &self.card.shape, Some(noise))
            })
            .collect();
        let (network, variables) = self.network(self.state.values())?;
        let dropout = Dropout { share: dropout, random };
        let logits = network.forward(&tokens.iter().collect::<Vec<_>>(), Some(dropout))?;
        let loss = self.loss(&logits, examples, of)?;
        let grads = loss.backward()?;
        let mut gradients = Gradients::new();
        for (name, variable) in &variables {
            if let Some(gradient) = grads.get(variable) {
                gradients.insert(name.clone(), gradient.flatten_all()?.to_vec1()?);
            }
        }
        Ok((gradients, f64::from(loss.to_scalar::<f32>()?)))
    }

    /// Sums the cross entropy among the classes of each example's definition, divided by `of`.
    fn loss(
        &self,
        logits: &Tensor,
        examples: &[&ClassExample],
        of: usize,
    ) -> candle_core::Result<Tensor> {
        let (rows, columns) = logits.dims2()?;
        let mut foreign = vec![-1e9_f32; rows * columns];
        let mut wanted = vec![0.0_f32; rows * columns];
        for (row, example) in examples.iter().enumerate() {
            let own = self.columns(example.definition);
            foreign[row * columns..][own.clone()].fill(0.0);
            wanted[row * columns + own.start + example.class] = 1.0;
        }
        let foreign = Tensor::from_vec(foreign, (rows, columns), &Device::Cpu)?;
        let wanted = Tensor::from_vec(wanted, (rows, columns), &Device::Cpu)?;
        let likelihood = candle_nn::ops::log_softmax(&(logits + foreign)?, 1)?;
        (likelihood * wanted)?.sum_all()? * (-1.0 / of as f64)
    }

    /// Returns the output columns of a definition.
    fn columns(&self, definition: usize) -> std::ops::Range<usize> {
        let before = self.card.definitions[..definition].iter();
        let from: usize = before.map(|definition| definition.classes.len()).sum();
        from..from + self.card.definitions[definition].classes.len()
    }

    /// Makes the network with these parameters, and the parameters as variables.
    fn network(
        &self,
        values: &state::Values,
    ) -> candle_core::Result<(Network, BTreeMap<String, Var>)> {
        let mut variables = BTreeMap::new();
        for (name, (shape, numbers)) in values {
            let tensor = Tensor::from_slice(numbers, shape.as_slice(), &Device::Cpu)?;
            variables.insert(name.clone(), Var::from_tensor(&tensor)?);
        }
        let tensors =
            variables.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())).collect();
        Ok((Network::new(self.card.shape.clone(), tensors, self.table.clone()), variables))
    }

    /// Computes the mean area under the ROC curve on the definitions' development splits.
    fn develop(&self) -> candle_core::Result<f64> {
        let told = self.scores(self.state.values())?;
        let areas: Vec<f64> = told.iter().map(|told| figures(told, 0.5).auc).collect();
        Ok(areas.iter().sum::<f64>() / areas.len().max(1) as f64)
    }

    /// Returns, for each definition, the score of each development turn and whether the turn needs
    /// knowledge.
    fn scores(&self, values: &state::Values) -> candle_core::Result<Vec<Vec<(f64, bool)>>> {
        let (network, _) = self.network(values)?;
        let gate = |examples: &[&ClassExample]| -> candle_core::Result<Vec<(f64, bool)>> {
            let tokens: Vec<TurnTokens> =
                examples.iter().map(|it| assemble(&it.turn, &self.card.shape, None)).collect();
            let logits = network.forward(&tokens.iter().collect::<Vec<_>>(), None)?;
            let rows = logits.to_vec2::<f32>()?;
            let scored = rows.iter().zip(examples).map(|(row, example)| {
                let definition = &self.card.definitions[example.definition];
                let classes = &row[self.columns(example.definition)];
                let need = definition.need(classes, example.regression);
                (need, definition.classes[example.class] != Need::None)
            });
            Ok(scored.collect())
        };
        let of_lesson = |cut: &TokenisedSet| {
            let examples: Vec<&ClassExample> = cut.development.iter().collect();
            let chunks: Vec<&[&ClassExample]> = examples.chunks(32).collect();
            let half = chunks.len().div_ceil(self.options.threads.max(1)).max(1);
            std::thread::scope(|scope| {
                let gate = &gate;
                let parts: Vec<_> = chunks
                    .chunks(half)
                    .map(|part| {
                        scope.spawn(move || {
                            part.iter().map(|chunk| gate(chunk)).collect::<Result<Vec<_>, _>>()
                        })
                    })
                    .collect();
                let panicked = || Err(candle_core::Error::Msg("a thread panicked".to_owned()));
                let joined: Result<Vec<_>, _> = parts
                    .into_iter()
                    .map(|part| part.join().unwrap_or_else(|_| panicked()))
                    .collect();
                joined.map(|parts| parts.into_iter().flatten().flatten().collect())
            })
        };
        self.lessons.iter().map(of_lesson).collect()
    }

    /// Returns the gate of the best pass: its card with thresholds and figures, and its parameters.
    ///
    /// # Errors
    /// The arithmetic fails.
    pub fn finish(&self) -> candle_core::Result<(Card, BTreeMap<String, Tensor>)> {
        let mut card = self.card.clone();
        let told = self.scores(self.state.best_values())?;
        for (definition, told) in card.definitions.iter_mut().zip(told) {
            if told.iter().any(|(_, positive)| *positive) {
                definition.threshold = best_threshold(&told);
                let turned: Vec<_> = told.iter().map(|(need, is)| (1.0 - need, !is)).collect();
                definition.null_threshold = 1.0 - best_threshold(&turned);
                definition.development = Some(figures(&told, definition.threshold));
            }
        }
        card.training.epochs = self.state.epoch;
        card.training.best_epoch = self.state.best_epoch;
        let mut parameters = BTreeMap::new();
        for (name, (shape, numbers)) in self.state.best_values() {
            let tensor = Tensor::from_slice(numbers, shape.as_slice(), &Device::Cpu)?;
            parameters.insert(name.clone(), tensor);
        }
        for (definition, regression) in card.definitions.iter().zip(&self.regressions) {
            let (ngrams, named) = regression_parameters(&definition.name, regression)?;
            card.ngrams.push(ngrams);
            parameters.extend(named);
        }
        Ok((card, parameters))
    }
}

/// Returns the factor of the learning rate at a step: up over the first twentieth, then down to 0.
fn schedule(step: usize, steps: usize) -> f64 {
    let rise = (steps / 20).max(1);
    if step < rise {
        (step + 1) as f64 / rise as f64
    } else {
        (steps - step) as f64 / (steps - rise).max(1) as f64
    }
}

impl ClassExample {
    /// Returns the number of the dialogue's tokens.
    fn tokens(&self) -> usize {
        self.turn.utterances.iter().map(|(_, tokens)| tokens.len() + 1).sum()
    }
}

fn examples(
    card: &Card,
    reader: &Reader,
    definition: usize,
    turns: &[LabelledTurn],
) -> Result<Vec<ClassExample>, GateError> {
    let Definition { name, classes, .. } = &card.definitions[definition];
    let example = |turn: &LabelledTurn| {
        let failed = |what: String| GateError::Write(what);
        let class = classes.iter().position(|need| *need == turn.need);
        let class =
            class.ok_or_else(|| failed(format!("`{name}` has no class {:?}", turn.need)))?;
        // The encoder does not read earlier utterances, so they need no tokens.
        let mut near = turn.clone();
        let mut room = card.shape.max_tokens;
        let mut first = near.utterances.len();
        while first > 0 && room > 0 {
            first -= 1;
            room = room.saturating_sub(near.utterances[first].text.split_whitespace().count());
        }
        let depth = near.utterances.len();
        near.utterances.drain(..first);
        let mut turn =
            cut(reader, &near, card.shape.variant).map_err(|error| failed(error.to_string()))?;
        turn.depth = depth;
        Ok(ClassExample { turn, definition, class, regression: None })
    };
    turns.iter().map(example).collect()
}

#[cfg(test)]
mod tests;
