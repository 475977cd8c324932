//! `promql` and `series`: equal results from a server, through the local socket, and from files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::Place;
use crate::serving::Server;

const TEXT: &str = "up{job=\"a\"} 1 1000\nup{job=\"a\"} 2 61000\nup{job=\"b\"} 5 61000\n";

fn import(server: &Server) {
    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    let head = format!(
        "POST /api/v1/import/prometheus HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{TEXT}",
        TEXT.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

fn session(place: &Place, at: &[&str]) -> Vec<String> {
    let ask = |arguments: &[&str]| {
        let out = place.ok(&[arguments, at].concat());
        let mut lines: Vec<_> = out.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    vec![
        ask(&["promql", "up", "--time", "61"]),
        ask(&["promql", "sum(up)", "--time", "1970-01-01T00:01:01Z"]),
        ask(&["promql", "1 / 0", "--time", "61"]),
        ask(&["promql", "\"text\"", "--time", "61", "--mode", "csv"]),
        ask(&["promql", "up{job=\"a\"}", "--start", "1", "--end", "61", "--step", "1m"]),
        ask(&["series", "up{job=~\"a|b\"}"]),
    ]
}

#[test]
fn results_are_equal_from_server_socket_and_files() {
    let place = Place::with_database();
    let server = Server::start(&place, &["--prometheus-self-scrape=off"]);
    import(&server);
    let by_url = session(&place, &["--at", &server.url()]);
    let by_socket = session(&place, &[]);
    assert_eq!(server.stop(), 0);
    let by_files = session(&place, &[]);
    assert_eq!(by_url[0], by_files[0]);
    assert!(by_files[0].contains("\"time\":\"1970-01-01T00:01:01Z\",\"value\":5}"), "{}", by_files[0]);
    assert_eq!((&by_url, &by_socket), (&by_files, &by_files));
    place.refused(&["promql", "up{"], 2, &["parse error"]);
    place.refused(&["series", "up{"], 2, &["parse error"]);
    assert!(place.ok(&["series", "--top"]).contains("series of a metric"));
}

#[test]
fn prometheus_blocks_are_imported_once() {
    let place = Place::with_database();
    let block = concat!(env!("CARGO_MANIFEST_DIR"), "/../series/tests/prometheus-block");
    let out = place.ok(&["import", "prometheus", block]);
    assert!(out.contains("\"block\":\"prometheus-block\",\"store\":\"default\",\"series\":8,"), "{out}");
    let series = place.ok(&["series"]);
    assert_eq!(series.lines().count(), 8, "{series}");
    // Import all blocks of a directory twice: the second time nothing changes.
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(block, data.join("01H")).unwrap();
    place.ok(&["import", "prometheus", "data"]);
    let count = |store: &str| {
        place.ok(&["promql", "count_over_time(custom[1d])", "--time", "1700040000", "--store", store])
    };
    let once = count("default");
    place.ok(&["import", "prometheus", "data", "--store", "other"]);
    assert_eq!(once, count("other"));
    assert!(once.contains("value"), "{once}");
    place.refused(&["import", "prometheus", "."], 3, &["no Prometheus block"]);
    place.refused(&["import", "prometheus", "nowhere"], 3, &["nowhere"]);
}
