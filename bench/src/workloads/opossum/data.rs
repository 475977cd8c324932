//! The events and the queries of the Opossum report.
//!
//! Types in turn; tags are the first `tag_count` of ten keys, each value drawn from one pool of ten, so that a tag with
//! its value hits 10 % and two of them 1 %. Payloads are JSON of about 116 bytes. The report's random stream is .NET's
//! and cannot be repeated; ours has the same seed number and the same shares.

use crate::harness::random::SplitMix;
use crate::workloads::events::event_store::{Event, Query};

/// The four types of the append and read rows.
pub const FOUR_TYPES: &[&str] = &["OrderCreated", "OrderShipped", "OrderDelivered", "OrderCancelled"];
/// The five types of the query rows.
pub const FIVE_TYPES: &[&str] =
    &["OrderCreated", "OrderShipped", "OrderDelivered", "OrderCancelled", "PaymentProcessed"];
/// The two types of the isolated descending row.
pub const TWO_TYPES: &[&str] = &["OrderCreated", "OrderShipped"];

const KEYS: [&str; 10] = [
    "Region",
    "Environment",
    "Tenant",
    "UserId",
    "OrderId",
    "ProductId",
    "CategoryId",
    "Priority",
    "Status",
    "Version",
];
const POOL: [&str; 10] = [
    "US-West",
    "Production",
    "Tenant123",
    "User456",
    "Order789",
    "Product001",
    "Category-A",
    "High",
    "Active",
    "v1.0",
];

/// Makes the report's events, one after the other.
#[derive(Debug, Clone)]
pub struct Maker {
    types: &'static [&'static str],
    tag_count: usize,
    data_bytes: usize,
    random: SplitMix,
    made: usize,
}

