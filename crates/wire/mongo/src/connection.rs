//! The life of one client connection: one request and its reply at a time.
//!
//! ```text
//! header ─▶ size allowed? ─▶ the rest of it, memory as it arrives, one deadline ─▶ command ─▶ answer ─▶ header …
//!                                                                        └─▶ hello that waits, many times over
//! ```
//! An authenticated client may be silent between two messages; any other is disconnected after a minute.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ropewalk::documents::lang::{LangError, Writer};
use ropewalk_wire::{ConnectionMemory, Reservation, WireError};
use tokio::io::{
    AsyncBufRead as _, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};

use crate::call::client::{Client, Line};
use crate::command;
use crate::crud::read;
use crate::protocol::failure::Failure;
use crate::protocol::frame::{COMPRESSED_BYTES, FrameError, HEADER_BYTES, Header, Request};
use crate::server::hello;
use crate::state::Shared;

/// Read buffer: most requests fit.
const READ_BYTES: usize = 8 << 10;
/// The same before login. A client without credentials may hold many connections.
const LOGIN_READ_BYTES: usize = 512;
/// Most bytes that a message's buffer grows by at once.
const GROWTH_BYTES: usize = 64 << 10;
/// Least bytes that it grows by at once before login.
const LOGIN_GROWTH_BYTES: usize = 1 << 10;
/// Largest message of a client that must still log in.
const LOGIN_BYTES_MAX: usize = 64 << 10;
/// Longest silence of such a client. Drivers' monitors never log in and say hello every 10 s.
const LOGIN_SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often a long command checks whether its client is still connected: one system call at most.
const LOOK: Duration = Duration::from_millis(100);

/// Why a connection ended with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// An I/O error of the stream.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The client stopped in the middle of a message.
    #[error("a message was not complete in time")]
    TooSlow,
    /// No memory for a message.
    #[error(transparent)]
    Memory(#[from] WireError),
    /// A large message before login.
    #[error("a message of {0} bytes before login; at most {LOGIN_BYTES_MAX} are allowed")]
    LoginSize(usize),
}

/// A client with its stream.
struct Conversation<'s, S> {
    shared: &'s Shared,
    stream: BufReader<S>,
    client: Client,
    /// Id of the last reply.
    replies: i32,
    /// Memory of messages.
    memory: ConnectionMemory,
}

/// True while the connection stays open.
type StaysOpen = bool;

/// Serves one client until it disconnects or the server stops.
///
/// A client without login costs no more memory than its messages. The futures of commands are much larger;
/// they are allocated for each command before login, and once for all commands after it.
pub(crate) async fn serve<S>(
    shared: &Shared,
    id: i32,
    stream: S,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let peer_text = peer.map_or_else(|| "local".to_owned(), |peer| peer.to_string());
    let mut conversation = Conversation {
        shared,
        stream: BufReader::with_capacity(LOGIN_READ_BYTES, stream),
        client: Client {
            connection: id,
            seat: shared.operations.enter(id, &peer_text),
            peer: peer.map(|peer| peer.ip()),
            peer_text,
            local: local.map(|local| local.to_string()),
            caller: None,
            seen: 0,
            login: None,
            logged_in: false,
            application: None,
            answered_again: AtomicBool::new(false),
            compressors: Vec::new(),
        },
        replies: 0,
        memory: shared.service.request_memory().connection(),
    };
    loop {
        let stays_open = {
            let Some((request, _reservation)) = conversation.next().await? else { return Ok(()) };
            match hello::pause(shared, &request) {
                Some(pause) => conversation.answer_later(&request, pause).await?,
                None => Box::pin(conversation.answer(&request)).await?,
            }
        };
        if !stays_open {
            return Ok(());
        }
        // Buffered bytes cannot move to another reader.
        if !conversation.must_log_in() && conversation.stream.buffer().is_empty() {
            return Box::pin(conversation.go_on()).await;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Conversation<'_, S> {
    fn must_log_in(&self) -> bool {
        !self.client.logged_in && !self.shared.service.access().admits_anonymous()
    }

    /// Serves a client that needs no login any more.
    async fn go_on(self) -> Result<(), Ended> {
        let stream = BufReader::with_capacity(READ_BYTES, self.stream.into_inner());
        let mut conversation = Self { stream, ..self };
        while let Some((request, _reservation)) = conversation.next().await? {
            let stays_open = match hello::pause(conversation.shared, &request) {
                Some(pause) => conversation.answer_later(&request, pause).await?,
                None => conversation.answer(&request).await?,
            };
            if !stays_open {
                break;
            }
        }
        Ok(())
    }

    /// Receives the next request with the reservation of its memory; `None` when the client disconnected or
    /// the server stops.
    async fn next(&mut self) -> Result<Option<(Request, Reservation)>, Ended> {
        let shared = self.shared;
        loop {
            let must_log_in = self.must_log_in();
            let silence_max = if must_log_in { LOGIN_SILENCE_MAX } else { Duration::MAX };
            // Shutdown does not wait for an idle client.
            let begun = tokio::select! {
                begun = tokio::time::timeout(silence_max, self.stream.fill_buf()) => {
                    !begun.map_err(|_| Ended::TooSlow)??.is_empty()
                }
                () = shared.service.stop().wait() => false,
            };
            if !begun {
                return Ok(None);
            }
            let mut reservation = self.memory.reservation();
            let request = next_message(shared, &mut self.stream, must_log_in, &mut reservation).await?;
            match request {
                Ok(request) => return Ok(Some((request, reservation))),
                Err((header, error)) => {
                    let mut out = Writer::new();
                    Failure::from(error).put(&mut out);
                    self.replies = self.replies.wrapping_add(1);
                    self.send(&header.reply(self.replies, &out.finish())).await?;
                }
            }
        }
    }

    async fn send(&mut self, reply: &[u8]) -> Result<(), Ended> {
        self.stream.write_all(reply).await?;
        Ok(self.stream.flush().await?)
    }

    /// Replies to an awaitable hello. The reply comes when the topology changes, the client's wait time ends, or the
    /// server stops.
    async fn answer_later(&mut self, request: &Request, pause: Duration) -> Result<StaysOpen, Ended> {
        let mut to = request.id;
        loop {
            let seen = self.shared.topology_version();
            tokio::select! {
                () = Box::pin(hello::wait_for_change(self.shared, seen, pause)) => {}
                () = self.shared.service.stop().wait() => return Ok(false),
                // The client has disconnected, or sent another message.
                gone = self.stream.fill_buf() => return Ok(!gone?.is_empty()),
            }
            let line = Wire::new(&mut self.stream);
            // Boxed, because most of the time is spent in waiting.
            let reply = Box::pin(command::run(self.shared, &mut self.client, request, &line)).await;
            let Some(reply) = reply else { return Ok(false) };
            self.replies = self.replies.wrapping_add(1);
            let more = request.exhaust_allowed;
            self.send(&request.reply_to(to, self.replies, &reply, more)).await?;
            if !more {
                return Ok(true);
            }
            to = self.replies;
        }
    }

    /// Replies to a request.
    async fn answer(&mut self, request: &Request) -> Result<StaysOpen, Ended> {
        let mut to = request.id;
        loop {
            let line = Wire::new(&mut self.stream);
            let reply = command::run(self.shared, &mut self.client, request, &line).await;
            let Some(reply) = reply else { return Ok(false) };
            if request.more_to_come {
                return Ok(true);
            }
            self.replies = self.replies.wrapping_add(1);
            // If the client allows exhaust, the batches of a cursor are sent without further requests.
            let more = request.exhaust_allowed && read::goes_on(request, &reply);
            self.send(&request.reply_to(to, self.replies, &reply, more)).await?;
            if !more {
                return Ok(true);
            }
            to = self.replies;
        }
    }
}

/// The stream while a command runs, with the time of the last check. A long command occupies its task's
/// thread, so no other code would notice that the client has disconnected.
struct Wire<'s, S>(Mutex<(&'s mut BufReader<S>, Instant)>);

