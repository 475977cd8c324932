//! Resource limits of one command: regular expressions, updates.

use std::time::Duration;

use bson::{Bson, Document, Regex, doc};
use ropewalk_auth::{Caller, Roles};
use ropewalk_mongo::{Mongo, MongoSettings};

use crate::access::login;
use crate::client::Server;

/// Patterns whose programs take more than 256 KiB each.
fn large_patterns(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("(\\w{{60}}{n})")).collect()
}

fn regexes(patterns: Vec<String>) -> Vec<Bson> {
    let text = |text: String| text.try_into().unwrap();
    let regex = |pattern: String| Regex { pattern: text(pattern), options: text(String::new()) }.into();
    patterns.into_iter().map(regex).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_regular_expressions_of_a_command_share_one_limit() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "a": "x" }] }).await;
    let each = |patterns: Vec<String>| -> Vec<Document> {
        patterns.into_iter().map(|pattern| doc! { "a": { "$regex": pattern } }).collect()
    };
    let many = large_patterns(100);
    let statements: Vec<Document> =
        each(many.clone()).into_iter().map(|q| doc! { "q": q, "u": { "$set": { "b": 1 } } }).collect();
    let match_ = doc! { "$expr": { "$or": many.iter().map(|pattern| doc! { "$regexMatch": { "input": "$a", "regex": pattern } }).collect::<Vec<_>>() } };
    for (command, code) in [
        (doc! { "find": "c", "filter": { "a": { "$in": regexes(many.clone()) } } }, 51_091),
        (doc! { "find": "c", "filter": { "$or": each(many.clone()) } }, 51_091),
        (doc! { "count": "c", "query": { "a": { "$nin": regexes(many.clone()) } } }, 51_091),
        (
            doc! { "aggregate": "c", "pipeline": [{ "$match": { "$or": each(many.clone()) } }], "cursor": {} },
            51_091,
        ),
        (doc! { "create": "d", "validator": { "$or": each(many) } }, 51_091),
        // Expressions compile for each document; that counts as work.
        (doc! { "find": "c", "filter": match_ }, 262),
    ] {
        let name = command.keys().next().unwrap().clone();
        assert_eq!(client.refused(command).await.0, code, "{name}");
    }
    // The statements of a command share the limit.
    let answer = client.ok(doc! { "update": "c", "updates": statements, "ordered": false }).await;
    assert!(answer.get_array("writeErrors").unwrap().len() > 90);
    // Equal patterns count once, and many small ones fit.
    let equal = regexes(vec![large_patterns(1)[0].clone(); 5000]);
    client.ok(doc! { "find": "c", "filter": { "a": { "$in": equal } } }).await;
    let small = regexes((0..2000).map(|n| format!("^name {n}")).collect());
    client.ok(doc! { "find": "c", "filter": { "a": { "$in": small } } }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_deadline_holds_between_two_regular_expressions() {
    let mut client = Server::new().connect();
    let small = regexes((0..4000).map(|n| format!("^name {n}")).collect());
    let find = doc! { "find": "c", "filter": { "a": { "$in": small } }, "maxTimeMS": 1 };
    assert_eq!(client.refused(find).await.0, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_right_is_checked_before_filters_are_parsed() {
    let server = Server::new();
    server.connect().ok(doc! { "insert": "c", "documents": [{}] }).await;
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", "secret", Roles::new()).await.unwrap();
    let mut client = server.connect();
    login(&mut client, "secret", true).await;
    let broken = doc! { "$regex": "(" };
    assert_eq!(client.refused(doc! { "currentOp": 1, "x": broken.clone(), "$db": "admin" }).await.0, 13);
    let listed = client.ok(doc! { "listDatabases": 1, "filter": { "name": broken } }).await;
    assert!(listed.get_array("databases").unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_padding_counts_over_the_whole_update() {
    let mut client = Server::new().connect();
    let mut arrays = doc! { "_id": 0 };
    (0..100).for_each(|n| drop(arrays.insert(format!("a{n}"), Bson::Array(Vec::new()))));
    client.ok(doc! { "insert": "c", "documents": [arrays] }).await;
    let nested = doc! { "_id": 1, "a": vec![doc! {}; 2000], "b": vec![Bson::Array(Vec::new()); 100] };
    client.ok(doc! { "insert": "c", "documents": [nested] }).await;
    let set: Document = (0..100).map(|n| (format!("a{n}.1499998"), Bson::Int32(1))).collect();
    let large = "x".repeat(1 << 20);
    for (id, update, code) in [
        (0, doc! { "$set": set }, 2),
        (1, doc! { "$set": { "b.$[].1499998": 1 } }, 2),
        (1, doc! { "$set": { "a.$[].text": large.clone() } }, 10_334),
        (1, doc! { "$push": { "b.$[]": large.clone() } }, 10_334),
        (1, doc! { "$addToSet": { "b.$[]": large } }, 10_334),
    ] {
        let answer =
            client.ok(doc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": update.clone() }] }).await;
        let error = answer.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        assert_eq!(error.get_i32("code").unwrap(), code, "{}", error.get_str("errmsg").unwrap());
    }
    // One array may be padded as far as with the old limit.
    let one =
        doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "a0.1000000": 1 } } }] };
    assert_eq!(client.ok(one).await.get_i32("nModified").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_expressions_and_validators_end_with_the_time_of_their_command() {
    let mut client = Server::new().connect();
    let range = doc! { "$range": [0, 100_000] };
    let large = doc! { "$size": [{ "$map": { "input": range.clone(), "in": { "$size": range } } }] };
    let condition = doc! { "$expr": { "$lt": [large.clone(), 0] } };
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    client.ok(doc! { "create": "v", "validator": condition.clone() }).await;
    for command in [
        doc! { "find": "c", "filter": condition.clone() },
        doc! { "count": "c", "query": condition.clone() },
        doc! { "aggregate": "c", "pipeline": [{ "$addFields": { "x": large.clone() } }], "cursor": {} },
        doc! { "update": "c", "updates": [{ "q": {}, "u": [{ "$set": { "x": large } }], "multi": true }] },
        doc! { "delete": "c", "deletes": [{ "q": condition, "limit": 0 }] },
        doc! { "insert": "v", "documents": [{ "_id": 1 }] },
    ] {
        let mut command = command;
        command.insert("maxTimeMS", 20);
        let name = command.keys().next().unwrap().clone();
        assert_eq!(client.refused(command).await.0, 50, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c_command_without_max_time_ends_with_that_of_the_server() {
    let server = Server::new();
    let settings = MongoSettings { command_time: Duration::from_millis(200), ..MongoSettings::default() };
    let server = Server { mongo: Mongo::new(server.service.clone(), settings), ..server };
    let mut client = server.connect();
    let range = doc! { "$range": [0, 1_000_000] };
    let large = doc! { "$size": [{ "$map": { "input": range.clone(), "in": { "$size": range } } }] };
    let filter = doc! { "$expr": { "$lt": [large, 0] } };
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    let find = doc! { "find": "c", "filter": filter.clone() };
    assert_eq!(client.refused(find.clone()).await.0, 50);
    let mut without = find;
    without.insert("maxTimeMS", 0);
    assert_eq!(client.refused(without).await.0, 50);
    assert_eq!(client.refused(doc! { "delete": "c", "deletes": [{ "q": filter, "limit": 0 }] }).await.0, 50);
    // Streams wait as long as their clients request, not as long as a command may take.
    let stages = vec![doc! { "$changeStream": {} }];
    let opened = client.ok(doc! { "aggregate": "c", "pipeline": stages, "cursor": {} }).await;
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let waits = doc! { "getMore": id, "collection": "c", "maxTimeMS": 600 };
    let begun = std::time::Instant::now();
    client.ok(waits).await;
    assert!(begun.elapsed() >= Duration::from_millis(600));
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_memory_of_a_command_has_one_limit() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "s": "x".repeat(1 << 20) }] }).await;
    let texts = vec!["$s"; 2000];
    let constants = vec!["$$large"; 2000];
    let variables: Document = (0..20_000).map(|n| (format!("v{n}"), Bson::Int32(n))).collect();
    for (command, code) in [
        (
            doc! { "aggregate": "c", "pipeline": [{ "$project": { "x": texts.clone() } }], "cursor": {} },
            10_334,
        ),
        (
            doc! { "aggregate": "c", "pipeline": [{ "$project": { "x": { "$concat": texts } } }], "cursor": {} },
            10_334,
        ),
        (
            doc! { "find": "c", "filter": { "$expr": { "$and": constants } }, "let": { "large": "x".repeat(1 << 20) } },
            292,
        ),
        (doc! { "find": "c", "filter": { "$expr": { "$let": { "vars": variables, "in": 1 } } } }, 15),
    ] {
        let name = command.keys().next().unwrap().clone();
        assert_eq!(client.refused(command).await.0, code, "{name}");
    }
}
