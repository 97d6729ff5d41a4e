//! Vector indexes behind the port of `turnstream_ports::index`: the exact scan for small sets
//! and as the oracle, arroy's trees for large ones. `benches/README.md` has where the one
//! overtakes the other.

pub mod arroy;
pub mod scan;

pub use arroy::{TreeConfig, Trees, TreesWriter};
pub use scan::Scan;

/// Whether a vector says nothing: its text held nothing that the encoder knows. Such a vector has
/// no direction and is like nothing, so no index holds one.
pub fn is_zero(vector: &[f32]) -> bool {
    vector.iter().all(|number| *number == 0.0)
}
