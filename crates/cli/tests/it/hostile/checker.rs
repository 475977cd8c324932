//! Thirty-two clients append under random conditions over both protocols. Afterwards the log must explain
//! every response: an accepted append is stored completely, with no event that its condition excludes between
//! its `after` and itself; for a rejected one there is such an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk::Database;
use ropewalk::events::{ReadOptions, SequencedEvent};
use ropewalk_grpc::proto::umadb::v1 as proto;
use serde_json::json;

use super::calls::{Grpc, Http};
use super::{Dice, number};
use crate::Place;
use crate::serving::Server;

const CLIENTS: u64 = 32;
const APPENDS: u64 = 60;
/// Ten types and ten tags, so that conditions often meet events.
const WORDS: u64 = 10;

#[derive(Debug, Clone)]
struct Event {
    kind: String,
    tags: Vec<String>,
    data: String,
}

#[derive(Debug, Clone)]
struct Item {
    kinds: Vec<String>,
    tags: Vec<String>,
}

#[derive(Debug, Clone)]
struct Condition {
    items: Vec<Item>,
    after: Option<u64>,
}

#[derive(Debug)]
enum Answer {
    /// At this last position.
    Accepted(u64),
    /// Because of this event, where the protocol says so.
    Refused(Option<u64>),
}

#[derive(Debug)]
struct Attempt {
    events: Vec<Event>,
    condition: Option<Condition>,
    answer: Answer,
}

impl Condition {
    fn excludes(&self, event: &SequencedEvent) -> bool {
        let item = |item: &Item| {
            (item.kinds.is_empty() || item.kinds.contains(&event.event.event_type))
                && item.tags.iter().all(|tag| event.event.tags.contains(tag))
        };
        event.position.0 > self.after.unwrap_or(0) && (self.items.is_empty() || self.items.iter().any(item))
    }
}

/// `least` to `most` different words.
fn words(dice: &mut Dice, prefix: &str, least: u64, most: u64) -> Vec<String> {
    let count = least + dice.below(most - least + 1);
    let mut words: Vec<String> = (0..count).map(|_| format!("{prefix}{}", dice.below(WORDS))).collect();
    words.sort();
    words.dedup();
    words
}

fn item(dice: &mut Dice) -> Item {
    let kinds = words(dice, "type", 0, 4);
    // An item without types and tags is not allowed.
    let tags = words(dice, "tag:", u64::from(kinds.is_empty()), 3);
    Item { kinds, tags }
}

/// None in one of four appends; otherwise a random query after nothing, or after a position near the known
/// head.
fn condition(dice: &mut Dice, known: u64) -> Option<Condition> {
    let after = match dice.below(8) {
        0 | 1 => return None,
        2 => None,
        3 => Some(known + dice.below(3)),
        4 | 5 => Some(known.saturating_sub(dice.below(20))),
        _ => Some(known),
    };
    Some(Condition { items: (0..dice.below(4)).map(|_| item(dice)).collect(), after })
}

enum Wire {
    Http(Http),
    Grpc(Grpc),
}

impl Wire {
    fn append(&mut self, events: &[Event], condition: Option<&Condition>) -> Answer {
        match self {
            Self::Http(http) => {
                let events: Vec<_> = events
                    .iter()
                    .map(|event| json!({ "type": event.kind, "tags": event.tags, "data": event.data }))
                    .collect();
                let conditions: Vec<_> = condition
                    .iter()
                    .map(|condition| {
                        let items = condition.items.iter();
                        let items: Vec<_> =
                            items.map(|item| json!({ "types": item.kinds, "tags": item.tags })).collect();
                        let query = json!({ "items": items });
                        match condition.after {
                            Some(after) => json!({ "fail_if_events_match": query, "after": after }),
                            None => json!({ "fail_if_events_match": query }),
                        }
                    })
                    .collect();
                let body = json!({ "events": events, "conditions": conditions });
                match http.post("/v1/stores/default/events", &body) {
                    (200 | 201, answer) => Answer::Accepted(answer["last"].as_u64().unwrap()),
                    (409, problem) => {
                        assert_eq!(problem["code"], "condition_failed");
                        Answer::Refused(Some(problem["conflict"]["position"].as_u64().unwrap()))
                    }
                    other => panic!("{other:?}"),
                }
            }
            Self::Grpc(grpc) => {
                let condition = condition.map(|condition| proto::AppendCondition {
                    fail_if_events_match: Some(proto::Query {
                        items: condition
                            .items
                            .iter()
                            .map(|item| proto::QueryItem {
                                types: item.kinds.clone(),
                                tags: item.tags.clone(),
                            })
                            .collect(),
                    }),
                    after: condition.after,
                });
                let event = |event: &Event| proto::Event {
                    event_type: event.kind.clone(),
                    tags: event.tags.clone(),
                    // As HTTP stores a text.
                    data: serde_json::to_vec(&event.data).unwrap(),
                    ..Default::default()
                };
                let events = events.iter().map(event).collect();
                let request = proto::AppendRequest { events, condition, tracking_info: None };
                match grpc.runtime.block_on(grpc.client.append(request)) {
                    Ok(answer) => Answer::Accepted(answer.into_inner().position),
                    Err(status) if status.code() == tonic::Code::FailedPrecondition => Answer::Refused(None),
                    Err(status) => panic!("{status:?}"),
                }
            }
        }
    }
}

