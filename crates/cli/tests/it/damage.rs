//! Damaged, foreign and newer files are rejected, naming file and offset, and change nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Place, rows};

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.get_mut(offset).unwrap() ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Three synced commits: the last two confirm that the first was durable.
fn place_with_commits() -> Place {
    let place = Place::with_database();
    for n in 0..3 {
        place.ok(&["append", "--type", "A", "--data", &format!("payload number {n}")]);
    }
    place
}

fn find(path: &Path, text: &[u8]) -> Option<usize> {
    fs::read(path).unwrap().windows(text.len()).position(|window| window == text)
}

fn segment(place: &Place) -> (PathBuf, String) {
    let path = place.files("log").into_iter().next().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    (path, name)
}

#[test]
fn a_damaged_log_is_refused_with_file_and_offset() {
    let place = place_with_commits();
    let (path, name) = segment(&place);
    flip(&path, find(&path, b"payload number 0").unwrap());
    for command in ["count", "verify", "tail"] {
        place.refused(&[command], 6, &[&name, "at byte 64", "ropewalk recover"]);
    }
}

#[test]
fn recover_reports_losses_and_cuts_only_with_yes() {
    let place = place_with_commits();
    assert_eq!(place.ok(&["recover"]), "{\"log\":\"whole\"}\n");
    let (path, name) = segment(&place);
    flip(&path, find(&path, b"payload number 1").unwrap());
    let before = fs::read(&path).unwrap();

    let inspected = place.run(&["recover"]);
    assert_eq!(inspected.code, 6, "{inspected:?}");
    assert!(inspected.err.contains("was not changed") && inspected.err.contains("--yes"), "{inspected:?}");
    let told = rows(&inspected.out).remove(0);
    assert!(told["refusal"].as_str().unwrap().contains(&name), "{told}");
    assert_eq!((&told["log"], &told["kept_up_to"]), (&"damaged".into(), &1.into()));
    assert_eq!(told["unreadable"], serde_json::json!(["2"]));
    assert_eq!(told["readable_but_cut_off"], 1);
    assert_eq!(fs::read(&path).unwrap(), before);

    let cut = rows(&place.ok(&["recover", "--yes"])).remove(0);
    assert_eq!((&cut["log"], &cut["kept_up_to"]), (&"cut".into(), &1.into()));
    let kept = cut["set_aside"][0].as_str().unwrap();
    assert_eq!(fs::read(place.path().join(kept)).unwrap(), before, "every byte is preserved");
    assert_eq!(place.ok(&["count"]), "1\n");
    place.ok(&["append", "--type", "After"]);
    assert_eq!(rows(&place.ok(&["tail"])).len(), 2);
    assert_eq!(place.ok(&["recover", "--yes"]), "{\"log\":\"whole\"}\n");
    let nowhere = Place::new();
    nowhere.refused(&["recover", "--yes"], 3, &["there is no database"]);
}

#[test]
fn recover_cut_before_a_commit_reports_first_and_then_keeps_the_commits_before_it() {
    let place = place_with_commits();
    let asked = place.run(&["recover", "--cut-before", "3"]);
    assert_eq!(asked.code, 6, "{asked:?}");
    let told = rows(&asked.out).remove(0);
    assert_eq!((&told["log"], &told["kept_up_to"]), (&"to be cut".into(), &2.into()), "{told}");
    assert_eq!(place.ok(&["count"]), "3\n", "nothing was changed");
    let cut = rows(&place.ok(&["recover", "--cut-before", "3", "--yes"])).remove(0);
    assert_eq!((&cut["log"], &cut["readable_but_cut_off"]), (&"cut".into(), &1.into()), "{cut}");
    assert_eq!(place.ok(&["count"]), "2\n");
    place.ok(&["checkpoint"]);
    place.refused(&["recover", "--cut-before", "2"], 2, &["commit 2", "in the store already"]);
}

#[test]
fn a_damaged_run_is_found_by_read_and_verify() {
    let place = Place::with_database();
    let lines: String =
        (0..5000).map(|n| format!("{{\"type\":\"T\",\"data\":\"payload number {n}\"}}\n")).collect();
    assert_eq!(place.run_with(&["import", "ndjson", "-"], lines.as_bytes()).code, 0);
    place.ok(&["checkpoint"]);
    let runs = place.files("store");
    let run = runs.iter().find(|path| find(path, b"payload number 2500").is_some()).unwrap();
    flip(run, find(run, b"payload number 2500").unwrap());
    let name = run.file_name().unwrap().to_str().unwrap();

    assert_eq!(place.ok(&["read", "--limit", "10"]).lines().count(), 10, "undamaged data can still be read");
    place.refused(&["read"], 6, &[name, "at byte"]);
    let verify = place.run(&["verify"]);
    assert_eq!(verify.code, 6, "{verify:?}");
    assert!(verify.out.contains(name) && verify.out.contains("\"offset\":"), "{verify:?}");
    assert!(verify.err.contains("backup"), "{verify:?}");
}

#[test]
fn newer_or_foreign_segments_are_rejected_by_name() {
    let place = place_with_commits();
    let (path, name) = segment(&place);
    let original = fs::read(&path).unwrap();

    let mut future = original.clone();
    future[8] = 99;
    fs::write(&path, &future).unwrap();
    place.refused(&["count"], 6, &[&name, "version 99", "from the future"]);
    fs::write(&path, vec![b'x'; original.len()]).unwrap();
    place.refused(&["count"], 6, &[&name, "at byte"]);
    fs::write(&path, &original[..40]).unwrap();
    place.refused(&["count"], 6, &[&name]);

    fs::write(&path, &original).unwrap();
    assert_eq!(place.ok(&["count"]), "3\n");
}

#[test]
fn replaced_store_file_is_detected() {
    let place = place_with_commits();
    place.ok(&["checkpoint"]);
    for path in place.files("store") {
        let original = fs::read(&path).unwrap();
        fs::write(&path, b"this is not a database").unwrap();
        place.refused(&["read"], 6, &[path.file_name().unwrap().to_str().unwrap()]);
        fs::write(&path, original).unwrap();
    }
    assert_eq!(place.ok(&["count"]), "3\n");
}
