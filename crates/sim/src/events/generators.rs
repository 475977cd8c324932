//! Generators of random events, queries, conditions and keys, from a small vocabulary, so that they overlap.

use ropewalk::events::{QueryItem, ReadOptions};
use ropewalk::{AppendCondition, Event, Position, Query};
use uuid::Uuid;

use crate::events::rng::Dice;

pub(crate) const STORES: [&str; 3] = ["orders", "users", "a store with a long name"];
const WORDS: u64 = 10;

fn words(dice: &Dice, prefix: &str, count: u64) -> Vec<String> {
    let mut words: Vec<String> = (0..count).map(|_| format!("{prefix}{}", dice.below(WORDS))).collect();
    words.sort();
    words.dedup();
    words
}

/// Makes events, each one different from every other.
#[derive(Default)]
pub(crate) struct Author {
    written: u64,
}

impl Author {
    pub(crate) fn event(&mut self, dice: &Dice) -> Event {
        self.written += 1;
        let mut event = Event::new(format!("Type{}", dice.below(WORDS)));
        event.tags = words(dice, "tag:", dice.below(4));
        let filler = match dice.below(40) {
            0 => dice.between(5_000, 40_000),
            1..8 => dice.between(400, 3_000),
            _ => dice.below(200),
        };
        event.data = self.written.to_string().into_bytes();
        event.data.extend(dice.bytes(filler as usize));
        if dice.one_in(4) {
            event.id = Some(Uuid::from_u64_pair(dice.number(), self.written));
        }
        if dice.one_in(4) {
            event.metadata.push(("writer".to_owned(), self.written.to_string()));
        }
        event
    }

    pub(crate) fn events(&mut self, dice: &Dice) -> Vec<Event> {
        let count = if dice.one_in(30) { dice.between(20, 60) } else { dice.between(1, 5) };
        (0..count).map(|_| self.event(dice)).collect()
    }
}

pub(crate) fn query(dice: &Dice) -> Query {
    let items = (0..dice.below(4)).map(|_| {
        let mut item = QueryItem::new(words(dice, "Type", dice.below(5)), words(dice, "tag:", dice.below(4)));
        if dice.one_in(6) {
            item.type_prefixes = words(dice, "Type", 1);
        }
        if dice.one_in(6) {
            item.tag_prefixes = words(dice, "tag:", 1);
        }
        // An item without conditions is refused; "all events" is the query without items.
        if item.is_empty() { QueryItem::new(["Type0"], ["tag:0"]) } else { item }
    });
    Query::from_items(items)
}

pub(crate) fn condition(dice: &Dice, head: u64) -> AppendCondition {
    let query = if dice.one_in(10) { Query::all() } else { query(dice) };
    let after = match dice.below(6) {
        0 => None,
        1 => Some(dice.below(head + 1)),
        2 => Some(head + dice.below(3)),
        _ => Some(head.saturating_sub(dice.below(8))),
    };
    AppendCondition { fail_if_events_match: query, after: after.map(Position) }
}

pub(crate) fn read_options(dice: &Dice, head: u64) -> ReadOptions {
    let position = |one_in: u64| {
        let wild = if dice.one_in(12) { u64::MAX - dice.below(2) } else { dice.below(head + 3) };
        dice.one_in(one_in).then_some(Position(wild))
    };
    ReadOptions {
        from: position(3),
        after: position(3),
        before: position(3),
        backwards: dice.one_in(2),
        limit: dice.one_in(3).then(|| dice.below(12)),
    }
}

/// Larger than the memory that writes may take with the smallest budget, 256 KiB.
pub(crate) const HUGE_BYTES: u64 = 300_000;

pub(crate) fn key(dice: &Dice) -> Vec<u8> {
    match dice.below(12) {
        0 => Vec::new(),
        1 => vec![0xff; dice.below(3) as usize],
        2 => [b"key".to_vec(), vec![b'x'; 300], dice.below(5).to_be_bytes().to_vec()].concat(),
        3 => dice.below(200).to_be_bytes().to_vec(),
        _ => format!("key{:02}", dice.below(40)).into_bytes(),
    }
}

pub(crate) fn value(dice: &Dice) -> Vec<u8> {
    let len = if dice.one_in(25) { dice.between(2_000, 20_000) } else { dice.below(120) };
    dice.bytes(len as usize)
}

/// As [`value`], rarely one that is larger than the memory that writes may take.
pub(crate) fn any_value(dice: &Dice) -> Vec<u8> {
    if dice.one_in(80) { dice.bytes(dice.between(70_000, HUGE_BYTES) as usize) } else { value(dice) }
}

/// Start and end of a range that often holds something.
pub(crate) fn range(dice: &Dice) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = (key(dice), key(dice));
    if a <= b { (a, b) } else { (b, a) }
}

/// Bytes in the short form of a trace.
pub(crate) fn show(bytes: &[u8]) -> String {
    let shown: String =
        bytes.iter().take(24).flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    if bytes.len() > 24 { format!("{shown}… ({} bytes)", bytes.len()) } else { shown }
}
