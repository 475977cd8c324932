//! Three servers: no confirmed entry is lost when servers are killed or paused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_cluster_nats::NatsSettings;
use ropewalk_log::shared::{AppendError, EntryIndex, SharedLog};

use crate::servers::{PATIENCE, Patient, Servers};
use crate::single::read_until;

fn entry(number: u64) -> Vec<u8> {
    format!("entry {number}").into_bytes()
}

/// Appends entries while `fault` runs, and `more` after it; then all of them are read.
fn append_during(servers: &mut Servers, log: &Patient, more: u64, fault: impl FnOnce(&mut Servers)) {
    let (confirmed, is_over) = (AtomicU64::new(log.bounds().unwrap().newest.0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = more;
            while left > 0 {
                let number = confirmed.load(Ordering::Relaxed) + 1;
                log.append_surely(EntryIndex(number - 1), &entry(number));
                confirmed.store(number, Ordering::Relaxed);
                left -= u64::from(is_over.load(Ordering::Relaxed));
            }
        });
        let begun = confirmed.load(Ordering::Relaxed);
        while confirmed.load(Ordering::Relaxed) < begun + 50 {
            thread::sleep(Duration::from_millis(1));
        }
        fault(servers);
        is_over.store(true, Ordering::Relaxed);
    });
    let newest = confirmed.into_inner();
    for log in [log, &servers.open()] {
        for found in read_until(log, 0, newest, 100_000) {
            assert_eq!(found.bytes, entry(found.index.0));
        }
        assert_eq!(log.bounds().unwrap().newest, EntryIndex(newest));
    }
}

#[test]
fn killed_leader_of_the_stream_loses_no_confirmed_entry() {
    let Some(mut servers) = Servers::start(3, "") else { return };
    let log = servers.create();
    let (identity, leader) = (log.identity().unwrap(), servers.leader());
    append_during(&mut servers, &log, 50, |servers| servers.kill(leader));
    assert_eq!(log.identity().unwrap(), identity);
    let offline =
        |lines: &[String]| lines.iter().any(|line| line.contains("is offline") || line.contains("lags"));
    assert!(offline(&log.warnings().unwrap()), "{:?}", log.warnings());
    servers.restart(leader);
    append_during(&mut servers, &log, 50, |_| {});
    let start = Instant::now();
    while offline(&log.warnings().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "{:?}", log.warnings());
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(log.warnings().unwrap().len(), 1, "only the setting that cannot be read");
}

#[test]
fn killed_servers_lose_no_confirmed_entry() {
    let Some(mut servers) = Servers::start(3, "") else { return };
    let log = servers.create();
    let identity = log.identity().unwrap();
    append_during(&mut servers, &log, 50, |servers| {
        (0..3).for_each(|server| servers.kill(server));
        thread::sleep(Duration::from_millis(500));
        (0..3).for_each(|server| servers.restart(server));
    });
    assert_eq!(log.identity().unwrap(), identity);
}

#[test]
fn paused_leader_of_the_stream_confirms_nothing_after_its_successor() {
    let Some(mut servers) = Servers::start(3, "") else { return };
    let log = servers.create();
    append_during(&mut servers, &log, 1, |_| {});
    let leader = servers.leader();
    let address = servers.address(leader);
    // Connected to the leader only, until the client learns of the other servers.
    let paused = servers.open_with(&NatsSettings { servers: vec![address], ..servers.settings() });
    let before = paused.bounds().unwrap().newest;
    append_during(&mut servers, &log, 50, |servers| {
        servers.signal(leader, "-STOP");
        thread::scope(|scope| {
            // Arrives at the paused leader, which reads it when it continues.
            let late = scope.spawn(|| paused.append(before, b"late"));
            thread::sleep(Duration::from_secs(12));
            servers.signal(leader, "-CONT");
            let late = late.join().unwrap();
            assert!(
                matches!(late, Err(AppendError::Unknown { .. } | AppendError::Fenced { .. })),
                "{late:?}"
            );
        });
    });
    // Through the log of the deposed leader, as well.
    let newest = log.bounds().unwrap().newest;
    assert!(matches!(paused.append(before, b"late"), Err(AppendError::Fenced { .. })));
    for found in read_until(&paused, 0, newest.0, 100_000) {
        assert_eq!(found.bytes, entry(found.index.0));
    }
}

/// Number of faults: `ROPEWALK_ROUNDS`, or 20. `ROPEWALK_SEED` selects others.
#[test]
#[ignore = "takes minutes"]
fn many_faults_lose_no_confirmed_entry() {
    let Some(mut servers) = Servers::start(3, "") else { return };
    let log = servers.create();
    let chosen = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let mut random = chosen("ROPEWALK_SEED", 1);
    let mut below = move |limit: u64| {
        // Knuth's generator; its high bits are the random ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for round in 0..chosen("ROPEWALK_ROUNDS", 20) {
        let (fault, victim) = (below(4), usize::try_from(below(3)).expect("small"));
        let pause = Duration::from_millis(below(8000));
        println!("round {round}: fault {fault}, server {victim}, {pause:?}, {:?}", log.bounds());
        append_during(&mut servers, &log, 20, |servers| match fault {
            0 => {
                servers.kill(victim);
                thread::sleep(pause);
                servers.restart(victim);
            }
            1 => {
                let leader = servers.leader();
                servers.kill(leader);
                thread::sleep(pause);
                servers.restart(leader);
            }
            2 => {
                let leader = servers.leader();
                servers.signal(leader, "-STOP");
                thread::sleep(pause + Duration::from_secs(4));
                servers.signal(leader, "-CONT");
            }
            _ => {
                (0..3).for_each(|server| servers.kill(server));
                thread::sleep(pause / 8);
                (0..3).for_each(|server| servers.restart(server));
            }
        });
    }
}
