//! The ends of a log that an engine is joined to.

use crate::{Consumer, Follower, Producer};

/// The halves of a log.
pub struct Ends {
    /// Where inputs come from.
    pub consumer: Box<dyn Consumer>,
    /// Where outcomes go.
    pub producer: Box<dyn Producer>,
    /// Where changes to the knowledge come from, if they are followed.
    pub knowledge: Option<Box<dyn Follower>>,
}

impl Ends {
    /// The ends of a log whose changes to the knowledge are not followed.
    pub fn new(consumer: impl Consumer + 'static, producer: impl Producer + 'static) -> Self {
        Self { consumer: Box::new(consumer), producer: Box::new(producer), knowledge: None }
    }
}
