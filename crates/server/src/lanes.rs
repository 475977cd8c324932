//! Lanes: threads that each serve the connections they were given, by themselves.
//!
//! ```text
//! accepted ─▶ the lane with the fewest connections ─▶ its own events, its own tasks, its own thread, its own processor
//!                        └──▶ the lane at whose processor its messages arrive (`place`)
//! ```
//! Protocols whose clients send one short statement and wait for its answer are served here. Among the threads of one runtime,
//! which share their sockets, one hears of a statement and wakes another to work on it; here nobody does. A lane whose thread
//! is kept by something long goes on with another thread (`block_in_place`), and what is long goes wherever a processor is free
//! (`ropewalk_wire::blocking`). See docs/decisions/0022.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ropewalk_wire::{Processors, stay_on};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::direct::{Direct, Speakers};
use crate::place::Place;

/// Stack of a thread, taken as it is used: statements of SQL are walked from top to bottom.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// The lanes' threads, which live as long as this.
pub(crate) struct Threads {
    runtimes: Vec<Runtime>,
    lanes: Lanes,
}

/// The way to the lanes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lanes {
    lanes: Arc<[Lane]>,
    /// The processor of each, if they stay on some.
    homes: Arc<[usize]>,
    speakers: Arc<Speakers>,
}

struct Lane {
    runtime: Handle,
    connections: AtomicUsize,
}

impl Threads {
    /// A lane for each processor.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let all = Processors::allowed().ok();
        // Who has a share of the time of more processors than that is not to choose among them.
        let homes = all.map(|all| all.numbers()).filter(|numbers| numbers.len() == count).unwrap_or_default();
        let runtime = |lane: usize| {
            let home = homes.get(lane).copied().zip(all);
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("rope-lane")
                .thread_stack_size(STACK_BYTES)
                .on_thread_start(move || {
                    if let Some((home, all)) = home
                        && let Err(error) = stay_on(home, all)
                    {
                        tracing::debug!(%error, home, "a lane stays on no processor");
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

    /// Ends the threads; what still runs has `patience`, all of it together. Not inside of a runtime.
    pub(crate) fn end(self, patience: Duration) {
        let until = Instant::now() + patience;
        for runtime in self.runtimes {
            runtime.shutdown_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Lanes {
    /// Runs `work` on the stream, in the lane that has the fewest connections, and later in that where its messages arrive.
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
        lane.connections.fetch_add(1, Ordering::Relaxed);
        let seat = Seat { lanes: self.clone(), place: Arc::new(Place::new(at)) };
        let (place, speakers) = (seat.place.clone(), self.speakers.clone());
        let work = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => work(Direct::new(stream, place, speakers)).await,
                Err(error) => tracing::warn!(%error, "a connection cannot be waited for; it is closed"),
            }
        };
        seat.serve(Box::pin(work));
        Ok(())
    }

    /// The lane for what arrives at this processor, for a connection that is `at` another. A lane that has half as many again as its
    /// share takes no more: one processor may take the packets of all.
    fn better(&self, at: usize, processor: usize) -> Option<usize> {
        let home = self.homes.iter().position(|&home| home == processor);
        let to = home.or_else(|| processor.checked_rem(self.lanes.len())).filter(|&to| to != at)?;
        let connections = |lane: &Lane| lane.connections.load(Ordering::Relaxed);
        let all: usize = self.lanes.iter().map(connections).sum();
        let most = (3 * all).div_ceil(2 * self.lanes.len());
        (connections(self.lanes.get(to)?) < most).then_some(to)
    }
}

/// What serves one connection.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's seat in its lane, which counts it out however it ends.
struct Seat {
    lanes: Lanes,
    place: Arc<Place>,
}

impl Seat {
    fn lane(&self) -> Option<&Lane> {
        self.lanes.lanes.get(self.place.lane())
    }

    /// Goes on with the work in the lane of the seat.
    fn serve(self, work: Work) {
        if let Some(runtime) = self.lane().map(|lane| lane.runtime.clone()) {
            runtime.spawn(self.stay(work));
        }
    }

    /// Works until the work is done or belongs elsewhere.
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
    fn connections_are_shared_out_and_counted_out_however_they_end() {
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

    #[test]
    fn a_lane_takes_no_more_than_half_as_many_again_as_its_share() {
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
    fn a_connection_goes_to_the_lane_where_its_messages_arrive_and_loses_none() {
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
            stay_on(lanes.homes[lane], all).unwrap();
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
