//! TLS: the development certificate, one of our own, reload, and refusal of what no client would take.

use std::path::Path;

use crate::Place;
use crate::serving::Server;

/// Writes a certificate for 127.0.0.1 and its key; it is its own root. Expired when `years` ends in the past.
fn certificate(dir: &Path, name: &str, until: i32) {
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let pair = rcgen::KeyPair::generate().unwrap();
    std::fs::write(dir.join("key.new"), pair.serialize_pem()).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(dir.join("key.new"), owner_only).unwrap();
    std::fs::write(dir.join("cert.new"), params.self_signed(&pair).unwrap().pem()).unwrap();
    std::fs::copy(dir.join("cert.new"), dir.join(format!("{name}.pem"))).unwrap();
    std::fs::rename(dir.join("key.new"), dir.join("key.pem")).unwrap();
    std::fs::rename(dir.join("cert.new"), dir.join("cert.pem")).unwrap();
}

const TLS: &[&str] = &["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

#[test]
fn the_development_certificate_serves_whoever_trusts_it() {
    let place = Place::new();
    let server = Server::start(&place, &["--dev-tls"]);
    let at = format!("https://{}", server.address("http"));
    let ca = "ropewalk.db/tls/dev-cert.pem";
    place.ok(&["append", "--type", "A", "--at", &at, "--ca", ca]);
    assert_eq!(place.ok(&["count", "--at", &at, "--ca", ca]), "1\n");
    place.refused(&["count", "--at", &at], 7, &["ertificate", "--ca"]);
    place.refused(&["count", "--at", &server.url()], 7, &["http://"]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_certificate_is_read_again_when_it_changes_and_on_sighup() {
    let place = Place::new();
    certificate(place.path(), "first", 2100);
    let server = Server::start(&place, TLS);
    let at = format!("https://{}", server.address("http"));
    let count = |ca: &str| place.run(&["count", "--at", &at, "--ca", ca]);
    assert_eq!(count("first.pem").code, 0);
    // One of no use: the one before stays.
    std::fs::write(place.path().join("cert.pem"), "nothing").unwrap();
    server.signal("HUP");
    assert_eq!(count("first.pem").code, 0);
    certificate(place.path(), "second", 2100);
    server.signal("HUP");
    until(|| count("second.pem").code == 0);
    assert_eq!(count("first.pem").code, 7);
    // And without a signal.
    certificate(place.path(), "third", 2100);
    until(|| count("third.pem").code == 0);
    assert_eq!(server.stop(), 0);
    let log = std::fs::read_to_string(place.path().join("server.log")).unwrap();
    assert!(log.contains("cert.pem") && log.contains("keeping the current certificate"), "{log}");
}

/// Waits for something that comes.
fn until(mut come: impl FnMut() -> bool) {
    while !come() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_expired_certificate_does_not_start() {
    let place = Place::new();
    certificate(place.path(), "old", 2021);
    place.refused(&[&["serve"], TLS].concat(), 2, &["cert.pem", "expired"]);
}
