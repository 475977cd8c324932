//! Durations without end, which callers pass to say "never" and "as long as it takes".

use super::*;

#[test]
fn endless_interval_owes_no_sync_and_endless_timeout_waits_for_the_commit() {
    let (_, clock, env) = machine(12);
    let (engine, keys) = open_with_keys(&env);
    clock.advance(Duration::from_secs(1));
    let interval = Duration::MAX;
    let seq = put(&engine, keys, b"a", b"1", Durability::Async { interval }).unwrap();
    let syncs = engine.stats().log.syncs;
    clock.advance(Duration::from_secs(1_000_000));
    engine.background_step().unwrap();
    assert_eq!(engine.stats().log.syncs, syncs);
    // A shorter interval counts, whichever came first.
    put(&engine, keys, b"b", b"1", Durability::Async { interval: Duration::from_millis(1) }).unwrap();
    clock.advance(Duration::from_millis(1));
    engine.background_step().unwrap();
    assert_eq!(engine.stats().log.syncs, syncs + 1);
    assert!(engine.wait_visible(seq, Duration::MAX));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| while !engine.wait_visible(Seq(seq.0 + 2), Duration::MAX) {});
        put(&engine, keys, b"c", b"1", Durability::Buffered).unwrap();
        waits.join().unwrap();
    });
}
