//! TLS and passwords.

use ropewalk_cluster_postgres::{PostgresLog, PostgresOpenError, PostgresOptions};
use ropewalk_log::shared::SharedLog;

use crate::chain::fill;
use crate::server::{Server, needs_postgres, options};

/// A certificate for 127.0.0.1 that signs itself, and its key.
fn certificate() -> (String, String) {
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn tls_checks_the_certificate_and_its_name() {
    needs_postgres!();
    let mut server = Server::start(&[]);
    let port = server.listen();
    let tcp = |host: &str, mode: &str| {
        format!("host={host} port={port} user=node password=secret dbname=postgres sslmode={mode}")
    };
    server
        .sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE node LOGIN SUPERUSER PASSWORD 'secret'");
    server.write("pg_hba.conf", "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    server.sql("SELECT pg_reload_conf()");
    let (pem, key) = certificate();
    let trusting = PostgresOptions { certificates: Some(pem.clone().into_bytes()), ..options() };
    let open = |connection: &str, options: &PostgresOptions| PostgresLog::open(connection, options.clone());

    // The server has no certificate yet.
    let error = open(&tcp("127.0.0.1", "require"), &trusting).unwrap_err();
    assert!(error.to_string().contains("does not support TLS"), "{error}");
    open(&tcp("127.0.0.1", "disable"), &trusting).unwrap();

    server.write("server.crt", &pem);
    server.write("server.key", &key);
    server.set("ssl", "'on'");
    let log = open(&tcp("127.0.0.1", "require"), &trusting).unwrap();
    fill(&log, &[b"1", b"2"]);
    let encrypted =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'node'";
    server.wait_for(encrypted);
    assert!(!log.warnings().unwrap().iter().any(|warning| warning.contains("encrypted")));

    let error = open(&tcp("127.0.0.1", "require"), &options()).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = open(&tcp("localhost", "require"), &trusting).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let wrong = tcp("127.0.0.1", "require").replace("secret", "wrong");
    let error = open(&wrong, &trusting).unwrap_err();
    assert!(error.to_string().contains("password") && !error.to_string().contains("wrong"), "{error}");
}

#[test]
fn unusable_certificates_are_rejected() {
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let options = PostgresOptions { certificates: Some(pem.as_bytes().to_vec()), ..options() };
        let error = PostgresLog::open("host=127.0.0.1", options).unwrap_err();
        assert!(matches!(error, PostgresOpenError::Configuration { .. }), "{error:?}");
    }
}
