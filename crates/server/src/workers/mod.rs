//! Lanes: worker runtimes with one pinned thread each, which serve their own connections.
//!
//! ```text
//! accepted ─▶ the lane with the fewest connections ─▶ its own events, its own tasks, its own thread, its own processor
//!                        └──▶ the lane at whose processor its messages arrive (`place`)
//! ```
//! They serve protocols whose clients send one short statement and wait for its result. In a multi-threaded
//! runtime one thread receives the readiness event and wakes another to run the task; a single-threaded
//! worker avoids that hand-off. When a lane's thread blocks for long, another thread takes over the lane
//! (`block_in_place`); long work runs on any free processor (`ropewalk_wire::run_unpinned`). See
//! docs/decisions/0022.

pub(crate) mod affinity;
pub(crate) mod mongo;
pub(crate) mod postgres;
pub(crate) mod spin_stream;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ropewalk_wire::{Processors, pin_to_cpu};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_rustls::TlsAcceptor;

use crate::net::connection::{Places, Room};
use crate::net::listen::Listener;
use crate::workers::affinity::Place;
use crate::workers::spin_stream::{Direct, Speakers};

/// Stack of a thread, committed as it is used: SQL statements are processed recursively.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// The lanes' threads, which live as long as this.
pub(crate) struct Threads {
    runtimes: Vec<Runtime>,
    lanes: Lanes,
}

/// Handle that assigns connections to lanes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lanes {
    lanes: Arc<[Lane]>,
    /// CPU of each lane; empty when lanes are not pinned.
    homes: Arc<[usize]>,
    speakers: Arc<Speakers>,
}

/// A port whose connections are assigned to lanes, and its protocol.
pub(crate) struct LanePort<P> {
    pub(crate) listener: Listener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) protocol: P,
    pub(crate) room: Arc<Room>,
    pub(crate) places: Places,
    pub(crate) lanes: Lanes,
}

struct Lane {
    runtime: Handle,
    connections: AtomicUsize,
}

impl Threads {
    /// Starts one lane for each processor.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let all = Processors::allowed().ok();
        // Do not pin threads when the CPU quota (cgroup) is smaller than the allowed CPU set.
        let homes = all.map(|all| all.numbers()).filter(|numbers| numbers.len() == count).unwrap_or_default();
        let runtime = |lane: usize| {
            let home = homes.get(lane).copied().zip(all);
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("rope-lane")
                .thread_stack_size(STACK_BYTES)
                .on_thread_start(move || {
                    if let Some((home, all)) = home
                        && let Err(error) = pin_to_cpu(home, all)
                    {
                        tracing::debug!(%error, home, "cannot pin a lane to a processor");
                    }
                })
                .enable_io()
                .enable_time()
                .build()
        };
        let runtimes = (0..count).map(runtime).collect::<io::Result<Vec<_>>>()?;
        let lane =
            |runtime: &Runtime| Lane { runtime: runtime.handle().clone(), connections: AtomicUsize::new(0) };
        let lanes = runtimes.iter().map(lane).collect();
        let lanes = Lanes { lanes, homes: homes.into(), speakers: Arc::default() };
        Ok(Self { runtimes, lanes })
    }

    pub(crate) fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    /// Ends the threads; running tasks have `patience` together. Must not be called inside a runtime.
    pub(crate) fn end(self, patience: Duration) {
        let until = Instant::now() + patience;
        for runtime in self.runtimes {
            runtime.shutdown_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Lanes {
    /// Runs `work` on the stream, in the lane that has the fewest connections, and later in the one where its
    /// messages arrive.
    ///
    /// # Errors
    /// The operating system's, about the stream.
    pub(crate) fn run<W, F>(&self, stream: TcpStream, work: W) -> io::Result<()>
    where
        W: FnOnce(Direct) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = stream.into_std()?;
        let connections = |(_, lane): &(usize, &Lane)| lane.connections.load(Ordering::Relaxed);
        let emptiest = self.lanes.iter().enumerate().min_by_key(connections);
        let (at, lane) = emptiest.ok_or_else(|| io::Error::other("there are no lanes"))?;
        lane.connections.fetch_add(1, Ordering::Relaxed);
        let seat = Seat { lanes: self.clone(), place: Arc::new(Place::new(at)) };
        let (place, speakers) = (seat.place.clone(), self.speakers.clone());
        let work = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => work(Direct::new(stream, place, speakers)).await,
                Err(error) => tracing::warn!(%error, "a connection cannot join its lane; closing it"),
            }
        };
        seat.serve(Box::pin(work));
        Ok(())
    }

    /// The lane for messages that arrive at `processor`, for a connection now in lane `at`. A lane with 1.5
    /// times its share of connections takes no more: one processor may receive the packets of all.
    fn better(&self, at: usize, processor: usize) -> Option<usize> {
        let home = self.homes.iter().position(|&home| home == processor);
        let to = home.or_else(|| processor.checked_rem(self.lanes.len())).filter(|&to| to != at)?;
        let connections = |lane: &Lane| lane.connections.load(Ordering::Relaxed);
        let all: usize = self.lanes.iter().map(connections).sum();
        let most = (3 * all).div_ceil(2 * self.lanes.len());
        (connections(self.lanes.get(to)?) < most).then_some(to)
    }
}

