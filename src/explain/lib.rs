//! One response and everything that led to it, as a tree for a person to read. Knows records only,
//! not where they come from: [`tree`] makes the tree of a [`Response`](turnstream_schemas::Response),
//! and [`Tree::render`] writes it, for a width and with or without colours.
//!
//! [`Page`] and [`Text`] are how words are put on a page; the demo uses them as well.

mod asked;
mod page;
mod path;
mod spoken;
mod tree;
mod wording;

pub use asked::{Asked, Fits};
pub use page::{Ink, Page, Text, before_last_word, terminal_width, wrapped};
pub use path::{Shown, tree};
pub use spoken::Spoken;
pub use tree::Tree;
pub use wording::{confidence_kind, recorded_because, revision_kind};
