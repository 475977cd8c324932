//! Collections of application types; filters and updates built with `doc!`.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

use ropewalk::documents::bson::{Bson, oid::ObjectId};
use ropewalk::documents::lang::{Filter, Sort, Update};
use ropewalk::documents::{DocumentsError, Find, TypedCollection, UpdateSpec, doc};
use ropewalk::{Class, Database, Durability, Error, Isolation};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    #[serde(rename = "_id")]
    id: String,
    customer: String,
    cents: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn order(id: &str, customer: &str, cents: u64) -> Order {
    Order { id: id.to_owned(), customer: customer.to_owned(), cents, note: None }
}

fn open() -> (Database, TypedCollection<Order>) {
    let db = Database::in_memory().unwrap();
    let orders = db.collection_of("orders").unwrap();
    for (id, customer, cents) in [("o1", "ann", 250), ("o2", "bob", 100), ("o3", "ann", 50)] {
        assert_eq!(orders.insert(&order(id, customer, cents)).unwrap(), Bson::from(id));
    }
    (db, orders)
}

fn ids(found: impl Iterator<Item = Result<Order, DocumentsError>>) -> Vec<String> {
    found.map(|order| order.unwrap().id).collect()
}

#[test]
fn d1_8_documents_are_values_of_a_type() -> Result<(), Error> {
    let (_, orders) = open();
    assert_eq!(orders.get("o2")?, Some(order("o2", "bob", 100)));
    assert_eq!((orders.get("o9")?, orders.get(7)?), (None, None));
    assert_eq!(ids(orders.find(doc! { "customer": "ann" })?), ["o1", "o3"]);
    assert_eq!(ids(orders.find(doc! { "cents": { "$lt": 200 }, "customer": "ann" })?), ["o3"]);
    let by_cents = Find::matching(Filter::try_from(doc! { "cents": { "$gte": 100 } })?);
    let by_cents = by_cents.sort(Sort::try_from(doc! { "cents": 1 })?).limit(5);
    assert_eq!(ids(orders.find_with(&by_cents)?), ["o2", "o1"]);

    let changed = orders.update(doc! { "customer": "ann" }, doc! { "$inc": { "cents": 1 } })?;
    assert_eq!((changed.matched, changed.modified), (2, 2));
    let changed = orders.update(doc! { "_id": "o1" }, doc! { "$set": { "note": "late" } })?;
    assert_eq!((changed.matched, changed.modified), (1, 1));
    assert_eq!(orders.get("o1")?.unwrap(), Order { note: Some("late".into()), ..order("o1", "ann", 251) });
    assert_eq!(orders.update(doc! { "_id": "o9" }, doc! { "$set": { "cents": 1 } })?.matched, 0);

    assert!(orders.replace("o2", &order("o2", "cleo", 7))?);
    assert_eq!(orders.get("o2")?, Some(order("o2", "cleo", 7)));
    assert!(!orders.replace("o9", &order("o9", "cleo", 7))?);
    assert_eq!(orders.delete(doc! { "_id": "o2" })?, 1);
    assert_eq!(orders.delete(doc! { "customer": "ann" })?, 2);
    assert_eq!(orders.clone().durability(Durability::Buffered).delete(doc! {})?, 0);
    assert_eq!(orders.find(doc! {})?.count(), 0);
    Ok(())
}

#[test]
fn d1_8_transaction_sees_its_own_typed_writes() -> Result<(), Error> {
    let (db, orders) = open();
    let mut tx = db.begin();
    let mut typed = orders.within(tx.documents());
    assert_eq!(typed.insert(&order("o4", "ann", 9))?, Bson::from("o4"));
    assert!(typed.replace("o1", &order("o1", "ann", 1))?);
    assert_eq!(typed.update(doc! { "customer": "bob" }, doc! { "$set": { "customer": "ann" } })?.modified, 1);
    assert_eq!(typed.delete(doc! { "cents": 50 })?, 1);
    assert_eq!(typed.get("o2")?, Some(order("o2", "ann", 100)));
    let own = typed.find(doc! { "customer": "ann" })?;
    assert_eq!(own.iter().map(|order| order.cents).collect::<Vec<_>>(), [1, 100, 9]);
    assert_eq!(typed.find_with(&Find::all().limit(1))?.len(), 1);
    assert_eq!(orders.get("o4")?, None);
    tx.rollback();
    assert_eq!(ids(orders.find(doc! {})?), ["o1", "o2", "o3"]);

    // Transfers preserve the sum, since reads are validated at commit.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    db.transact(Isolation::Serializable, usize::MAX, |tx| {
                        let mut orders = orders.within(tx.documents());
                        let mut from = orders.get("o1")?.unwrap();
                        from.cents -= 1;
                        orders.replace("o1", &from)?;
                        orders.update(doc! { "_id": "o2" }, doc! { "$inc": { "cents": 1 } })?;
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!((orders.get("o1")?.unwrap().cents, orders.get("o2")?.unwrap().cents), (170, 180));
    Ok(())
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    text: String,
}

