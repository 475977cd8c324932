//! Users and tokens: authentication, rights, and the password cache.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ropewalk::events::ReadOptions;
use ropewalk::{AppendOptions, Database, Query};
use ropewalk_wire::{
    Access, Caller, Code, Credentials, Followed, Right, Roles, Service, ServiceSettings, WireError,
};

use crate::{event, everybody, service};

fn roles(store: &str, rights: &[Right]) -> Roles {
    Roles::from([(store.to_owned(), rights.iter().copied().collect::<BTreeSet<_>>())])
}

async fn login(access: &Access, user: &str, password: &str) -> Result<Caller, WireError> {
    let peer = Some(IpAddr::from([127, 0, 0, 1]));
    access.authenticate(Credentials::Password { user, password }, peer).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_user_ends_anonymous_access() {
    let service = service();
    let access = service.access();
    assert!(access.is_open());
    let anybody = access.authenticate(Credentials::None, None).await.unwrap();
    assert!(anybody.may(Right::Admin, None));
    access.create_user(&anybody, "ann", "secret", roles("default", &[Right::Read])).await.unwrap();
    assert!(!access.is_open());
    let refused = access.authenticate(Credentials::None, None).await.unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated);
    let ann = login(access, "ann", "secret").await.unwrap();
    assert_eq!(ann.name(), "ann");
    assert!(service.read(&ann, "default", Query::all(), ReadOptions::default()).is_ok());
    let refused = service.append(&ann, "default", &[event("A", &[])], AppendOptions::default()).await;
    assert_eq!(refused.unwrap_err().code, Code::PermissionDenied);
    let denied = |result: Result<(), WireError>| assert_eq!(result.unwrap_err().code, Code::PermissionDenied);
    denied(access.create_user(&ann, "eve", "x", Roles::new()).await);
    denied(access.grant(&ann, "ann", "*", Right::Admin).await);
    denied(access.drop_user(&ann, "ann").await);
    denied(access.users(&ann).map(drop));
    denied(access.create_token(&ann, "t", Roles::new(), None).await.map(drop));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_stored_changed_and_dropped() {
    let db = Database::in_memory().unwrap();
    let access = Access::open(db.clone(), false).unwrap();
    let root = everybody();
    access.create_user(&root, "ann", "first", Roles::new()).await.unwrap();
    let again = access.create_user(&root, "ann", "x", Roles::new()).await.unwrap_err();
    assert_eq!(again.code, Code::AlreadyExists);
    let ann = login(&access, "ann", "first").await.unwrap();
    assert!(!ann.may(Right::Read, Some("default")));
    access.grant(&root, "ann", "default", Right::Append).await.unwrap();
    // New rights apply from the next request, also with a cached password.
    assert!(login(&access, "ann", "first").await.unwrap().may(Right::Append, Some("default")));
    access.set_password(&ann, "ann", "second").await.unwrap();
    assert_eq!(login(&access, "ann", "first").await.unwrap_err().code, Code::Unauthenticated);
    assert!(login(&access, "ann", "second").await.is_ok());
    let reopened = Access::open(db, false).unwrap();
    assert!(login(&reopened, "ann", "second").await.unwrap().may(Right::Append, Some("default")));
    assert_eq!(reopened.users(&root).unwrap()[0].roles, roles("default", &[Right::Append]));
    reopened.revoke(&root, "ann", "default", Right::Append).await.unwrap();
    let twice = reopened.revoke(&root, "ann", "default", Right::Append).await.unwrap_err();
    assert_eq!(twice.code, Code::NotFound);
    assert_eq!(reopened.users(&root).unwrap()[0].roles, Roles::new());
    assert!(reopened.scram_verifier("ann").is_some() && reopened.scram_verifier("bob").is_none());
    reopened.create_user(&root, "bob", "other", Roles::new()).await.unwrap();
    reopened.drop_user(&root, "ann").await.unwrap();
    assert_eq!(reopened.drop_user(&root, "ann").await.unwrap_err().code, Code::NotFound);
    let bad = reopened.create_user(&root, "a:b", "x", Roles::new()).await.unwrap_err();
    assert_eq!(bad.code, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h11_last_credential_and_last_administrator_cannot_be_removed() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    let root = everybody();
    let refused = |result: Result<(), WireError>| assert_eq!(result.unwrap_err().code, Code::InvalidArgument);
    access.create_user(&root, "ann", "secret", Roles::new()).await.unwrap();
    refused(access.drop_user(&root, "ann").await);
    assert!(!access.is_open());
    access.grant(&root, "ann", "*", Right::Admin).await.unwrap();
    refused(access.revoke(&root, "ann", "*", Right::Admin).await);
    access.create_user(&root, "bob", "secret", Roles::new()).await.unwrap();
    refused(access.drop_user(&root, "ann").await);
    let (token, _) = access.create_token(&root, "ci", roles("*", &[Right::Admin]), None).await.unwrap();
    access.drop_user(&root, "ann").await.unwrap();
    refused(access.drop_token(&root, &token.id).await);
    assert!(login(&access, "ann", "secret").await.is_err() && !access.is_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_returned_once_and_expire() {
    let db = Database::in_memory().unwrap();
    let access = Access::open(db.clone(), false).unwrap();
    let root = everybody();
    let read = roles("*", &[Right::Read]);
    let (info, token) = access.create_token(&root, "ci", read.clone(), None).await.unwrap();
    assert!(token.starts_with("rw_") && token.len() == 46);
    let caller = access.authenticate(Credentials::Token(&token), None).await.unwrap();
    assert_eq!(caller.name(), "ci");
    assert!(caller.may(Right::Read, Some("any")) && !caller.may(Right::Append, Some("any")));
    for wrong in ["", "rw_", &token[..45], &format!("{token}x")] {
        let refused = access.authenticate(Credentials::Token(wrong), None).await.unwrap_err();
        assert_eq!(refused.code, Code::Unauthenticated);
    }
    // The stored record does not contain the token.
    let keyspace = db.keyspace("sys.access", Default::default()).unwrap();
    let snapshot = db.snapshot();
    let stored = snapshot.get(keyspace, format!("t{}", info.id).as_bytes()).unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains(&token[3..]));
    let now = db.engine().env().clock.wall_micros();
    let past = access.create_token(&root, "old", read.clone(), Some(now - 1)).await.unwrap_err();
    assert_eq!(past.code, Code::InvalidArgument);
    let (short, secret) = access.create_token(&root, "short", read, Some(now + 50_000)).await.unwrap();
    while db.engine().env().clock.wall_micros() < now + 50_000 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let expired = access.authenticate(Credentials::Token(&secret), None).await.unwrap_err();
    assert_eq!(expired.message, "the token has expired");
    assert_eq!(access.tokens(&root).unwrap().len(), 2);
    access.drop_token(&root, &short.id).await.unwrap();
    assert_eq!(access.tokens(&root).unwrap(), [info]);
    assert_eq!(access.drop_token(&root, &short.id).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_guessing_is_throttled_and_a_cached_login_is_not() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    access.create_user(&everybody(), "ann", "right", Roles::new()).await.unwrap();
    login(&access, "ann", "right").await.unwrap();
    // Concurrent attempts get no more tries than successive ones, except those that run together.
    let guesses = (0..40).map(|i| {
        let access = access.clone();
        tokio::spawn(async move { login(&access, "ann", &format!("guess{i}")).await.unwrap_err() })
    });
    let mut tried = 0;
    for guess in guesses.collect::<Vec<_>>() {
        let error = guess.await.unwrap();
        match error.code {
            Code::Unauthenticated => tried += 1,
            Code::ResourceExhausted => assert!(error.retry_after.is_some()),
            other => panic!("{other}"),
        }
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!((5..=5 + processors).contains(&tried), "{tried} guesses were tried");
    let peer = |last| Some(IpAddr::from([127, 0, 0, last]));
    let shown = Credentials::Password { user: "ann", password: "right" };
    assert!(access.authenticate(shown, peer(1)).await.is_ok());
    assert!(access.authenticate(shown, peer(2)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insecure_admits_anonymous_callers_but_not_wrong_credentials() {
    let settings = ServiceSettings { insecure: true, ..ServiceSettings::default() };
    let service = Service::new(Database::in_memory().unwrap(), settings).unwrap();
    let access = service.access();
    access.create_user(&everybody(), "ann", "right", Roles::new()).await.unwrap();
    assert!(access.authenticate(Credentials::None, None).await.unwrap().may(Right::Admin, None));
    assert_eq!(login(access, "ann", "wrong").await.unwrap_err().code, Code::Unauthenticated);
    let text = service.metrics().render(service.database());
    assert!(text.contains("ropewalk_logins_failed_total 1\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_ends_with_its_user_token_or_right() {
    let service = service();
    let (access, root) = (service.access(), everybody());
    let read = roles("default", &[Right::Read]);
    let stranger = access.authenticate(Credentials::None, None).await.unwrap();
    let follow = |caller: &Caller| service.follow(caller, "default", Query::all(), None).unwrap();
    let mut anonymous = follow(&stranger);
    for name in ["ann", "bob", "eve"] {
        access.create_user(&root, name, "secret", read.clone()).await.unwrap();
    }
    // Long enough for all that precedes it, on a loaded machine, too.
    let expires = service.database().engine().env().clock.wall_micros() + 3_000_000;
    let (dropped, secret) = access.create_token(&root, "t", read.clone(), None).await.unwrap();
    let (_, short) = access.create_token(&root, "s", read, Some(expires)).await.unwrap();
    let mut followers = vec![follow(&root)];
    for name in ["ann", "bob", "eve"] {
        followers.push(follow(&login(access, name, "secret").await.unwrap()));
    }
    for token in [&secret, &short] {
        followers.push(follow(&access.authenticate(Credentials::Token(token), None).await.unwrap()));
    }
    for following in followers.iter_mut().chain([&mut anonymous]) {
        assert!(matches!(following.next().await.unwrap(), Followed::CaughtUp { .. }));
    }
    access.drop_user(&root, "ann").await.unwrap();
    access.revoke(&root, "bob", "default", Right::Read).await.unwrap();
    access.drop_token(&root, &dropped.id).await.unwrap();
    while service.database().engine().env().clock.wall_micros() <= expires {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    crate::append(&service, &[event("A", &[])]).await;
    let mut codes = Vec::new();
    for following in followers.iter_mut().chain([&mut anonymous]) {
        codes.push(following.next().await.err().map(|error| error.code));
    }
    let (gone, denied) = (Some(Code::Unauthenticated), Some(Code::PermissionDenied));
    // root, ann, bob, eve, dropped token, expired token, anonymous
    assert_eq!(codes, [None, gone, denied, None, gone, gone, gone]);
}
