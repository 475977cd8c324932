//! TLS: development certificate, own certificate, reload, rejection of unusable certificates.

use std::path::Path;

use crate::Place;
use crate::serving::Server;

/// Writes a self-signed certificate for 127.0.0.1 and its key, valid until the year `until`.
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
fn development_certificate_serves_clients_that_trust_it() {
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
fn certificate_is_reloaded_on_change_and_on_sighup() {
    let place = Place::new();
    certificate(place.path(), "first", 2100);
    let server = Server::start(&place, TLS);
    let at = format!("https://{}", server.address("http"));
    let count = |ca: &str| place.run(&["count", "--at", &at, "--ca", ca]);
    assert_eq!(count("first.pem").code, 0);
    // An unusable certificate: the current one remains.
    std::fs::write(place.path().join("cert.pem"), "nothing").unwrap();
    server.signal("HUP");
    assert_eq!(count("first.pem").code, 0);
    certificate(place.path(), "second", 2100);
    server.signal("HUP");
    until(|| count("second.pem").code == 0);
    assert_eq!(count("first.pem").code, 7);
    // Also without a signal.
    certificate(place.path(), "third", 2100);
    until(|| count("third.pem").code == 0);
    assert_eq!(server.stop(), 0);
    let log = std::fs::read_to_string(place.path().join("server.log")).unwrap();
    assert!(log.contains("cert.pem") && log.contains("keeping the current certificate"), "{log}");
}

/// Waits until the condition holds.
fn until(mut come: impl FnMut() -> bool) {
    while !come() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn server_rejects_an_expired_certificate() {
    let place = Place::new();
    certificate(place.path(), "old", 2021);
    place.refused(&[&["serve"], TLS].concat(), 2, &["cert.pem", "expired"]);
}