#[test]
fn d1_8_document_without_id_gets_one() -> Result<(), Error> {
    let (db, _) = open();
    let notes = db.collection_of::<Note>("notes")?;
    let id = notes.insert(&Note { text: "a".into() })?;
    assert!(matches!(id, Bson::ObjectId(_)));
    assert_eq!(notes.get(id.clone())?.unwrap().text, "a");
    assert!(notes.get(ObjectId::from_bytes([0; 12]))?.is_none());
    // The `_id` is preserved if the type has none.
    assert!(notes.replace(id.clone(), &Note { text: "b".into() })?);
    assert_eq!(notes.get(id)?.unwrap().text, "b");
    Ok(())
}

#[test]
fn d1_8_errors_name_the_collection() -> Result<(), Error> {
    #[derive(Serialize, Deserialize)]
    struct Wide {
        #[serde(rename = "_id")]
        id: u64,
    }
    #[derive(Serialize)]
    struct Dollar {
        #[serde(rename = "$set")]
        set: i32,
    }
    let (db, orders) = open();
    let wide = db.collection_of::<Wide>("orders")?;
    wide.insert(&Wide { id: 5 })?;
    let refused = [
        orders.get("o1").map(drop).err(),
        orders.insert(&order("o1", "ann", 1)).map(drop).err(),
        wide.insert(&Wide { id: u64::MAX }).map(drop).err(),
        orders.find(doc! { "$nothing": 1 }).map(drop).err(),
        orders.update(doc! {}, doc! { "$nothing": { "a": 1 } }).map(drop).err(),
        orders.update(doc! { "_id": "o1" }, doc! { "cents": 1 }).map(drop).err(),
        orders.update(doc! { "_id": "o1" }, doc! { "$inc": { "customer": 1 } }).map(drop).err(),
        orders.replace("o1", &order("o2", "ann", 1)).map(drop).err(),
        orders.collection().typed::<Dollar>().replace("o1", &Dollar { set: 1 }).map(drop).err(),
        orders.delete(doc! { "$nothing": 1 }).map(drop).err(),
        orders.within(db.begin().documents()).find(doc! { "$nothing": 1 }).map(drop).err(),
        db.collection_of::<Note>("orders")?.get("o1").map(drop).err(),
    ];
    let [none, refused @ ..] = refused;
    assert!(none.is_none());
    for (place, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("number {place} is not refused"));
        assert!(error.to_string().contains("collection \"orders\""), "{place}: {error}");
        assert_eq!(Error::from(error).class(), Class::Invalid, "{place}");
    }
    // A reader may continue after a document of another type.
    let found: Vec<_> = orders.find(doc! {})?.collect();
    let [Err(undecoded), Ok(first), ..] = found.as_slice() else { panic!("{found:?}") };
    assert!(matches!(undecoded, DocumentsError::Undecoded { collection, .. } if collection == "orders"));
    assert_eq!((found.len(), first.id.as_str()), (4, "o1"));
    let shown = undecoded.to_string();
    assert!(
        shown.starts_with("collection \"orders\", document NumberLong(5) cannot be read as facade::"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn d1_8_filters_and_updates_come_from_documents() -> Result<(), Error> {
    let (db, orders) = open();
    let update = Update::try_from(
        doc! { "$set": { "note": "x" }, "$setOnInsert": { "cents": 5, "customer": "eve" } },
    )?;
    let spec = UpdateSpec::new(Filter::try_from(doc! { "_id": "o7" })?, update).upsert();
    let mut tx = db.begin();
    assert!(tx.documents().update_one(orders.collection(), &spec)?.upserted.is_some());
    tx.commit()?;
    assert_eq!(orders.get("o7")?, Some(Order { note: Some("x".into()), ..order("o7", "eve", 5) }));
    for wrong in [doc! { "$and": 1 }, doc! { "a": { "$gt": 1, "b": 1 } }] {
        assert!(matches!(Filter::try_from(wrong), Err(DocumentsError::Language(_))));
    }
    assert!(Update::try_from(doc! { "$set": 1 }).is_err());
    assert!(Sort::try_from(doc! { "a": "up" }).is_err());
    // The time of the conversion, not that of 1970.
    let stale = doc! { "$expr": { "$lt": ["$$NOW", { "$toDate": 1_000_000_000_000_i64 }] } };
    let stale = Find::matching(Filter::try_from(stale)?);
    assert_eq!(orders.find_with(&stale)?.count(), 0);
    Ok(())
}
