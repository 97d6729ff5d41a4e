//! The cache folder: for what can be made again, the compiled knowledge above all.
//!
//! Where it cannot be written to (a root file system that is read-only, a folder that is somebody
//! else's), what lies in it is still read, and what is made goes into a spare folder among the
//! system's temporary files, so that it is made once and not at every start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use etcetera::BaseStrategy;

/// Names the cache folder; without it that is turnstream's folder in the user's.
pub const CACHE_VARIABLE: &str = "TURNSTREAM_CACHE";

/// `$TURNSTREAM_CACHE`, else `turnstream` in the user's cache folder. It may not be there, and
/// need not be writable.
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os(CACHE_VARIABLE) {
        Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder)),
        _ => Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("turnstream")),
    }
}

/// The cache folder where it can be written to, else the spare one; made where it is missing. The
/// first time in a process that it is not the cache folder, that is told. `None` where nothing can
/// be written to.
pub fn writable_folder() -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    let own = cache_folder();
    let refused = match &own {
        None => "there is no cache folder".to_owned(),
        Some(folder) => match std::fs::create_dir_all(folder).and_then(|()| write_in(folder)) {
            Ok(_) => return own,
            Err(error) => {
                format!("the cache folder {} cannot be written to ({error})", folder.display())
            }
        },
    };
    let spare = spare_folder();
    let remedy = format!("set {CACHE_VARIABLE} to a folder that can be written to");
    TOLD.call_once(|| match &spare {
        Ok(spare) => tracing::warn!("{refused}, and {} is used; {remedy}", spare.display()),
        Err(error) => tracing::warn!(
            "{refused}, nor is there room among temporary files ({error}), so the knowledge is \
             compiled in memory at every start; {remedy}"
        ),
    });
    spare.ok()
}

/// Who owns the files that this process makes in a folder.
fn write_in(folder: &Path) -> io::Result<u32> {
    Ok(tempfile::tempfile_in(folder)?.metadata()?.uid())
}

/// A folder of this user's among the system's temporary files, which nobody else can write to:
/// what lies there is mapped into memory.
fn spare_folder() -> io::Result<PathBuf> {
    let among = std::env::temp_dir();
    let user = write_in(&among)?;
    let folder = among.join(format!("turnstream-{user}"));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let said = format!("{} is not a folder of ours alone", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    write_in(&folder)?;
    Ok(folder)
}
