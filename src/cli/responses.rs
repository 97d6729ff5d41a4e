//! Files of responses, as `turnstream replay --out` writes them: one record a line, plain or gzip.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use turnstream_console::InputRefused;
use turnstream_schemas::Response;

/// Passes on every response of a file, or of standard input for `-`, with its line, from 1. Skips
/// blank lines.
///
/// # Errors
/// The file cannot be read, or a line is not a response.
pub(crate) fn each_response(
    path: &Path,
    mut take: impl FnMut(u64, Response),
) -> Result<(), InputRefused> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".into() } else { path.display().to_string() };
    let lines: Box<dyn BufRead> = if is_input {
        Box::new(std::io::stdin().lock())
    } else {
        let file =
            File::open(path).map_err(|error| InputRefused::new(format!("{name}: {error}"), ""))?;
        let file = BufReader::new(file);
        match path.extension() {
            Some(gz) if gz == "gz" => Box::new(BufReader::new(MultiGzDecoder::new(file))),
            _ => Box::new(file),
        }
    };
    for (line, at) in lines.lines().zip(1..) {
        let refused = |error: String| {
            let remedy = "responses are what `turnstream replay --out` writes, one a line";
            InputRefused::new(format!("{name}, line {at}: {error}"), remedy)
        };
        let line = line.map_err(|error| refused(error.to_string()))?;
        if !line.trim().is_empty() {
            take(at, serde_json::from_str(&line).map_err(|error| refused(error.to_string()))?);
        }
    }
    Ok(())
}
