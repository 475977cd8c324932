//! Rules of collections: validators, references, quotas.

use bson::doc;
use ropewalk_documents::{Caller, CollectionOptions, IndexDef, OnDelete, Reference};

use super::*;

fn refers(field: &str, collection: &str, on_delete: OnDelete) -> CollectionOptions {
    let reference = Reference { field: field.into(), collection: collection.into(), on_delete };
    CollectionOptions { references: vec![reference], ..CollectionOptions::default() }
}

#[test]
fn validator_rejects_non_matching_documents() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 1, "age": -5 }, doc! { "_id": 2, "age": 5 }]);
    let rule = |moderate: bool| CollectionOptions {
        validator: Some(d(doc! { "age": { "$gte": 0 } })),
        moderate,
        ..CollectionOptions::default()
    };
    c.set_options(rule(false)).unwrap();
    let error = c.insert_one(&b(doc! { "_id": 3, "age": -1 }), SYNC).unwrap_err();
    assert_eq!((error.code(), error.code_name().as_str()), (121, "DocumentValidationFailure"));
    c.insert_one(&b(doc! { "_id": 3, "age": 1 }), SYNC).unwrap();
    let set =
        |id: i32, age: i32| c.update_one(&spec(doc! { "_id": id }, doc! { "$set": { "age": age } }), SYNC);
    assert_eq!(set(2, -1).unwrap_err().code(), 121);
    assert_eq!(set(1, -1).unwrap_err().code(), 121);
    c.set_options(rule(true)).unwrap();
    assert_eq!(set(2, -1).unwrap_err().code(), 121);
    set(1, -1).unwrap();
    c.set_options(CollectionOptions { protected: true, ..rule(true) }).unwrap();
    assert_eq!(c.set_options(rule(false)).unwrap_err().code(), 20);
    c.set_options(CollectionOptions { protected: true, ..rule(true) }).unwrap();
}

#[test]
fn references_restrict_set_null_and_cascade() {
    let db = Db::new();
    let users = seeded(&db, "users", (0..6).map(|n| doc! { "_id": n }));
    let [orders, notes, likes] = ["orders", "notes", "likes"].map(|name| db.coll(name));
    orders.create(refers("user", "users", OnDelete::Restrict)).unwrap();
    notes.create(refers("user", "users", OnDelete::SetNull)).unwrap();
    likes.create(refers("by", "users", OnDelete::Cascade)).unwrap();
    likes.create_index(&IndexDef::on(["by"])).unwrap();
    let replies = db.coll("replies");
    replies.create(refers("like", "likes", OnDelete::Cascade)).unwrap();

    let error = orders.insert_one(&b(doc! { "_id": 1, "user": 77 }), SYNC).unwrap_err();
    assert_eq!(error.to_string(), "collection \"orders\", reference \"user\": users has no document 77");
    orders.insert_one(&b(doc! { "_id": 1, "user": 1 }), SYNC).unwrap();
    orders.insert_one(&b(doc! { "_id": 2, "user": null }), SYNC).unwrap();
    orders.insert_one(&b(doc! { "_id": 3 }), SYNC).unwrap();
    notes.insert_one(&b(doc! { "_id": 1, "user": 2 }), SYNC).unwrap();
    notes.insert_one(&b(doc! { "_id": 2, "user": [2, 3] }), SYNC).unwrap();
    likes.insert_one(&b(doc! { "_id": 1, "by": 2 }), SYNC).unwrap();
    likes.insert_one(&b(doc! { "_id": 2, "by": 3 }), SYNC).unwrap();
    replies.insert_one(&b(doc! { "_id": 1, "like": 1 }), SYNC).unwrap();
    replies.insert_one(&b(doc! { "_id": 2, "like": 2 }), SYNC).unwrap();

    let error = users.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap_err();
    assert_eq!(error.to_string(), "collection \"orders\", reference \"user\": document 1 still refers to 1");
    users.delete_one(&f(doc! { "_id": 2 }), SYNC).unwrap();
    assert_eq!(db.all(&notes), [doc! { "_id": 1, "user": null }, doc! { "_id": 2, "user": [3] }]);
    assert_eq!(ids(&db.all(&likes)), [2]);
    assert_eq!(ids(&db.all(&replies)), [2]);
    let moved =
        orders.update_one(&spec(doc! { "_id": 3 }, doc! { "$set": { "user": 2 } }), SYNC).unwrap_err();
    assert_eq!(moved.code(), 121);
    assert_eq!(users.drop_collection().unwrap_err().code(), 72);
    orders.drop_collection().unwrap();
    users.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap();
    db.documents.transact(SYNC, |tx| tx.drop_database("app")).unwrap();
    db.verify();
}

