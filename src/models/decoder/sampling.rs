//! Chooses the next token: the likeliest, or a random draw after temperature, top-k, top-p (nucleus
//! sampling, Holtzman et al. 2020) and min-p, in this order, as in transformers.

use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KeyProblem;

/// How tokens are chosen if a request's temperature is above 0; at 0 the likeliest is chosen. The
/// penalty applies to both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// Number of the likeliest tokens that are drawn from; 0 for all.
    pub top_k: u32,
    /// The likeliest tokens that together have this probability are drawn from, above 0 to 1.
    #[schemars(range(max = 1.0))]
    pub top_p: f32,
    /// The least share of the likeliest token's probability that a drawn token has, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_p: f32,
    /// Divisor of the positive logits, and factor of the negative ones, of tokens that the answer
    /// already has, from 1, which is none (CTRL, Keskar et al. 2019).
    #[schemars(range(min = 1.0))]
    pub repetition_penalty: f32,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self { top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

impl SamplingConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first key that is out of its range, and the range.
    pub fn check(&self) -> Result<(), KeyProblem> {
        let problem = |key, range| Err(KeyProblem::new(key, range));
        let Self { top_p, min_p, repetition_penalty, .. } = *self;
        if !(top_p > 0.0 && top_p <= 1.0) {
            problem("sampling.top_p", format!("is {top_p}; it is above 0 and at most 1"))
        } else if !(0.0..=1.0).contains(&min_p) {
            problem("sampling.min_p", format!("is {min_p}; it is 0 to 1"))
        } else if !(repetition_penalty >= 1.0 && repetition_penalty.is_finite()) {
            let range = format!("is {repetition_penalty}; it is at least 1");
            problem("sampling.repetition_penalty", range)
        } else {
            Ok(())
        }
    }
}

/// A chosen token, and the model's confidence in it before penalties and sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) token: u32,
    /// The model's logit.
    pub(super) logit: f32,
    /// The model's log-probability: the logarithm of the softmax over all tokens.
    pub(super) log_probability: f32,
}

/// Chooses the tokens of one answer.
pub(super) struct Sampler {
    config: SamplingConfig,
    temperature: f32,
    random: Rng,
}

impl Sampler {
    pub(super) fn new(config: SamplingConfig, temperature: f32, seed: u64) -> Self {
        Self { config, temperature, random: Rng::with_seed(seed) }
    }

