//! `#[derive(Event)]`: types, tags, versions, personal data and formats of events.

use std::collections::BTreeSet;

use ropewalk::events::{
    ApplyError, EventsError, FromEvent, PersonalData, ReadOptions, ToEvent, VERSION_KEY, to_events,
    typed_projection,
};
use ropewalk::{Database, Event, EventStore, Query};
use serde::{Deserialize, Serialize};

/// An order with several lines.
#[derive(Debug, Clone, PartialEq, Event)]
enum Shop {
    #[event(name = "order-placed", version = 3, upcast_from(1) = Shop::from_first, upcast_from(2) = from_second)]
    #[serde(rename_all = "camelCase")]
    OrderPlaced {
        #[event(tag = "order")]
        id: u64,
        #[event(tag = "sku", each = Line::sku)]
        lines: Vec<Line>,
        #[event(tag, each)]
        coupon: Option<String>,
        #[event(personal)]
        ship_to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    OrderPaid {
        #[event(tag)]
        order: u64,
    },
    Closed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    sku: String,
    count: u32,
}

impl Line {
    fn sku(&self) -> &str {
        &self.sku
    }
}

#[derive(Deserialize)]
struct First {
    id: u64,
    sku: String,
}

#[derive(Deserialize)]
struct Second {
    id: u64,
    lines: Vec<Line>,
}

impl Shop {
    fn from_first(old: First) -> Self {
        from_second(Second { id: old.id, lines: vec![Line { sku: old.sku, count: 1 }] })
    }
}

fn from_second(old: Second) -> Shop {
    placed(old.id, old.lines)
}

fn placed(id: u64, lines: Vec<Line>) -> Shop {
    Shop::OrderPlaced { id, lines, coupon: None, ship_to: String::new(), note: None }
}

fn line(sku: &str, count: u32) -> Line {
    Line { sku: sku.to_owned(), count }
}

fn store() -> EventStore {
    Database::in_memory().unwrap().events("shop").unwrap()
}

fn stored(store: &EventStore) -> Vec<Result<Shop, EventsError>> {
    let events = store.read(&Query::all(), ReadOptions::default()).unwrap().decoded::<Shop>();
    events.map(|event| event.map(|(_, event)| event)).collect()
}

#[test]
fn derived_events_come_back_as_they_were_appended() {
    let store = store();
    let full = Shop::OrderPlaced {
        id: 7,
        lines: vec![line("rope", 2), line("hook", 1), line("rope", 1)],
        coupon: Some("SPRING".into()),
        ship_to: "1 Main Street".into(),
        note: Some("ring twice".into()),
    };
    let events = [full, placed(8, Vec::new()), Shop::OrderPaid { order: 7 }, Shop::Closed];
    store.append(&to_events(&events).unwrap(), None).unwrap();
    let back: Vec<Shop> = stored(&store).into_iter().map(Result::unwrap).collect();
    assert_eq!(back, events);
    assert_eq!(Shop::TYPES, ["order-placed", "OrderPaid", "Closed"]);

    let paid = typed_projection(Shop::tagged(["order:7"]), 0_u64, |count, event: Shop| {
        *count += u64::from(event == Shop::OrderPaid { order: 7 });
    });
    assert_eq!(store.decision(&paid).unwrap().state, 1);
}

#[test]
fn tags_come_from_fields_once_each() {
    let event = Shop::OrderPlaced {
        id: 7,
        lines: vec![line("rope", 2), line("hook", 1), line("rope", 1)],
        coupon: Some("SPRING".into()),
        ship_to: String::new(),
        note: None,
    };
    let event = event.to_event().unwrap();
    assert_eq!(event.event_type, "order-placed");
    assert_eq!(event.tags, ["order:7", "sku:rope", "sku:hook", "coupon:SPRING"]);
    assert_eq!(placed(1, Vec::new()).to_event().unwrap().tags, ["order:1"]);
    assert!(Shop::Closed.to_event().unwrap().tags.is_empty());
}

#[test]
fn data_is_the_fields_as_serde_names_them() {
    let json = |event: &Shop| String::from_utf8(event.to_event().unwrap().data).unwrap();
    assert_eq!(
        json(&placed(1, vec![line("rope", 2)])),
        r#"{"id":1,"lines":[{"sku":"rope","count":2}],"coupon":null,"shipTo":""}"#
    );
    assert_eq!(json(&Shop::OrderPaid { order: 1 }), r#"{"order":1}"#);
    assert_eq!(json(&Shop::Closed), "{}");
}

#[test]
fn earlier_versions_are_upcast_and_later_ones_are_errors() {
    let store = store();
    let event = placed(1, Vec::new()).to_event().unwrap();
    assert_eq!(event.metadata, [(VERSION_KEY.to_owned(), "3".to_owned())]);
    assert!(Shop::Closed.to_event().unwrap().metadata.is_empty());

    let event =
        |version: &str, data: &str| Event::new("order-placed").data(data).metadata(VERSION_KEY, version);
    let second = r#"{"id":2,"lines":[{"sku":"hook","count":5}]}"#;
    let events = [
        Event::new("order-placed").data(r#"{"id":1,"sku":"rope"}"#),
        event("2", second),
        event("2", r#"{"id":2}"#),
        event("4", "{}"),
        event("one", "{}"),
        Event::new("OrderPaid").data(r#"{"order":9,"more":true}"#),
        Event::new("Unknown"),
    ];
    store.append(&events, None).unwrap();
    let found = stored(&store);
    assert_eq!(found[0].as_ref().unwrap(), &placed(1, vec![line("rope", 1)]));
    assert_eq!(found[1].as_ref().unwrap(), &placed(2, vec![line("hook", 5)]));
    assert_eq!(found[5].as_ref().unwrap(), &Shop::OrderPaid { order: 9 });
    let message = |index: usize| found[index].as_ref().unwrap_err().to_string();
    assert!(message(2).contains("missing field `lines`"), "{}", message(2));
    let cannot =
        |position, kind| format!("the event at position {position}, of type {kind:?}, cannot be applied: ");
    assert_eq!(
        message(3),
        cannot(4, "order-placed")
            + "version 4 of event type \"order-placed\" is unknown: versions 1 to 3 can be read"
    );
    assert_eq!(message(4), cannot(5, "order-placed") + "metadata \"event_version\" is \"one\", not a number");
    assert_eq!(
        message(6),
        cannot(7, "Unknown")
            + "event type \"Unknown\" is not one of [\"order-placed\", \"OrderPaid\", \"Closed\"]"
    );
}

#[test]
fn personal_fields_are_listed_and_hidden() {
    let event = Shop::OrderPlaced {
        id: 7,
        lines: Vec::new(),
        coupon: None,
        ship_to: "1 Main Street".into(),
        note: None,
    };
    let shown = "OrderPlaced { id: 7, lines: [], coupon: None, ship_to: [personal], note: None }";
    assert_eq!(event.redacted().to_string(), shown);
    assert_eq!(format!("{:?}", event.redacted()), shown);
    assert_eq!(Shop::Closed.redacted().to_string(), "Closed");
    assert_eq!(Shop::PERSONAL, [("order-placed", &["ship_to"][..])]);
}

/// A format of this test: the fields, sorted by name and separated by semicolons.
mod lines {
    use super::ApplyError;

    pub(super) fn to_vec<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, ApplyError> {
        let serde_json::Value::Object(fields) = serde_json::to_value(value)? else {
            return Err("no struct".into());
        };
        let mut fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fields.sort();
        Ok(fields.join(";").into_bytes())
    }

    pub(super) fn from_slice<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ApplyError> {
        let mut fields = serde_json::Map::new();
        for field in std::str::from_utf8(bytes)?.split(';') {
            let (name, value) = field.split_once('=').ok_or("a field without a value")?;
            fields.insert(name.to_owned(), serde_json::from_str(value)?);
        }
        Ok(serde_json::from_value(fields.into())?)
    }
}

#[derive(Debug, PartialEq, Event)]
#[event(name = "temperature", codec = lines)]
#[serde(rename_all = "UPPERCASE")]
struct Measured {
    #[event(tag)]
    r#in: String,
    degrees: f64,
    #[event(tag, each)]
    sensors: BTreeSet<u8>,
}

#[test]
fn struct_is_one_type_of_events_in_the_format_of_its_codec() {
    let measured = Measured { r#in: "hall".into(), degrees: 20.5, sensors: BTreeSet::from([1, 2]) };
    let event = measured.to_event().unwrap();
    assert_eq!((event.event_type.as_str(), Measured::TYPES), ("temperature", &["temperature"][..]));
    assert_eq!(event.tags, ["in:hall", "sensors:1", "sensors:2"]);
    assert_eq!(event.data, br#"DEGREES=20.5;IN="hall";SENSORS=[1,2]"#);
    let store = store();
    store.append(&[event, Event::new("temperature").data("IN")], None).unwrap();
    let found = store.read(&Measured::query(), ReadOptions::default()).unwrap().decoded::<Measured>();
    let found: Vec<_> = found.map(|event| event.map(|(_, event)| event)).collect();
    assert_eq!(found[0].as_ref().unwrap(), &measured);
    assert!(found[1].as_ref().unwrap_err().to_string().ends_with("a field without a value"));
    assert!(Measured::PERSONAL.is_empty());
}