impl<'s, S> Wire<'s, S> {
    fn new(stream: &'s mut BufReader<S>) -> Self {
        Self(Mutex::new((stream, Instant::now())))
    }
}

impl<S: AsyncRead + Unpin + Send> Line for Wire<'_, S> {
    fn is_dead(&self) -> bool {
        let mut wire = self.0.lock().unwrap_or_else(|held| held.into_inner());
        let (stream, looked) = &mut *wire;
        if looked.elapsed() < LOOK {
            return false;
        }
        *looked = Instant::now();
        // The poll does not wait, and buffered bytes remain for the next message.
        match Pin::new(&mut **stream).poll_fill_buf(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(bytes)) => bytes.is_empty(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

type Decoded = Result<Request, (Header, LangError)>;

/// Reads one message: memory is reserved as its bytes arrive, with one deadline for all of them.
async fn next_message<S>(
    shared: &Shared,
    stream: &mut BufReader<S>,
    must_log_in: bool,
    reservation: &mut Reservation,
) -> Result<Decoded, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let received = receive(stream, must_log_in, reservation);
    let (header, bytes) = tokio::time::timeout(shared.service.limits().request_time, received)
        .await
        .map_err(|_| Ended::TooSlow)??;
    Ok(Request::decode(header, bytes)?.map_err(|error| (header, error)))
}

async fn receive<S>(
    stream: &mut BufReader<S>,
    must_log_in: bool,
    reservation: &mut Reservation,
) -> Result<(Header, Vec<u8>), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await?;
    let header = Header::decode(&head)?;
    let mut bytes = Vec::new();
    let mut memory = header.length;
    if header.is_compressed() {
        let mut begin = [0; COMPRESSED_BYTES];
        stream.read_exact(&mut begin).await?;
        memory = header.plain_bytes(&begin);
        bytes.extend(begin);
    }
    if must_log_in && memory > LOGIN_BYTES_MAX {
        return Err(Ended::LoginSize(memory));
    }
    let length = (header.length - HEADER_BYTES).max(bytes.len());
    while bytes.len() < length {
        let growth = if must_log_in { LOGIN_GROWTH_BYTES } else { GROWTH_BYTES };
        let step = (length - bytes.len()).min(growth - bytes.len() % growth);
        reservation.cover(bytes.len()).await?;
        if must_log_in {
            bytes.reserve(step);
        } else {
            // After the first step the rest is allocated at once; the kernel backs it page by page as it is
            // written.
            bytes.reserve_exact(if bytes.len() < GROWTH_BYTES { step } else { length - bytes.len() });
        }
        if (&mut *stream).take(step as u64).read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    // Decompressed bytes are reserved in addition.
    reservation.cover(memory).await?;
    Ok((header, bytes))
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    /// Size of the future that `serve` returns.
    fn serve_bytes<'a, F>(
        _serve: impl Fn(&'a Shared, i32, DuplexStream, Option<SocketAddr>, Option<SocketAddr>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn d1_24_future_before_login_is_small() {
        let bytes = serve_bytes(serve::<DuplexStream>);
        assert!(bytes <= 2 << 10, "{bytes} bytes");
    }
}
