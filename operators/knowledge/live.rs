//! The knowledge of one worker, as it stands from moment to moment.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use turnstream_schemas::KnowledgeState;

use super::{Graph, View};

/// A moment of the knowledge: what a turn looks facts up in, from its first stage to its last.
#[derive(Clone, Debug, Default)]
pub struct Moment(Arc<KnowledgeState>);

impl Moment {
    /// Its name: the snapshot, and the offsets up to which changes were applied.
    pub fn state(&self) -> &KnowledgeState {
        &self.0
    }
}

/// The knowledge of one worker. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Knowledge {
    graph: Arc<Graph>,
    now: Rc<Moment>,
}

impl Knowledge {
    /// What a graph holds.
    pub fn new(graph: Arc<Graph>) -> Self {
        let state =
            KnowledgeState { snapshot: graph.version().to_owned(), offsets: BTreeMap::new() };
        Self { graph, now: Rc::new(Moment(Arc::new(state))) }
    }

    /// The latest moment. What begins now is to read it, and keep to it.
    pub fn now(&self) -> Moment {
        (*self.now).clone()
    }

    /// Looks things up as they were at a moment.
    pub fn at<T>(&self, _moment: &Moment, look: impl FnOnce(View<'_>) -> T) -> T {
        look(View::from(&*self.graph))
    }
}
