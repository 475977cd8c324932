//! A TCP stream that looks for a moment before it waits.
//!
//! A client that asks as soon as it is answered is there again before a thread has gone to sleep and been woken, which takes
//! longer than many an answer. So the thread looks at the socket of such a client for a moment, and gives its processor to whoever
//! wants it between two looks. It does so only while no other client of the lanes says anything; see docs/decisions/0022.
//!
//! It sees where its messages arrive, and is among the events of whichever lane polls it (`place`).

use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::place::{Arrivals, Place};

/// How long a connection looks before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// As much is read of what a look finds; what is behind it is read without one.
const LOOK_BYTES: usize = 1 << 10;
/// Who took longer for the message before is not looked for.
const SOON: Duration = Duration::from_micros(200);

/// Those who speak on streams that belong together. Where others speak, too, there is something else to do than to look.
#[derive(Default)]
pub(crate) struct Speakers {
    /// How many there were; the first is number 1.
    count: AtomicU64,
    /// Whose bytes came last.
    last: AtomicU64,
}

/// The stream.
pub(crate) struct Direct {
    stream: TcpStream,
    place: Arc<Place>,
    /// The lane whose events the stream is among.
    lane: usize,
    arrivals: Arrivals,
    speakers: Arc<Speakers>,
    number: u64,
    /// Since when the peer is waited for.
    since: Option<Instant>,
    /// The message before came soon, and nobody else's since the one before it.
    is_quick: bool,
}

impl Direct {
    pub(crate) fn new(stream: TcpStream, place: Arc<Place>, speakers: Arc<Speakers>) -> Self {
        let number = speakers.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (lane, arrivals) = (place.lane(), Arrivals::default());
        Self { stream, place, lane, arrivals, speakers, number, since: None, is_quick: false }
    }

    /// Among the events of the lane that polls.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let lane = self.place.lane();
        if lane != self.lane {
            let socket = SockRef::from(&self.stream).try_clone()?;
            self.stream = TcpStream::from_std(socket.into())?;
            self.lane = lane;
        }
        Ok(Pin::new(&mut self.stream))
    }

    /// The first time that a message of a quick peer is waited for: reads, though no event has come, until something is there or
    /// it has taken too long.
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

/// The processor that took the stream's last packet, where the system tells.
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
    async fn what_is_said_comes_whether_the_peer_is_quick_or_slow() {
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
    async fn streams_that_speak_in_turns_are_all_heard() {
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
    async fn more_than_one_read_takes_comes_in_order() {
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
    async fn more_than_the_system_takes_is_written_in_the_end() {
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

    /// What a look finds of a byte that is there while the runtime has heard of nothing.
    fn found(ours: &mut Direct) -> bool {
        let (mut bytes, mut context) = ([0; 16], Context::from_waker(std::task::Waker::noop()));
        let mut out = ReadBuf::new(&mut bytes);
        Pin::new(ours).poll_read(&mut context, &mut out).is_ready()
    }

    #[tokio::test]
    async fn who_is_quick_and_alone_is_looked_for_and_nobody_else() {
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
            // The runtime hears of it at the next wait, which does not come.
            theirs.write_all(b"c").unwrap();
            assert_eq!(found(&mut ours), is_quick && !others_speak);
        }
    }
}