/// One client; half of them speak gRPC.
fn client(seed: u64, number: u64, addresses: &[String; 2], known: &AtomicU64) -> Vec<Attempt> {
    let mut dice = Dice(seed << 32 | number);
    let mut wire = if number.is_multiple_of(2) {
        Wire::Http(Http::connect(&addresses[0]))
    } else {
        Wire::Grpc(Grpc::connect(&addresses[1]))
    };
    let mut newest = 0;
    let mut attempts = Vec::new();
    for turn in 0..APPENDS {
        let events: Vec<_> = (0..=dice.below(3))
            .map(|i| Event {
                kind: format!("type{}", dice.below(WORDS)),
                tags: words(&mut dice, "tag:", 0, 3),
                data: format!("{number}-{turn}-{i}"),
            })
            .collect();
        let condition = condition(&mut dice, known.load(Ordering::Relaxed));
        let answer = wire.append(&events, condition.as_ref());
        if let Answer::Accepted(last) = answer {
            assert!(last > newest, "an append of one client got {last} after {newest}");
            newest = last;
            known.fetch_max(last, Ordering::Relaxed);
        }
        attempts.push(Attempt { events, condition, answer });
    }
    attempts
}

/// Fails unless `log` explains the attempt; returns how many of its events are stored.
fn explained(attempt: &Attempt, log: &[SequencedEvent]) -> usize {
    let Attempt { events, condition, answer } = attempt;
    match answer {
        Answer::Accepted(last) => {
            let first = *last as usize - events.len();
            for (event, there) in events.iter().zip(&log[first..]) {
                assert_eq!((&event.kind, &event.tags), (&there.event.event_type, &there.event.tags));
                assert_eq!(serde_json::to_vec(&event.data).unwrap(), there.event.data);
            }
            let before = condition.iter().flat_map(|condition| {
                log[..first].iter().filter(|event| condition.excludes(event)).map(|event| event.position)
            });
            assert_eq!(before.count(), 0, "accepted against its condition: {attempt:?}");
            events.len()
        }
        Answer::Refused(because) => {
            let condition = condition.as_ref().expect("only conditions refuse");
            match because {
                Some(position) => assert!(condition.excludes(&log[*position as usize - 1]), "{attempt:?}"),
                None => assert!(log.iter().any(|event| condition.excludes(event)), "{attempt:?}"),
            }
            0
        }
    }
}

fn check(seed: u64) {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let addresses = Arc::new([server.address("http").to_owned(), server.address("grpc").to_owned()]);
    let known = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (addresses, known) = (addresses.clone(), known.clone());
            std::thread::spawn(move || client(seed, number, &addresses, &known))
        })
        .collect();
    let attempts: Vec<Attempt> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    super::ends_clean(&place, server);
    let db = Database::open(place.path().join("ropewalk.db")).unwrap();
    let store = db.existing_events("default").unwrap();
    let log: Vec<_> =
        store.read(&ropewalk::Query::all(), ReadOptions::default()).unwrap().map(Result::unwrap).collect();
    assert!(log.iter().zip(1..).all(|(event, position)| event.position.0 == position));
    let there: usize = attempts.iter().map(|attempt| explained(attempt, &log)).sum();
    assert_eq!(there, log.len(), "seed {seed}: events that nobody was told of");
    let refused = attempts.iter().filter(|attempt| matches!(attempt.answer, Answer::Refused(_))).count();
    let conditional = attempts.iter().filter(|attempt| attempt.condition.is_some()).count();
    assert!(refused > 50 && conditional - refused > 50, "seed {seed}: {refused} of {conditional} refused");
}

#[test]
fn no_committed_event_violates_its_condition() {
    for seed in 1..=number("ROPEWALK_SEEDS", 2) {
        check(seed);
    }
}

/// Tests the checker: a log with the same append twice, each under the condition that it is the first.
#[test]
#[should_panic(expected = "accepted against its condition")]
fn checker_detects_a_violated_condition() {
    let place = Place::new();
    let db = Database::open(place.path().join("ropewalk.db")).unwrap();
    let store = db.events("default").unwrap();
    let event = Event { kind: "type1".into(), tags: vec!["tag:1".into()], data: "1-0-0".into() };
    for _ in 0..2 {
        let data = serde_json::to_vec(&event.data).unwrap();
        let twice = ropewalk::Event {
            event_type: event.kind.clone(),
            tags: event.tags.clone(),
            data,
            id: None,
            metadata: Vec::new(),
        };
        store.append(&[twice], None).unwrap();
    }
    let log: Vec<_> =
        store.read(&ropewalk::Query::all(), ReadOptions::default()).unwrap().map(Result::unwrap).collect();
    let first = Condition { items: vec![Item { kinds: Vec::new(), tags: event.tags.clone() }], after: None };
    let attempt = |last| Attempt {
        events: vec![event.clone()],
        condition: Some(first.clone()),
        answer: Answer::Accepted(last),
    };
    assert_eq!(explained(&attempt(1), &log), 1);
    explained(&attempt(2), &log);
}
