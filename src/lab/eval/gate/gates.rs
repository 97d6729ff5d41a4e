//! Scores turns with gates that need no training: the engine's own lexical gate, and the controls
//! always, never and random.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turnstream_knowledge::Graph;
use turnstream_operators::flow::{TurnContext, Utterance};
use turnstream_operators::gate::{GateConfig, decide, find};
use turnstream_schemas::{EventTime, InputId, RequestId, Scope, Speaker, Turn};

use super::{GateError, ScoresTurns};
use crate::labelled::LabelledTurn;

/// The engine's lexical gate as in a stream, but without entries recalled from history.
pub struct Lexical {
    /// The graph for linking.
    pub graph: Graph,
    /// The gate's configuration.
    pub config: GateConfig,
    /// How many of the latest utterances the gate reads, including the current one.
    pub window_utterances: usize,
}

impl ScoresTurns for Lexical {
    fn name(&self) -> String {
        "lexical".to_owned()
    }

    fn threshold(&self) -> f64 {
        self.config.threshold
    }

    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let score = |turn| {
            let context = context(turn, self.window_utterances);
            let (mentions, _) = find(self.graph.view(), &context, &self.config);
            progress();
            decide(&context, &mentions, &self.config).score.get()
        };
        Ok(turns.iter().map(score).collect())
    }
}

/// Builds the engine's context for a labelled turn: the last utterance is the current user turn,
/// whoever spoke it.
pub fn context(labelled: &LabelledTurn, window_utterances: usize) -> TurnContext {
    let first = labelled.utterances.len().saturating_sub(window_utterances.max(1));
    let utterance = |(at, said): (usize, &crate::labelled::Said)| Utterance {
        turn_id: (at + 1).to_string().as_str().into(),
        speaker: said.speaker,
        text: Arc::from(said.text.as_str()),
    };
    let dialogue = labelled.utterances.iter().enumerate().skip(first).map(utterance).collect();
    let turn = Turn::new(labelled.conversation.as_str(), Speaker::User, labelled.last());
    let offset = i64::from(labelled.position);
    TurnContext {
        request: RequestId { partition: 0, generation: 1, offset },
        input: InputId { topic: "log".to_owned(), partition: 0, offset },
        scope: Scope::new(None, labelled.conversation.as_str()),
        turn,
        turn_id: labelled.position.to_string().as_str().into(),
        event_time: EventTime(offset),
        dialogue,
        recalled: Vec::new(),
        reconstructed: None,
        chosen: None,
        recall_fault: None,
    }
}

/// Retrieves for every turn, or for no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// Retrieves for every turn.
    Always,
    /// Retrieves for no turn.
    Never,
}

impl ScoresTurns for Constant {
    fn name(&self) -> String {
        match self {
            Self::Always => "always",
            Self::Never => "never",
        }
        .to_owned()
    }

    fn threshold(&self) -> f64 {
        0.5
    }

    fn scores(&self, turns: &[LabelledTurn], _: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        Ok(vec![f64::from(u8::from(*self == Self::Always)); turns.len()])
    }
}

/// Retrieves for a random share of turns: the paper's control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Random {
    /// The share of turns, 0..=1.
    pub rate: f64,
    /// The same seed gives the same decisions.
    pub seed: u64,
}

impl ScoresTurns for Random {
    fn name(&self) -> String {
        format!("random at {:.3}", self.rate)
    }

    fn threshold(&self) -> f64 {
        1.0 - self.rate
    }

    fn scores(&self, turns: &[LabelledTurn], _: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let mut random = StdRng::seed_from_u64(self.seed);
        Ok(turns.iter().map(|_| random.random::<f64>()).collect())
    }
}
