//! The two parts of an error message: the problem and the remedy.

/// Splits an error message at its last semicolon into the problem and the remedy. The remedy is
/// empty if there is none.
pub fn parted(message: &str) -> (String, String) {
    let (message, remedy) = message.rsplit_once("; ").unwrap_or((message, ""));
    (message.to_owned(), remedy.to_owned())
}
