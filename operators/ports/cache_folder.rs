//! The cache folder. It holds files that can be made again, above all the compiled knowledge.
//!
//! If the folder cannot be written to (a read-only root file system, a folder of another user), its
//! files are still read. New files go to a spare folder among the system's temporary files, so that
//! they are made once and not at every start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use etcetera::BaseStrategy;

/// The variable that names the cache folder. The default is turnstream's folder in the user's cache
/// folder.
pub const CACHE_VARIABLE: &str = "TURNSTREAM_CACHE";

/// Returns `$TURNSTREAM_CACHE`, else `turnstream` in the user's cache folder. The folder may be
/// missing or not writable.
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os(CACHE_VARIABLE) {
        Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder)),
        _ => Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("turnstream")),
    }
}

/// Returns the cache folder if it is writable, else the spare folder, and creates it if it is
/// missing. A process warns once if it uses the spare folder. `None` if neither is writable.
pub fn writable_folder() -> Option<PathBuf> {
    static WARNED: Once = Once::new();
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
    WARNED.call_once(|| match &spare {
        Ok(spare) => tracing::warn!("{refused}; using {} instead; {remedy}", spare.display()),
        Err(error) => tracing::warn!(
            "{refused}, and no temporary folder can be used instead ({error}), so every start \
             compiles the knowledge in memory; {remedy}"
        ),
    });
    spare.ok()
}

/// Returns the owner of the files that this process creates in a folder.
fn write_in(folder: &Path) -> io::Result<u32> {
    Ok(tempfile::tempfile_in(folder)?.metadata()?.uid())
}

/// Creates a folder of this user among the system's temporary files. Its files are mapped into
/// memory, so no other user may be able to write to it.
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
        let said = format!("{} is not a folder that only this user can write to", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    write_in(&folder)?;
    Ok(folder)
}
