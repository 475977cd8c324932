//! The life of one client: message in, answer out, one at a time.
//!
//! ```text
//! header ─▶ size allowed? ─▶ the rest of it, memory as it arrives, one deadline ─▶ command ─▶ answer ─▶ header …
//!                                                                        └─▶ hello that waits, many times over
//! ```
//! A client that has logged in may be silent between two messages; any other is given up after a minute.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ropewalk_wire::{Credentials, Reservation, WireError};
use tokio::io::{
    AsyncBufRead as _, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};

use crate::call::{Client, Line};
use crate::documents::lang::{LangError, Writer};
use crate::failure::{Failure, Outcome};
use crate::frame::{COMPRESSED_BYTES, FrameError, HEADER_BYTES, Header, Request};
use crate::{Mongo, Shared, command, hello, read};

/// Bytes read ahead: most requests fit.
const READ_BYTES: usize = 8 << 10;
/// Most bytes that a message's buffer grows by at once.
const GROWTH_BYTES: usize = 64 << 10;
/// Largest message of a client that has to log in and has not.
const LOGIN_BYTES_MAX: usize = 64 << 10;
/// Longest silence of such a client. Drivers' monitors never log in and say hello every 10 s.
const LOGIN_SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often a command that takes long looks whether its client is still there: a system call at most.
const LOOK: Duration = Duration::from_millis(100);

/// The peer is not there, or does not speak the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The stream.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The client stopped in the middle of a message.
    #[error("a message did not come as a whole in time")]
    TooSlow,
    /// No memory for a message.
    #[error(transparent)]
    Memory(#[from] WireError),
    /// A large message before login.
    #[error("a message of {0} bytes before login; at most {LOGIN_BYTES_MAX} are allowed")]
    LoginSize(usize),
}

/// Speaks with one client until one of both ends.
pub(crate) async fn serve<S>(
    mongo: &Mongo,
    id: i32,
    stream: S,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let shared = &*mongo.0;
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let peer_text = peer.map_or_else(|| "local".to_owned(), |peer| peer.to_string());
    let mut client = Client {
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
    };
    let mut replies = 0_i32;
    let stop = shared.service.stop().clone();
    let memory = shared.service.request_memory().connection();
    loop {
        let must_log_in = !client.logged_in && !shared.service.access().admits_anonymous();
        let silence_max = if must_log_in { LOGIN_SILENCE_MAX } else { Duration::MAX };
        // An idle client is not waited for when the server stops.
        let begun = tokio::select! {
            begun = tokio::time::timeout(silence_max, stream.fill_buf()) => {
                !begun.map_err(|_| Ended::TooSlow)??.is_empty()
            }
            () = stop.wait() => false,
        };
        if !begun {
            return Ok(());
        }
        let bytes_max = if must_log_in { LOGIN_BYTES_MAX } else { usize::MAX };
        let mut reservation = memory.reservation();
        let request = next_message(shared, &mut stream, bytes_max, &mut reservation).await?;
        let request = match request {
            Ok(request) => request,
            Err((header, error)) => {
                let mut out = Writer::new();
                Failure::from(error).put(&mut out);
                replies = replies.wrapping_add(1);
                stream.write_all(&header.reply(replies, &out.finish())).await?;
                stream.flush().await?;
                continue;
            }
        };
        if let Some(pause) = hello::pause(shared, &request) {
            // Nothing changes here, so the answer comes when the client's patience ends, or the server's life.
            let mut to = request.id;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.wait() => return Ok(()),
                    // The client has gone, or says something else.
                    gone = stream.fill_buf() => {
                        if gone?.is_empty() { return Ok(()) }
                        break;
                    }
                }
                let line = Wire::new(&mut stream);
                let reply = command::run(mongo, &mut client, &request, &line).await;
                let Some(reply) = reply else { return Ok(()) };
                replies = replies.wrapping_add(1);
                let more = request.exhaust_allowed;
                let bytes = request.reply_to(to, replies, &reply, more);
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                to = replies;
                if !more {
                    break;
                }
            }
            continue;
        }
        let mut to = request.id;
        loop {
            let line = Wire::new(&mut stream);
            let reply = command::run(mongo, &mut client, &request, &line).await;
            let Some(reply) = reply else { return Ok(()) };
            if request.more_to_come {
                break;
            }
            replies = replies.wrapping_add(1);
            // A client that allows it gets the batches of a cursor one after another, without asking.
            let more = request.exhaust_allowed && read::goes_on(&request, &reply);
            stream.write_all(&request.reply_to(to, replies, &reply, more)).await?;
            stream.flush().await?;
            if !more {
                break;
            }
            to = replies;
        }
    }
}

/// The stream while a command runs, with the time of the last look. A command that takes long holds its task's thread, so nobody
/// else would hear that the client has gone.
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
        // Nothing is waited for, and bytes that are there stay for the next message.
        match Pin::new(&mut **stream).poll_fill_buf(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(bytes)) => bytes.is_empty(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

type Decoded = Result<Request, (Header, LangError)>;

/// Reads one message: its memory is reserved as its bytes arrive, all of them before one deadline.
async fn next_message<S>(
    shared: &Shared,
    stream: &mut BufReader<S>,
    bytes_max: usize,
    reservation: &mut Reservation,
) -> Result<Decoded, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let received = receive(stream, bytes_max, reservation);
    let (header, bytes) = tokio::time::timeout(shared.service.limits().request_time, received)
        .await
        .map_err(|_| Ended::TooSlow)??;
    Ok(Request::decode(header, bytes)?.map_err(|error| (header, error)))
}

async fn receive<S>(
    stream: &mut BufReader<S>,
    bytes_max: usize,
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
    if memory > bytes_max {
        return Err(Ended::LoginSize(memory));
    }
    let length = (header.length - HEADER_BYTES).max(bytes.len());
    while bytes.len() < length {
        let step = (length - bytes.len()).min(GROWTH_BYTES - bytes.len() % GROWTH_BYTES);
        reservation.cover(bytes.len()).await?;
        // After the first step the whole is taken from the allocator, which gives memory page by page as it is written.
        bytes.reserve_exact(if bytes.len() < GROWTH_BYTES { step } else { length - bytes.len() });
        if (&mut *stream).take(step as u64).read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    // What is inflated comes on top.
    reservation.cover(memory).await?;
    Ok((header, bytes))
}

impl Client {
    /// Finds out whether the client is still who it was; while there are no users, whoever comes is let in.
    ///
    /// # Errors
    /// What is stored about users cannot be read.
    pub(crate) async fn look_again(&mut self, shared: &Shared) -> Outcome<()> {
        let access = shared.service.access();
        if let Some(caller) = &mut self.caller
            && access.still(caller, &mut self.seen).is_ok()
        {
            return Ok(());
        }
        self.caller = access.authenticate(Credentials::None, self.peer).await.ok();
        self.logged_in = false;
        Ok(())
    }
}
