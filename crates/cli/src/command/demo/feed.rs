//! Chapter 5: the change feed, a live subscription, and a check of all data.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ropewalk::changes::ChangedPart;
use ropewalk::events::Delivery;
use ropewalk::{Database, Event, Query, Seq};

use super::story::Story;
use super::{fresh, rate, took};
use crate::output::cell::thousands;
use crate::output::failure::{Failure, Result};

/// Longest wait for a live event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads everything since `since` from the change feed and compares it with `stores`.
pub(super) fn follow(story: &mut Story, db: &Database, since: Seq, stores: &[String]) -> Result {
    story.chapter("The change feed")?;
    story.say(
        "Every commit has a number, without gaps, over all stores. A reader that stores the number of its last processed commit \
         can resume at any time: the log itself is the feed. No outbox, no polling of tables, nothing skipped.",
    )?;
    let newest = db.seq();
    let mut feed = db.changes(since.next())?;
    let (mut commits, mut gapless) = (0, true);
    let mut events: HashMap<String, u64> = HashMap::new();
    let begun = Instant::now();
    while feed.next_seq() <= newest {
        let expected = feed.next_seq();
        let Some(change) = feed.next(Duration::ZERO)? else { break };
        commits += 1;
        gapless &= change.seq == expected;
        for part in &change.parts {
            if let ChangedPart::Events { store, append } = part {
                *events.entry(store.clone()).or_default() += append.len();
            }
        }
    }
    let elapsed = begun.elapsed();
    let mut complete = true;
    for store in stores {
        let head = db.existing_events(store)?.head()?.map_or(0, |head| head.0);
        complete &= events.get(store).copied().unwrap_or(0) == head;
    }
    story.say(&format!(
        "Read again from commit {}: {} commits in {}.",
        since.next(),
        thousands(commits),
        took(elapsed)
    ))?;
    story.figure("change feed", rate(commits, "commits", elapsed));
    story.check(
        gapless && commits == newest.0 - since.0,
        &format!("the feed delivered every commit from {} to {newest} once, in order", since.next()),
    )?;
    story.check(complete, &format!("and with them every event of the stores {}", stores.join(", ")))?;
    live(story, db)
}

/// A subscription that catches up and then waits for new events.
fn live(story: &mut Story, db: &Database) -> Result {
    let store = fresh(db, "orders")?;
    store.append(&[Event::new("OrderPlaced").tag("order:1")], None)?;
    let query = Query::from_types(["OrderPlaced"]);
    let mut subscription = store.subscribe(&query, None)?;
    let caught_up = loop {
        match subscription.next(PATIENCE)? {
            Some(Delivery::CaughtUp { head }) => break head.0 == 1,
            Some(_) => {}
            None => break false,
        }
    };
    let (delivered, waited) = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let delivery = subscription.next(PATIENCE)?;
            Ok::<_, Failure>((delivery, Instant::now()))
        });
        // Long enough for the subscriber to sleep, so that the append has to wake it.
        std::thread::sleep(Duration::from_millis(50));
        store.append(&[Event::new("OrderPlaced").tag("order:2")], None)?;
        let acknowledged = Instant::now();
        let (delivery, at) = waiting.join().expect("the subscriber does not panic")?;
        let delivered = matches!(delivery, Some(Delivery::Event(event)) if event.position.0 == 2);
        // The subscriber may receive the event before the writer gets its acknowledgement.
        Ok::<_, Failure>((delivered, at.saturating_duration_since(acknowledged)))
    })?;
    story.check(
        caught_up && delivered,
        "a live subscription caught up, slept, and was woken by the next append",
    )?;
    story.figure("subscriber served after the writer", took(waited));
    Ok(())
}

/// Checks all stored data.
pub(super) fn verify(story: &mut Story, db: &Database) -> Result {
    db.checkpoint()?;
    let begun = Instant::now();
    let report = db.verify()?;
    let elapsed = begun.elapsed();
    let found: Vec<String> =
        report.store.damage.iter().map(|damage| damage.what.clone()).chain(report.violations).collect();
    let what = format!(
        "verify: {} files, {} blocks, {} entries, every checksum and invariant, in {}{}",
        thousands(report.store.runs),
        thousands(report.store.blocks),
        thousands(report.store.entries),
        took(elapsed),
        if found.is_empty() { String::new() } else { format!(": {}", found.join("; ")) },
    );
    story.check(found.is_empty(), &what)
}
