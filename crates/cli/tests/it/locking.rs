//! A database is owned by one process.

use ropewalk::Database;

use crate::Place;

#[test]
fn second_open_is_rejected_naming_the_owner() {
    let place = Place::with_database();
    let held = Database::open(place.path().join("ropewalk.db")).unwrap();
    let holder = format!("pid {}", std::process::id());
    place.refused(&["count", "--wait", "0"], 5, &["ropewalk.db", &holder, "--wait"]);
    drop(held);
    place.ok(&["append", "--type", "A"]);
}

#[test]
fn command_waits_for_a_released_lock() {
    let place = Place::with_database();
    let held = Database::open(place.path().join("ropewalk.db")).unwrap();
    let child =
        place.command(&["stores", "--wait", "60"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(held);
    assert_eq!(crate::answer(child).code, 0);
}

#[test]
fn m9_lock_that_is_a_symbolic_link_is_refused() {
    let place = Place::new();
    place.ok(&["init"]);
    let (lock, precious) = (place.path().join("ropewalk.db/LOCK"), place.path().join("precious"));
    std::fs::write(&precious, "precious").unwrap();
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&precious, &lock).unwrap();
    assert_ne!(place.run(&["stats"]).code, 0);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn m9_store_or_log_that_is_a_symbolic_link_is_refused() {
    for part in ["store", "log"] {
        let place = Place::with_database();
        let (dir, elsewhere) = (place.path().join("ropewalk.db").join(part), place.path().join("elsewhere"));
        std::fs::rename(&dir, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
        let run = place.run(&["stats"]);
        assert_ne!(run.code, 0);
        assert!(run.err.contains("symbolic link"), "{}", run.err);
    }
}
