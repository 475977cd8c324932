//! Collections: create, list, rename, drop; collection groups.

use bson::doc;
use ropewalk_documents::lang::Value;
use ropewalk_documents::{CollectionOptions, Find, IndexDef, OnDelete, Reference};

use super::*;

#[test]
fn first_insert_creates_the_collection() {
    let db = Db::new();
    let c = db.coll("users/1/posts");
    assert!(c.definition().unwrap().is_none());
    assert_eq!(db.all(&c), []);
    assert_eq!(c.get(Value::Int32(1)).unwrap(), None);
    assert!(!c.drop_collection().unwrap());
    c.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert!(db.coll("empty").create(CollectionOptions::default()).unwrap());
    assert!(!db.coll("empty").create(CollectionOptions::default()).unwrap());
    db.documents.collection("other", "x").unwrap().insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert_eq!(db.documents.databases().unwrap(), ["app", "other"]);
    assert_eq!(db.documents.collections("app").unwrap(), ["empty", "users/1/posts"]);
    assert_eq!(db.documents.collections("nobody").unwrap(), Vec::<String>::new());
    for (database, name) in [("", "x"), ("a b", "x"), ("app", ""), ("app", "a$b"), ("app", "system.x")] {
        assert_eq!(db.documents.collection(database, name).unwrap_err().code(), 73);
    }
}

#[test]
fn definition_that_could_not_be_read_is_rejected() {
    let db = Db::new();
    let deep = (0..178).fold(doc! { "x": 1 }, |inner, _| doc! { "x": inner });
    let long = "x".repeat((16 << 20) - 100);
    for validator in [doc! { "a": deep }, doc! { "a": long }] {
        let options = CollectionOptions { validator: Some(d(validator)), ..CollectionOptions::default() };
        let error = db.coll("c").create(options).unwrap_err();
        assert!([15, 10334].contains(&error.code()), "{error}");
        assert!(db.coll("c").definition().unwrap().is_none());
    }
    db.verify();
}

#[test]
fn a_group_is_found_by_its_glob() {
    let db = Db::new();
    for name in ["users", "users/1/posts", "users/2/posts", "users/2/likes", "users/2/posts/9/notes", "posts"]
    {
        db.coll(name).insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    }
    let page = |glob, after, max| db.documents.collections_after("app", glob, after, max).unwrap();
    let group = |glob| page(Some(glob), None, usize::MAX);
    assert_eq!(group("users/*/posts"), ["users/1/posts", "users/2/posts"]);
    assert_eq!(group("**/posts"), ["users/1/posts", "users/2/posts"]);
    assert_eq!(group("users/2/**"), ["users/2/likes", "users/2/posts", "users/2/posts/9/notes"]);
    assert_eq!(group("*"), ["posts", "users"]);
    assert_eq!(page(None, None, 2), ["posts", "users"]);
    assert_eq!(page(None, Some("users"), 2), ["users/1/posts", "users/2/likes"]);
    assert_eq!(page(Some("users/*/posts"), Some("users/1/posts"), 2), ["users/2/posts"]);
    assert_eq!(page(Some("users/2/*"), Some("a"), 1), ["users/2/likes"]);
    assert!(page(Some("posts"), Some("posts"), 9).is_empty() && page(None, None, 0).is_empty());
}

#[test]
fn databases_after_a_name_are_the_first_of_those_that_are_wanted() {
    let db = Db::new();
    for name in ["d", "b", "a", "c", "bb"] {
        for collection in ["x", "y"] {
            let collection = db.documents.collection(name, collection).unwrap();
            collection.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
        }
    }
    let page = |after, max| db.documents.databases_after(after, max, |name| name != "c").unwrap();
    assert_eq!(page(None, 9), ["a", "b", "bb", "d"]);
    assert_eq!(page(None, 2), ["a", "b"]);
    assert_eq!(page(Some("b"), 2), ["bb", "d"]);
    assert_eq!(page(Some("ba"), 1), ["bb"]);
    assert!(page(Some("d"), 9).is_empty());
}

#[test]
fn dropped_collection_is_gone_and_its_name_reusable() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(500));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    let snapshot = db.documents.engine().snapshot();
    assert!(c.drop_collection().unwrap());
    assert_eq!(db.all(&c), []);
    db.verify();
    assert_eq!(
        ropewalk_documents::DocumentsRead::count(&mut db.documents.at(&snapshot), &c, &Find::all()).unwrap(),
        500
    );
    drop(snapshot);
    c.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert_eq!(db.all(&c), [doc! { "_id": 1 }]);
    assert!(c.definition().unwrap().unwrap().indexes().is_empty());
    assert_eq!(c.estimated_count().unwrap().documents, 1);
    db.documents.engine().compact().unwrap();
    db.verify();
    let dropped = db.documents.transact(SYNC, |tx| tx.drop_database("app")).unwrap();
    assert_eq!(dropped, ["c"]);
    assert_eq!(db.documents.databases().unwrap(), Vec::<String>::new());
    db.verify();
}

