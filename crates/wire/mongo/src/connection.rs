//! The life of one client: message in, answer out, one at a time.
//!
//! ```text
//! header ─▶ room for the message? ─▶ the rest of it, in bounded time ─▶ command ─▶ answer ─▶ header …
//!                                                                        └─▶ hello that waits, many times over
//! ```
//! A client that says nothing between two messages may do so for ever; one that stops in the middle of a message is given up.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ropewalk_wire::Credentials;
use tokio::io::{
    AsyncBufRead as _, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::sync::SemaphorePermit;

use crate::call::{Client, Line};
use crate::documents::lang::{LangError, Writer};
use crate::failure::{Failure, Outcome};
use crate::frame::{COMPRESSED_BYTES, FrameError, HEADER_BYTES, Header, Request};
use crate::{Mongo, Shared, command, hello, read};

/// Bytes read ahead: most requests fit.
const READ_BYTES: usize = 8 << 10;
/// Messages up to this size need no room of their own.
const SMALL: usize = 64 << 10;
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
    loop {
        // An idle client is not waited for when the server stops.
        let begun = tokio::select! {
            begun = stream.fill_buf() => !begun?.is_empty(),
            () = stop.wait() => false,
        };
        if !begun {
            return Ok(());
        }
        let (request, _room) = next_message(shared, &mut stream).await?;
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

/// Reads one message, once there is room for it.
async fn next_message<'s, S>(
    shared: &'s Shared,
    stream: &mut BufReader<S>,
) -> Result<(Decoded, Option<SemaphorePermit<'s>>), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let patience = shared.service.limits().request_time;
    let timed = |_| Ended::TooSlow;
    let mut head = [0; HEADER_BYTES];
    tokio::time::timeout(patience, stream.read_exact(&mut head)).await.map_err(timed)??;
    let header = Header::decode(&head)?;
    let mut bytes = Vec::new();
    let mut memory = header.length;
    if header.is_compressed() {
        let mut begin = [0; COMPRESSED_BYTES];
        tokio::time::timeout(patience, stream.read_exact(&mut begin)).await.map_err(timed)??;
        memory = header.plain_bytes(&begin);
        bytes.extend(begin);
    }
    let room = match memory > SMALL {
        true => shared.requests.acquire_many((memory >> 10) as u32).await.ok(),
        false => None,
    };
    let rest = (header.length - HEADER_BYTES).saturating_sub(bytes.len());
    // Grows as bytes come, not as they were announced.
    bytes.reserve(rest.min(SMALL));
    let mut body = (&mut *stream).take(rest as u64);
    tokio::time::timeout(patience, body.read_to_end(&mut bytes)).await.map_err(timed)??;
    Ok((Request::decode(header, bytes)?.map_err(|error| (header, error)), room))
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
