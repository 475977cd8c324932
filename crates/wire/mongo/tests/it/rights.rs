//! The rights that commands need: every command is run with every set of rights.

use std::collections::BTreeSet;

use bson::{Document, doc};
use ropewalk_auth::{Caller, Needs, Resource, Right, Roles};

use crate::access::{login, login_as};
use crate::client::Server;
use crate::matrix::{self, Matrix, PASSWORD, STORE};

const READ: Needs = Needs::read(Resource::Database);
const APPEND: Needs = Needs::append(Resource::Database);
const READ_AND_APPEND: Needs = Needs::read_and_append(Resource::Database);
const ADMIN: Needs = Needs::admin(Resource::Database);
const READ_EVERYWHERE: Needs = Needs::read(Resource::AllStores);
const APPEND_EVERYWHERE: Needs = Needs::append(Resource::AllStores);
const ADMIN_EVERYWHERE: Needs = Needs::admin(Resource::AllStores);

/// Commands with all rights that they need: a command without a row fails the test.
fn rights_of_commands() -> Vec<(Needs, Document)> {
    let admin = |mut command: Document| {
        command.insert("$db", "admin");
        command
    };
    vec![
        (Needs::PUBLIC, doc! { "hello": 1 }),
        (Needs::PUBLIC, doc! { "isMaster": 1 }),
        (Needs::PUBLIC, doc! { "ismaster": 1 }),
        (Needs::PUBLIC, doc! { "ping": 1 }),
        (Needs::PUBLIC, doc! { "buildInfo": 1 }),
        (Needs::PUBLIC, doc! { "buildinfo": 1 }),
        (Needs::PUBLIC, doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "" }),
        (Needs::PUBLIC, doc! { "saslContinue": 1, "conversationId": 1, "payload": "" }),
        (Needs::PUBLIC, doc! { "whatsmyuri": 1 }),
        (Needs::PUBLIC, doc! { "connectionStatus": 1 }),
        (READ_EVERYWHERE, doc! { "hostInfo": 1 }),
        (Needs::LOGIN, doc! { "getParameter": "*" }),
        (ADMIN_EVERYWHERE, doc! { "getCmdLineOpts": 1 }),
        (Needs::LOGIN, doc! { "configureFailPoint": "failCommand", "mode": "off" }),
        (ADMIN_EVERYWHERE, doc! { "getLog": "*" }),
        (READ_EVERYWHERE, doc! { "serverStatus": 1 }),
        (READ_EVERYWHERE, admin(doc! { "top": 1 })),
        (ADMIN, doc! { "profile": -1 }),
        (Needs::LOGIN, doc! { "rolesInfo": 1 }),
        (ADMIN_EVERYWHERE, admin(doc! { "currentOp": 1 })),
        (ADMIN_EVERYWHERE, admin(doc! { "killOp": 1, "op": i32::MAX })),
        (Needs::LOGIN, doc! { "listCommands": 1 }),
        (Needs::LOGIN, doc! { "startSession": 1 }),
        (Needs::LOGIN, doc! { "refreshSessions": [] }),
        (Needs::LOGIN, doc! { "endSessions": [] }),
        (Needs::LOGIN, doc! { "killSessions": [] }),
        (ADMIN_EVERYWHERE, doc! { "killAllSessions": [] }),
        (Needs::LOGIN, doc! { "commitTransaction": 1 }),
        (Needs::LOGIN, doc! { "abortTransaction": 1 }),
        (APPEND, doc! { "insert": "c", "documents": [{ "n": 1 }] }),
        (READ_AND_APPEND, doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "n": 1 } } }] }),
        (READ_AND_APPEND, doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 0 }] }),
        (READ_AND_APPEND, doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true }),
        (READ_AND_APPEND, doc! { "findandmodify": "c", "query": { "_id": 1 }, "remove": true }),
        (APPEND, doc! { "ropewalkAppend": STORE, "events": [{ "type": "Sold" }] }),
        (
            APPEND,
            doc! { "ropewalkSamples": STORE, "series": [{ "labels": { "__name__": "m" }, "samples": [[1, 1]] }] },
        ),
        (READ_EVERYWHERE, doc! { "ropewalkSql": "SELECT count(*) FROM events" }),
        (READ, doc! { "find": "c" }),
        (Needs::LOGIN, doc! { "getMore": 1_i64, "collection": "c" }),
        (Needs::LOGIN, doc! { "killCursors": "c", "cursors": [] }),
        (READ, doc! { "count": "c" }),
        (READ, doc! { "distinct": "c", "key": "n" }),
        (READ, doc! { "aggregate": "c", "pipeline": [], "cursor": {} }),
        (READ, doc! { "explain": { "find": "c" } }),
        (APPEND, doc! { "create": "d" }),
        (
            ADMIN,
            doc! { "renameCollection": "default.d", "to": "default.c", "dropTarget": true, "$db": "admin" },
        ),
        (ADMIN, doc! { "drop": "d" }),
        (APPEND, doc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "n" }] }),
        (READ, doc! { "listIndexes": "c" }),
        (ADMIN, doc! { "collMod": "c", "index": { "name": "n", "hidden": false } }),
        (APPEND, doc! { "dropIndexes": "c", "index": "n" }),
        (APPEND, doc! { "deleteIndexes": "c", "index": "n" }),
        (ADMIN, doc! { "convertToCapped": "c", "size": 8192 }),
        (READ, doc! { "listCollections": 1 }),
        (Needs::LOGIN, doc! { "listDatabases": 1 }),
        (READ, doc! { "validate": "c" }),
        (READ, doc! { "collStats": "c" }),
        (READ, doc! { "dbStats": 1 }),
        (READ, doc! { "dbstats": 1 }),
        (ADMIN, doc! { "dropDatabase": 1 }),
        (ADMIN_EVERYWHERE, doc! { "usersInfo": 1 }),
        (ADMIN_EVERYWHERE, doc! { "createUser": "new", "pwd": "secret", "roles": [] }),
        (ADMIN_EVERYWHERE, doc! { "updateUser": "new", "roles": [] }),
        (ADMIN_EVERYWHERE, doc! { "grantRolesToUser": "new", "roles": ["read"] }),
        (ADMIN_EVERYWHERE, doc! { "revokeRolesFromUser": "new", "roles": ["read"] }),
        (ADMIN_EVERYWHERE, doc! { "dropUser": "new" }),
        (Needs::LOGIN, doc! { "createSearchIndexes": "c", "indexes": [] }),
        (Needs::LOGIN, doc! { "updateSearchIndex": "c" }),
        (Needs::LOGIN, doc! { "dropSearchIndex": "c" }),
        // Last: afterwards the connection has no user.
        (Needs::PUBLIC, doc! { "logout": 1 }),
    ]
}