impl Maker {
    /// Events of these types with this many tags.
    pub fn new(types: &'static [&'static str], tag_count: usize) -> Self {
        Self { types, tag_count, data_bytes: 0, random: SplitMix::new(42), made: 0 }
    }

    /// The same events with payloads padded to at least this size.
    pub fn padded(mut self, data_bytes: usize) -> Self {
        self.data_bytes = data_bytes;
        self
    }

    /// The next `n` events.
    pub fn take(&mut self, n: usize) -> Vec<Event> {
        (0..n).map(|_| self.event()).collect()
    }

    fn event(&mut self) -> Event {
        let (i, kind) = (self.made, self.types.iter().cycle().nth(self.made % self.types.len()));
        self.made += 1;
        let id = self.guid();
        let mut data = format!(
            r#"{{"Id":"{id}","Data":"Event data {i}","Timestamp":"2025-01-28T{:02}:{:02}:{:02}.{:07}Z"}}"#,
            i / 3600 % 24,
            i / 60 % 60,
            i % 60,
            i % 10_000_000
        );
        if data.len() < self.data_bytes {
            data += &"x".repeat(self.data_bytes - data.len());
        }
        let keys = KEYS.iter().take(self.tag_count);
        let tags = keys.map(|key| format!("{key}={}", self.random.pick(&POOL))).collect();
        Event {
            kind: kind.map_or_else(String::new, |kind| (*kind).to_owned()),
            data: data.into_bytes(),
            tags,
        }
    }

    /// Like the report's ids: random, 36 characters.
    pub fn guid(&mut self) -> String {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

/// The event of the row with a condition: one new tag, and the query for it.
pub fn registration(maker: &mut Maker) -> (Event, Query) {
    let tag = format!("studentEmail=test-{}@example.com", maker.guid());
    let mut event = maker.event();
    event.tags = vec![tag.clone()];
    (event, Query::of(&[], &[&tag]))
}

/// The store of the rebuild rows: 50, 250 and 500 events of a type each, tags for a student's id and mail.
pub fn students() -> Vec<Event> {
    let mut maker = Maker::new(&["Student"], 0);
    let mut all = Vec::new();
    for count in [50, 250, 500] {
        for mut event in maker.take(count) {
            event.kind = format!("Student{count}");
            event.tags = vec![
                format!("studentId={}", maker.guid()),
                format!("studentEmail={}@example.com", maker.guid()),
            ];
            all.push(event);
        }
    }
    all
}

/// One of the report's query rows, over 2,000 events of five types with five tags.
#[derive(Debug)]
pub struct QueryCase {
    /// Last part of the row ids.
    pub name: &'static str,
    /// In plain words.
    pub what: &'static str,
    /// The query as coded.
    pub query: Query,
    /// True when it asks for descending order.
    pub backward: bool,
    /// True when five tags cannot contain the requested one; with ten the query matches its label.
    pub never_hits: bool,
    /// The report's mean in milliseconds.
    pub reported_ms: f64,
}

const REGION: &str = "Region=US-West";
const ENVIRONMENT: &str = "Environment=Production";

/// The query rows in the report's order.
pub fn query_cases() -> Vec<QueryCase> {
    let case = |name, what, query, reported_ms| QueryCase {
        name,
        what,
        query,
        backward: false,
        never_hits: false,
        reported_ms,
    };
    vec![
        case(
            "type_and_tag",
            "type + tag (the report's baseline)",
            Query::of(&["OrderCreated"], &[REGION]),
            5.39,
        ),
        case(
            "types_and_tags",
            "2 types + 2 tags",
            Query::of(&["OrderCreated", "OrderShipped"], &[REGION, ENVIRONMENT]),
            3.80,
        ),
        QueryCase {
            backward: true,
            ..case(
                "descending",
                "2 types, descending (the report compares 800 events with 40)",
                Query::of(&["OrderCreated", "OrderShipped"], &[]),
                67.70,
            )
        },
        QueryCase {
            never_hits: true,
            ..case(
                "high_selectivity",
                "type + 2 tags",
                Query::of(&["OrderCancelled"], &["Priority=High", "Status=Active"]),
                0.55,
            )
        },
        case(
            "low_selectivity",
            "3 types",
            Query::of(&["OrderCreated", "OrderShipped", "OrderDelivered"], &[]),
            100.64,
        ),
        case(
            "or",
            "2 query items",
            Query::of(&["OrderCreated"], &[REGION]).or(&["OrderShipped"], &[ENVIRONMENT]),
            9.88,
        ),
        QueryCase {
            backward: true,
            ..case(
                "payments_of_tenant",
                "2 types + 2 tags, descending",
                Query::of(&["PaymentProcessed", "OrderCreated"], &["Tenant=Tenant123", ENVIRONMENT]),
                4.58,
            )
        },
        QueryCase {
            never_hits: true,
            ..case(
                "orders_in_state",
                "2 types + tag, or type + tag",
                Query::of(&["OrderCreated", "OrderShipped"], &["Status=Active"])
                    .or(&["OrderDelivered"], &["Priority=High"]),
                1.36,
            )
        },
    ]
}

/// One of the report's read rows, over events of four types with three tags.
#[derive(Debug)]
pub struct ReadCase {
    /// Middle part of the row ids.
    pub name: &'static str,
    /// In plain words.
    pub what: &'static str,
    /// The query.
    pub query: Query,
    /// The report's mean in milliseconds at 100, 1K and 10K events; 0 where it has none.
    pub reported_ms: [f64; 3],
    /// The report's allocation at the same sizes, in bytes; 0 where it has none.
    pub reported_bytes: [f64; 3],
}

/// The read rows in the report's order.
pub fn read_cases() -> Vec<ReadCase> {
    let case = |name, what, query, reported_ms, reported_bytes| ReadCase {
        name,
        what,
        query,
        reported_ms,
        reported_bytes,
    };
    let three = ["OrderCreated", "OrderShipped", "OrderDelivered"];
    vec![
        case(
            "type",
            "a type (25 %)",
            Query::of(&["OrderCreated"], &[]),
            [4.13, 23.10, 205.58],
            [171e3, 1.5e6, 14.8e6],
        ),
        case("tag", "a tag (10 %)", Query::of(&[], &[REGION]), [3.70, 10.59, 82.33], [63e3, 621e3, 5.6e6]),
        case("all", "every event", Query::all(), [10.04, 85.80, 831.01], [570e3, 5.6e6, 56e6]),
        case("types", "3 types (75 %)", Query::of(&three, &[]), [0.0, 66.55, 0.0], [0.0, 4.4e6, 0.0]),
        case(
            "tags",
            "2 tags (1 %)",
            Query::of(&[], &[REGION, ENVIRONMENT]),
            [0.0, 4.88, 0.0],
            [0.0, 100e3, 0.0],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_look_like_the_reports() {
        let events = Maker::new(FOUR_TYPES, 3).take(10_000);
        let mean = events.iter().map(|e| e.data.len()).sum::<usize>() / events.len();
        assert!((112..=120).contains(&mean), "{mean} bytes");
        assert_eq!(events.iter().filter(|e| e.kind == "OrderCreated").count(), 2500);
        let has = |event: &Event, tag: &&str| event.tags.iter().any(|t| t == tag);
        let count = |tags: &[&str]| events.iter().filter(|e| tags.iter().all(|tag| has(e, tag))).count();
        let (one, both) = (count(&[REGION]), count(&[REGION, ENVIRONMENT]));
        assert!((900..1100).contains(&one) && (70..130).contains(&both), "{one}, {both}");
        assert_eq!(Maker::new(FOUR_TYPES, 0).padded(1000).take(1)[0].data.len(), 1000);
        assert_eq!(students().len(), 800);
    }
}
