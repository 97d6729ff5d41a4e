//! Shows one response and everything that led to it, as a tree for a person to read. The crate
//! depends on records, not on their origin: [`tree`] makes the tree of a
//! [`Response`](turnstream_schemas::Response), and [`Tree::render`] writes it for a given width,
//! with or without colours.
//!
//! [`Page`] and [`Text`] lay out words on a page; the demo uses them too.

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
