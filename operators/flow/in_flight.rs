//! What every record of a turn in flight can be asked, whichever stage it is on its way to.

use std::sync::Arc;

use super::{
    Demanded, Drafted, Gated, Grounded, Planned, Progress, Queried, Retrieved, TurnContext,
};

/// A record that belongs to one turn in flight.
pub trait InFlight: 'static {
    /// The turn and its history.
    fn context(&self) -> &Arc<TurnContext>;
    /// Timings and degradations so far.
    fn progress(&mut self) -> &mut Progress;
    /// How often its response was made anew; 0 for all that comes before it.
    fn round(&self) -> u32 {
        0
    }
    /// Whether its response is drafted before the gate decides.
    fn for_gate(&self) -> bool {
        false
    }
}

macro_rules! in_flight {
    ($($type:ty => $($turn:ident).+;)*) => {$(
        impl InFlight for $type {
            fn context(&self) -> &Arc<TurnContext> {
                &self.$($turn).+.context
            }

            fn progress(&mut self) -> &mut Progress {
                &mut self.$($turn).+.progress
            }
        }
    )*};
}

in_flight! {
    Queried => turn;
    Planned => turn;
    Demanded => turn;
    Retrieved => turn;
}

impl InFlight for Grounded {
    fn context(&self) -> &Arc<TurnContext> {
        &self.turn.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.turn.progress
    }

    fn round(&self) -> u32 {
        u32::try_from(self.refinement.rounds.len()).unwrap_or(u32::MAX)
    }

    fn for_gate(&self) -> bool {
        self.refinement.for_gate
    }
}

impl InFlight for Drafted {
    fn context(&self) -> &Arc<TurnContext> {
        self.grounded.context()
    }

    fn progress(&mut self) -> &mut Progress {
        self.grounded.progress()
    }

    fn round(&self) -> u32 {
        self.grounded.round()
    }

    fn for_gate(&self) -> bool {
        self.grounded.for_gate()
    }
}

impl InFlight for Gated {
    fn context(&self) -> &Arc<TurnContext> {
        &self.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }
}
