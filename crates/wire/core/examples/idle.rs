//! Measures idle subscriptions: memory, and their effect on appends.
//!
//!   cargo run -p ropewalk-wire --example idle [SUBSCRIPTIONS] [DIRECTORY]
//!
//! Appends with 0 and with N followers in alternation, a few seconds each; N distinct filters, none of which
//! matches.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a program for people at a terminal

use std::time::{Duration, Instant};

use ropewalk::{AppendOptions, Database, Event, Query};
use ropewalk_auth::Caller;
use ropewalk_wire::{Service, ServiceSettings};

const WRITERS: usize = 16;
const STRETCH: Duration = Duration::from_secs(3);

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

async fn appends_per_second(service: &Service) -> f64 {
    let started = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let service = service.clone();
            tokio::spawn(async move {
                let mut done = 0_u64;
                while started.elapsed() < STRETCH {
                    let event = Event::new("Placed").tag(format!("order:{done}")).tag(format!("w:{writer}"));
                    let events = [event.data([7; 100])];
                    let options = AppendOptions::default();
                    service.append(&Caller::everybody(), "default", &events, options).await.unwrap();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for writer in writers {
        done += writer.await.unwrap();
    }
    done as f64 / started.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let subscriptions: usize = arguments.next().map_or(10_000, |n| n.parse().unwrap());
    let db = match arguments.next() {
        Some(directory) => Database::open(directory).unwrap(),
        None => Database::in_memory().unwrap(),
    };
    let service = Service::new(db, ServiceSettings::default()).unwrap();
    appends_per_second(&service).await;
    for round in 1..=3 {
        let alone = appends_per_second(&service).await;
        let before = resident_kib();
        let followers: Vec<_> = (0..subscriptions)
            .map(|i| {
                let service = service.clone();
                tokio::spawn(async move {
                    let query = Query::from_tags([format!("customer:{i}")]);
                    let head = service.head(&Caller::everybody(), "default").await.unwrap();
                    let mut following = service.follow(&Caller::everybody(), "default", query, head).unwrap();
                    while following.next().await.is_ok() {}
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let memory = resident_kib().saturating_sub(before);
        let followed = appends_per_second(&service).await;
        println!(
            "round {round}: {alone:.0} appends/s alone, {followed:.0} with {subscriptions} idle ({:.1} %), {memory} KiB",
            followed / alone * 100.0
        );
        for follower in followers {
            follower.abort();
            let _ = follower.await;
        }
    }
}
