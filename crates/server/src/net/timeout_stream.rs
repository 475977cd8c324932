//! Stream with timeouts for its peer's first bytes and for writes.
//!
//! Two waits are bounded here: until a new connection has sent its first bytes (our own writes do not end
//! this wait, since an HTTP/2 server writes first), and while a write waits for the peer to read. Those of
//! HTTP/1, for the headers of requests and between requests, are in `turns`, which is notified here of reads
//! and writes. A peer that has vanished is detected by TCP keep-alive and, over HTTP/2, by pings.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::net::http1_timeouts::Turns;

/// Bytes that tell the protocols of one port apart: the preface of HTTP/2.
const OPENING_BYTES: usize = 24;

/// The stream.
pub(crate) struct Patient<S> {
    stream: S,
    /// Until the peer has opened: the deadline, and how many bytes it sent.
    opening: Option<(Pin<Box<Sleep>>, usize)>,
    /// While a write waits: its deadline.
    stalled: Option<Pin<Box<Sleep>>>,
    stall_time: Duration,
    /// True when only bytes of the peer end the opening.
    must_read: bool,
    /// Notified of bytes read and written.
    turns: Option<Arc<Turns>>,
}

impl<S> Patient<S> {
    /// Waits `opening_time` for the first bytes and `stall_time` for every write.
    pub(crate) fn new(stream: S, opening_time: Duration, stall_time: Duration) -> Self {
        let opening = Some((Box::pin(sleep(opening_time)), 0));
        Self { stream, opening, stalled: None, stall_time, must_read: false, turns: None }
    }

    /// As [`Patient::new`], for HTTP/2, whose server writes before its client has sent anything.
    pub(crate) fn http2(stream: S, opening_time: Duration, stall_time: Duration) -> Self {
        Self { must_read: true, ..Self::new(stream, opening_time, stall_time) }
    }

    /// Waits `stall_time` for every write; `turns` bounds reads.
    pub(crate) fn opened(stream: S, stall_time: Duration, turns: Arc<Turns>) -> Self {
        Self { stream, opening: None, stalled: None, stall_time, must_read: false, turns: Some(turns) }
    }

    /// Turns a wait that has lasted too long into an error.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            if !self.must_read {
                self.opening = None;
            }
            if let Some(turns) = &self.turns {
                turns.taken();
            }
            return written;
        }
        let stall_time = self.stall_time;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + stall_time)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(timed_out("the peer does not read its response"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        if let Some(turns) = self.turns.as_deref().filter(|_| out.filled().len() > before) {
            turns.heard();
        }
        let Some((patience, bytes)) = &mut self.opening else { return read };
        *bytes += out.filled().len() - before;
        if *bytes >= OPENING_BYTES {
            self.opening = None;
        } else if read.is_pending() && patience.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(timed_out("the peer sent no request in time")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if self.stalled.is_none() && flushed.is_ready() {
            return flushed; // an empty flush proves nothing about the peer
        }
        self.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const SHORT: Duration = Duration::from_secs(5);
    const LONG: Duration = Duration::from_secs(100);

    fn pair() -> (Patient<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64);
        (Patient::new(ours, SHORT, SHORT), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_at_the_beginning_ends() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"PRI").await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(ours.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(ours.read(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn m5_silent_http2_client_is_disconnected_although_the_server_wrote() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let mut ours = Patient::http2(ours, SHORT, SHORT);
        ours.write_all(b"SETTINGS").await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(ours.read(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn once_opened_a_peer_may_be_silent() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[b'x'; OPENING_BYTES]).await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(ours.read(&mut bytes).await.unwrap(), OPENING_BYTES);
        assert!(tokio::time::timeout(LONG, ours.read(&mut bytes)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn answered_short_request_counts_as_opened() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(ours.read(&mut bytes).await.unwrap(), 18);
        ours.write_all(b"ok").await.unwrap();
        assert!(tokio::time::timeout(LONG, ours.read(&mut bytes)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_reads_nothing_is_disconnected() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(&[0; 64]).await.unwrap();
        assert_eq!(ours.write(&[0; 64]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut ours, _theirs) = pair();
        let slow = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(SHORT / 2).await;
                let mut bytes = [0; 64];
                theirs.read_exact(&mut bytes).await.unwrap();
            }
        });
        drop(ours.write_all(&[0; 64]).await);
        slow.abort();
    }
}
