//! Messages of errors: what is wrong, and what to do about it.

/// A message of an error, which ends in what to do about it behind its last semicolon, in these two
/// parts; the second is empty where there is none.
pub fn parted(message: &str) -> (String, String) {
    let (message, remedy) = message.rsplit_once("; ").unwrap_or((message, ""));
    (message.to_owned(), remedy.to_owned())
}