#[test]
fn cascade_deletes_a_self_referencing_tree() {
    let db = Db::new();
    let tree = db.coll("tree");
    tree.create(refers("parent", "tree", OnDelete::Cascade)).unwrap();
    tree.insert_one(&b(doc! { "_id": 0 }), SYNC).unwrap();
    for n in 1..200 {
        tree.insert_one(&b(doc! { "_id": n, "parent": (n - 1) / 2 }), SYNC).unwrap();
    }
    tree.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap();
    assert!(ids(&db.all(&tree)).iter().all(|id| [0, 2, 5, 6].contains(id) || *id > 10));
    tree.delete_one(&f(doc! { "_id": 0 }), SYNC).unwrap();
    assert_eq!(db.all(&tree), []);
    assert!(tree.drop_collection().unwrap());
}

#[test]
fn child_insert_conflicts_with_concurrent_parent_delete() {
    for level in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for index in [false, true] {
            for parent_first in [false, true] {
                let db = Db::new();
                let users = seeded(&db, "users", [doc! { "_id": 1 }]);
                let orders = db.coll("orders");
                orders.create(refers("user", "users", OnDelete::Restrict)).unwrap();
                if index {
                    orders.create_index(&IndexDef::on(["user"])).unwrap();
                }
                let (mut ann, mut bob) = (db.begin(level), db.begin(level));
                ann.d().insert_one(&orders, &b(doc! { "_id": 1, "user": 1 })).unwrap();
                bob.d().delete_one(&users, &f(doc! { "_id": 1 })).unwrap();
                let (first, second) = if parent_first { (bob, ann) } else { (ann, bob) };
                first.commit().unwrap();
                assert_eq!(second.commit().unwrap_err().code(), 112, "{level:?} {index} {parent_first}");
            }
        }
    }
}

#[test]
fn write_beyond_quota_is_rejected() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(10));
    let held = db.documents.database_bytes("app").unwrap();
    db.documents.transact(SYNC, |tx| tx.set_quota("app", Some(held + 100))).unwrap();
    c.insert_one(&b(doc! { "_id": 100, "text": "x".repeat(50) }), SYNC).unwrap();
    let error = c.insert_one(&b(doc! { "_id": 101, "text": "x".repeat(50) }), SYNC).unwrap_err();
    assert!(error.to_string().contains("its quota is"), "{error}");
    let grown = spec(doc! { "_id": 1 }, doc! { "$set": { "text": "x".repeat(80) } });
    assert!(c.update_one(&grown, SYNC).is_err());
    c.delete_one(&f(doc! { "_id": 100 }), SYNC).unwrap();
    c.update_one(&grown, SYNC).unwrap();
    db.documents
        .collection("free", "c")
        .unwrap()
        .insert_one(&b(doc! { "text": "x".repeat(500) }), SYNC)
        .unwrap();
    db.documents.transact(SYNC, |tx| tx.set_quota("app", None)).unwrap();
    c.insert_one(&b(doc! { "_id": 102, "text": "x".repeat(5000) }), SYNC).unwrap();
}

/// A validator may be a JSON Schema; when moderate, documents that already violate it may be changed.
#[test]
fn json_schema_validator_rejects_non_conforming_documents() {
    let db = Db::new();
    let c = db.coll("c");
    let schema = doc! { "$jsonSchema": {
        "bsonType": "object",
        "required": ["name", "age"],
        "properties": { "name": { "bsonType": "string", "minLength": 1 }, "age": { "bsonType": "int", "minimum": 0 } },
    } };
    let options =
        CollectionOptions { validator: Some(d(schema.clone())), protected: true, ..Default::default() };
    c.create(options.clone()).unwrap();
    c.insert_one(&b(doc! { "_id": 1, "name": "ann", "age": 5 }), SYNC).unwrap();
    for bad in [
        doc! { "_id": 2, "name": "bob" },
        doc! { "_id": 2, "name": "", "age": 1 },
        doc! { "_id": 2, "name": "x", "age": "1" },
    ] {
        assert_eq!(c.insert_one(&b(bad), SYNC).unwrap_err().code(), 121);
    }
    let older = spec(doc! { "_id": 1 }, doc! { "$set": { "age": -1 } });
    assert_eq!(c.update_one(&older, SYNC).unwrap_err().code(), 121);
    // The same schema again changes nothing, another one is rejected.
    c.set_options(options.clone()).unwrap();
    assert_eq!(c.set_options(CollectionOptions::default()).unwrap_err().code(), 20);
    let broken =
        CollectionOptions { validator: Some(d(doc! { "$jsonSchema": { "type": 5 } })), ..Default::default() };
    assert!(db.coll("other").create(broken).is_err());
}

