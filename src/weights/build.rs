//! Computes the digest of what ships, so that the program need not at each start.

use std::path::Path;

use sha2::{Digest as _, Sha256};

fn main() -> std::io::Result<()> {
    let mut digest = Sha256::new();
    let mut files = Vec::new();
    for folder in ["gate", "pack", "reader", "static_table", "unified"] {
        println!("cargo::rerun-if-changed={folder}");
        for entry in std::fs::read_dir(Path::new(folder))? {
            files.push(entry?.path());
        }
    }
    files.sort();
    // The pages beside the weights affect no response.
    files.retain(|file| file.extension().is_none_or(|of| of != "md"));
    for file in &files {
        digest.update(std::fs::read(file)?);
    }
    let digest: String =
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=TURNSTREAM_WEIGHTS_DIGEST={digest}");
    Ok(())
}
