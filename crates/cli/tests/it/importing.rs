//! Imports: complete, repeatable, resumable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Place, rows};

/// Runs git with a fixed identity, independent of the configuration of the machine.
fn git(dir: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(arguments)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "Ann \"A\" Lee"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Bob"), ("GIT_COMMITTER_EMAIL", "bob@example.org")])
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
}

fn commit(dir: &Path, message: &str) {
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "--allow-empty", "-qm", message]);
}

const ODD_NAME: &str = "we\tird\n\"name\" ü";

/// Six commits: files added, an empty commit, a rename, a change on a branch, a removal, a merge.
pub(crate) fn repository(place: &Place) -> PathBuf {
    let dir = place.path().join("repo");
    std::fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "-q", "-b", "trunk"]);
    std::fs::write(dir.join("a.txt"), "1").unwrap();
    std::fs::write(dir.join(ODD_NAME), "2").unwrap();
    commit(&dir, "first: \"quoted\"\n\nbody");
    commit(&dir, "empty");
    git(&dir, &["mv", "a.txt", "b.txt"]);
    commit(&dir, "rename");
    git(&dir, &["checkout", "-q", "-b", "side"]);
    std::fs::write(dir.join("b.txt"), "changed").unwrap();
    commit(&dir, "change");
    git(&dir, &["checkout", "-q", "trunk"]);
    std::fs::remove_file(dir.join(ODD_NAME)).unwrap();
    commit(&dir, "remove");
    git(&dir, &["merge", "-q", "--no-edit", "side"]);
    dir
}

/// Returns items, items known before, and events.
fn import(place: &Place, arguments: &[&str]) -> (u64, u64, u64) {
    let answer = rows(&place.ok(&[&["import"], arguments].concat()));
    let number = |name: &str| answer.first().and_then(|row| row.get(name)).unwrap().as_u64().unwrap();
    (number("items"), number("before"), number("events"))
}

#[test]
fn a_git_history_becomes_events() {
    let place = Place::with_database();
    repository(&place);
    assert_eq!(import(&place, &["git", "repo", "--store", "history"]), (6, 0, 12));
    let count = |arguments: &[&str]| place.ok(&[&["count", "--store", "history"], arguments].concat());
    assert_eq!(count(&["--type", "CommitAuthored"]), "6\n");
    assert_eq!(count(&["--type", "FileAdded"]), "3\n");
    assert_eq!(count(&["--type", "FileChanged", "--tag", "path:b.txt"]), "1\n");
    assert_eq!(count(&["--type", "FileRemoved"]), "2\n");
    assert_eq!(count(&["--tag", &format!("path:{ODD_NAME}")]), "2\n");
    assert_eq!(count(&["--tag", "author:ann@example.org"]), "12\n");
    let first = rows(&place.ok(&["read", "--store", "history", "--limit", "1"]));
    let data: serde_json::Value = serde_json::from_str(first[0]["data"].as_str().unwrap()).unwrap();
    assert_eq!((&data["author"], &data["subject"]), (&"Ann \"A\" Lee".into(), &"first: \"quoted\"".into()));
    assert_eq!(first[0]["tags"][1], format!("commit:{}", data["sha"].as_str().unwrap()));
    assert_eq!(data["parents"], serde_json::json!([]));
}

#[test]
fn second_git_import_adds_only_new_commits() {
    let place = Place::with_database();
    let dir = repository(&place);
    assert_eq!(import(&place, &["git", "repo", "--ref", "HEAD~1"]).0, 4);
    assert_eq!(import(&place, &["git", "repo"]), (2, 4, 3));
    assert_eq!(import(&place, &["git", "repo"]), (0, 6, 0));
    std::fs::write(dir.join("new"), "x").unwrap();
    commit(&dir, "newer");
    assert_eq!(import(&place, &["git", "repo/.git"]), (1, 6, 2));
    git(place.path(), &["clone", "-q", "repo", "clone"]);
    assert_eq!(import(&place, &["git", "clone"]), (0, 7, 0), "a clone has the same commits");
    assert_eq!(import(&place, &["git", "clone", "--store", "other"]).0, 7);
}

