//! Rights of callers on operations, and the end of subscriptions with them.

use ropewalk::events::ReadOptions;
use ropewalk::{AppendOptions, Database, Query};
use ropewalk_auth::{AuthError, Caller, Credentials, Right, Roles};
use ropewalk_wire::{Code, Followed, Service, ServiceSettings};

use crate::logins::{login, roles};
use crate::{event, everybody, service};

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
    assert!(matches!(refused, AuthError::Unauthenticated(_)));
    let ann = login(access, "ann", "secret").await.unwrap();
    assert_eq!(ann.name(), "ann");
    assert!(service.read(&ann, "default", Query::all(), ReadOptions::default()).is_ok());
    let refused = service.append(&ann, "default", &[event("A", &[])], AppendOptions::default()).await;
    assert_eq!(refused.unwrap_err().code, Code::PermissionDenied);
    let denied = |result: Result<(), AuthError>| {
        assert!(matches!(result, Err(AuthError::PermissionDenied(_))));
    };
    denied(access.create_user(&ann, "eve", "x", Roles::new()).await);
    denied(access.grant(&ann, "ann", "*", Right::Admin).await);
    denied(access.drop_user(&ann, "ann").await);
    denied(access.users_after(&ann, None).map(drop));
    denied(access.create_token(&ann, "t", Roles::new(), None).await.map(drop));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insecure_admits_anonymous_callers_but_not_wrong_credentials() {
    let settings = ServiceSettings { insecure: true, ..ServiceSettings::default() };
    let service = Service::new(Database::in_memory().unwrap(), settings).unwrap();
    let access = service.access();
    access.create_user(&everybody(), "ann", "right", Roles::new()).await.unwrap();
    assert!(access.authenticate(Credentials::None, None).await.unwrap().may(Right::Admin, None));
    let wrong = login(access, "ann", "wrong").await.unwrap_err();
    assert!(matches!(wrong, AuthError::Unauthenticated(_)));
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
