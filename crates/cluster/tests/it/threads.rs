//! Nodes in their threads, on the machine's clock.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ropewalk::cluster::{Role, SharedOptions};
use ropewalk::engine::Env;
use ropewalk::{Database, Options};
use ropewalk_cluster::{BarrierError, End, Node, RunningNode, Settings};
use ropewalk_log::shared::{Entry, EntryKind, MemorySharedLog};

use crate::{get, new_log, put};

fn open(log: &MemorySharedLog, number: u8) -> Arc<Node> {
    let shared = SharedOptions::new(Arc::new(log.clone()), [number; 16], format!("node-{number}"));
    let db = Options::new().env(Env::memory()).shared(shared).open("/db").unwrap();
    let settings = Settings {
        lease: Duration::from_millis(60),
        seed: number.into(),
        read_wait: Duration::from_millis(10),
        ..Settings::default()
    };
    Arc::new(Node::new(db, Arc::new(log.clone()), settings))
}

fn run(node: &Arc<Node>) -> RunningNode {
    node.run(|end| panic!("the node ended: {end}")).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn leads(db: &Database) -> bool {
    matches!(db.role(), Role::Leader { .. })
}

/// A log and a running node that leads.
fn leading() -> (MemorySharedLog, Arc<Node>, RunningNode) {
    let log = new_log();
    let node = open(&log, 1);
    let running = run(&node);
    wait_until("the node leads", || leads(node.database()));
    (log, node, running)
}

fn deadline(node: &Node, timeout: Duration) -> u64 {
    node.database().engine().env().clock.deadline(timeout)
}

#[test]
fn running_node_leads_and_another_one_follows_until_they_are_stopped() {
    let (log, first, running) = leading();
    let second = open(&log.handle(), 2);
    let follower = run(&second);
    let seq = put(first.database(), b"one");
    assert!(second.database().engine().wait_visible(seq, Duration::from_secs(60)));
    assert_eq!(get(second.database()).as_deref(), Some(b"one".as_slice()));
    assert_eq!(running.node().barrier(deadline(&first, Duration::from_secs(60))).unwrap(), seq);
    follower.stop();
    running.stop();
    first.database().clone().close().unwrap();
}

#[test]
fn readers_that_wait_at_the_same_time_share_one_entry() {
    let (log, node, running) = leading();
    let seq = put(node.database(), b"one");
    let renewals = || {
        let entries = log.entries();
        entries.iter().filter(|bytes| Entry::decode(bytes).unwrap().kind == EntryKind::Renew).count()
    };
    log.set_hanging(true);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..40)
            .map(|_| scope.spawn(|| node.barrier(deadline(&node, Duration::from_secs(60))).unwrap()))
            .collect();
        // All of them wait: at most one entry is on its way, with those that came before it.
        std::thread::sleep(Duration::from_millis(100));
        let before = renewals();
        log.set_hanging(false);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), seq);
        }
        assert!(renewals() - before < 10, "{} entries for 40 readers", renewals() - before);
    });
    running.stop();
}

#[test]
fn barrier_gives_up_at_its_deadline_while_the_log_hangs() {
    let (log, node, running) = leading();
    log.set_hanging(true);
    let late = node.barrier(deadline(&node, Duration::from_millis(30)));
    assert!(matches!(late, Err(BarrierError::Late)), "{late:?}");
    log.set_hanging(false);
    assert!(node.barrier(deadline(&node, Duration::from_secs(60))).is_ok());
    running.stop();
}

#[test]
fn owner_of_a_deposed_leader_is_called_at_once() {
    let log = new_log();
    let first = open(&log, 1);
    let (sender, receiver) = channel();
    let running = first.run(move |end| sender.send(end.clone()).unwrap()).unwrap();
    wait_until("the node leads", || leads(first.database()));
    put(first.database(), b"one");
    // Another node, which the log lets in while the first one is cut off.
    log.set_connected(false);
    let second = open(&log.handle(), 2);
    let other = run(&second);
    wait_until("the other node leads", || leads(second.database()));
    log.set_connected(true);
    let end = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(end, End::Deposed), "{end}");
    assert!(matches!(first.end(), Some(End::Deposed)));
    assert!(matches!(first.barrier(u64::MAX), Err(BarrierError::NotLeader { .. })));
    running.stop();
    other.stop();
}
