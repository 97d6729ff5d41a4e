//! Reads a decoder from a GGUF file, or from a folder in the layout of transformers.

use std::collections::BTreeSet;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::gguf_file::{Content, Value as Entry};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::LocalConfig;
pub(crate) use super::adapter::ADAPTER_WEIGHTS;
use super::adapter::LowRankAdapter;
use super::constraint::Constraints;
use super::engine::Opened;
use super::ggml_tokenizer;
use super::network::DecoderNetwork;
use super::shape::DecoderShape;
use super::shape::config_json::ConfigJson;
use super::shape::metadata::Metadata;
use super::template::Template;
use super::vocabulary::{DecoderVocabulary, token_name};
use super::weights::{self, DecoderWeights};
use crate::ModelError;

/// Reads a model.
///
/// # Errors
/// A file is missing, damaged or unsupported.
pub(super) fn open(config: &LocalConfig) -> Result<Opened, ModelError> {
    let path = config.path.as_path();
    if path.is_dir() { open_folder(path, config) } else { open_gguf(path, config) }
}

/// Checks that the files exist and are supported, without reading the weights.
///
/// # Errors
/// As for [`open`].
pub(super) fn check(config: &LocalConfig) -> Result<(), ModelError> {
    let path = config.path.as_path();
    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |source| ModelError::Read { path, source }
    };
    if path.is_dir() {
        shape_of_folder(path)?;
        for file in weight_files(path)?.iter().chain([&path.join("tokenizer.json")]) {
            weights::open(file).map_err(cannot(file))?;
        }
        if let Some(adapter) = &config.adapter {
            LowRankAdapter::read(adapter).map_err(refused(adapter))?;
        }
    } else {
        no_adapter(config)?;
        let mut file = weights::open(path).map_err(cannot(path))?;
        let content = content(&mut file, path)?;
        let metadata = Metadata::new(&content.metadata).map_err(refused(path))?;
        metadata.shape(None).map_err(refused(path))?;
    }
    if let Some(file) = &config.chat_template {
        Template::new(Some(text(file)?)).map_err(refused(file))?;
    }
    Ok(())
}

/// Reads a model's network and vocabulary alone, for callers that do not chat with it.
///
/// # Errors
/// As for [`open`].
pub(crate) fn open_parts(
    config: &LocalConfig,
) -> Result<(DecoderNetwork, Arc<DecoderVocabulary>), ModelError> {
    open(config).map(|opened| (opened.network, opened.vocabulary))
}

/// As [`open_parts`], for a GGUF file in memory; error messages use `name`.
///
/// # Errors
/// The file is damaged or unsupported.
pub(crate) fn parts_of_gguf(
    bytes: &[u8],
    name: &str,
) -> Result<(DecoderNetwork, Arc<DecoderVocabulary>), ModelError> {
    let beside = Beside::default();
    read_gguf(&mut Cursor::new(bytes), Path::new(name), beside, &LocalConfig::default())
        .map(|opened| (opened.network, opened.vocabulary))
}

fn read_file(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let bytes = read_file(path)?;
    serde_json::from_slice(&bytes).map_err(|error| refused(path)(error.to_string()))
}

fn refused(path: &Path) -> impl Fn(String) -> ModelError + '_ {
    |reason| ModelError::Refused { path: path.to_owned(), reason }
}

/// Reads `config.json` and the shape that it describes.
fn shape_of_folder(folder: &Path) -> Result<(Value, DecoderShape), ModelError> {
    let at = folder.join("config.json");
    let given: Value = json(&at)?;
    let of_file: ConfigJson =
        serde_json::from_value(given.clone()).map_err(|error| refused(&at)(error.to_string()))?;
    Ok((given, of_file.shape().map_err(refused(&at))?))
}

