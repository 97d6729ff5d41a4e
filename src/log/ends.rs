//! Both ends of a log, as an engine uses them, and the follower of knowledge.

use crate::{Consumer, Follower, Producer};

/// The parts of a log that an engine uses.
pub struct Ends {
    /// Where inputs come from.
    pub consumer: Box<dyn Consumer>,
    /// Where outcomes go.
    pub producer: Box<dyn Producer>,
    /// Where changes to the knowledge come from; `None` if the engine does not follow them.
    pub knowledge: Option<Box<dyn Follower>>,
}

impl Ends {
    /// A log whose changes to the knowledge the engine does not follow.
    pub fn new(consumer: impl Consumer + 'static, producer: impl Producer + 'static) -> Self {
        Self { consumer: Box::new(consumer), producer: Box::new(producer), knowledge: None }
    }
}
