//! `turnstream documents`: imports, lists, searches and deletes documents, and rebuilds their
//! index.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::reader::READER;

use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_sources::documents::record::{FoundFiles, read, sources};
use turnstream_sources::documents::{
    Change, Documents, DocumentsConfig, DocumentsError, Importer, Report,
};

/// `turnstream documents`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream documents import handbook/ faq.jsonl --out store
  turnstream documents search --dir store \"Is breakfast included?\"
  turnstream documents list --dir store
  turnstream documents delete --dir store faq-12 handbook/old.md

Then name the folder in the configuration: documents.directory = \"store\".")]
pub struct DocumentsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: DocumentsCommand,
}

impl DocumentsArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            DocumentsCommand::Import(args) => args.json,
            DocumentsCommand::List(args) => args.json,
            DocumentsCommand::Search(args) => args.json,
            DocumentsCommand::Delete(args) => args.json,
            DocumentsCommand::Reindex(args) => args.json,
        }
    }
}

/// The operations on documents.
#[derive(Clone, Debug, Subcommand)]
pub enum DocumentsCommand {
    /// Put documents into a store: JSON lines, Markdown and plain text
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(DocumentsImportArgs),
    /// Show which documents a store holds
    #[command(after_help = LIST_EXAMPLES)]
    List(DocumentsListArgs),
    /// Search the chunks of a store
    #[command(after_help = SEARCH_EXAMPLES)]
    Search(SearchArgs),
    /// Remove documents from a store
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(DocumentsDeleteArgs),
    /// Rebuild the index of words from the chunks
    #[command(after_help = REINDEX_EXAMPLES)]
    Reindex(ReindexArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  turnstream documents import faq.jsonl.gz --out store --json
  turnstream documents import handbook/ --out store --chunk-characters 500
  turnstream documents import handbook/ --out store --encoder minilm

A line of JSON is {\"id\", \"title\"?, \"text\", \"metadata\"?}, metadata flat. A .md, .html or
.txt file is one document, whose id is its path below the folder that is named. A document replaces
one with the same id. Bad lines are reported by file and number and left out.";

const SEARCH_EXAMPLES: &str = "\
Examples:
  turnstream documents search --dir store \"free parking\"
  turnstream documents search --dir store --named \"Is there parking at the Ashley Hotel?\"
  turnstream documents search --dir store --where language=en --where kind=faq parking --json";

const LIST_EXAMPLES: &str = "\
Examples:
  turnstream documents list --dir store
  turnstream documents list --dir store --limit 5 --json";

const DELETE_EXAMPLES: &str = "\
Examples:
  turnstream documents delete --dir store faq-12 handbook/old.md";

const REINDEX_EXAMPLES: &str = "\
Examples:
  turnstream documents reindex --dir store";

/// Defaults of `documents import`.
/// The most files that are named when they are left out.
const NAMED_FILES: usize = 20;
// The reader takes 160 tokens of a text.
const CHUNK_CHARACTERS: u32 = 600;
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
const MAP_SIZE_MIB: u32 = 16 * 1024;

/// `documents import`
#[derive(Clone, Debug, clap::Args)]
pub struct DocumentsImportArgs {
    /// Files, or folders with files, to import
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Folder of the store; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Most characters of a chunk; a Chinese one counts as four
    #[arg(long, default_value_t = CHUNK_CHARACTERS, value_name = "N",
          value_parser = clap::value_parser!(u32).range(20..=100_000))]
    chunk_characters: u32,
    /// Most bytes of a document
    #[arg(long, default_value_t = MAX_DOCUMENT_BYTES, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    max_document_bytes: u64,
    /// Largest size of the store, in MiB; only address space is taken in advance
    #[arg(long, default_value_t = MAP_SIZE_MIB, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    map_size_mib: u32,
    /// Encoder of the chunks, for search by meaning: the reader inside the program (English), a
    /// model as `turnstream models list` names it, its folder, or the file of a static table, which
    /// an engine then needs as models.embedder; `none` for search by words alone
    #[arg(long, default_value = READER, value_name = "ENCODER")]
    encoder: String,
    /// The configuration, of which [models] is read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `documents list`
#[derive(Clone, Debug, clap::Args)]
pub struct DocumentsListArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Most documents shown
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `documents search`
#[derive(Clone, Debug, clap::Args)]
pub struct SearchArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Text to search for
    #[arg(value_name = "TEXT")]
    text: String,
    /// Only in documents with this metadata; may be repeated, and then all must match
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = key_value)]
    wanted: Vec<(String, String)>,
    /// Only in this document; may be repeated
    #[arg(long = "document", value_name = "ID")]
    documents: Vec<String>,
    /// Only in documents whose titles the text names, if it names any
    #[arg(long, conflicts_with_all = ["wanted", "documents"])]
    named: bool,
    /// Most chunks shown
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    limit: u32,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `documents delete`
#[derive(Clone, Debug, clap::Args)]
pub struct DocumentsDeleteArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Ids of documents
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `documents reindex`
#[derive(Clone, Debug, clap::Args)]
pub struct ReindexArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs a command; results go to `out`, progress to standard error.
///
/// # Errors
/// A file cannot be read, or the store cannot be read or written; the message names it and the
/// remedy.
pub fn execute(args: &DocumentsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        DocumentsCommand::Import(args) => import(args, out),
        DocumentsCommand::List(args) => list(args, out),
        DocumentsCommand::Search(args) => search(args, out),
        DocumentsCommand::Delete(args) => {
            let changes: Vec<Change> = args.ids.iter().cloned().map(Change::Delete).collect();
            change(&args.dir, changes, args.json, out)
        }
        DocumentsCommand::Reindex(args) => change(&args.dir, Vec::new(), args.json, out),
    }
}

