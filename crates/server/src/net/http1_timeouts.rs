//! Timeouts of an HTTP/1 connection: for request headers and for idle time.
//!
//! ```text
//! opened ─▶ head ─▶ answer ─▶ idle ─▶ head ─▶ answer ─▶ …
//!           └ head_time      └ idle_time └ head_time, from its first byte
//! ```
//! A connection has one timer for all its requests, and resets it only when it fires: moving the deadline
//! costs nothing until then. While the server responds no timeout runs here; requests have their own.
//!
//! Not here: a client that does not read its response (`timeout_stream`), HTTP/2, where pings detect lost peers.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

/// The low bits hold the phase, the others count phases.
const PHASE: u64 = 3;
const HEAD: u64 = 0;
const ANSWER: u64 = 1;
const IDLE: u64 = 2;

/// Phase of a connection. Only the connection's task reads and changes it.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicU64);

/// Timeouts for the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For the headers of a request, from their first byte; for those of the first one, from the beginning.
    pub(crate) head_time: Duration,
    /// Between a response and the next request.
    pub(crate) idle_time: Duration,
}

impl Turns {
    /// Starts the server's phase, until the guard is dropped.
    pub(crate) fn answer(self: &Arc<Self>) -> Answering {
        self.next(ANSWER);
        Answering(self.clone())
    }

    /// Records that bytes arrived; they begin a request if the connection was idle.
    pub(crate) fn heard(&self) {
        if self.turn() & PHASE == IDLE {
            self.next(HEAD);
        }
    }

    /// Records that the client read bytes of a response, which restarts its idle time.
    pub(crate) fn taken(&self) {
        if self.turn() & PHASE == IDLE {
            self.next(IDLE);
        }
    }

    fn turn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn next(&self, phase: u64) {
        let turn = self.turn();
        self.0.store((turn & !PHASE).wrapping_add(PHASE + 1) | phase, Ordering::Relaxed);
    }
}

/// Guard of the server's phase.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Turns>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.next(IDLE);
    }
}

/// Response body that ends the server's phase when it is dropped.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    pub(crate) body: B,
    /// Lives as long as the body.
    pub(crate) _answering: Answering,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves a connection until it ends; `None` when its client exceeded a timeout. It was opened at `opened`.
pub(crate) async fn bounded<F: Future>(
    connection: F,
    turns: &Turns,
    patience: Patience,
    opened: Instant,
) -> Option<F::Output> {
    let mut connection = pin!(connection);
    let mut turn = turns.turn();
    let mut end = opened + patience.head_time;
    let mut timer = pin!(sleep_until(end));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let now = turns.turn();
        if now & PHASE == ANSWER {
            return Poll::Pending;
        }
        if now != turn {
            turn = now;
            end = Instant::now() + if now & PHASE == HEAD { patience.head_time } else { patience.idle_time };
            if end < timer.deadline() {
                timer.as_mut().reset(end);
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= end {
                return Poll::Ready(None);
            }
            timer.as_mut().reset(end);
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::net::timeout_stream::Patient;

    const HEAD_TIME: Duration = Duration::from_secs(30);
    const IDLE_TIME: Duration = Duration::from_secs(300);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// The client's end of a connection whose responses come after `work`, in two parts `work` apart.
    fn dial(work: Duration) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        tokio::spawn(async move {
            let turns = Arc::new(Turns::default());
            let stream = TokioIo::new(Patient::opened(ours, HEAD_TIME, turns.clone()));
            let of_service = turns.clone();
            let service = service_fn(move |_: Request<hyper::body::Incoming>| {
                let answering = of_service.answer();
                async move {
                    sleep(work).await;
                    let pieces = Pieces { left: 2, pause: Box::pin(sleep(work)), work };
                    Ok::<_, Infallible>(Response::new(Answer { body: pieces, _answering: answering }))
                }
            });
            let connection =
                http1::Builder::new().header_read_timeout(None::<Duration>).serve_connection(stream, service);
            let patience = Patience { head_time: HEAD_TIME, idle_time: IDLE_TIME };
            bounded(connection, &turns, patience, Instant::now()).await
        });
        theirs
    }

    struct Pieces {
        left: u32,
        pause: Pin<Box<tokio::time::Sleep>>,
        work: Duration,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            std::task::ready!(self.pause.as_mut().poll(cx));
            self.left -= 1;
            let next = Instant::now() + self.work;
            self.pause.as_mut().reset(next);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"ab")))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(u64::from(self.left) * 2)
        }
    }

    /// Reads one response to its end.
    async fn answer(stream: &mut DuplexStream) {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\nabab") {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "{read:?}");
        }
    }

    /// Time until the server closes the connection.
    async fn end(stream: &mut DuplexStream) -> Duration {
        let started = Instant::now();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        started.elapsed()
    }

    fn about(time: Duration, wanted: Duration) -> bool {
        time >= wanted && time <= wanted + Duration::from_millis(10)
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_must_send_headers_within_head_time() {
        let mut client = dial(Duration::ZERO);
        assert!(about(end(&mut client).await, HEAD_TIME));
        let mut client = dial(Duration::ZERO);
        sleep(HEAD_TIME / 2).await;
        client.write_all(&REQUEST[..5]).await.unwrap();
        assert!(about(end(&mut client).await, HEAD_TIME / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_lives_longer_than_head_time() {
        let mut client = dial(Duration::ZERO);
        for _ in 0..5 {
            client.write_all(REQUEST).await.unwrap();
            answer(&mut client).await;
            sleep(IDLE_TIME - Duration::from_secs(1)).await;
        }
        client.write_all(REQUEST).await.unwrap();
        answer(&mut client).await;
        assert!(about(end(&mut client).await, IDLE_TIME));
    }

    #[tokio::test(start_paused = true)]
    async fn head_time_begins_with_first_byte() {
        let mut client = dial(Duration::ZERO);
        client.write_all(REQUEST).await.unwrap();
        answer(&mut client).await;
        // Headers that come slowly, but in time, after long silence.
        sleep(IDLE_TIME / 2).await;
        for byte in REQUEST {
            client.write_all(&[*byte]).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        answer(&mut client).await;
        // Headers that trickle in forever.
        sleep(IDLE_TIME / 2).await;
        client.write_all(&REQUEST[..20]).await.unwrap();
        let started = Instant::now();
        while client.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(started.elapsed() <= HEAD_TIME + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn no_timeout_runs_while_server_responds() {
        let work = IDLE_TIME * 2;
        let mut client = dial(work);
        for _ in 0..2 {
            client.write_all(REQUEST).await.unwrap();
            assert!(timeout(work / 2, client.read(&mut [0; 1])).await.is_err());
            answer(&mut client).await;
        }
        assert!(about(end(&mut client).await, IDLE_TIME));
    }
}
