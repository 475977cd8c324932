//! The demo runs and checks its results.

use crate::Place;

#[test]
fn demo_in_a_clone_passes_and_leaves_no_files() {
    let place = Place::new();
    let temporary = place.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.command(&["demo", "--once"]);
    let demo = command.current_dir(env!("CARGO_MANIFEST_DIR")).env("TMPDIR", &temporary).output().unwrap();
    let story = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{story}\n{}", String::from_utf8_lossy(&demo.stderr));
    assert!(
        story.contains("Every check held.") && story.contains(" 0 lost") && !story.contains("FAILED"),
        "{story}"
    );
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn demo_without_git_history_imports_nothing_and_can_rerun_on_its_database() {
    let place = Place::new();
    for _ in 0..2 {
        let demo = place.command(&["demo", "--at", "kept"]).output().unwrap();
        let story = String::from_utf8(demo.stdout).unwrap();
        assert!(demo.status.success(), "{story}\n{}", String::from_utf8_lossy(&demo.stderr));
        assert!(story.contains("made up instead") && !story.contains("became"), "{story}");
    }
    let stores = place.ok(&["stores", "--at", "kept"]);
    assert!(stores.contains("\"courses\"") && stores.contains("\"courses-2\""), "{stores}");
    assert!(place.ok(&["verify", "--at", "kept"]).contains("ok"));
}
