//! Injected failures, as the test suites of drivers configure them.

use bson::{Document, doc};
use ropewalk::Database;
use ropewalk_mongo::{Mongo, MongoSettings};
use ropewalk_wire::{Service, ServiceSettings};

use crate::client::{Client, MSG, Server, cursor_id, lsid, message};

fn with_test_commands() -> Server {
    let service = Service::new(Database::in_memory().unwrap(), ServiceSettings::default()).unwrap();
    let settings = MongoSettings { test_commands: true, ..MongoSettings::default() };
    Server { mongo: Mongo::new(service.clone(), settings), service }
}

async fn fail(client: &mut Client, mode: impl Into<bson::Bson>, data: Document) {
    let command =
        doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data, "$db": "admin" };
    client.ok(command).await;
}

fn retryable(mut command: Document, number: i64) -> Document {
    command.extend(doc! { "lsid": lsid(1), "txnNumber": number });
    command
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_points_require_test_commands() {
    let mut client = Server::new().connect();
    let order = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": { "failCommands": ["ping"] } };
    assert_eq!(client.refused(order).await.0, 59);
    client.ok(doc! { "ping": 1 }).await;
    let parameters = client.ok(doc! { "getParameter": "*" }).await;
    assert!(!parameters.get_bool("enableTestCommands").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_fail_as_often_as_configured_with_the_labels_of_their_codes() {
    let mut client = with_test_commands().connect();
    fail(&mut client, doc! { "times": 2 }, doc! { "failCommands": ["insert"], "errorCode": 10107 }).await;
    assert_eq!(client.refused(insert(1)).await, (10107, vec![]));
    assert_eq!(client.refused(retryable(insert(1), 1)).await, (10107, vec!["RetryableWriteError".into()]));
    client.ok(insert(1)).await;

    let in_transaction = doc! { "autocommit": false, "startTransaction": true };
    let mut first = retryable(insert(2), 2);
    first.extend(in_transaction);
    fail(&mut client, doc! { "times": 1 }, doc! { "failCommands": ["insert"], "errorCode": 91 }).await;
    assert_eq!(client.refused(first).await, (91, vec!["TransientTransactionError".into()]));

    let labels = doc! { "failCommands": ["insert"], "errorCode": 91, "errorLabels": ["Own"] };
    fail(&mut client, "alwaysOn", labels).await;
    assert_eq!(client.refused(retryable(insert(3), 3)).await, (91, vec!["Own".into()]));
    fail(&mut client, "off", doc! {}).await;
    client.ok(retryable(insert(3), 3)).await;

    fail(&mut client, doc! { "skip": 1 }, doc! { "failCommands": ["ping"], "errorCode": 8 }).await;
    client.ok(doc! { "ping": 1 }).await;
    assert_eq!(client.refused(doc! { "ping": 1 }).await.0, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_write_concern_error_is_reported_with_the_result() {
    let mut client = with_test_commands().connect();
    let data = doc! { "failCommands": ["insert"], "writeConcernError": { "code": 91, "errmsg": "stopping" } };
    fail(&mut client, doc! { "times": 1 }, data).await;
    let answer = client.ok(retryable(insert(1), 1)).await;
    assert_eq!(answer.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), 91);
    assert_eq!(answer.get_array("errorLabels").unwrap(), &["RetryableWriteError".into()]);
    assert_eq!(client.find("c", doc! {}).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_points_disconnect_before_or_after_a_command_of_one_application() {
    let server = with_test_commands();
    let mut client = server.connect();
    let data = doc! { "failCommands": ["insert"], "closeConnection": true, "appName": "sick" };
    fail(&mut client, "alwaysOn", data).await;
    client.ok(insert(1)).await;
    let mut sick = server.connect();
    sick.ok(doc! { "hello": 1, "client": { "application": { "name": "sick" } } }).await;
    let mut command = insert(2);
    command.insert("$db", "app");
    sick.send(MSG, &message(0, &command)).await;
    assert!(sick.answer().await.is_none());
    fail(&mut client, "off", doc! {}).await;
    assert_eq!(client.find("c", doc! {}).await.len(), 1);

    let order =
        doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 1 }, "$db": "admin" };
    client.ok(order).await;
    let mut cut = server.connect();
    let mut command = retryable(insert(3), 1);
    command.insert("$db", "app");
    cut.send(MSG, &message(0, &command)).await;
    assert!(cut.answer().await.is_none());
    // The write was executed, and is not executed again.
    assert_eq!(client.ok(retryable(insert(3), 1)).await.get_i32("n").unwrap(), 1);
    assert_eq!(client.find("c", doc! {}).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_failure_removes_the_cursor() {
    let mut client = with_test_commands().connect();
    let open = doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let id = cursor_id(&client.ok(open).await);
    let order = doc! {
        "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": { "times": 1 }, "data": { "errorCode": 7 },
        "$db": "admin",
    };
    client.ok(order).await;
    let more = doc! { "getMore": id, "collection": "c" };
    assert_eq!(client.refused(more.clone()).await, (7, vec!["ResumableChangeStreamError".into()]));
    assert_eq!(client.refused(more).await.0, 43);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fail_points_are_rejected() {
    let mut client = with_test_commands().connect();
    for order in [
        doc! { "configureFailPoint": "unknown", "mode": "off" },
        doc! { "configureFailPoint": "failCommand", "mode": "sometimes" },
        doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn" },
        doc! { "configureFailPoint": "failCommand", "mode": { "times": -1 }, "data": { "failCommands": [] } },
        doc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "other": 1 } },
    ] {
        assert!([2, 40415].contains(&client.refused(order).await.0));
    }
}
