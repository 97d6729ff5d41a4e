//! Holds what ships inside the program: weights and knowledge, as bytes with their digest.
//!
//! They have a crate of their own, so that compiling the crates that read them does not compile
//! them again. The README beside each says what it was made from, how, and under which licence.

/// The gate for English (RAGate's attention encoder), as `turnstream train gate` wrote it.
pub const GATE: &[u8] = include_bytes!("gate/gate-en.safetensors.zst");

/// The static table of word-piece vectors for English, as `turnstream models distil` wrote it.
pub const STATIC_TABLE: &[u8] = include_bytes!("static_table/static-en.safetensors.zst");

/// The reader for English (vectors, and which sentence answers), as `deploy/training/train export-reader`
/// wrote it.
pub const READER: &[u8] = include_bytes!("reader/reader-en.safetensors.zst");

/// What is chosen on development data about the reader, as `answers.calibration` of `deploy/training`
/// wrote it.
pub const READER_CALIBRATION: &str = include_str!("reader/calibration-en.json");

/// The reader for Chinese, made likewise.
pub const CHINESE_READER: &[u8] = include_bytes!("reader/reader-zh.safetensors.zst");

/// What is chosen about it.
pub const CHINESE_READER_CALIBRATION: &str = include_str!("reader/calibration-zh.json");

/// The unified model for English, as `deploy/training/train export` wrote it.
pub const UNIFIED: &[u8] = include_bytes!("unified/reader-en.gguf");

/// The English pack of ConceptNet, as `turnstream knowledge pack` wrote it.
pub const PACK: &[u8] = include_bytes!("pack/conceptnet-en.tsv.zst");

/// The digest of all of them together: the first 16 hexadecimal digits of SHA-256.
pub const DIGEST: &str = env!("TURNSTREAM_WEIGHTS_DIGEST");
