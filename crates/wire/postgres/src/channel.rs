//! Byte channel of one connection: complete messages in, read in place; replies out, in batches.
//!
//! A client may be silent between two messages. One deadline covers all bytes of a message. Memory is
//! reserved for the bytes that arrived, not for the announced length.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ropewalk_wire::{ConnectionMemory, Reservation, WireError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::frame::Out;

/// Read buffer: most requests fit.
const READ_BYTES: usize = 8 << 10;
/// Read buffer before login: messages of SCRAM fit. A client without credentials may hold many connections.
const LOGIN_READ_BYTES: usize = 512;
/// Most bytes that the buffer grows by at once.
const GROWTH_BYTES: usize = 64 << 10;
/// Tag and length.
const HEAD_BYTES: usize = 5;

/// Why a connection ends, with or without a message to its client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// An I/O error of the stream.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client stopped in the middle of a message.
    #[error("a message was not complete in time")]
    TooSlow,
    /// An impossible length.
    #[error("a message has the invalid length {0}")]
    Length(i64),
    /// No memory for a message.
    #[error(transparent)]
    Memory(#[from] WireError),
    /// The reason.
    #[error("{0}")]
    Said(String),
}

/// With or without TLS.
pub(crate) enum Stream<S> {
    Plain(S),
    Tls(Box<TlsStream<Rewound<S>>>),
}

/// A stream of which some bytes were read already: these are read again first.
pub(crate) struct Rewound<S> {
    /// The bytes that are left of these.
    first: Vec<u8>,
    stream: S,
}

impl<S> Rewound<S> {
    pub(crate) fn new(stream: S, first: &[u8]) -> Self {
        Self { first: first.to_vec(), stream }
    }
}

/// Position of a complete message in the channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    length: usize,
}

pub(crate) struct Channel<S> {
    stream: Stream<S>,
    /// Received bytes; those before `start` are consumed.
    bytes: Vec<u8>,
    start: usize,
    /// Least and most bytes that the buffer grows by at once.
    growth: (usize, usize),
    limits: Bounds,
    /// For the message that has begun.
    deadline: Option<Instant>,
    reservation: Reservation,
}

/// Limits of a channel.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) message_bytes_max: usize,
    /// Time for the rest of a message that has begun.
    pub(crate) patience: Duration,
    /// Memory of messages.
    pub(crate) memory: ConnectionMemory,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Channel<S> {
    pub(crate) fn new(stream: Stream<S>, limits: Bounds) -> Self {
        let reservation = limits.memory.reservation();
        let growth = (LOGIN_READ_BYTES, LOGIN_READ_BYTES);
        Self { stream, bytes: Vec::new(), start: 0, growth, limits, deadline: None, reservation }
    }

    /// Enlarges the read buffer for an authenticated client, whose messages have at most `message_bytes_max`.
    pub(crate) fn set_logged_in(&mut self, message_bytes_max: usize) {
        self.growth = (READ_BYTES, GROWTH_BYTES);
        self.limits.message_bytes_max = message_bytes_max;
    }

    fn ahead(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// The message at `offset` from the first unconsumed one, if it is complete.
    fn whole(&self, offset: usize) -> Result<Option<Frame>, Ended> {
        let Some(([tag, length @ ..], _)) =
            self.ahead().get(offset..).and_then(<[u8]>::split_first_chunk::<HEAD_BYTES>)
        else {
            return Ok(None);
        };
        let announced = i64::from(i32::from_be_bytes(*length));
        let body = usize::try_from(announced - 4).map_err(|_| Ended::Length(announced))?;
        if body > self.limits.message_bytes_max {
            return Err(Ended::Length(announced));
        }
        let length = HEAD_BYTES + body;
        Ok((self.ahead().len() >= offset + length).then_some(Frame { tag: *tag, length }))
    }

    /// The next message, once it is complete; `None` when the client disconnected between two. Cancel-safe.
    pub(crate) async fn message(&mut self) -> Result<Option<Frame>, Ended> {
        loop {
            if let Some(frame) = self.whole(0)? {
                return Ok(Some(frame));
            }
            let begun = !self.ahead().is_empty();
            let read = match begun {
                false => self.fill().await?,
                true => {
                    // Survives a cancelled call: one deadline covers all bytes of a message.
                    let patience = self.limits.patience;
                    let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + patience);
                    let read = tokio::time::timeout_at(deadline, self.fill()).await;
                    read.map_err(|_| Ended::TooSlow)??
                }
            };
            match (read, begun) {
                (true, _) => {}
                (false, false) => return Ok(None),
                (false, true) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
    }

    /// Reads available bytes, at least one; false at the end of the stream.
    async fn fill(&mut self) -> Result<bool, Ended> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let announced = match self.bytes.get(1..HEAD_BYTES).and_then(|length| length.first_chunk()) {
            Some(length) => usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0),
            None => 0,
        };
        let (least, most) = self.growth;
        let wanted = (announced + 1).saturating_sub(self.bytes.len()).clamp(least, most);
        self.reservation.cover(self.bytes.len()).await?;
        self.bytes.reserve(wanted);
        Ok(self.stream.read_buf(&mut self.bytes).await? > 0)
    }

    pub(crate) fn body(&self, frame: Frame) -> &[u8] {
        self.ahead().get(HEAD_BYTES..frame.length).unwrap_or_default()
    }

    /// The tag of the message after `frame`, if that is complete.
    pub(crate) fn following(&self, frame: Frame) -> Option<u8> {
        self.whole(frame.length).ok().flatten().map(|next| next.tag)
    }

    /// True when another complete message is buffered.
    pub(crate) fn has_more(&self) -> bool {
        matches!(self.whole(0), Ok(Some(_)))
    }

    /// Consumes the message.
    pub(crate) fn done(&mut self, frame: Frame) {
        self.start += frame.length;
        if self.start >= self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            self.bytes.shrink_to(READ_BYTES);
        }
        self.deadline = None;
        self.reservation.shrink_to(self.bytes.len() - self.start);
    }

    /// Sends the pending replies.
    pub(crate) async fn send(&mut self, out: &mut Out) -> Result<(), Ended> {
        if !out.is_empty() {
            self.stream.write_all(out.bytes()).await?;
            self.stream.flush().await?;
            out.sent();
        }
        Ok(())
    }

    /// Shuts the stream down; the client may be gone.
    pub(crate) async fn close(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, out),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, out),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, out);
        }
        let count = self.first.len().min(out.remaining());
        self.first.drain(..count).for_each(|byte| out.put_slice(&[byte]));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Awaits `work` for at most `patience`.
pub(crate) async fn in_time<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    tokio::time::timeout(patience, work).await.map_err(|_| Ended::TooSlow)?
}
