//! Appends without and with an open web console: a client that makes the requests of its pages Now and Commits
//! (`console/src/pages/now.tsx`, `commits.tsx`).
//!
//!   Now      /v1/stats/live: a stream, each second     /metrics, /ready, /v1/stats, range queries, consumers: at intervals
//!   Commits  /v1/changes: the newest 200, then a stream of the newest 100 each 250 ms
//!
//! Not here: the files of the console, which a browser caches, and drawing, which takes no time of the server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use ropewalk_bench::harness::worker::{Figure, Group, Outcome, Task};
use serde_json::Value;

use super::appends::drive;
use super::http::{Http, escaped};
use super::servers::Server;

/// Queries of the last hour, in steps of seconds.
const QUERIES: [&str; 4] = [
    r#"sum(rate(ropewalk_commits_total{job="ropewalk"}[1m]))"#,
    r#"sum by (protocol) (rate(ropewalk_requests_total{job="ropewalk"}[1m]))"#,
    r#"{__name__=~"ropewalk_(memtable|cache)_bytes",job="ropewalk"}"#,
    r#"sum(rate(ropewalk_log_written_bytes_total{job="ropewalk"}[1m]))"#,
];
const HOUR: u64 = 3600;
const STEP: u64 = 15;
/// Between two rounds of the same requests, from the end of a round.
const METRICS_PAUSE: Duration = Duration::from_secs(2);
const READY_PAUSE: Duration = Duration::from_secs(5);
const KEYSPACES_PAUSE: Duration = Duration::from_secs(5);
const CONSUMERS_PAUSE: Duration = Duration::from_secs(10);
const HISTORY_PAUSE: Duration = Duration::from_secs(15);
/// Stores whose consumers are displayed.
const STORES_MAX: usize = 20;

const STATISTICS: &str = "/v1/stats/live?format=ndjson&interval_ms=1000&limit=1";
const NEWEST: &str = "/v1/changes?last=200";

/// Between two checks whether a request is due.
const PAUSE: Duration = Duration::from_millis(20);
/// After the console was opened or closed, before the clock starts.
const SETTLE: Duration = Duration::from_millis(300);

/// Appends by `task.threads` clients in passes, alternately without and with an open console.
pub(crate) async fn idle(server: &Server, task: &Task) -> Result<Outcome> {
    let appending = Task { group: Group::WireAppend, ..task.clone() };
    let mut before = drive(server, &appending).await?;
    let [mut append, mut without, mut share, mut delivered, mut cpu, mut cpu_without]: [Figure; 6] =
        Default::default();
    for _ in 0..task.passes {
        let console = Console::open(&server.http)?;
        tokio::time::sleep(SETTLE).await;
        let with = drive(server, &appending).await?;
        let commits = console.close()?;
        ensure!(commits > 0, "the feed delivered no commit");
        tokio::time::sleep(SETTLE).await;
        let after = drive(server, &appending).await?;
        let usual = f64::midpoint(before.rate, after.rate);
        append.samples.push(with.rate);
        without.samples.push(usual);
        share.samples.push(100.0 * with.rate / usual);
        delivered.samples.push(100.0 * commits as f64 / with.requests as f64);
        cpu.samples.push(with.cpu_us);
        cpu_without.samples.push(f64::midpoint(before.cpu_us, after.cpu_us));
        before = after;
    }
    let mut outcome = Outcome::default();
    outcome.figure("append", append);
    outcome.figure("append_without", without);
    outcome.figure("share", share);
    outcome.figure("delivered", delivered);
    outcome.figure("cpu", cpu);
    outcome.figure("cpu_without", cpu_without);
    Ok(outcome)
}

/// Both pages, open.
struct Console {
    stop: Arc<AtomicBool>,
    requests: JoinHandle<Result<()>>,
    statistics: Stream,
    commits: Stream,
}

impl Console {
    /// Opens the pages of the server at `host`.
    fn open(host: &str) -> Result<Self> {
        let mut client = Http::connect(host)?;
        client.ask("/v1/session")?;
        client.ask(NEWEST)?;
        let next = newest(&client.body)? + 1;
        // Names of keyspaces, for the page Commits.
        client.ask("/v1/stats")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stops, address) = (stop.clone(), host.to_owned());
        Ok(Self {
            statistics: Stream::open(host, STATISTICS)?,
            commits: Stream::open(
                host,
                &format!("/v1/changes?from={next}&follow=true&interval_ms=250&newest=100"),
            )?,
            requests: thread::spawn(move || repeat(&address, &stops)),
            stop,
        })
    }

    /// Closes the pages, and returns the number of commits that were delivered.
    fn close(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let commits = self.commits.close()?;
        ensure!(self.statistics.close()? > 0, "{STATISTICS} delivered nothing");
        self.requests.join().ok().context("the thread of the requests panicked")??;
        Ok(commits)
    }
}