/// Opens a folder with `config.json`.
fn open_folder(folder: &Path, config: &LocalConfig) -> Result<Opened, ModelError> {
    let (given, shape) = shape_of_folder(folder)?;
    let mut weights = DecoderWeights::none();
    let adapter = config.adapter.as_deref();
    let of_adapter = |error: String| refused(adapter.unwrap_or(folder))(error);
    let mut changes = adapter.map(LowRankAdapter::read).transpose().map_err(of_adapter)?;
    for file in weight_files(folder)? {
        let (bytes, changes) = (read_file(&file)?, changes.as_mut());
        let added = weights.add_safetensors(&bytes, shape.family, config.quantize, changes);
        added.map_err(refused(&file))?;
    }
    changes.map_or(Ok(()), LowRankAdapter::finish).map_err(of_adapter)?;
    // If input and output embeddings are tied, a second copy in the file is ignored.
    let tied = given.get("tie_word_embeddings").and_then(Value::as_bool);
    if tied.unwrap_or(shape.family.is_gemma()) {
        weights.find("output.weight");
    }
    let network = DecoderNetwork::take(weights, shape).map_err(refused(folder))?;
    let mut beside = Beside::read(folder)?;
    beside.ends.extend(numbers(given.get("eos_token_id")));
    let tokenizer = beside.tokenizer.take().ok_or_else(|| {
        refused(folder)("there is no tokenizer.json; put the model's into the folder".to_owned())
    })?;
    finish(network, tokenizer, beside, config)
}

/// The files of the weights: a single file, or those in the index.
fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let whole = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if whole.exists() || !index.exists() {
        return Ok(vec![whole]);
    }
    let index: Value = json(&index)?;
    let files = index.get("weight_map").and_then(Value::as_object);
    let files: BTreeSet<&str> =
        files.into_iter().flat_map(|map| map.values()).filter_map(Value::as_str).collect();
    Ok(files.into_iter().map(|file| folder.join(file)).collect())
}

/// Refuses an adapter over weights that are quantised already.
fn no_adapter(config: &LocalConfig) -> Result<(), ModelError> {
    let reason = "an adapter is added to weights in safetensors; merge it before the model is \
                  converted to GGUF, or name a folder with model.safetensors";
    let adapter = config.adapter.as_deref();
    adapter.map_or(Ok(()), |adapter| Err(refused(adapter)(reason.to_owned())))
}

/// Opens a GGUF file.
fn open_gguf(path: &Path, config: &LocalConfig) -> Result<Opened, ModelError> {
    no_adapter(config)?;
    let cannot = |source| ModelError::Read { path: path.to_owned(), source };
    let mut file = weights::open(path).map_err(cannot)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = Beside::read(folder.unwrap_or(Path::new(".")))?;
    read_gguf(&mut file, path, beside, config)
}

/// Reads the header and metadata of a GGUF file.
fn content(file: &mut (impl Read + Seek), path: &Path) -> Result<Content, ModelError> {
    Content::read(file).map_err(|error| {
        // The lines after the first are candle's backtrace.
        let said = error.to_string();
        let said = said.lines().next().unwrap_or_default();
        refused(path)(format!("it is not a readable GGUF file: {said}"))
    })
}

/// Reads a GGUF file's contents and the files beside it.
fn read_gguf(
    file: &mut (impl Read + Seek),
    path: &Path,
    mut beside: Beside,
    config: &LocalConfig,
) -> Result<Opened, ModelError> {
    let content = content(file, path)?;
    let mut weights = DecoderWeights::of_gguf(&content, file).map_err(refused(path))?;
    let metadata = Metadata::new(&content.metadata).map_err(refused(path))?;
    let factors = weights.find("rope_freqs.weight").map(|factors| weights::numbers(&factors));
    let factors = factors.transpose().map_err(|error| refused(path)(error.to_string()))?;
    let shape = metadata.shape(factors.as_deref()).map_err(refused(path))?;
    let network = DecoderNetwork::take(weights, shape).map_err(refused(path))?;

    let number = |key: &str| match content.metadata.get(&format!("tokenizer.ggml.{key}")) {
        Some(Entry::U32(number)) => Some(*number),
        _ => None,
    };
    let ends = ["eos_token_id", "eot_token_id", "eom_token_id"];
    beside.ends.extend(ends.into_iter().filter_map(number));
    let tokenizer = match beside.tokenizer.take() {
        Some(tokenizer) => tokenizer,
        None => ggml_tokenizer::build(&content.metadata).map_err(refused(path))?,
    };
    let name = |key: &str| number(key).and_then(|id| tokenizer.id_to_token(id));
    beside.begin = beside.begin.or_else(|| name("bos_token_id"));
    beside.end = beside.end.or_else(|| name("eos_token_id"));
    if let Some(Entry::String(template)) = content.metadata.get("tokenizer.chat_template") {
        beside.template.get_or_insert_with(|| template.clone());
    }
    finish(network, tokenizer, beside, config)
}

