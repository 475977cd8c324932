//! TCP stream that busy-polls for the next message before it waits for a readiness event.
//!
//! A client that sends its next request right after a response does so before a thread could go to sleep and
//! be woken, which takes longer than many requests. So the thread polls the socket of such a client for up to
//! `LOOK`, yielding its processor between polls. It does so only while no other client of the lanes sends
//! anything; see docs/decisions/0022.
//!
//! The stream reports on which processor its messages arrive, and is registered with the lane that polls it
//! (`place`).

use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::workers::affinity::{Arrivals, Place};

/// Longest busy-poll before a connection waits for an event.
const LOOK: Duration = Duration::from_micros(50);
/// Buffer size of one busy-poll read; remaining bytes are read normally.
const LOOK_BYTES: usize = 1 << 10;
/// A client whose previous message took longer than this is not busy-polled.
const SOON: Duration = Duration::from_micros(200);

/// Tracks which of the connections that share lanes sent data last. A connection is busy-polled only while it
/// is the sole active one.
#[derive(Default)]
pub(crate) struct Speakers {
    /// Connections so far; the first has number 1.
    count: AtomicU64,
    /// The connection that last sent bytes.
    last: AtomicU64,
}

/// The stream.
pub(crate) struct Direct {
    stream: TcpStream,
    place: Arc<Place>,
    /// The lane with whose runtime the stream is registered.
    lane: usize,
    arrivals: Arrivals,
    speakers: Arc<Speakers>,
    number: u64,
    /// Since when a read waits for the peer.
    since: Option<Instant>,
    /// The previous message came soon, and no other connection sent anything since the one before it.
    is_quick: bool,
}

impl Direct {
    pub(crate) fn new(stream: TcpStream, place: Arc<Place>, speakers: Arc<Speakers>) -> Self {
        let number = speakers.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (lane, arrivals) = (place.lane(), Arrivals::default());
        Self { stream, place, lane, arrivals, speakers, number, since: None, is_quick: false }
    }

