//! Both ends of a log, as an engine uses them, and the follower of knowledge.

use crate::{Consumer, Follower, Producer};

/// The parts of a log that an engine uses.
pub struct Ends {
    /// The source of inputs.
    pub consumer: Box<dyn Consumer>,
    /// The destination of outcomes.
    pub producer: Box<dyn Producer>,
    /// The source of changes to the knowledge; `None` if the engine does not follow them.
    pub knowledge: Option<Box<dyn Follower>>,
}

impl Ends {
    /// A log whose changes to the knowledge the engine does not follow.
    pub fn new(consumer: impl Consumer + 'static, producer: impl Producer + 'static) -> Self {
        Self { consumer: Box::new(consumer), producer: Box::new(producer), knowledge: None }
    }
}
