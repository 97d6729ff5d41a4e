//! Standard output, with a way to tell a reader that stopped from a failure.

use std::io::{self, Write};

use serde::Serialize;

/// The reader closed standard output, as in `turnstream … | head`.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
struct Closed;

/// Standard output. Writing after the reader closed it returns an error that [`is_closed`]
/// recognises in any wrapper.
pub fn stdout() -> impl Write + Send {
    Marked(io::stdout())
}

/// Whether the error means only that the reader closed standard output.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<Closed>()) || cause.is::<Closed>()
    })
}

/// Writes one JSON object on one line.
///
/// # Errors
/// `out` cannot be written to.
pub fn print_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Marks broken pipes of one writer, so that those of sockets and files remain failures.
struct Marked<W>(W);

impl<W: Write> Write for Marked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark)
    }
}

fn mark(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, Closed),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    struct Pipe(io::ErrorKind);

    impl Write for Pipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_standard_output_closes_quietly() {
        let wrapped = |error: io::Result<()>| error.context("printing").expect_err("refused");
        let closed = print_json(&mut Marked(Pipe(io::ErrorKind::BrokenPipe)), &1);
        assert!(is_closed(&wrapped(closed)));
        let full = print_json(&mut Marked(Pipe(io::ErrorKind::StorageFull)), &1);
        assert!(!is_closed(&wrapped(full)));
        let socket = print_json(&mut Pipe(io::ErrorKind::BrokenPipe), &1);
        assert!(!is_closed(&wrapped(socket)));
    }
}