/// Number of the commit in the last line of the feed.
fn newest(feed: &[u8]) -> Result<u64> {
    let line = std::str::from_utf8(feed)?.lines().last().context("the feed has no commit")?;
    let commit: Value = serde_json::from_str(line)?;
    commit.get("seq").and_then(Value::as_u64).with_context(|| format!("no commit: {line}"))
}

/// Requests at intervals until `stop`, on one connection.
fn repeat(host: &str, stop: &AtomicBool) -> Result<()> {
    let mut client = Http::connect(host)?;
    let now = Instant::now();
    let rounds: [(Duration, fn(&mut Http) -> Result<()>); 5] = [
        (METRICS_PAUSE, |client| client.ask("/metrics")),
        (READY_PAUSE, |client| client.ask("/ready")),
        (KEYSPACES_PAUSE, |client| client.ask("/v1/stats")),
        (CONSUMERS_PAUSE, consumers),
        (HISTORY_PAUSE, history),
    ];
    let mut due = [now; 5];
    while !stop.load(Ordering::Relaxed) {
        for ((pause, round), due) in rounds.iter().zip(&mut due) {
            if Instant::now() >= *due {
                round(&mut client)?;
                *due = Instant::now() + *pause;
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn consumers(client: &mut Http) -> Result<()> {
    client.ask("/v1/stores")?;
    let answer: Value = serde_json::from_slice(&client.body)?;
    let stores = answer.get("stores").and_then(Value::as_array).context("no stores")?;
    for name in stores.iter().filter_map(|store| store.get("name")?.as_str()).take(STORES_MAX) {
        for kind in ["groups", "projections"] {
            client.ask(&format!("/v1/stores/{}/{kind}", escaped(name)))?;
        }
    }
    Ok(())
}

fn history(client: &mut Http) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let end = now - now % STEP;
    for query in QUERIES {
        let (query, start) = (escaped(query), end - HOUR);
        client.ask(&format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={STEP}"))?;
    }
    Ok(())
}

/// A response that has no end, read by a thread.
struct Stream {
    stream: TcpStream,
    reader: JoinHandle<Result<u64>>,
}

impl Stream {
    fn open(host: &str, path: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(host)?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/x-ndjson\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let reading = stream.try_clone()?;
        let path = path.to_owned();
        Ok(Self { stream, reader: thread::spawn(move || lines(reading, &path)) })
    }

    /// Ends the stream, and returns the number of its lines.
    fn close(self) -> Result<u64> {
        self.stream.shutdown(Shutdown::Both)?;
        self.reader.join().ok().context("the reader of a stream panicked")?
    }
}

/// Reads a stream to its end, and counts its lines of JSON: those that begin with `{`, which no line of the headers and
/// of the chunks' frame does.
fn lines(mut stream: TcpStream, path: &str) -> Result<u64> {
    let mut piece = vec![0; 256 << 10];
    let (mut lines, mut last, mut is_first) = (0, b'\n', true);
    loop {
        let read = match stream.read(&mut piece) {
            Ok(0) => return Ok(lines),
            Ok(read) => piece.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Closed at this end.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(lines),
            Err(error) => return Err(error.into()),
        };
        if std::mem::take(&mut is_first) && !read.starts_with(b"HTTP/1.1 200") {
            bail!("{path}: {}", String::from_utf8_lossy(read));
        }
        for &byte in read {
            lines += u64::from(byte == b'{' && last == b'\n');
            last = byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn newest_commit_is_in_the_last_line() {
        assert_eq!(newest(b"{\"seq\":4}\n{\"seq\":7,\"appends\":[]}\n").unwrap(), 7);
        newest(b"").unwrap_err();
        newest(b"{}\n").unwrap_err();
    }

    #[test]
    fn lines_of_a_stream_are_counted_without_its_frame() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = thread::spawn(move || {
            for text in [
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1a\r\n{\"seq\":1}\n{\"seq\":{\"a\":2}}\n\r\n2\r\n{}\r\n",
                "HTTP/1.1 404 Not Found\r\n\r\n",
            ] {
                listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap();
            }
        });
        assert_eq!(lines(TcpStream::connect(&address).unwrap(), "/a").unwrap(), 3);
        let error = lines(TcpStream::connect(&address).unwrap(), "/a").unwrap_err().to_string();
        assert!(error.starts_with("/a: HTTP/1.1 404"), "{error}");
        serving.join().unwrap();
    }
}
