//! Writes files whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file under a temporary name beside it, and renames it when all is on disk. A reader
/// sees the whole file or none, and two writers do not disturb each other. Creates the folder.
///
/// # Errors
/// The folder cannot be created, or the file cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_whole_by(path, |file| file.write_all(bytes))
}

/// [`write_whole`], with the content that `write` writes.
pub(super) fn write_whole_by(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut std::fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder)?;
    let mut options = tempfile::Builder::new();
    options.prefix(".unfinished-");
    #[cfg(unix)]
    {
        // The user's mask decides who may read the file, as for any other file.
        use std::os::unix::fs::PermissionsExt;
        options.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = options.tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(1 << 16, file.as_file_mut());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
