//! Bounds the connections of the metrics server: their number, and the time of each.
//!
//! A connection holds a file descriptor of the process. An idle one would hold it forever, and
//! without descriptors the log cannot be reached. An answer takes milliseconds, so the oldest
//! connection is the one most likely to be idle. If all places are taken, the oldest is closed and
//! the new one is served.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};

/// Most connections at once.
pub(super) const MOST: usize = 64;

/// The longest time of a connection, from its accept to the last byte of the answer.
pub(super) const AT_MOST: Duration = Duration::from_secs(10);

/// Accepts connections.
pub(super) struct Connections {
    listener: TcpListener,
    most: usize,
    at_most: Duration,
    /// Dropping a sender ends its connection. Oldest first.
    open: VecDeque<oneshot::Sender<()>>,
}

impl Connections {
    /// At most `most` connections at once, at least 1, and each for `at_most`.
    pub(super) fn new(listener: TcpListener, most: usize, at_most: Duration) -> Self {
        Self { listener, most, at_most, open: VecDeque::new() }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    /// Waits and tries again if the process is out of descriptors, as axum does.
    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.listener).await;
        self.open.retain(|open| !open.is_closed());
        if self.open.len() >= self.most {
            self.open.pop_front();
        }
        let (open, end) = oneshot::channel();
        self.open.push_back(open);
        let end = Some(Box::pin(timeout(self.at_most, end)));
        (Connection { stream, end }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, until its time is over or another one takes its place.
pub(super) struct Connection {
    stream: TcpStream,
    /// Becomes ready when the connection must end; `None` from then on.
    end: Option<Pin<Box<Timeout<oneshot::Receiver<()>>>>>,
}

impl Connection {
    /// The stream, while it may be used.
    fn stream(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            self.end = None;
        }
        match self.end {
            Some(_) => Ok(Pin::new(&mut self.stream)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.stream(context) {
            Ok(stream) => stream.poll_read(context, buffer),
            Err(over) => Poll::Ready(Err(over)),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.stream(context) {
            Ok(stream) => stream.poll_write(context, bytes),
            Err(over) => Poll::Ready(Err(over)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as Client;

    use super::*;

    /// Serves 404 to the clients, with these bounds.
    fn serving(most: usize, at_most: Duration, clients: impl FnOnce(SocketAddr)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = std::thread::spawn(move || {
            runtime.block_on(async {
                let connections = Connections::new(listener, most, at_most);
                tokio::select! {
                    _ = axum::serve(connections, axum::Router::new()) => {}
                    _ = stopped => {}
                }
            });
        });
        clients(address);
        stop.send(()).unwrap();
        server.join().unwrap();
    }

    /// Reads until the server closes the connection.
    fn rest(client: &mut Client) -> String {
        let mut rest = Vec::new();
        // Closing with unread bytes resets the connection.
        let _ = client.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }

    #[test]
    fn a_half_sent_request_and_an_idle_connection_are_ended() {
        serving(8, Duration::from_millis(50), |address| {
            for sent in ["", "GET /metrics HTTP/1.1\r\nhost: "] {
                let mut client = Client::connect(address).unwrap();
                client.write_all(sent.as_bytes()).unwrap();
                assert_eq!(rest(&mut client), "", "{sent:?}");
            }
        });
    }

    #[test]
    fn the_oldest_connection_makes_room_for_the_newest() {
        serving(2, Duration::from_secs(3_600), |address| {
            let mut idle: Vec<Client> = (0..5).map(|_| Client::connect(address).unwrap()).collect();
            let mut newest = idle.pop().unwrap();
            for oldest in &mut idle[..3] {
                assert_eq!(rest(oldest), "", "it was ended, and nothing else would have");
            }
            newest.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
            assert!(rest(&mut newest).starts_with("HTTP/1.1 404"));
        });
    }
}
