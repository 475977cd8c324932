//! Figures of a cluster on this machine:
//! `cargo test --release -p ropewalk-cluster-nats -- --ignored --nocapture figures`

use std::time::{Duration, Instant};

use ropewalk_cluster_nats::NatsLog;
use ropewalk_log::shared::{EntryIndex, SharedLog};
use serde_json::{Value, json};

use crate::servers::{STREAM, Servers};
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
        for (entries, bytes) in [(SMALL, 100), (LARGE, 16 << 10)] {
            reads(&servers, &log, count, entries, bytes);
        }
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}

fn appends(log: &NatsLog, servers: usize, bytes: usize) {
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
fn deliveries(servers: &Servers, log: &NatsLog, count: usize) {
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
fn reads(servers: &Servers, log: &NatsLog, count: usize, entries: u64, bytes: usize) {
    let first = log.bounds().unwrap().newest;
    let subject =
        servers.api("STREAM.INFO", &json!({}))["config"]["subjects"][0].as_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        let client = async_nats::connect(servers.address(0)).await.unwrap();
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Expected-Stream", STREAM);
        headers.insert("X-Expected-Last-Seque", "18446744073709551615");
        for sent in 1..=entries {
            client
                .publish_with_headers(subject.clone(), headers.clone(), vec![7; bytes].into())
                .await
                .unwrap();
            if sent % 1000 == 0 {
                // An answer comes after all that was published before.
                client.flush().await.unwrap();
                let info = client.request(format!("$JS.API.STREAM.INFO.{STREAM}"), "".into()).await.unwrap();
                let info: Value = serde_json::from_slice(&info.payload).unwrap();
                let stored = info["state"]["last_seq"].as_u64().unwrap() - first.0;
                if sent.saturating_sub(stored) > 20_000 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        client.flush().await.unwrap();
    });
    let newest = loop {
        let newest = log.bounds().unwrap().newest;
        if newest.0 == first.0 + entries {
            break newest;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{newest}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let reader = servers.open();
    for round in 1..=3 {
        let (mut last, mut calls, start) = (first, 0, Instant::now());
        while last < newest {
            last = reader.read(last, 1 << 20, WAIT).unwrap().last().map_or(last, |entry| entry.index);
            calls += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let (rate, speed) = (entries as f64 / seconds, (entries * bytes as u64) as f64 / seconds / 1e6);
        println!(
            "{count} server(s), read {bytes} B, round {round}: {rate:.0}/s, {speed:.0} MB/s, {calls} calls"
        );
    }
    assert_eq!(newest, EntryIndex(first.0 + entries));
}
