//! `backup` of a directory, and of a running server.

use crate::serving::Server;
use crate::{Place, rows};

#[test]
fn backup_of_a_directory_is_a_database() {
    let place = Place::with_database();
    place.ok(&["append", "--type", "One"]);
    place.ok(&["checkpoint"]);
    place.ok(&["append", "--type", "Two"]);
    let made = &rows(&place.ok(&["backup", "copies/one"]))[0];
    assert!(made["backup"] == "copies/one" && made["linked_bytes"].as_u64() > Some(0), "{made}");
    place.ok(&["append", "--type", "Three"]);
    assert_eq!(place.ok(&["count", "--at", "copies/one"]), "2\n");
    assert!(place.ok(&["verify", "--at", "copies/one"]).contains("ok"));
    assert_eq!(place.ok(&["count"]), "3\n");
    assert!(!place.path().join("copies/one.partial").exists());
    place.refused(&["backup", "copies/one"], 2, &["copies/one", "exists already"]);
    place.refused(&["backup"], 2, &["needs a directory"]);
    place.refused(&["backup", "--at", "nowhere", "copies/two"], 3, &["nowhere"]);
    std::fs::write(place.path().join("file"), "").unwrap();
    place.refused(&["backup", "file/two"], 7, &["file/two"]);
}

#[test]
fn server_backs_up_while_serving_only_below_its_backup_directory() {
    let place = Place::with_database();
    let server = Server::start(&place, &["--backups", "copies"]);
    place.ok(&["append", "--type", "One"]);
    let made = &rows(&place.ok(&["backup"]))[0];
    let named = &rows(&place.ok(&["backup", "named", "--at", &server.url()]))[0];
    assert_eq!(named["backup"], "named");
    place.ok(&["append", "--type", "Two"]);
    for name in [made["backup"].as_str().unwrap(), "named"] {
        assert_eq!(place.ok(&["count", "--at", &format!("copies/{name}")]), "1\n");
        assert!(place.ok(&["verify", "--at", &format!("copies/{name}")]).contains("ok"));
    }
    place.refused(&["backup", "/tmp/elsewhere"], 2, &["/tmp/elsewhere", "backups"]);
    place.refused(&["backup", "..", "--at", &server.url()], 2, &["is not a valid backup name"]);
    place.refused(&["backup", "named"], 4, &["named", "already"]);
    assert_eq!(place.ok(&["count"]), "2\n");
}

#[test]
fn server_without_backup_directory_rejects_backup() {
    let place = Place::with_database();
    let _server = Server::start(&place, &[]);
    place.refused(&["backup"], 2, &["`backups`"]);
}
