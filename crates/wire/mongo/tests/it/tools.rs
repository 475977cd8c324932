//! Commands that shells and graphical tools send to look around.

use bson::{Document, doc};
use ropewalk_auth::{Caller, Right, Roles};

use crate::access::login_as;
use crate::client::{Server, batch};

fn admin(mut command: Document) -> Document {
    command.insert("$db", "admin");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn use_of_collections_and_indexes_is_reported() {
    let mut client = Server::new().connect();
    let all: Vec<_> = (0..60).map(|n| doc! { "_id": n, "n": n }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    client.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "by n" }] }).await;
    client.find("c", doc! { "n": 7 }).await;
    client.find("c", doc! { "n": { "$gt": 50 } }).await;
    client.find("c", doc! { "_id": { "$gt": 55 } }).await;
    client.ok(doc! { "count": "c", "query": { "n": 1 } }).await;
    client.ok(doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] }).await;
    let stats = doc! { "aggregate": "c", "cursor": {}, "pipeline": [{ "$indexStats": {} }, { "$sort": { "name": 1 } }] };
    let stats = batch(&client.ok(stats).await, "firstBatch");
    let accesses = |at: usize| stats[at].get_document("accesses").unwrap().get_i64("ops").unwrap();
    assert_eq!((stats.len(), stats[0].get_str("name").unwrap()), (2, "_id_"));
    assert!(accesses(0) >= 1);
    assert_eq!((stats[1].get_document("key").unwrap(), accesses(1)), (&doc! { "n": 1 }, 3));
    assert!(stats[1].get_document("spec").is_ok() && stats[1].get_str("host").is_ok());
    let top = client.ok(admin(doc! { "top": 1 })).await;
    let used = top.get_document("totals").unwrap().get_document("app.c").unwrap();
    let count = |field: &str| used.get_document(field).unwrap().get_i64("count").unwrap();
    assert_eq!(["queries", "insert", "remove", "update", "getmore"].map(count), [3, 1, 1, 0, 0]);
    assert_eq!((count("total"), count("readLock") + count("writeLock")), (8, 8));
    client.ok(doc! { "drop": "c" }).await;
    let top = client.ok(admin(doc! { "top": 1 })).await;
    assert!(top.get_document("totals").unwrap().get("app.c").is_none());
    assert_eq!(client.refused(doc! { "top": 1 }).await.0, 13);
    let bad = doc! { "aggregate": "c", "cursor": {}, "pipeline": [{ "$indexStats": { "a": 1 } }] };
    assert_eq!(client.refused(bad).await.0, 28803);
}

#[tokio::test(flavor = "multi_thread")]
async fn profiling_level_is_zero() {
    let mut client = Server::new().connect();
    for level in [-1, 0] {
        assert_eq!(client.ok(doc! { "profile": level }).await.get_i32("was").unwrap(), 0);
    }
    assert_eq!(client.refused(doc! { "profile": 1 }).await.0, 238);
    assert_eq!(client.refused(doc! { "profile": 0, "slowms": 5 }).await.0, 238);
    assert_eq!(client.refused(doc! { "profile": 7 }).await.0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_privileges_are_reported() {
    let server = Server::new();
    let mut client = server.connect();
    let status = client.ok(doc! { "connectionStatus": 1, "showPrivileges": true }).await;
    let info = status.get_document("authInfo").unwrap();
    assert!(info.get_array("authenticatedUserPrivileges").unwrap().is_empty());
    let roles = Roles::from([("app".to_owned(), [Right::Read, Right::Append].into())]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", roles).await.unwrap();
    login_as(&mut client, "ann", "secret", true).await;
    let status = client.ok(doc! { "connectionStatus": 1, "showPrivileges": true }).await;
    let info = status.get_document("authInfo").unwrap();
    let role = doc! { "role": "readWrite", "db": "app" };
    assert_eq!(info.get_array("authenticatedUserRoles").unwrap(), &vec![role.into()]);
    let privileges = info.get_array("authenticatedUserPrivileges").unwrap();
    let privilege = privileges[0].as_document().unwrap();
    assert_eq!(privilege.get_document("resource").unwrap(), &doc! { "db": "app", "collection": "" });
    let actions: Vec<_> = privilege.get_array("actions").unwrap().iter().filter_map(|a| a.as_str()).collect();
    assert!(["find", "insert", "update", "remove"].iter().all(|action| actions.contains(action)));
    assert!(!actions.contains(&"dropCollection"));
    let roles = |answer: Document| -> Vec<String> {
        let roles = answer.get_array("roles").unwrap();
        roles.iter().map(|role| role.as_document().unwrap().get_str("_id").unwrap().to_owned()).collect()
    };
    assert!(roles(client.ok(doc! { "rolesInfo": 1 }).await).is_empty());
    let builtin = client.ok(doc! { "rolesInfo": 1, "showBuiltinRoles": true }).await;
    assert_eq!(roles(builtin), ["app.dbOwner", "app.readWrite", "app.read"]);
    let all = client.ok(admin(doc! { "rolesInfo": 1, "showBuiltinRoles": true })).await;
    assert_eq!(roles(all).len(), 6);
    let named =
        doc! { "rolesInfo": ["read", { "role": "root", "db": "admin" }, "none"], "showPrivileges": true };
    let named = client.ok(named).await;
    assert!(named.get_array("roles").unwrap()[1].as_document().unwrap().get_array("privileges").is_ok());
    assert_eq!(roles(named), ["app.read", "admin.root"]);
    assert_eq!(client.refused(doc! { "rolesInfo": true }).await.0, 2);
}
