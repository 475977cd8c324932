//! Lanes: threads that each serve the connections they were given, by themselves.
//!
//! ```text
//! accepted ─▶ the lane with the fewest connections ─▶ its own events, its own tasks, its own thread
//! ```
//! Protocols whose clients send one short statement and wait for its answer are served here. Among the threads of one runtime,
//! which share their sockets, one hears of a statement and wakes another to work on it; here nobody does. A lane whose thread
//! is kept by something long goes on with another thread (`block_in_place`). See docs/decisions/0022.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::direct::{Direct, Speakers};
use crate::schedule;

/// Stack of a thread, taken as it is used: statements of SQL are walked from top to bottom.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// Lanes beyond one for each processor: while one of them waits for the system another has something to do.
const LANES_MORE: usize = 1;

/// The lanes' threads, which live as long as this.
pub(crate) struct Threads {
    runtimes: Vec<Runtime>,
    lanes: Lanes,
}

/// The way to the lanes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lanes {
    lanes: Arc<[Lane]>,
    speakers: Arc<Speakers>,
}

struct Lane {
    runtime: Handle,
    connections: AtomicUsize,
}

impl Threads {
    /// A lane for each processor, and one more.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from) + LANES_MORE;
        let runtime = |_| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("rope-lane")
                .thread_stack_size(STACK_BYTES)
                .on_thread_start(|| {
                    if let Err(error) = schedule::let_others_finish() {
                        tracing::debug!(%error, "a lane is scheduled as any thread");
                    }
                })
                .enable_io()
                .enable_time()
                .build()
        };
        let runtimes = (0..count).map(runtime).collect::<io::Result<Vec<_>>>()?;
        let lane =
            |runtime: &Runtime| Lane { runtime: runtime.handle().clone(), connections: AtomicUsize::new(0) };
        let lanes = Lanes { lanes: runtimes.iter().map(lane).collect(), speakers: Arc::default() };
        Ok(Self { runtimes, lanes })
    }

    pub(crate) fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    /// Ends the threads; what still runs has `patience`, all of it together. Not inside of a runtime.
    pub(crate) fn end(self, patience: Duration) {
        let until = Instant::now() + patience;
        for runtime in self.runtimes {
            runtime.shutdown_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Lanes {
    /// Runs `work` on the stream, in the lane that has the fewest connections.
    ///
    /// # Errors
    /// The system's, about the stream.
    pub(crate) fn run<W, F>(&self, stream: TcpStream, work: W) -> io::Result<()>
    where
        W: FnOnce(Direct) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = stream.into_std()?;
        let connections = |(_, lane): &(usize, &Lane)| lane.connections.load(Ordering::Relaxed);
        let emptiest = self.lanes.iter().enumerate().min_by_key(connections);
        let (at, lane) = emptiest.ok_or_else(|| io::Error::other("there are no lanes"))?;
        let lanes = self.clone();
        lane.connections.fetch_add(1, Ordering::Relaxed);
        lane.runtime.spawn(async move {
            let leaves = Leaves(lanes, at);
            match TcpStream::from_std(stream) {
                Ok(stream) => {
                    let speakers = leaves.0.speakers.clone();
                    work(Direct::new(stream, speakers)).await;
                }
                Err(error) => tracing::warn!(%error, "a connection cannot be waited for; it is closed"),
            }
        });
        Ok(())
    }
}

/// Counts a connection out, however it ends.
struct Leaves(Lanes, usize);

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(lane) = self.0.lanes.get(self.1) {
            lane.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream as Theirs};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A client of an accepted connection.
    fn pair(others: &Runtime) -> (Theirs, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = Theirs::connect(listener.local_addr().unwrap()).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let ours = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        let _inside = others.enter();
        (theirs, TcpStream::from_std(ours).unwrap())
    }

    fn counts(lanes: &Lanes) -> Vec<usize> {
        lanes.lanes.iter().map(|lane| lane.connections.load(Ordering::Relaxed)).collect()
    }

    async fn echo(mut stream: Direct) {
        let mut bytes = [0; 16];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            assert_ne!(bytes[0], b'!', "asked to fail");
            stream.write_all(&bytes[..read]).await.unwrap();
        }
    }

    #[test]
    fn connections_are_shared_out_and_counted_out_however_they_end() {
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        let served = counts(&lanes).len();
        assert!(served >= 2);
        let mut clients: Vec<Theirs> = (0..2 * served)
            .map(|_| {
                let (theirs, ours) = pair(&others);
                lanes.run(ours, echo).unwrap();
                theirs
            })
            .collect();
        assert_eq!(counts(&lanes), vec![2; served]);
        for (number, client) in clients.iter_mut().enumerate() {
            let (said, mut heard) = ([b'a' + number as u8], [0]);
            client.write_all(&said).unwrap();
            client.read_exact(&mut heard).unwrap();
            assert_eq!(heard, said);
        }
        // One of them in a panic, which its lane outlives.
        clients[0].write_all(b"!").unwrap();
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        drop(clients);
        while counts(&lanes).iter().sum::<usize>() > 0 {
            std::thread::yield_now();
        }
        let (mut theirs, ours) = pair(&others);
        lanes.run(ours, echo).unwrap();
        theirs.write_all(b"z").unwrap();
        theirs.read_exact(&mut [0]).unwrap();
        threads.end(PATIENCE);
    }

    #[test]
    fn a_connection_that_blocks_does_not_keep_those_beside_it() {
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        let (free, held) = std::sync::mpsc::channel::<()>();
        let mut held = Some(held);
        // The first is in the first lane, and so is one of those behind it.
        let mut clients: Vec<Theirs> = (0..=counts(&lanes).len())
            .map(|_| {
                let (theirs, ours) = pair(&others);
                match held.take() {
                    Some(held) => lanes.run(ours, move |stream| async move {
                        tokio::task::block_in_place(|| held.recv()).unwrap();
                        echo(stream).await;
                    }),
                    None => lanes.run(ours, echo),
                }
                .unwrap();
                theirs
            })
            .collect();
        for client in &mut clients[1..] {
            client.write_all(b"a").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        free.send(()).unwrap();
        clients[0].write_all(b"b").unwrap();
        clients[0].read_exact(&mut [0]).unwrap();
        threads.end(PATIENCE);
    }
}