/// Future that serves one connection.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's place in its lane; uncounts itself on drop.
struct Seat {
    lanes: Lanes,
    place: Arc<Place>,
}

impl Seat {
    fn lane(&self) -> Option<&Lane> {
        self.lanes.lanes.get(self.place.lane())
    }

    /// Continues the work in the lane of the seat.
    fn serve(self, work: Work) {
        if let Some(runtime) = self.lane().map(|lane| lane.runtime.clone()) {
            runtime.spawn(self.stay(work));
        }
    }

    /// Polls the work until it is done or belongs in another lane.
    async fn stay(self, mut work: Work) {
        let end = poll_fn(|context| {
            if work.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            let better = |processor| self.lanes.better(self.place.lane(), processor);
            self.place.arrived_at().and_then(better).map_or(Poll::Pending, |lane| Poll::Ready(Some(lane)))
        });
        if let Some(lane) = end.await {
            self.change(lane);
            self.serve(work);
        }
    }

    fn change(&self, to: usize) {
        self.leave();
        self.place.set_lane(to);
        if let Some(lane) = self.lane() {
            lane.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn leave(&self) {
        if let Some(lane) = self.lane() {
            lane.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
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
    fn connections_are_balanced_and_uncounted_on_any_end() {
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        let served = counts(&lanes).len();
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
        // One of them ends in a panic, which its lane survives.
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
    fn blocking_connection_does_not_block_others_in_its_lane() {
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        let (free, held) = std::sync::mpsc::channel::<()>();
        let mut held = Some(held);
        // The first connection is in the first lane, and so is the last one.
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

    #[test]
    fn full_lane_takes_no_more_connections() {
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        for lane in lanes.lanes.iter() {
            lane.connections.store(4, Ordering::Relaxed);
        }
        let (last, from) = (lanes.lanes.len() - 1, 0);
        let home = lanes.homes.get(last).copied().unwrap_or(last);
        if last == from {
            assert_eq!(lanes.better(from, home), None, "there is one lane");
        } else {
            let mut moved = 0;
            while let Some(to) = lanes.better(from, home) {
                assert_eq!(to, last);
                lanes.lanes[from].connections.fetch_sub(1, Ordering::Relaxed);
                lanes.lanes[to].connections.fetch_add(1, Ordering::Relaxed);
                moved += 1;
            }
            assert_eq!(moved, 2);
            assert_eq!(lanes.better(last, home), None, "it is there");
        }
        threads.end(PATIENCE);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn connection_moves_to_lane_of_arrival_without_losing_messages() {
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let threads = Threads::start().unwrap();
        let lanes = threads.lanes();
        if lanes.homes.len() < 2 {
            println!("skipped: the lanes stay on no processors of their own");
            return threads.end(PATIENCE);
        }
        let (mut client, ours) = pair(&others);
        lanes.run(ours, echo).unwrap();
        let (all, begin) = (Processors::allowed().unwrap(), Instant::now());
        let mut messages = 0_u64;
        for turn in 0..6 {
            let lane = turn % 2;
            pin_to_cpu(lanes.homes[lane], all).unwrap();
            while messages == 0 || counts(&lanes)[lane] == 0 {
                messages += 1;
                let (said, mut heard) = (messages.to_be_bytes(), [0; 8]);
                client.write_all(&said).unwrap();
                client.read_exact(&mut heard).unwrap();
                assert_eq!(heard, said);
                assert!(begin.elapsed() < PATIENCE, "{:?} after {messages}, not {lane}", counts(&lanes));
            }
            assert_eq!(counts(&lanes).iter().sum::<usize>(), 1);
        }
        drop(client);
        while counts(&lanes).iter().sum::<usize>() > 0 {
            std::thread::yield_now();
        }
        threads.end(PATIENCE);
    }
}