/// The files beside the weights.
#[derive(Default)]
struct Beside {
    tokenizer: Option<Tokenizer>,
    template: Option<String>,
    begin: Option<String>,
    end: Option<String>,
    ends: Vec<u32>,
}

impl Beside {
    fn read(folder: &Path) -> Result<Self, ModelError> {
        let mut beside = Self::default();
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        if let Some(path) = file("tokenizer.json") {
            let tokenizer = Tokenizer::from_bytes(read_file(&path)?);
            let tokenizer = tokenizer.map_err(|error| refused(&path)(error.to_string()))?;
            beside.tokenizer = Some(tokenizer);
        }
        if let Some(path) = file("tokenizer_config.json") {
            let config: Value = json(&path)?;
            let name = |key: &str| config.get(key).and_then(token_name).map(str::to_owned);
            beside.begin = name("bos_token");
            beside.end = name("eos_token");
            beside.template = template(config.get("chat_template"));
        }
        if let Some(path) = file("chat_template.jinja") {
            beside.template = Some(text(&path)?);
        }
        if let Some(path) = file("generation_config.json") {
            let config: Value = json(&path)?;
            beside.ends.extend(numbers(config.get("eos_token_id")));
        }
        Ok(beside)
    }
}

fn text(path: &Path) -> Result<String, ModelError> {
    String::from_utf8(read_file(path)?).map_err(|error| refused(path)(error.to_string()))
}

/// Returns the template, or of several the one named default.
fn template(given: Option<&Value>) -> Option<String> {
    match given? {
        Value::String(template) => Some(template.clone()),
        Value::Array(several) => {
            let named = |name: &str| {
                several.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name))
            };
            named("default").or(several.first())?.get("template")?.as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// Reads one number or a list of numbers.
fn numbers(given: Option<&Value>) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    match given {
        Some(Value::Array(several)) => several.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}

fn finish(
    network: DecoderNetwork,
    tokenizer: Tokenizer,
    mut beside: Beside,
    config: &LocalConfig,
) -> Result<Opened, ModelError> {
    let path = config.path.as_path();
    let device = config.products_on.open();
    let network = device.and_then(|device| match device {
        None => Ok(network),
        Some(device) => network.on(&device),
    });
    let network =
        network.map_err(|error| refused(path)(format!("the device of products_on: {error}")))?;
    beside.ends.extend(beside.end.as_ref().and_then(|end| tokenizer.token_to_id(end)));
    let vocabulary = DecoderVocabulary::new(tokenizer, network.vocabulary(), &beside.ends);
    let vocabulary =
        Arc::new(vocabulary.map_err(|reason| refused(path)(format!("the tokenizer: {reason}")))?);
    let (source, from) = match &config.chat_template {
        Some(file) => (Some(text(file)?), file.as_path()),
        None => (beside.template, path),
    };
    let mut template = Template::new(source).map_err(refused(from))?;
    template.begin = beside.begin.unwrap_or_default();
    template.end = beside.end.unwrap_or_default();
    template.thinks = config.thinking;
    let constraints =
        Constraints::new(&vocabulary, config.schema_bounds.clone()).map_err(refused(path))?;
    Ok(Opened { network, vocabulary, template, constraints })
}