    /// Chooses the next token. `allowed` restricts the choice; `before` holds the answer's tokens
    /// so far, for the penalty. The lowest id wins a tie.
    ///
    /// # Errors
    /// The logits are not numbers, or no token is allowed.
    pub(super) fn choose(
        &mut self,
        logits: &[f32],
        allowed: Option<&dyn Fn(u32) -> bool>,
        before: &[u32],
    ) -> Result<Chosen, String> {
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err("the network gave logits that are not numbers".to_owned());
        }
        let mut open: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        if let Some(allowed) = allowed {
            open.retain(|(token, _)| allowed(*token));
        }
        self.penalise(&mut open, before);
        let token = if self.temperature <= 0.0 {
            let likelier =
                |a: &&(u32, f32), b: &&(u32, f32)| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0));
            open.iter().max_by(likelier).map(|(token, _)| *token)
        } else {
            self.draw(open)
        };
        let token = token.ok_or("no token may come next")?;
        let logit = logits[token as usize];
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = logits.iter().map(|logit| (logit - highest).exp()).sum();
        Ok(Chosen { token, logit, log_probability: logit - highest - total.ln() })
    }

    fn penalise(&self, open: &mut [(u32, f32)], before: &[u32]) {
        let penalty = self.config.repetition_penalty;
        if penalty == 1.0 || before.is_empty() {
            return;
        }
        let said: rustc_hash::FxHashSet<u32> = before.iter().copied().collect();
        for (_, logit) in open.iter_mut().filter(|(token, _)| said.contains(token)) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }

    /// Draws a token at random.
    fn draw(&mut self, mut open: Vec<(u32, f32)>) -> Option<u32> {
        let SamplingConfig { top_k, top_p, min_p, .. } = self.config;
        open.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let highest = open.first()?.1;
        if top_k > 0 {
            open.truncate(top_k as usize);
        }
        for (_, logit) in &mut open {
            *logit = ((*logit - highest) / self.temperature).exp();
        }
        let total: f32 = open.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let kept = open.iter().take_while(|(_, weight)| {
            // The token that crosses the bound is kept.
            let before = sum;
            sum += weight / total;
            before < top_p
        });
        // The likeliest token has weight 1 here.
        let kept = kept.take_while(|(_, weight)| *weight >= min_p).count().max(1);
        open.truncate(kept);
        let total: f32 = open.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.f32() * total;
        for (token, weight) in &open {
            left -= weight;
            if left < 0.0 {
                return Some(*token);
            }
        }
        open.last().map(|(token, _)| *token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(config: &SamplingConfig, temperature: f32, logits: &[f32]) -> Vec<u32> {
        let draw = |seed| {
            let mut sampler = Sampler::new(config.clone(), temperature, seed);
            sampler.choose(logits, None, &[]).unwrap().token
        };
        let mut drawn: Vec<u32> = (0..500).map(draw).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    #[test]
    fn without_temperature_the_likeliest_is_chosen_and_of_equals_the_first() {
        let mut sampler = Sampler::new(SamplingConfig::default(), 0.0, 7);
        let chosen = sampler.choose(&[0.5, 2.0, 2.0, -1.0], None, &[]).unwrap();
        assert_eq!((chosen.token, chosen.logit), (1, 2.0));
        let total = [0.5_f32, 2.0, 2.0, -1.0].map(f32::exp).iter().sum::<f32>();
        assert!((chosen.log_probability - (2.0_f32.exp() / total).ln()).abs() < 1e-6);
    }

    #[test]
    fn nothing_is_drawn_that_the_bounds_leave_out() {
        // Probabilities 0.4, 0.3, 0.2 and 0.1.
        let logits = [0.4_f32, 0.3, 0.2, 0.1].map(f32::ln);
        let config = SamplingConfig::default();
        assert_eq!(drawn(&config, 1.0, &logits), [0, 1, 2, 3]);
        assert_eq!(
            drawn(&SamplingConfig { top_k: 2, ..SamplingConfig::default() }, 1.0, &logits),
            [0, 1]
        );
        let nucleus = |top_p| SamplingConfig { top_p, ..SamplingConfig::default() };
        assert_eq!(drawn(&nucleus(0.65), 1.0, &logits), [0, 1]);
        assert_eq!(drawn(&nucleus(0.75), 1.0, &logits), [0, 1, 2]);
        let config = SamplingConfig { min_p: 0.45, ..config };
        assert_eq!(drawn(&config, 1.0, &logits), [0, 1, 2]);
        // A low temperature is nearly greedy.
        assert_eq!(drawn(&nucleus(1.0), 0.01, &logits), [0]);
    }

    #[test]
    fn draws_are_as_frequent_as_they_are_probable_and_the_seed_says_which() {
        let logits = [0.7_f32, 0.2, 0.1].map(f32::ln);
        let mut sampler = Sampler::new(SamplingConfig::default(), 1.0, 3);
        let mut counts = [0.0_f64; 3];
        for _ in 0..10_000 {
            counts[sampler.choose(&logits, None, &[]).unwrap().token as usize] += 1e-4;
        }
        for (count, expected) in counts.iter().zip([0.7, 0.2, 0.1]) {
            assert!((count - expected).abs() < 0.02, "{counts:?}");
        }
        let sequence = |seed| {
            let mut sampler = Sampler::new(SamplingConfig::default(), 1.0, seed);
            (0..50).map(|_| sampler.choose(&logits, None, &[]).unwrap().token).collect::<Vec<_>>()
        };
        assert_eq!(sequence(5), sequence(5));
        assert_ne!(sequence(5), sequence(6));
    }

    #[test]
    fn what_was_said_is_less_likely_and_what_is_not_allowed_never_comes() {
        let config = SamplingConfig { repetition_penalty: 2.0, ..SamplingConfig::default() };
        let mut sampler = Sampler::new(config, 0.0, 0);
        let logits = [3.0, 2.0, -1.0];
        // The reported logit is the model's, without the penalty.
        let chosen = sampler.choose(&logits, None, &[0]).unwrap();
        assert_eq!((chosen.token, chosen.logit), (1, 2.0));
        let odd = |token: u32| token == 2;
        assert_eq!(sampler.choose(&logits, Some(&odd), &[]).unwrap().token, 2);
        assert!(sampler.choose(&logits, Some(&|_| false), &[]).is_err());
        assert!(sampler.choose(&[f32::NAN, 1.0], None, &[]).is_err());
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_key() {
        let usual = SamplingConfig::default();
        assert_eq!(usual.check(), Ok(()));
        for (wrong, key) in [
            (SamplingConfig { top_p: 0.0, ..usual.clone() }, "sampling.top_p"),
            (SamplingConfig { min_p: 1.5, ..usual.clone() }, "sampling.min_p"),
            (SamplingConfig { repetition_penalty: 0.5, ..usual }, "sampling.repetition_penalty"),
        ] {
            assert_eq!(wrong.check().unwrap_err().key, key);
        }
    }
}
