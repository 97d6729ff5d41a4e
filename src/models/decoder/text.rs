//! Collects an answer's text while its tokens arrive. Stop strings cut it. A listener receives the
//! part that is valid UTF-8 and that no stop string can take back.

use turnstream_ports::model::Listener;

/// The text so far.
#[derive(Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Bytes that the listener received.
    told: usize,
    listener: Option<Listener>,
    stops: Vec<String>,
    /// Whether a leading space is dropped.
    strips_space: bool,
}

impl Text {
    pub(super) fn new(listener: Option<Listener>, stops: &[String], strips_space: bool) -> Self {
        Self { bytes: Vec::new(), told: 0, listener, stops: stops.to_vec(), strips_space }
    }

    /// Adds a token's bytes, and returns whether a stop string ended the text. The stop string is
    /// removed.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let bytes = match bytes {
            [b' ', rest @ ..] if self.strips_space && self.bytes.is_empty() => {
                self.strips_space = false;
                rest
            }
            bytes => bytes,
        };
        // A stop string may have begun in an earlier token.
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.bytes.len().saturating_sub(longest);
        self.bytes.extend_from_slice(bytes);
        let recent = &self.bytes[from..];
        let found = self.stops.iter().filter_map(|stop| find(recent, stop.as_bytes())).min();
        if let Some(at) = found {
            self.bytes.truncate(from + at);
            return true;
        }
        self.tell(self.certain());
        false
    }

    /// Returns the whole text, with U+FFFD for invalid bytes.
    pub(super) fn finish(mut self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        self.bytes = text.clone().into_bytes();
        self.tell(self.bytes.len());
        text
    }

    /// The number of bytes that are whole characters and not a beginning of a stop string.
    fn certain(&self) -> usize {
        let stopping = self.stops.iter().map(|stop| unfinished(&self.bytes, stop.as_bytes()));
        let free = self.bytes.len() - stopping.max().unwrap_or(0);
        let untold = &self.bytes[self.told.min(free)..free];
        let valid = match std::str::from_utf8(untold) {
            Ok(_) => untold.len(),
            Err(error) => error.valid_up_to(),
        };
        self.told.min(free) + valid
    }

    fn tell(&mut self, end: usize) {
        if end <= self.told {
            return;
        }
        self.told = end;
        if let (Some(listener), Ok(text)) =
            (&self.listener, std::str::from_utf8(&self.bytes[..end]))
        {
            (listener.0)(text);
        }
    }
}

/// Finds the first occurrence of `wanted`.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len().max(1)).position(|window| window == wanted)
}

/// The number of bytes at the end of `text` that begin `wanted`.
fn unfinished(text: &[u8], wanted: &[u8]) -> usize {
    let most = wanted.len().saturating_sub(1).min(text.len());
    (1..=most).rev().find(|length| text.ends_with(&wanted[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Returns what a listener receives, and the final text.
    fn told(stops: &[&str], pieces: &[&[u8]]) -> (Vec<String>, String) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let listener =
            Listener(Arc::new(move |so_far: &str| tell.lock().unwrap().push(so_far.into())));
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut text = Text::new(Some(listener), &stops, true);
        for piece in pieces {
            if text.push(piece) {
                break;
            }
        }
        let text = text.finish();
        let told = told.lock().unwrap().clone();
        assert_eq!(told.last(), Some(&text));
        (told, text)
    }

    #[test]
    fn characters_are_told_whole_and_the_first_space_is_left_out() {
        let (heard, text) = told(&[], &[b" na", &[0xC3], &[0xAF], b"ve", &[0xE2, 0x82]]);
        assert_eq!(heard, ["na", "naï", "naïve", "naïve\u{FFFD}"]);
        assert_eq!(text, "naïve\u{FFFD}");
    }

    #[test]
    fn a_stop_string_ends_the_text_and_nothing_of_it_is_told() {
        let (heard, text) =
            told(&["\nUser:", "END"], &[b"Hi", b"\nUs", b"er", b"s\nUser", b": no"]);
        assert_eq!(text, "Hi\nUsers");
        assert_eq!(heard, ["Hi", "Hi\nUsers"]);
        assert_eq!(told(&["END"], &[b"a E", b"N"]).1, "a EN");
        assert_eq!(told(&["b", "ab"], &[b"xa", b"b"]).1, "x");
    }
}