/// Stages of pipelines that need more than to read the collection.
fn rights_of_stages() -> Vec<(Needs, Document)> {
    let of = |collection: bson::Bson, stage: Document, database: &str| doc! { "aggregate": collection, "pipeline": [stage], "cursor": {}, "$db": database };
    vec![
        (READ, of("c".into(), doc! { "$changeStream": {} }, STORE)),
        (READ, of(1.into(), doc! { "$changeStream": {} }, STORE)),
        (READ_EVERYWHERE, of(1.into(), doc! { "$changeStream": { "allChangesForCluster": true } }, "admin")),
        (READ_AND_APPEND, of("c".into(), doc! { "$out": "d" }, STORE)),
        (READ_AND_APPEND, of("c".into(), doc! { "$merge": "d" }, STORE)),
        (READ, of("c".into(), doc! { "$collStats": { "count": {} } }, STORE)),
        (Needs::LOGIN, of(1.into(), doc! { "$currentOp": {} }, "admin")),
        (ADMIN_EVERYWHERE, of(1.into(), doc! { "$currentOp": { "allUsers": true } }, "admin")),
        (READ, of(1.into(), doc! { "$listLocalSessions": {} }, STORE)),
    ]
}

/// Commands on the database of events and tables.
fn rights_on_events_and_tables() -> Vec<(Needs, Document)> {
    let event = format!("events.{STORE}");
    vec![
        (READ, doc! { "find": &event, "$db": "ropewalk" }),
        (READ_EVERYWHERE, doc! { "find": "tables.t", "$db": "ropewalk" }),
        (APPEND, doc! { "insert": &event, "documents": [{ "type": "Sold" }], "$db": "ropewalk" }),
        (APPEND_EVERYWHERE, doc! { "insert": "tables.t", "documents": [{ "n": 1 }], "$db": "ropewalk" }),
        (Needs::LOGIN, doc! { "listCollections": 1, "$db": "ropewalk" }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_is_rejected_exactly_without_its_rights() {
    let server = Server::new();
    matrix::create_users(server.service.access()).await;
    let table = ropewalk_mongo::operations();
    let mut matrix = Matrix::new("mongo");
    let (mut stages, commands) = (rights_of_stages(), rights_of_commands());
    stages.extend(rights_on_events_and_tables());
    for caller in matrix::callers() {
        let mut client = server.connect();
        if caller.roles.is_some() {
            login_as(&mut client, caller.name, PASSWORD, true).await;
        }
        for (needs, command) in stages.iter().chain(&commands) {
            let (name, _) = command.iter().next().unwrap();
            let is_allowed = caller.is_allowed(*needs);
            let row_name = match command.get_str("$db") {
                Ok("ropewalk") => format!("{name} ($db: ropewalk)"),
                _ => name.clone(),
            };
            let row = table.iter().find(|row| row.name == row_name).unwrap();
            assert!(!is_allowed || caller.is_allowed(row.needs), "the row of {command} by {}", caller.name);
            let mut asked = command.clone();
            asked.entry("$db".to_owned()).or_insert(STORE.into());
            let answer = client.run(asked).await;
            let is_refused = answer.get_i32("code").is_ok_and(|code| code == 13);
            matrix.note(&command.to_string(), &caller, is_allowed, (is_refused, answer));
        }
    }
    matrix.finish(stages.len() + commands.len());
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
