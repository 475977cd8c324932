//! The files of the web console.

use ropewalk_auth::{Caller, Roles};
use ropewalk_http::{ConsoleFile, HttpSettings};
use ropewalk_wire::Limits;

use crate::client::Server;

/// `<p>page</p>` and `run()`, compressed.
pub(crate) const FILES: &[ConsoleFile] = &[
    ConsoleFile {
        path: "index.html",
        gzip: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xb3)\xb0+HLO\xb5\xd1/\xb0\x03\x00h\xc5M\xfb\x0b\x00\x00\x00",
    },
    ConsoleFile {
        path: "assets/run-1a2b.js",
        gzip: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03+*\xcd\xd3\xd0\x04\x00\xf0\xc4wD\x05\x00\x00\x00",
    },
];

async fn with_console() -> Server {
    Server::with(Limits::default(), HttpSettings { console: FILES, ..HttpSettings::default() }).await
}

#[tokio::test]
async fn root_leads_to_the_console_which_needs_no_credentials() {
    let server = with_console().await;
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", "correct horse", Roles::new()).await.unwrap();
    for path in ["/", "/ui"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.header("location")), (307, Some("/ui/")), "{path}");
    }
    for path in ["/ui/", "/ui/events/courses?tag=a", "/ui/sql"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.text()), (200, "<p>page</p>"), "{path}");
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    server.get("/v1/stores").await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn hashed_files_are_cached_and_sent_as_they_are_compressed() {
    let server = with_console().await;
    let path = "/ui/assets/run-1a2b.js";
    let reply = server.request("GET", path, &[("accept-encoding", "br, gzip")], b"").await;
    assert_eq!((reply.status, reply.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(reply.body, FILES[1].gzip);
    assert_eq!(reply.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("public, max-age=31536000, immutable"));
    let plain = server.get(path).await;
    assert_eq!((plain.text(), plain.header("content-encoding")), ("run()", None));
    server.get("/ui/assets/none.js").await.refused(404, "no_such_route");
}

#[tokio::test]
async fn server_without_a_console_has_no_pages() {
    let server = Server::start().await;
    for path in ["/", "/ui", "/ui/", "/ui/sql"] {
        server.get(path).await.refused(404, "no_such_route");
    }
}
