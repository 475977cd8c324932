//! The rights that commands take: every command is run with every set of rights.

use std::collections::BTreeSet;

use bson::{Document, doc};
use ropewalk_wire::{Caller, Right, Roles};

use crate::access::login;
use crate::client::Server;

/// The least that a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// No login.
    Nothing,
    /// A login, without a right.
    Login,
    /// A right on the database of the command.
    Read,
    Append,
    ReadAndAppend,
    Admin,
    /// A right on all databases.
    ReadEverywhere,
    AdminEverywhere,
}
use Takes::*;

/// Rights of commands: a command without a row fails the test.
fn rights_of_commands() -> Vec<(Takes, Document)> {
    let admin = |mut command: Document| {
        command.insert("$db", "admin");
        command
    };
    vec![
        (Nothing, doc! { "hello": 1 }),
        (Nothing, doc! { "isMaster": 1 }),
        (Nothing, doc! { "ismaster": 1 }),
        (Nothing, doc! { "ping": 1 }),
        (Nothing, doc! { "buildInfo": 1 }),
        (Nothing, doc! { "buildinfo": 1 }),
        (Nothing, doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "" }),
        (Nothing, doc! { "saslContinue": 1, "conversationId": 1, "payload": "" }),
        (Nothing, doc! { "whatsmyuri": 1 }),
        (Nothing, doc! { "connectionStatus": 1 }),
        (ReadEverywhere, doc! { "hostInfo": 1 }),
        (Login, doc! { "getParameter": "*" }),
        (AdminEverywhere, doc! { "getCmdLineOpts": 1 }),
        (Login, doc! { "configureFailPoint": "failCommand", "mode": "off" }),
        (AdminEverywhere, doc! { "getLog": "*" }),
        (ReadEverywhere, doc! { "serverStatus": 1 }),
        (AdminEverywhere, admin(doc! { "currentOp": 1 })),
        (AdminEverywhere, admin(doc! { "killOp": 1, "op": i32::MAX })),
        (Login, doc! { "listCommands": 1 }),
        (Login, doc! { "startSession": 1 }),
        (Login, doc! { "refreshSessions": [] }),
        (Login, doc! { "endSessions": [] }),
        (Login, doc! { "killSessions": [] }),
        (AdminEverywhere, doc! { "killAllSessions": [] }),
        (Login, doc! { "commitTransaction": 1 }),
        (Login, doc! { "abortTransaction": 1 }),
        (Append, doc! { "insert": "c", "documents": [{ "n": 1 }] }),
        (ReadAndAppend, doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "n": 1 } } }] }),
        (ReadAndAppend, doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 0 }] }),
        (ReadAndAppend, doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true }),
        (ReadAndAppend, doc! { "findandmodify": "c", "query": { "_id": 1 }, "remove": true }),
        (Read, doc! { "find": "c" }),
        (Login, doc! { "getMore": 1_i64, "collection": "c" }),
        (Login, doc! { "killCursors": "c", "cursors": [] }),
        (Read, doc! { "count": "c" }),
        (Read, doc! { "distinct": "c", "key": "n" }),
        (Read, doc! { "aggregate": "c", "pipeline": [], "cursor": {} }),
        (Read, doc! { "explain": { "find": "c" } }),
        (Append, doc! { "create": "d" }),
        (Admin, doc! { "renameCollection": "app.d", "to": "app.c", "dropTarget": true, "$db": "admin" }),
        (Admin, doc! { "drop": "d" }),
        (Append, doc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "n" }] }),
        (Read, doc! { "listIndexes": "c" }),
        (Admin, doc! { "collMod": "c", "index": { "name": "n", "hidden": false } }),
        (Append, doc! { "dropIndexes": "c", "index": "n" }),
        (Append, doc! { "deleteIndexes": "c", "index": "n" }),
        (Admin, doc! { "convertToCapped": "c", "size": 8192 }),
        (Read, doc! { "listCollections": 1 }),
        (Login, doc! { "listDatabases": 1 }),
        (Read, doc! { "validate": "c" }),
        (Read, doc! { "collStats": "c" }),
        (Read, doc! { "dbStats": 1 }),
        (Read, doc! { "dbstats": 1 }),
        (Admin, doc! { "dropDatabase": 1 }),
        (AdminEverywhere, doc! { "usersInfo": 1 }),
        (AdminEverywhere, doc! { "createUser": "new", "pwd": "secret", "roles": [] }),
        (AdminEverywhere, doc! { "updateUser": "new", "roles": [] }),
        (AdminEverywhere, doc! { "grantRolesToUser": "new", "roles": ["read"] }),
        (AdminEverywhere, doc! { "revokeRolesFromUser": "new", "roles": ["read"] }),
        (AdminEverywhere, doc! { "dropUser": "new" }),
        (Login, doc! { "createSearchIndexes": "c", "indexes": [] }),
        (Login, doc! { "updateSearchIndex": "c" }),
        (Login, doc! { "dropSearchIndex": "c" }),
        // Last: afterwards the connection has no user.
        (Nothing, doc! { "logout": 1 }),
    ]
}