#[test]
fn new_handle_uses_what_others_loaded_and_follows_definitions() {
    let db = Db::new();
    seeded(&db, "c", numbered(3));
    let definition = || db.coll("c").definition().unwrap();
    let (first, second) = (definition().unwrap(), definition().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    db.coll("c").create_index(&IndexDef::on(["n"])).unwrap();
    assert_eq!((first.indexes().len(), definition().unwrap().indexes().len()), (0, 1));
    let snapshot = db.documents.engine().snapshot();
    assert!(db.coll("c").drop_collection().unwrap());
    assert!(definition().is_none());
    assert_eq!(db.documents.at(&snapshot).count(&db.coll("c"), &Find::all()).unwrap(), 3);
    assert!(definition().is_none(), "a read of an earlier commit does not bring it back");
    seeded(&db, "c", numbered(1));
    assert!(definition().unwrap().indexes().is_empty());
    db.verify();
}

#[test]
fn a_renamed_collection_keeps_documents_and_indexes() {
    let db = Db::new();
    let (old, new) = (seeded(&db, "old", numbered(50)), db.coll("new"));
    old.create_index(&IndexDef::on(["n"])).unwrap();
    let rename = |from: &Collection, to: &Collection, replace: bool| {
        db.documents.transact(SYNC, |tx| tx.rename_collection(from, to, replace))
    };
    rename(&old, &new, false).unwrap();
    assert_eq!((db.all(&old).len(), db.all(&new).len()), (0, 50));
    assert_eq!(used(&db, &new, &find(doc! { "n": 7 })), "n_1");
    assert_eq!(rename(&old, &new, false).unwrap_err().code(), 26);
    old.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert_eq!(rename(&old, &new, false).unwrap_err().code(), 48);
    rename(&old, &new, true).unwrap();
    assert_eq!(db.all(&new), [doc! { "_id": 1 }]);
    let elsewhere = db.documents.collection("other", "c").unwrap();
    rename(&new, &elsewhere, false).unwrap();
    assert_eq!(db.all(&elsewhere), [doc! { "_id": 1 }]);
    assert_eq!(db.documents.databases().unwrap(), ["other"]);
    db.verify();
}

#[test]
fn collection_like_another_one_has_its_options_and_indexes_and_no_documents() {
    let db = Db::new();
    let (old, new) = (seeded(&db, "old", numbered(50)), db.coll("new"));
    old.create_index(&IndexDef::on(["n"]).unique()).unwrap();
    let validator = Some(d(doc! { "n": { "$gte": 0 } }));
    old.set_options(CollectionOptions { validator, ..CollectionOptions::default() }).unwrap();
    let create = || db.documents.transact(SYNC, |tx| tx.create_collection_like(&old, &new));
    create().unwrap();
    assert_eq!(db.all(&new), []);
    new.insert_one(&b(doc! { "_id": 1, "n": 7 }), SYNC).unwrap();
    assert_eq!(used(&db, &new, &find(doc! { "n": 7 })), "n_1");
    assert_eq!(new.insert_one(&b(doc! { "_id": 2, "n": 7 }), SYNC).unwrap_err().code(), 11000);
    assert_eq!(new.insert_one(&b(doc! { "_id": 3, "n": -1 }), SYNC).unwrap_err().code(), 121);
    assert_eq!((create().unwrap_err().code(), db.all(&old).len()), (48, 50));
    new.drop_collection().unwrap();

    let reference =
        Reference { field: "by".into(), collection: "users".into(), on_delete: OnDelete::Restrict };
    old.set_options(CollectionOptions { references: vec![reference], ..CollectionOptions::default() })
        .unwrap();
    assert!(create().unwrap_err().to_string().contains("has references"));
    assert!(new.definition().unwrap().is_none());
    old.drop_collection().unwrap();
    assert_eq!(create().unwrap_err().code(), 26);
    db.verify();
}

#[test]
fn definitions_are_part_of_transactions() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(100));
    let mut tx = db.begin(Isolation::Serializable);
    tx.d().create_index(&c, &IndexDef::on(["n"])).unwrap();
    tx.d().insert_one(&c, &b(doc! { "_id": 500, "n": 500 })).unwrap();
    tx.d().insert_one(&db.coll("made"), &b(doc! { "_id": 1 })).unwrap();
    assert!(c.definition().unwrap().unwrap().indexes().is_empty());
    tx.commit().unwrap();
    assert_eq!(ids(&db.find(&c, &find(doc! { "n": 500 }))), [500]);
    assert_eq!(used(&db, &c, &find(doc! { "n": 500 })), "n_1");
    // A transaction conflicts with a concurrent change of the definition that it writes under.
    let mut slow = db.begin(Isolation::ReadCommitted);
    slow.d().insert_one(&c, &b(doc! { "_id": 600, "tenth": 1 })).unwrap();
    c.create_index(&IndexDef::on(["tenth"])).unwrap();
    let said = slow.commit().unwrap_err().to_string();
    assert!(said.starts_with("the definition of collection \"c\" was changed"), "{said}");
    db.verify();
}

#[test]
fn names_for_rebuilds_of_projections_are_reserved() {
    let db = Db::new();
    let (c, taken) = (seeded(&db, "c", numbered(1)), db.coll("c__g2"));
    let document = b(doc! { "_id": 1 });
    assert_eq!(taken.insert_one(&document, SYNC).unwrap_err().code(), 73);
    assert_eq!(taken.create(CollectionOptions::default()).unwrap_err().code(), 73);
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(tx.d().insert_one(&taken, &document).unwrap_err().code(), 73);
    assert_eq!(tx.d().rename_collection(&c, &taken, false).unwrap_err().code(), 73);
    assert_eq!(tx.d().create_collection_like(&c, &taken).unwrap_err().code(), 73);
    // A rebuild may use such a name, and then everyone may.
    tx.state.mark_rebuild();
    tx.d().insert_one(&taken, &document).unwrap();
    tx.commit().unwrap();
    taken.insert_one(&b(doc! { "_id": 2 }), SYNC).unwrap();
    assert_eq!(db.all(&taken).len(), 2);
    for name in ["c__g", "c__g2x", "c_g2"] {
        db.coll(name).insert_one(&document, SYNC).unwrap();
    }
}
