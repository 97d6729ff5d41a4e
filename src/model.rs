//! Models behind the ports of `turnstream_operators::model`: where they come from and how they
//! are run. The operators know none of this.

pub mod distil;
pub mod encoder;
pub mod static_table;