/// Imports a folder of pages into a store with the defaults of the command.
///
/// # Errors
/// A page cannot be read, or the store cannot be written.
pub fn import_pages(pages: &std::path::Path, store: &std::path::Path) -> anyhow::Result<()> {
    let args = DocumentsImportArgs {
        paths: vec![pages.to_owned()],
        out: store.to_owned(),
        chunk_characters: CHUNK_CHARACTERS,
        max_document_bytes: MAX_DOCUMENT_BYTES,
        map_size_mib: MAP_SIZE_MIB,
        encoder: READER.to_owned(),
        config: None,
        json: false,
    };
    import(&args, &mut std::io::sink())
}

fn import(args: &DocumentsImportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let FoundFiles { files, skipped } = sources(&args.paths)?;
    if !skipped.is_empty() {
        let names = skipped.iter().take(NAMED_FILES).map(|file| file.display().to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        let message =
            "files are not documents and are left out; export them as HTML, Markdown or text";
        tracing::warn!(files = skipped.len(), "{message}: {names}");
    }
    if files.is_empty() {
        let remedy = "name files, or folders with .jsonl, .md, .html or .txt files";
        return Err(InputRefused::new("there is nothing to import", remedy).into());
    }
    let config = DocumentsConfig { map_size_mib: args.map_size_mib as usize, ..Default::default() };
    let models = load_config(args.config.as_deref())?.value.models;
    let wanted = Some(args.encoder.as_str()).filter(|name| *name != "none");
    let encoder = wanted.map(|name| models.named(name)).transpose()?;
    let encoder = encoder.as_ref().map(|(_, encoder)| &**encoder);
    let importer = Importer::open(&args.out, &config, args.chunk_characters as usize, encoder)?;
    let progress = Progress::start("documents");
    let report = importer.run(|change| {
        for source in &files {
            read(source, args.max_document_bytes, &mut |document| {
                progress.advance();
                change(document.map_or_else(Change::Bad, Change::Put))
            })?;
        }
        Ok(())
    });
    progress.finish();
    let report = report?;
    tell_bad_lines(&report);
    if report.documents == 0 {
        let remedy = "a line of JSON is {\"id\", \"title\"?, \"text\", \"metadata\"?}";
        let message = format!("no documents; {} bad", report.bad);
        return Err(InputRefused::new(message, remedy).into());
    }
    print(&report, args.json, out)
}

/// Changes an existing store.
fn change(
    dir: &std::path::Path,
    changes: Vec<Change>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if !dir.join("data.mdb").is_file() {
        return Err(DocumentsError::Missing { folder: dir.to_owned() }.into());
    }
    let importer = Importer::open(dir, &DocumentsConfig::default(), 1, None)?;
    let report = importer.run(|change| changes.into_iter().try_for_each(change))?;
    print(&report, json, out)
}

fn tell_bad_lines(report: &Report) {
    for bad in &report.bad_lines {
        eprintln!("{}:{}: {}", bad.file, bad.line, bad.reason);
    }
    let untold = report.bad - report.bad_lines.len() as u64;
    if untold > 0 {
        eprintln!("and {untold} more bad lines");
    }
}

fn print(report: &Report, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        print_json(out, report)?;
        return Ok(());
    }
    let Report { added, updated, unchanged, deleted, missing, bad, .. } = report;
    writeln!(
        out,
        "{added} added, {updated} updated, {unchanged} unchanged, {deleted} deleted, \
         {missing} not there, {bad} bad"
    )?;
    writeln!(out, "{} documents, {} chunks", report.documents, report.chunks)?;
    Ok(())
}

fn list(args: &DocumentsListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let documents = Documents::open(&args.dir, &DocumentsConfig::default())?;
    let listed = documents.list(args.limit)?;
    let extent = documents.extent();
    if args.json {
        let listed = json!({ "documents": extent.documents, "chunks": extent.chunks,
                             "encoder": extent.encoder, "listed": listed });
        print_json(out, &listed)?;
        return Ok(());
    }
    for document in &listed {
        writeln!(out, "{}\t{}\t{} chunks", document.id, document.title, document.chunks)?;
    }
    writeln!(out, "{} documents, {} chunks", extent.documents, extent.chunks)?;
    Ok(())
}

fn search(args: &SearchArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.text.trim().is_empty() {
        return Err(Usage::new("there is nothing to search for", "give a text").into());
    }
    let documents = Documents::open(&args.dir, &DocumentsConfig::default())?;
    let named = args.named.then(|| documents.named_in(&args.text));
    let filtered = !args.wanted.is_empty() || !args.documents.is_empty();
    let within = match named {
        Some(named) => Some(named).filter(|named| !named.is_empty()),
        None if filtered => Some(documents.select(&args.wanted, &args.documents)?),
        None => None,
    };
    let found = documents.by_words(&args.text, within.as_deref(), args.limit as usize)?;
    let mut shown = Vec::new();
    for found in found {
        let Some(chunk) = documents.chunk(found.chunk)? else { continue };
        if args.json {
            shown.push(json!({ "id": chunk.id, "document": chunk.document, "title": chunk.title,
                               "chunk": chunk.ordinal, "score": found.score,
                               "text": &*chunk.text }));
        } else {
            let text = chunk.text.split_whitespace().collect::<Vec<_>>().join(" ");
            writeln!(out, "{:.3}\t{}\t{}\t{text}", found.score, chunk.id, chunk.title)?;
        }
    }
    if args.json {
        print_json(out, &json!({ "found": shown }))?;
    }
    Ok(())
}