#[test]
fn import_without_git_history_is_rejected() {
    let place = Place::with_database();
    place.refused(&["import", "git", "nowhere"], 3, &["nowhere"]);
    place.refused(&["import", "git", "/"], 3, &["git repository"]);
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    place.refused(&["import", "git", "empty"], 3, &["git"]);
    repository(&place);
    place.refused(&["import", "git", "repo", "--ref", "nobranch"], 3, &["git"]);
    let no_git = place.command(&["import", "git", "repo"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(no_git.status.code(), Some(3));
    assert!(String::from_utf8(no_git.stderr).unwrap().contains("needs the program `git`"));
}

#[test]
fn ndjson_import_round_trips_read_output() {
    let place = Place::with_database();
    let lines = concat!(
        r#"{"type":"A","tags":["t:1"],"data":{"b": 1, "a": [2.50]},"metadata":{"z":"1","a":"2"}}"#,
        "\n\n",
        r#"{"type":"B","data":"text \u00fc","id":"0190163d-8694-739b-aea5-966c26f8ad91"}"#,
        "\r\n",
        r#"{"type":"C","data":"/wA=","data_encoding":"base64"}"#,
        "\n",
        r#"{"type":"D","data":null}"#,
    );
    std::fs::write(place.path().join("in.ndjson"), lines).unwrap();
    assert_eq!(import(&place, &["ndjson", "in.ndjson"]), (4, 0, 4));
    let read = place.ok(&["read"]);
    let events = rows(&read);
    assert_eq!(events[0]["data"], r#"{"b": 1, "a": [2.50]}"#, "the spelling is preserved");
    assert!(read.contains(r#""metadata":{"z":"1","a":"2"}"#), "the order is preserved: {read}");
    assert_eq!(events[1]["data"], "text ü");
    assert_eq!((&events[2]["data"], &events[3]["data"]), (&"/wA=".into(), &"".into()));

    std::fs::write(place.path().join("out.ndjson"), &read).unwrap();
    assert_eq!(import(&place, &["ndjson", "out.ndjson", "--store", "copy"]).0, 4);
    let content = |store: &str| -> Vec<serde_json::Value> {
        let mut events = rows(&place.ok(&["read", "--store", store]));
        for event in &mut events {
            event.as_object_mut().unwrap().retain(|key, _| !["seq", "time"].contains(&key.as_str()));
        }
        events
    };
    assert_eq!(content("default"), content("copy"));
}

#[test]
fn import_of_a_grown_file_resumes_at_new_lines() {
    let place = Place::with_database();
    let file = place.path().join("grows.ndjson");
    let lines = |n: u64| (1..=n).map(|n| format!("{{\"type\":\"T\",\"data\":{n}}}\n")).collect::<String>();
    std::fs::write(&file, lines(2500)).unwrap();
    assert_eq!(import(&place, &["ndjson", "grows.ndjson"]), (2500, 0, 2500));
    assert_eq!(import(&place, &["ndjson", "grows.ndjson"]), (0, 2500, 0));
    std::fs::write(&file, lines(2600)).unwrap();
    assert_eq!(import(&place, &["ndjson", "./grows.ndjson"]), (100, 2500, 100));
    assert_eq!(import(&place, &["ndjson", "grows.ndjson", "--source", "once more"]).0, 2600);
}

#[test]
fn import_names_bad_line_and_resumes_when_fixed() {
    let place = Place::with_database();
    let file = place.path().join("bad.ndjson");
    for (bad, why) in [
        ("{\"type\":\"T\"", "EOF"),
        ("7", "invalid type"),
        ("{\"tags\":[]}", "type"),
        ("{\"type\":\"T\",\"tgas\":[]}", "tgas"),
        ("{\"type\":\"T\",\"data\":\"!\",\"data_encoding\":\"base64\"}", "base64"),
        ("{\"type\":\"T\",\"data_encoding\":\"rot13\"}", "rot13"),
        ("{\"type\":\"T\",\"id\":\"x\"}", "UUID"),
    ] {
        std::fs::write(&file, format!("{{\"type\":\"T\"}}\n{{\"type\":\"T\"}}\n{bad}\n")).unwrap();
        place.refused(&["import", "ndjson", "bad.ndjson"], 2, &["line 3", why]);
        assert_eq!(place.ok(&["count"]), "2\n", "{bad}");
    }
    std::fs::write(&file, "{\"type\":\"T\"}\n{\"type\":\"T\"}\n{\"type\":\"U\"}\n").unwrap();
    assert_eq!(import(&place, &["ndjson", "bad.ndjson"]), (1, 2, 1));
    std::fs::write(&file, "{\"type\":\"T\",\"metadata\":{\"k\":\"1\",\"k\":\"2\"}}\n").unwrap();
    let again = ["import", "ndjson", "bad.ndjson", "--source", "s"];
    place.refused(&again, 2, &["duplicate metadata key", "lines 1 to 1"]);
    place.refused(&["import", "ndjson", "missing.ndjson"], 3, &["missing.ndjson"]);
    place.refused(&["import", "ndjson", "."], 7, &["ndjson"]);
}

/// The import is killed at random points; only the final result matters.
#[test]
fn a_killed_import_is_resumed_without_loss_or_repetition() {
    const LINES: u64 = 60_000;
    let place = Place::with_database();
    let lines: String = (1..=LINES).map(|n| format!("{{\"type\":\"T\",\"data\":{n}}}\n")).collect();
    std::fs::write(place.path().join("big.ndjson"), lines).unwrap();
    for millis in [20, 40, 80] {
        let mut command = place.command(&["import", "ndjson", "big.ndjson"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (items, before, _) = import(&place, &["ndjson", "big.ndjson"]);
    assert_eq!(items + before, LINES);
    let events = rows(&place.ok(&["read"]));
    assert!(events.iter().map(|event| event["data"].as_str().unwrap().parse::<u64>().unwrap()).eq(1..=LINES));
}
