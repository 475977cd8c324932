//! Logins, and the rights of users.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::{Binary, Document, doc, spec::BinarySubtype};
use hmac::{Hmac, KeyInit as _, Mac as _};
use ropewalk::Durability;
use ropewalk::documents::CollectionOptions;
use ropewalk::documents::lang::DocBuf;
use ropewalk_auth::{Caller, Right, Roles};
use sha2::{Digest as _, Sha256};

use crate::client::{Client, Server};

async fn server() -> Server {
    let server = Server::new();
    let mut roles = Roles::new();
    roles.entry("app".to_owned()).or_default().extend([Right::Read]);
    roles.entry("own".to_owned()).or_default().extend([Right::Read, Right::Append]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", roles).await.unwrap();
    server
}

fn payload(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

fn text(answer: &Document) -> String {
    String::from_utf8(answer.get_binary_generic("payload").unwrap().clone()).unwrap()
}

fn sign(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// The client's last message for the server's first.
fn proof(user: &str, password: &str, first: &str) -> String {
    let field = |name: &str| first.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
    let mut salted = [0; 32];
    let salt = STANDARD.decode(field("s=")).unwrap();
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, field("i=").parse().unwrap(), &mut salted);
    let client_key = sign(&salted, b"Client Key");
    let last = format!("c=biws,r={}", field("r="));
    let signature = sign(&Sha256::digest(client_key), format!("n={user},r=abc,{first},{last}").as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
    format!("{last},p={}", STANDARD.encode(proof))
}

pub(crate) async fn login(client: &mut Client, password: &str, skip: bool) -> Document {
    login_as(client, "ann", password, skip).await
}

pub(crate) async fn login_as(client: &mut Client, user: &str, password: &str, skip: bool) -> Document {
    let start = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload(&format!("n,,n={user},r=abc")),
        "options": { "skipEmptyExchange": skip }, "$db": "admin",
    };
    let first = client.ok(start).await;
    let last = proof(user, password, &text(&first));
    client
        .run(doc! { "saslContinue": 1, "conversationId": 1, "payload": payload(&last), "$db": "admin" })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_login_only_the_handshake_is_allowed() {
    let mut client = server().await.connect();
    client.ok(doc! { "hello": 1 }).await;
    client.ok(doc! { "ping": 1 }).await;
    for command in
        [doc! { "find": "c" }, doc! { "insert": "c", "documents": [{}] }, doc! { "listDatabases": 1 }]
    {
        assert_eq!(client.refused(command).await.0, 13);
    }
    let hello = client.ok(doc! { "hello": 1, "saslSupportedMechs": "admin.ann" }).await;
    let mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-1"].map(bson::Bson::from);
    assert_eq!(hello.get_array("saslSupportedMechs").unwrap().as_slice(), &mechanisms);
}

#[tokio::test(flavor = "multi_thread")]
async fn logged_in_user_is_limited_to_granted_rights() {
    let mut client = server().await.connect();
    let done = login(&mut client, "secret", true).await;
    assert!(done.get_bool("done").unwrap(), "{done}");
    let status = client.ok(doc! { "connectionStatus": 1 }).await;
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    assert_eq!(users.len(), 1);
    client.ok(doc! { "find": "c" }).await;
    assert_eq!(client.refused(doc! { "insert": "c", "documents": [{}] }).await.0, 13);
    client.ok(doc! { "insert": "c", "documents": [{}], "$db": "own" }).await;
    assert_eq!(client.refused(doc! { "dropDatabase": 1, "$db": "own" }).await.0, 13);
    assert_eq!(client.refused(doc! { "find": "c", "$db": "other" }).await.0, 13);
    client.ok(doc! { "logout": 1 }).await;
    assert_eq!(client.refused(doc! { "find": "c" }).await.0, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn exchange_may_end_with_empty_message_or_begin_with_handshake() {
    let mut client = server().await.connect();
    let done = login(&mut client, "secret", false).await;
    assert!(!done.get_bool("done").unwrap());
    let end = client.ok(doc! { "saslContinue": 1, "conversationId": 1, "payload": payload("") }).await;
    assert!(end.get_bool("done").unwrap());

    let mut client = server().await.connect();
    let start = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload("n,,n=ann,r=abc"), "db": "admin",
        "options": { "skipEmptyExchange": true },
    };
    let hello = client.ok(doc! { "hello": 1, "speculativeAuthenticate": start }).await;
    let first = text(hello.get_document("speculativeAuthenticate").unwrap());
    let last = proof("ann", "secret", &first);
    client.ok(doc! { "saslContinue": 1, "conversationId": 1, "payload": payload(&last) }).await;
    client.ok(doc! { "find": "c" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_and_other_mechanisms_are_refused() {
    let server = server().await;
    let mut client = server.connect();
    let refused = login(&mut client, "wrong", true).await;
    assert_eq!(refused.get_i32("code").unwrap(), 18);
    for mechanism in ["PLAIN", "MONGODB-X509", ""] {
        let start = doc! { "saslStart": 1, "mechanism": mechanism, "payload": payload("n,,n=ann,r=abc") };
        assert_eq!(client.refused(start).await.0, 334);
    }
    let stray = doc! { "saslContinue": 1, "conversationId": 1, "payload": payload("x") };
    assert_eq!(client.refused(stray).await.0, 17);
    // A dropped user is rejected, also on a connection that is open.
    let mut client = server.connect();
    login(&mut client, "secret", true).await;
    client.ok(doc! { "find": "c" }).await;
    let all = Caller::everybody();
    server.service.access().create_user(&all, "bob", "other", Roles::new()).await.unwrap();
    server.service.access().drop_user(&all, "ann").await.unwrap();
    assert_eq!(client.refused(doc! { "find": "c" }).await.0, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_apply_to_callers_without_admin() {
    let server = server().await;
    let documents = server.service.database().documents();
    let rules = doc! { "read": "resource.owner == request.auth.uid", "create": "request.resource.owner == request.auth.uid" };
    let rules = DocBuf::check(rules.to_vec().unwrap()).unwrap();
    let options = CollectionOptions { rules: Some(rules), ..CollectionOptions::default() };
    let notes = documents.collection("own", "notes").unwrap();
    notes.create(options).unwrap();
    let others = doc! { "_id": 1, "owner": "bob" }.to_vec().unwrap();
    notes.insert_one(&others, Durability::Sync).unwrap();

    let mut ann = server.connect();
    login(&mut ann, "secret", true).await;
    let insert = |owner: &str| doc! { "insert": "notes", "documents": [{ "owner": owner }], "$db": "own" };
    ann.ok(insert("ann")).await;
    let refused = ann.ok(insert("bob")).await;
    let code = |error: &bson::Bson| error.as_document().unwrap().get_i32("code").unwrap();
    assert_eq!(code(&refused.get_array("writeErrors").unwrap()[0]), 13);
    let mine = doc! { "find": "notes", "filter": { "owner": "ann" }, "$db": "own" };
    let found = ann.ok(mine).await;
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    for refused in [
        doc! { "find": "notes" },
        doc! { "count": "notes" },
        doc! { "distinct": "notes", "key": "owner" },
        doc! { "aggregate": "notes", "pipeline": [], "cursor": {} },
        doc! { "aggregate": "notes", "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        doc! { "findAndModify": "notes", "query": {}, "remove": true },
        doc! { "explain": { "find": "notes" } },
    ] {
        let mut refused = refused;
        refused.insert("$db", "own");
        assert_eq!(ann.refused(refused).await.0, 13);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_of_other_users_require_admin() {
    let server = server().await;
    let everybody = Caller::everybody();
    for (user, right) in [("bob", Right::Read), ("root", Right::Admin)] {
        let mut roles = Roles::new();
        let place = if right == Right::Admin { "*" } else { "app" };
        roles.entry(place.to_owned()).or_default().extend([right]);
        server.service.access().create_user(&everybody, user, "secret", roles).await.unwrap();
    }
    let mut waiting = Vec::new();
    for user in ["ann", "bob"] {
        let mut client = server.connect();
        login_as(&mut client, user, "secret", true).await;
        let watch = doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
        let id = crate::client::cursor_id(&client.ok(watch).await);
        let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 600_000 };
        waiting.push(tokio::spawn(async move { client.run(more).await }));
    }
    let (mut ann, mut root) = (server.connect(), server.connect());
    login(&mut ann, "secret", true).await;
    login_as(&mut root, "root", "secret", true).await;
    let listed = |answer: Document| -> Vec<(String, i32)> {
        let told = answer.get_array("inprog").unwrap().iter().map(|op| op.as_document().unwrap());
        let user = |op: &Document| {
            let users = op.get_array("effectiveUsers").unwrap();
            users[0].as_document().unwrap().get_str("user").unwrap().to_owned()
        };
        told.map(|op| (user(op), op.get_i32("opid").unwrap())).collect()
    };
    let all = doc! { "currentOp": 1, "op": "getmore", "$db": "admin" };
    let mut own = all.clone();
    own.insert("$ownOps", true);
    let (of_ann, of_bob) = loop {
        let told = listed(root.ok(all.clone()).await);
        let of = |user: &str| told.iter().find(|(own, _)| own == user).map(|(_, opid)| *opid);
        if let (Some(ann), Some(bob)) = (of("ann"), of("bob")) {
            break (ann, bob);
        }
    };
    assert_eq!(ann.refused(all.clone()).await.0, 13);
    assert_eq!(listed(ann.ok(own).await), [("ann".to_owned(), of_ann)]);
    let kill = |opid: i32| doc! { "killOp": 1, "op": opid, "$db": "admin" };
    // An operation that does not exist is rejected like another user's.
    assert_eq!(ann.refused(kill(of_bob)).await.0, 13);
    assert_eq!(ann.refused(kill(i32::MAX)).await.0, 13);
    let stages = |options: Document, more: Vec<Document>| {
        let stages = [vec![doc! { "$currentOp": options }], more].concat();
        doc! { "aggregate": 1, "pipeline": stages, "cursor": {}, "$db": "admin" }
    };
    assert_eq!(ann.refused(stages(doc! { "allUsers": true }, vec![])).await.0, 13);
    let joined = doc! { "$lookup": { "from": "c", "localField": "op", "foreignField": "op", "as": "x" } };
    assert_eq!(ann.refused(stages(doc! {}, vec![joined])).await.0, 13);
    let told = ann.ok(stages(doc! {}, vec![doc! { "$match": { "op": "getmore" } }])).await;
    assert_eq!(crate::client::batch(&told, "firstBatch").len(), 1);

    ann.ok(kill(of_ann)).await;
    root.ok(kill(of_bob)).await;
    for ended in waiting {
        assert_eq!(ended.await.unwrap().get_i32("code").unwrap(), 11_601);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_made_changed_and_dropped() {
    let server = Server::new();
    let mut first = server.connect();
    let roles = |roles: Vec<bson::Bson>| doc! { "createUser": "ann", "pwd": "secret", "roles": roles };
    // Options that cannot be stored are rejected, and nothing is stored.
    for (refused, code) in [
        (roles(vec!["dbAdmin".into()]), 31),
        (roles(vec![doc! { "role": "root", "db": "app" }.into()]), 31),
        (roles(vec![doc! { "role": "read" }.into()]), 40_414),
        (doc! { "createUser": "ann", "roles": [] }, 40_414),
        (doc! { "createUser": "ann", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] }, 238),
        (doc! { "createUser": "ann", "pwd": "x", "roles": [], "customData": { "a": 1 } }, 238),
        (doc! { "createUser": "ann", "pwd": "x", "roles": [], "more": 1 }, 40_415),
        (doc! { "updateUser": "ann" }, 2),
        (doc! { "updateUser": "ann", "pwd": "x" }, 11),
        (doc! { "dropUser": "ann" }, 11),
    ] {
        assert_eq!(first.refused(refused.clone()).await.0, code, "{refused}");
    }
    first.ok(roles(vec!["read".into(), doc! { "role": "root", "db": "admin" }.into()])).await;
    // With the first user anonymous access ends.
    assert_eq!(first.refused(doc! { "find": "c" }).await.0, 13);

    let mut root = server.connect();
    login(&mut root, "secret", true).await;
    assert_eq!(root.refused(roles(vec![])).await.0, 51_003);
    let bob = doc! { "createUser": "bob", "pwd": "other", "roles": ["readWrite", { "role": "append", "db": "own" }] };
    root.ok(bob).await;
    let listed = |answer: Document| -> Vec<String> {
        let users = answer.get_array("users").unwrap();
        let users = users.iter().map(|user| user.as_document().unwrap());
        let role = |role: &bson::Bson| {
            let role = role.as_document().unwrap();
            format!("{}@{}", role.get_str("role").unwrap(), role.get_str("db").unwrap())
        };
        let roles = |user: &Document| user.get_array("roles").unwrap().iter().map(role).collect::<Vec<_>>();
        users.map(|user| format!("{}: {}", user.get_str("user").unwrap(), roles(user).join(" "))).collect()
    };
    let all = ["ann: root@admin read@app", "bob: readWrite@app append@own"];
    assert_eq!(listed(root.ok(doc! { "usersInfo": 1 }).await), all);
    assert_eq!(listed(root.ok(doc! { "usersInfo": { "forAllDBs": true } }).await), all);
    let one = doc! { "usersInfo": [{ "user": "bob", "db": "app" }, "nobody"] };
    assert_eq!(listed(root.ok(one).await), all[1..]);
    assert_eq!(root.refused(doc! { "usersInfo": { "name": "bob" } }).await.0, 40_415);

    root.ok(doc! { "grantRolesToUser": "bob", "roles": [{ "role": "dbOwner", "db": "own" }] }).await;
    root.ok(doc! { "revokeRolesFromUser": "bob", "roles": ["readWrite"] }).await;
    assert_eq!(listed(root.ok(doc! { "usersInfo": "bob" }).await), ["bob: dbOwner@own append@own"]);
    // The last administrator cannot be removed.
    let demoted = doc! { "updateUser": "ann", "pwd": "new", "roles": ["read"] };
    root.refused(demoted.clone()).await;
    let all = ropewalk_auth::Roles::from([("*".to_owned(), [ropewalk_auth::Right::Admin].into())]);
    server.service.access().create_token(&Caller::everybody(), "ci", all, None).await.unwrap();
    root.ok(demoted).await;
    // A new password invalidates the login of open connections.
    assert_eq!(root.refused(doc! { "find": "c" }).await.0, 13);
    let mut root = server.connect();
    assert!(login(&mut root, "new", true).await.get_bool("done").unwrap());
    root.ok(doc! { "find": "c" }).await;
    assert_eq!(root.refused(doc! { "usersInfo": 1 }).await.0, 13);
    assert_eq!(root.refused(doc! { "dropUser": "bob" }).await.0, 13);
    root.ok(doc! { "updateUser": "ann", "pwd": "newer" }).await;
    let mut ann = server.connect();
    assert_eq!(login(&mut ann, "new", true).await.get_i32("code").unwrap(), 18);
    assert!(login(&mut server.connect(), "newer", true).await.get_bool("done").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_users_larger_than_a_document_is_rejected() {
    let server = Server::new();
    let (access, root) = (server.service.access(), Caller::everybody());
    let admin = ropewalk_auth::Roles::from([("*".to_owned(), [ropewalk_auth::Right::Admin].into())]);
    access.create_user(&root, "root", "secret", admin).await.unwrap();
    let place = |number: usize| format!("{number:0>200}");
    for name in ["ann", "bob"] {
        let roles = (0..37_000).map(|number| (place(number), [ropewalk_auth::Right::Read].into()));
        access.create_user(&root, name, "secret", roles.collect()).await.unwrap();
    }
    let mut client = server.connect();
    login_as(&mut client, "root", "secret", true).await;
    assert_eq!(client.refused(doc! { "usersInfo": 1 }).await.0, 10_334);
    let two = client.ok(doc! { "usersInfo": ["root", "bob"] }).await;
    assert_eq!(two.get_array("users").unwrap().len(), 2);
}
