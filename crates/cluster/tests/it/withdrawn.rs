//! Checkpoints of a node whose contents were found to differ.

use std::path::Path;
use std::time::Duration;

use ropewalk::engine::Env;
use ropewalk_cluster::checkpoint::{CheckpointError, Joined, UpkeepDone};
use ropewalk_log::shared::SharedLog as _;
use ropewalk_vfs::Clock as _;

use crate::checkpoints::{DB, cluster, join_with, make, replicate, upkeep};

#[test]
fn withdrawn_checkpoints_are_used_by_no_node_and_another_node_makes_the_next_one() {
    let (log, store, leader, follower) = cluster();
    for number in 1..=2 {
        replicate(&leader, &follower, number);
        make(&store, &follower);
    }
    let mut of_leader = upkeep(&store, &leader);
    let later = |count: u64| count * Duration::from_secs(3600).as_nanos() as u64;
    assert!(of_leader.step(leader.clock.monotonic_nanos()).done.is_empty());
    assert_eq!(of_leader.status().newest.map(|newest| newest.number), Some(2));

    let name = [follower.number; 16];
    assert_eq!(store.checkpoints().withdraw(&name).unwrap(), 2);
    assert_eq!(store.checkpoints().withdraw(&name).unwrap(), 2, "it may be repeated");
    assert!(matches!(store.checkpoints().verify(2), Err(CheckpointError::Withdrawn { number: 2 })));
    // Neither a new node nor a restored database begins with one.
    let (joined, rejected) = join_with(&store, &Env::memory(), &log);
    assert_eq!((joined.unwrap(), rejected), (Joined::FromFirstEntry, vec![2, 1]));
    let restored = store.checkpoints().restore(&Env::memory(), Path::new(DB), &mut |_| {});
    let Err(error @ CheckpointError::NoneComplete { .. }) = restored else { panic!("{restored:?}") };
    assert!(error.to_string().contains("checkpoint 2 was withdrawn"), "{error}");

    // The leader does not trim because of them, and makes the next one from nothing.
    let done = of_leader.step(later(1)).done;
    let unusable = done.iter().filter(|done| matches!(done, UpkeepDone::Unusable { .. })).count();
    let made = done.iter().find_map(|done| match done {
        UpkeepDone::Made(made) => Some(made),
        _ => None,
    });
    let made = made.unwrap_or_else(|| panic!("{done:?}"));
    assert_eq!((unusable, made.number, made.bytes), (2, 3, made.stored_bytes));
    assert_eq!(log.bounds().unwrap().oldest.0, 1);
    let (joined, rejected) = join_with(&store, &Env::memory(), &log);
    assert!(
        matches!(joined, Ok(Joined::FromCheckpoint { number: 3, .. })) && rejected.is_empty(),
        "{joined:?}"
    );

    // Checkpoints that the node makes with contents of others are as good as theirs; the mark goes with the last wrong one.
    replicate(&leader, &follower, 3);
    make(&store, &follower);
    assert_eq!(store.names("withdrawn").len(), 1);
    store.checkpoints().collect(4).unwrap();
    store.verify([3, 4]);
    assert_eq!(store.names("withdrawn"), [""; 0]);
    assert_eq!(store.names("checkpoints").len(), 2);
}
