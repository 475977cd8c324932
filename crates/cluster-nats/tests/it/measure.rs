//! Figures of a cluster on this machine:
//! `cargo test --release -p ropewalk-cluster-nats -- --ignored --nocapture figures`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_log::shared::{EntryIndex, SharedLog};
use serde_json::json;

use crate::servers::{Patient, STREAM, Servers};
use crate::single::WAIT;

/// Time of each measurement of appends.
const TIME: Duration = Duration::from_secs(3);
/// Entries that are read.
const SMALL: u64 = 400_000;
const LARGE: u64 = 20_000;

#[test]
#[ignore = "measures"]
fn figures_of_one_and_of_three_servers() {
    for count in [1, 3] {
        let Some(servers) = Servers::start(count, "") else { return };
        let log = servers.create();
        for bytes in [256, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            appends(&log, count, bytes);
        }
        deliveries(&servers, &log, count);
        // One server syncs each of the messages that are read here, which takes minutes.
        if count == 3 {
            reads(&servers, &log, SMALL, 100);
            reads(&servers, &log, LARGE, 16 << 10);
        }
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}

fn appends(log: &Patient, servers: usize, bytes: usize) {
    let entry = vec![7; bytes];
    let (mut expected, mut times) = (log.bounds().unwrap().newest, Vec::new());
    let start = Instant::now();
    while start.elapsed() < TIME {
        let begun = Instant::now();
        expected = log.append(expected, &entry).unwrap();
        times.push(begun.elapsed());
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    let (half, most) = (percentile(&mut times, 50), percentile(&mut times, 99));
    println!("{servers} server(s), append {bytes:>8} B: {rate:>7.0}/s, p50 {half:.2} ms, p99 {most:.2} ms");
}

/// Time from the start of an append until another log has read the entry.
fn deliveries(servers: &Servers, log: &Patient, count: usize) {
    let reader = servers.open();
    let (mut expected, mut times) = (log.bounds().unwrap().newest, Vec::new());
    for _ in 0..1000 {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| reader.read(expected, 1, WAIT).unwrap());
            log.append(expected, &[7; 256]).unwrap();
            assert_eq!(reading.join().unwrap()[0].index, expected.next());
        });
        times.push(begun.elapsed());
        expected = expected.next();
    }
    let (half, most) = (percentile(&mut times, 50), percentile(&mut times, 99));
    println!("{count} server(s), append and delivery: p50 {half:.2} ms, p99 {most:.2} ms");
}

/// Publishes entries past the log, many at a time, and reads them through it.
fn reads(servers: &Servers, log: &Patient, entries: u64, bytes: usize) {
    let first = log.bounds().unwrap().newest;
    let subject =
        servers.api("STREAM.INFO", &json!({}))["config"]["subjects"][0].as_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(servers.address(0)).await.unwrap();
        let left = Arc::new(AtomicU64::new(entries));
        let publish = || {
            let (client, left, subject) = (client.clone(), left.clone(), subject.clone());
            tokio::spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let mut headers = async_nats::HeaderMap::new();
                    headers.insert("Nats-Expected-Stream", STREAM);
                    // As long as the header that expects a number.
                    headers.insert("X-Expected-Last-Sequence__", "1000000");
                    let payload = vec![7; bytes].into();
                    client.request_with_headers(subject.clone(), headers, payload).await.unwrap();
                }
            })
        };
        let publishers: Vec<_> = (0..256).map(|_| publish()).collect();
        for publisher in publishers {
            publisher.await.unwrap();
        }
    });
    let newest = log.bounds().unwrap().newest;
    let reader = servers.open();
    for round in 1..=3 {
        let (mut last, mut calls, start) = (first, 0, Instant::now());
        while last < newest {
            last = reader.read(last, 1 << 20, WAIT).unwrap().last().map_or(last, |entry| entry.index);
            calls += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let (rate, speed) = (entries as f64 / seconds, (entries * bytes as u64) as f64 / seconds / 1e6);
        println!("3 server(s), read {bytes} B, round {round}: {rate:.0}/s, {speed:.0} MB/s, {calls} calls");
    }
    assert_eq!(newest, EntryIndex(first.0 + entries));
}