    /// Registers the stream with the lane that polls it.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let lane = self.place.lane();
        if lane != self.lane {
            let socket = SockRef::from(&self.stream).try_clone()?;
            self.stream = TcpStream::from_std(socket.into())?;
            self.lane = lane;
        }
        Ok(Pin::new(&mut self.stream))
    }

    /// Busy-polls for the message of a quick peer, once per wait: reads without an event until bytes are
    /// there or `LOOK` has passed.
    fn look(&mut self, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.since.is_some() {
            return Poll::Pending;
        }
        let since = *self.since.insert(Instant::now());
        if !self.is_quick || self.speakers.last.load(Ordering::Relaxed) != self.number {
            return Poll::Pending;
        }
        let socket = SockRef::from(&self.stream);
        let room = out.initialize_unfilled_to(out.remaining().min(LOOK_BYTES));
        loop {
            match (&*socket).read(room) {
                Ok(bytes) => {
                    out.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                Err(_) if since.elapsed() >= LOOK => return Poll::Pending,
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    fn heard(&mut self) {
        let is_alone = self.speakers.last.swap(self.number, Ordering::Relaxed) == self.number;
        let is_soon = self.since.take().is_none_or(|since| since.elapsed() <= SOON);
        self.is_quick = is_alone && is_soon;
        if let Some(processor) = self.arrivals.heard(|| incoming_cpu(&self.stream)) {
            self.place.arrives_at(processor);
        }
    }
}

/// The processor that received the stream's last packet, on systems that report it.
#[cfg(target_os = "linux")]
fn incoming_cpu(stream: &TcpStream) -> Option<usize> {
    SockRef::from(stream).cpu_affinity().ok()
}

#[cfg(not(target_os = "linux"))]
fn incoming_cpu(_: &TcpStream) -> Option<usize> {
    None
}

impl AsyncRead for Direct {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut read = self.here()?.poll_read(cx, out);
        if read.is_pending() {
            read = self.look(out);
        }
        if read.is_ready() {
            self.heard();
        }
        read
    }
}

impl AsyncWrite for Direct {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.here()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.here()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream as Theirs};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn pair() -> (Direct, Theirs) {
        pair_among(&Arc::default())
    }

    fn pair_among(speakers: &Arc<Speakers>) -> (Direct, Theirs) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = Theirs::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        theirs.set_nodelay(true).unwrap();
        let (ours, place) = (TcpStream::from_std(ours).unwrap(), Arc::new(Place::new(0)));
        (Direct::new(ours, place, speakers.clone()), theirs)
    }

    #[tokio::test]
    async fn messages_of_quick_and_slow_peers_arrive_in_order() {
        let (mut ours, mut theirs) = pair();
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            for turn in 0..200 {
                if turn % 50 == 49 {
                    std::thread::sleep(2 * SOON);
                }
                theirs.write_all(&[turn]).unwrap();
                theirs.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [turn]);
            }
        });
        let mut bytes = [0; 16];
        for turn in 0..200 {
            assert_eq!(ours.read(&mut bytes).await.unwrap(), 1);
            assert_eq!(bytes[0], turn);
            ours.write_all(&[turn]).await.unwrap();
        }
        echo.join().unwrap();
        assert_eq!(ours.read(&mut bytes).await.unwrap(), 0, "the peer has gone");
    }

    #[tokio::test]
    async fn interleaved_streams_are_all_read() {
        let speakers = Arc::default();
        let mut pairs: Vec<_> = (0..4).map(|_| pair_among(&speakers)).collect();
        let mut bytes = [0; 16];
        for turn in 0..400_u32 {
            let (ours, theirs) = &mut pairs[(turn * turn % 7 % 4) as usize];
            let sent = turn.to_le_bytes();
            theirs.write_all(&sent).unwrap();
            assert_eq!(ours.read(&mut bytes).await.unwrap(), sent.len());
            assert_eq!(bytes[..4], sent);
        }
    }

    #[tokio::test]
    async fn message_larger_than_one_read_arrives_in_order() {
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let all = sent.clone();
        let sender = std::thread::spawn(move || theirs.write_all(&all).unwrap());
        let mut came = Vec::new();
        ours.read_to_end(&mut came).await.unwrap();
        sender.join().unwrap();
        assert!(came == sent);
    }

    #[tokio::test]
    async fn message_larger_than_send_buffer_is_written_completely() {
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..8_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let all = sent.clone();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut came = Vec::new();
            theirs.read_to_end(&mut came).unwrap();
            assert!(came == all);
        });
        ours.write_all(&sent).await.unwrap();
        ours.shutdown().await.unwrap();
        reader.join().unwrap();
    }

    /// Whether a poll finds a byte that arrived before the runtime received an event.
    fn found(ours: &mut Direct) -> bool {
        let (mut bytes, mut context) = ([0; 16], Context::from_waker(std::task::Waker::noop()));
        let mut out = ReadBuf::new(&mut bytes);
        Pin::new(ours).poll_read(&mut context, &mut out).is_ready()
    }

    #[tokio::test]
    async fn only_quick_sole_active_peer_is_busy_polled() {
        for (is_quick, others_speak) in [(true, false), (false, false), (true, true)] {
            let speakers = Arc::default();
            let ((mut ours, mut theirs), (mut other, mut others)) =
                (pair_among(&speakers), pair_among(&speakers));
            let mut bytes = [0; 16];
            theirs.write_all(b"a").unwrap();
            assert_eq!(ours.read(&mut bytes).await.unwrap(), 1);
            ours.is_quick = is_quick;
            if others_speak {
                others.write_all(b"b").unwrap();
                assert_eq!(other.read(&mut bytes).await.unwrap(), 1);
            }
            // The runtime would receive the event at its next wait, which does not come.
            theirs.write_all(b"c").unwrap();
            assert_eq!(found(&mut ours), is_quick && !others_speak);
        }
    }
}
