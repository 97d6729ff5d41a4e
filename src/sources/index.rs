//! Vector indexes behind the port of `turnstream_ports::index`: an exact scan for small sets, which
//! is also the test oracle, and arroy's trees for large sets. `benches/README.md` shows the size
//! from which the trees are faster.

pub mod arroy;
pub mod scan;

pub use arroy::{TreeConfig, Trees, TreesWriter};
pub use scan::Scan;

/// Whether a vector is zero, which means that the encoder knows no word of the text. Such a vector
/// has no direction, so no index stores one.
pub fn is_zero(vector: &[f32]) -> bool {
    vector.iter().all(|number| *number == 0.0)
}
