//! A TCP stream that looks for a moment before it waits.
//!
//! A client that asks as soon as it is answered is there again before a thread has gone to sleep and been woken, which takes
//! longer than many an answer. So the thread looks at the socket of such a client for a moment, and gives its processor to whoever
//! wants it between two looks. It does so only while no other client says anything; see docs/decisions/0022.

use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How long a connection looks before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// Who took longer for the message before is not looked for.
const SOON: Duration = Duration::from_micros(200);

/// Numbers of streams; none has number 0.
static STREAMS: AtomicU64 = AtomicU64::new(1);
/// Whose message came last, of all streams of the process. Where others speak, too, there is something else to do than to look.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The stream.
pub(crate) struct Direct {
    stream: TcpStream,
    number: u64,
    /// Since when the peer is waited for.
    since: Option<Instant>,
    /// The message before came soon, and nobody else's since the one before it.
    is_quick: bool,
}

impl Direct {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let number = STREAMS.fetch_add(1, Ordering::Relaxed);
        Self { stream, number, since: None, is_quick: false }
    }

    /// The first time that a message of a quick peer is waited for: reads, though no event has come, until something is there or
    /// it has taken too long.
    fn look(&mut self, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.since.is_some() {
            return Poll::Pending;
        }
        let since = *self.since.insert(Instant::now());
        if !self.is_quick || LAST.load(Ordering::Relaxed) != self.number {
            return Poll::Pending;
        }
        let socket = SockRef::from(&self.stream);
        loop {
            match (&*socket).read(out.initialize_unfilled()) {
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
        if let Some(since) = self.since.take() {
            let is_alone = LAST.swap(self.number, Ordering::Relaxed) == self.number;
            self.is_quick = is_alone && since.elapsed() <= SOON;
        }
    }
}

impl AsyncRead for Direct {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut read = Pin::new(&mut self.stream).poll_read(cx, out);
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream as Theirs};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn pair() -> (Direct, Theirs) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = Theirs::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        (Direct::new(TcpStream::from_std(ours).unwrap()), theirs)
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
        let mut pairs: Vec<_> = (0..4).map(|_| pair()).collect();
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
}