fn caller(uid: &str) -> Option<Caller> {
    Some(Caller { auth: Some(d(doc! { "uid": uid, "admin": uid == "root" })) })
}

#[test]
fn row_rules_restrict_callers() {
    let db = Db::new();
    let c = db.coll("notes");
    let rules = doc! {
        "read": "resource == null || resource.public || request.auth.uid == resource.owner",
        "list": "request.auth.uid == resource.owner",
        "create": "request.resource.owner == request.auth.uid && size(request.resource.text) <= 10",
        "update": "resource.owner == request.auth.uid && request.resource.owner == resource.owner",
        "write": "request.auth.admin",
    };
    let with_rules = CollectionOptions { rules: Some(d(rules)), ..Default::default() };
    c.create(with_rules).unwrap();
    let note = |id: i32, owner: &str, public: bool| doc! { "_id": id, "owner": owner, "public": public, "text": "short" };
    // The application itself is not restricted.
    c.insert_one(&b(note(1, "ann", true)), SYNC).unwrap();
    c.insert_one(&b(note(2, "bob", false)), SYNC).unwrap();

    let denied =
        |error: DocumentsError| assert_eq!((error.code(), error.code_name().as_str()), (13, "Unauthorized"));
    let mut tx = db.begin(Isolation::Serializable);
    let mut ann = tx.d();
    ann.act_for(caller("ann"));
    assert!(ann.get(&c, Value::Int32(1)).unwrap().is_some());
    assert!(ann.get(&c, Value::Int32(7)).unwrap().is_none());
    denied(ann.get(&c, Value::Int32(2)).unwrap_err());
    assert_eq!(ann.find(&c, &find(doc! { "owner": "ann" })).unwrap().len(), 1);
    denied(ann.find(&c, &Find::all()).unwrap_err());
    denied(ann.count(&c, &Find::all()).unwrap_err());
    denied(ann.distinct(&c, "owner", &f(doc! {})).unwrap_err());
    ann.insert_one(&c, &b(note(3, "ann", false))).unwrap();
    denied(ann.insert_one(&c, &b(note(4, "bob", false))).unwrap_err());
    denied(
        ann.insert_one(&c, &b(doc! { "_id": 4, "owner": "ann", "text": "much too long a text" }))
            .unwrap_err(),
    );
    ann.update_one(&c, &spec(doc! { "_id": 3 }, doc! { "$set": { "text": "new" } })).unwrap();
    denied(ann.update_one(&c, &spec(doc! { "_id": 3 }, doc! { "$set": { "owner": "bob" } })).unwrap_err());
    denied(ann.update_many(&c, &spec(doc! {}, doc! { "$set": { "text": "x" } })).unwrap_err());
    denied(ann.delete_one(&c, &f(doc! { "_id": 3 })).unwrap_err());
    // Not logged in: request.auth is null, and a rule that fails denies.
    ann.act_for(Some(Caller { auth: None }));
    assert!(ann.get(&c, Value::Int32(1)).unwrap().is_some());
    denied(ann.insert_one(&c, &b(note(5, "ann", false))).unwrap_err());
    ann.act_for(caller("root"));
    assert_eq!(ann.delete_many(&c, &f(doc! {})).unwrap(), 3);
    ann.act_for(None);
    assert_eq!(ann.find(&c, &Find::all()).unwrap().len(), 0);
    drop(tx);

    let snapshot = db.documents.engine().snapshot();
    let mut bob = db.documents.at(&snapshot).as_caller(caller("bob").unwrap());
    assert_eq!(bob.find(&c, &find(doc! { "owner": "bob" })).unwrap().len(), 1);
    denied(bob.find(&c, &Find::all()).unwrap_err());
    // Without rules every caller has access.
    let open = seeded(&db, "open", [doc! { "_id": 1 }]);
    let snapshot = db.documents.engine().snapshot();
    let mut bob = db.documents.at(&snapshot).as_caller(caller("bob").unwrap());
    assert_eq!(bob.find(&open, &Find::all()).unwrap().len(), 1);
    for broken in [doc! { "read": "resource." }, doc! { "reed": "true" }, doc! { "read": true }] {
        let options = CollectionOptions { rules: Some(d(broken)), ..Default::default() };
        assert_eq!(c.set_options(options).unwrap_err().code(), 72);
    }
}