/// Stages of pipelines that take more than to read the collection.
fn rights_of_stages() -> Vec<(Takes, Document)> {
    let of = |collection: bson::Bson, stage: Document, database: &str| doc! { "aggregate": collection, "pipeline": [stage], "cursor": {}, "$db": database };
    vec![
        (Read, of("c".into(), doc! { "$changeStream": {} }, "app")),
        (Read, of(1.into(), doc! { "$changeStream": {} }, "app")),
        (ReadEverywhere, of(1.into(), doc! { "$changeStream": { "allChangesForCluster": true } }, "admin")),
        (ReadAndAppend, of("c".into(), doc! { "$out": "d" }, "app")),
        (ReadAndAppend, of("c".into(), doc! { "$merge": "d" }, "app")),
        (Read, of("c".into(), doc! { "$collStats": { "count": {} } }, "app")),
        (Login, of(1.into(), doc! { "$currentOp": {} }, "admin")),
        (AdminEverywhere, of(1.into(), doc! { "$currentOp": { "allUsers": true } }, "admin")),
        (Read, of(1.into(), doc! { "$listLocalSessions": {} }, "app")),
    ]
}

/// Whether rights, on `app` or on all databases, suffice.
fn suffices(takes: Takes, rights: &[Right], everywhere: bool) -> bool {
    let has = |right: Right| rights.contains(&right) || rights.contains(&Right::Admin);
    match takes {
        Nothing | Login => true,
        Read => has(Right::Read),
        Append => has(Right::Append),
        ReadAndAppend => has(Right::Read) && has(Right::Append),
        Admin => has(Right::Admin),
        ReadEverywhere => everywhere && has(Right::Read),
        AdminEverywhere => everywhere && has(Right::Admin),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_their_right_are_refused() {
    let server = Server::new();
    let (access, root) = (server.service.access(), Caller::everybody());
    access.create_user(&root, "ann", "secret", Roles::new()).await.unwrap();
    let mut stranger = server.connect();
    for (takes, command) in rights_of_commands() {
        let code = stranger.run(command.clone()).await.get_i32("code").unwrap_or(0);
        assert_eq!(code == 13, takes != Nothing, "without a login: {command}");
    }
    let sets: [(&str, &[Right]); 8] = [
        ("app", &[]),
        ("app", &[Right::Read]),
        ("app", &[Right::Append]),
        ("app", &[Right::Read, Right::Append]),
        ("app", &[Right::Admin]),
        ("other", &[Right::Admin]),
        ("*", &[Right::Read]),
        ("*", &[Right::Admin]),
    ];
    for (database, rights) in sets {
        let roles = Roles::from([(database.to_owned(), BTreeSet::from_iter(rights.iter().copied()))]);
        access.update_user(&root, "ann", None, move |own| *own = roles).await.unwrap();
        let mut client = server.connect();
        login(&mut client, "secret", true).await;
        let held = if database == "other" { &[] } else { rights };
        let rows = rights_of_stages().into_iter().chain(rights_of_commands());
        for (takes, command) in rows {
            let answer = client.run(command.clone()).await;
            let allowed = answer.get_i32("code").unwrap_or(0) != 13;
            let expected = suffices(takes, held, database == "*");
            assert_eq!(allowed, expected, "{rights:?} on {database}: {command}\n{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_row_in_the_table_of_rights() {
    let answer = Server::new().connect().ok(doc! { "listCommands": 1 }).await;
    let offered: BTreeSet<String> = answer.get_document("commands").unwrap().keys().cloned().collect();
    let rows = rights_of_commands();
    let tested: BTreeSet<String> = rows.iter().map(|(_, row)| row.keys().next().unwrap().clone()).collect();
    assert_eq!(offered, tested);
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_rename_takes_admin_on_both_databases() {
    let server = Server::new();
    let (access, root) = (server.service.access(), Caller::everybody());
    server.connect().ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    access.create_user(&root, "ann", "secret", Roles::new()).await.unwrap();
    let both = [Right::Read, Right::Append];
    for (app, mine, allowed) in [
        (&both[..], &[Right::Admin][..], false),
        (&[Right::Admin], &both, false),
        (&[Right::Admin], &[Right::Admin], true),
    ] {
        let set = |rights: &[Right]| BTreeSet::from_iter(rights.iter().copied());
        let roles = Roles::from([("app".to_owned(), set(app)), ("mine".to_owned(), set(mine))]);
        access.update_user(&root, "ann", None, move |own| *own = roles).await.unwrap();
        let mut client = server.connect();
        login(&mut client, "secret", true).await;
        let rename = doc! { "renameCollection": "app.c", "to": "mine.c", "$db": "admin" };
        assert_eq!(client.run(rename).await.get_f64("ok").unwrap() == 1.0, allowed);
    }
}
