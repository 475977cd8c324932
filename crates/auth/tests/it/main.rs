//! Users and tokens: changes, authentication, throttling, and the password cache.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod logins;

use std::net::IpAddr;

use ropewalk::Database;
use ropewalk_auth::{Access, AuthError, Caller, Credentials, Right, Roles};

use crate::logins::{login, roles};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_stored_changed_and_dropped() {
    let db = Database::in_memory().unwrap();
    let access = Access::open(db.clone(), false).unwrap();
    let root = Caller::everybody();
    access.create_user(&root, "ann", "first", Roles::new()).await.unwrap();
    let again = access.create_user(&root, "ann", "x", Roles::new()).await.unwrap_err();
    assert!(matches!(again, AuthError::AlreadyExists(_)));
    let ann = login(&access, "ann", "first").await.unwrap();
    assert!(!ann.may(Right::Read, Some("default")));
    access.grant(&root, "ann", "default", Right::Append).await.unwrap();
    // New rights apply from the next request, also with a cached password.
    assert!(login(&access, "ann", "first").await.unwrap().may(Right::Append, Some("default")));
    access.set_password(&ann, "ann", "second").await.unwrap();
    let old = login(&access, "ann", "first").await.unwrap_err();
    assert!(matches!(old, AuthError::Unauthenticated(_)));
    assert!(login(&access, "ann", "second").await.is_ok());
    let reopened = Access::open(db, false).unwrap();
    assert!(login(&reopened, "ann", "second").await.unwrap().may(Right::Append, Some("default")));
    assert_eq!(
        reopened.users_after(&root, None).unwrap().next().unwrap().roles,
        roles("default", &[Right::Append])
    );
    reopened.revoke(&root, "ann", "default", Right::Append).await.unwrap();
    let twice = reopened.revoke(&root, "ann", "default", Right::Append).await.unwrap_err();
    assert!(matches!(twice, AuthError::NotFound(_)));
    assert_eq!(reopened.users_after(&root, None).unwrap().next().unwrap().roles, Roles::new());
    reopened.create_user(&root, "bob", "other", Roles::new()).await.unwrap();
    reopened.drop_user(&root, "ann").await.unwrap();
    assert!(matches!(reopened.drop_user(&root, "ann").await, Err(AuthError::NotFound(_))));
    let bad = reopened.create_user(&root, "a:b", "x", Roles::new()).await.unwrap_err();
    assert!(matches!(bad, AuthError::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h11_last_credential_and_last_administrator_cannot_be_removed() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    let root = Caller::everybody();
    let refused = |result: Result<(), AuthError>| assert!(matches!(result, Err(AuthError::Invalid(_))));
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
    let root = Caller::everybody();
    let read = roles("*", &[Right::Read]);
    let (info, token) = access.create_token(&root, "ci", read.clone(), None).await.unwrap();
    assert!(token.starts_with("rw_") && token.len() == 46);
    let caller = access.authenticate(Credentials::Token(&token), None).await.unwrap();
    assert_eq!(caller.name(), "ci");
    assert!(caller.may(Right::Read, Some("any")) && !caller.may(Right::Append, Some("any")));
    for wrong in ["", "rw_", &token[..45], &format!("{token}x")] {
        let refused = access.authenticate(Credentials::Token(wrong), None).await.unwrap_err();
        assert!(matches!(refused, AuthError::Unauthenticated(_)));
    }
    // The stored record does not contain the token.
    let keyspace = db.keyspace("sys.access", Default::default()).unwrap();
    let snapshot = db.snapshot();
    let stored = snapshot.get(keyspace, format!("t{}", info.id).as_bytes()).unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains(&token[3..]));
    let now = db.engine().env().clock.wall_micros();
    let past = access.create_token(&root, "old", read.clone(), Some(now - 1)).await.unwrap_err();
    assert!(matches!(past, AuthError::Invalid(_)));
    let (short, secret) = access.create_token(&root, "short", read, Some(now + 50_000)).await.unwrap();
    while db.engine().env().clock.wall_micros() < now + 50_000 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let expired = access.authenticate(Credentials::Token(&secret), None).await.unwrap_err();
    assert!(matches!(expired, AuthError::Unauthenticated("the token has expired")));
    assert_eq!(access.tokens_after(&root, None).unwrap().count(), 2);
    access.drop_token(&root, &short.id).await.unwrap();
    assert!(access.tokens_after(&root, None).unwrap().eq([info]));
    assert!(matches!(access.drop_token(&root, &short.id).await, Err(AuthError::NotFound(_))));
}

/// A replica applies the commits of another process; here another handle makes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_made_elsewhere_apply_to_the_next_request_and_to_open_streams() {
    let db = Database::in_memory().unwrap();
    let [here, elsewhere] = [(), ()].map(|()| Access::open(db.clone(), false).unwrap());
    let root = Caller::everybody();
    let (info, token) = elsewhere.create_token(&root, "ci", roles("*", &[Right::Admin]), None).await.unwrap();
    assert!(!here.is_open());
    let mut caller = here.authenticate(Credentials::Token(&token), None).await.unwrap();
    let mut seen = 0;
    here.revalidate(&mut caller, &mut seen).unwrap();
    elsewhere.create_user(&root, "ann", "secret", roles("*", &[Right::Admin])).await.unwrap();
    assert!(login(&here, "ann", "secret").await.is_ok());
    here.revalidate(&mut caller, &mut seen).unwrap();
    elsewhere.drop_token(&root, &info.id).await.unwrap();
    let gone = here.authenticate(Credentials::Token(&token), None).await.unwrap_err();
    assert!(matches!(gone, AuthError::Unauthenticated("unknown token")));
    assert!(matches!(here.revalidate(&mut caller, &mut seen), Err(AuthError::Unauthenticated(_))));
    // A plain write to the keyspace counts as well.
    let keyspace = db.keyspace("sys.access", Default::default()).unwrap();
    let mut tx = db.begin();
    tx.delete(keyspace, b"uann");
    tx.commit().unwrap();
    assert!(here.is_open() && elsewhere.is_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_guessing_is_throttled_and_a_cached_login_is_not() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    access.create_user(&Caller::everybody(), "ann", "right", Roles::new()).await.unwrap();
    login(&access, "ann", "right").await.unwrap();
    // Concurrent attempts get no more tries than successive ones, except those that run together.
    let guesses = (0..40).map(|i| {
        let access = access.clone();
        tokio::spawn(async move { login(&access, "ann", &format!("guess{i}")).await.unwrap_err() })
    });
    let mut tried = 0;
    for guess in guesses.collect::<Vec<_>>() {
        match guess.await.unwrap() {
            AuthError::Unauthenticated(_) => tried += 1,
            AuthError::Throttled { pause } => assert!(!pause.is_zero()),
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
async fn browser_session_ends_with_its_user_password_or_token() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    let root = Caller::everybody();
    assert!(matches!(access.begin_session(&root), Err(AuthError::Invalid(_))));
    access.create_user(&root, "ann", "first", roles("s", &[Right::Read])).await.unwrap();
    access.create_user(&root, "bob", "first", Roles::new()).await.unwrap();
    let (info, token) = access.create_token(&root, "ci", Roles::new(), None).await.unwrap();
    let ann = login(&access, "ann", "first").await.unwrap();
    let (cookie, _) = access.begin_session(&ann).unwrap();
    assert!(!access.session(&cookie).unwrap().caller().may(Right::Append, Some("s")));
    access.grant(&root, "ann", "s", Right::Append).await.unwrap();
    assert!(access.session(&cookie).unwrap().caller().may(Right::Append, Some("s")));
    access.set_password(&ann, "ann", "second").await.unwrap();
    assert!(access.session(&cookie).is_none());
    let bob = login(&access, "bob", "first").await.unwrap();
    let (cookie, _) = access.begin_session(&bob).unwrap();
    access.drop_user(&root, "bob").await.unwrap();
    assert!(access.session(&cookie).is_none());
    let ci = access.authenticate(Credentials::Token(&token), None).await.unwrap();
    let (cookie, _) = access.begin_session(&ci).unwrap();
    let (other, _) = access.begin_session(&ci).unwrap();
    access.end_session(&other);
    assert!(access.session(&other).is_none() && access.session(&cookie).is_some());
    access.drop_token(&root, &info.id).await.unwrap();
    assert!(access.session(&cookie).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_a_browser_session_ends_with_the_session() {
    let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
    let root = Caller::everybody();
    access.create_user(&root, "ann", "first", Roles::new()).await.unwrap();
    let mut direct = login(&access, "ann", "first").await.unwrap();
    let (cookie, session) = access.begin_session(&direct).unwrap();
    let (mut streaming, mut seen) = (session.caller().clone(), u64::MAX);
    access.revalidate(&mut streaming, &mut seen).unwrap();
    // New rights do not separate the caller from its session.
    access.grant(&root, "ann", "s", Right::Read).await.unwrap();
    access.revalidate(&mut streaming, &mut seen).unwrap();
    assert!(streaming.may(Right::Read, Some("s")));
    access.end_session(&cookie);
    assert!(matches!(access.revalidate(&mut streaming, &mut seen), Err(AuthError::Unauthenticated(_))));
    seen = u64::MAX;
    access.revalidate(&mut direct, &mut seen).unwrap();
}
