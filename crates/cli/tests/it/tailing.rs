//! The change feed through the command line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::{Place, rows};

#[test]
fn tail_prints_commits_of_all_stores_in_order() {
    let place = Place::with_database();
    for store in ["a", "b", "a"] {
        place.ok(&["append", "--store", store, "--type", "T", "--tag", "k:1", "--data", store]);
    }
    let all = rows(&place.ok(&["tail"]));
    let told: Vec<_> =
        all.iter().map(|row| (row["seq"].as_u64().unwrap(), row["store"].as_str().unwrap())).collect();
    assert_eq!(told, [(1, "a"), (2, "b"), (3, "a")]);
    assert_eq!(all[2]["position"], 2);
    assert_eq!(rows(&place.ok(&["tail", "--from", "3"])).len(), 1);
    assert_eq!(rows(&place.ok(&["tail", "--store", "a"])).len(), 2);
    assert_eq!(rows(&place.ok(&["tail", "--tag", "k:1", "--type", "T"])).len(), 3);
    assert_eq!(place.ok(&["tail", "--type", "U"]), "");
    assert_eq!(place.ok(&["tail", "--from", "4"]), "");
    let lines = place.ok(&["tail", "--mode", "table", "--from", "2"]);
    assert!(lines.starts_with("commit 2  20") && lines.contains("\n  b  1  T  k:1  b\ncommit 3"), "{lines}");
    assert_eq!(place.ok(&["tail", "--mode", "csv"]).lines().count(), 4);
}

#[test]
fn tail_begins_with_the_last_ten() {
    let place = Place::with_database();
    let lines = "{\"type\":\"T\"}\n".repeat(3);
    for _ in 0..12 {
        assert_eq!(place.run_with(&["import", "ndjson", "-"], lines.as_bytes()).code, 0);
    }
    let told = rows(&place.ok(&["tail"]));
    assert_eq!((told.len(), &told[0]["seq"]), (30, &3.into()));
}

#[test]
fn tail_follows_other_processes_and_misses_nothing() {
    let place = Place::with_database();
    place.ok(&["append", "--type", "Before"]);
    let mut command = place.command(&["tail", "-f"]);
    let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("Before"));
    for n in 0..5 {
        place.ok(&["append", "--type", &format!("After{n}"), "--wait", "60"]);
    }
    for n in 0..5 {
        let told = rows(&lines.next().unwrap());
        assert_eq!((&told[0]["type"], &told[0]["seq"]), (&format!("After{n}").into(), &(n + 2).into()));
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn tail_names_the_model_of_undecoded_parts() {
    let place = Place::with_database();
    place.ok(&["sql", "-c", "CREATE TABLE t (id int PRIMARY KEY)"]);
    let told = place.ok(&["tail"]);
    assert!(told.contains(" bytes of tables"), "{told}");
    std::fs::write(place.path().join("one"), "{\"_id\":1}\n").unwrap();
    place.ok(&["doc", "import", "d.c", "one"]);
    let told = place.ok(&["tail", "--mode", "table"]);
    assert!(told.contains(" bytes of documents"), "{told}");
}
