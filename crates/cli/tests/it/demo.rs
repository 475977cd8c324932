//! The demo runs as it is and checks itself.

use crate::Place;

#[test]
fn the_demo_holds_in_a_clone_and_leaves_nothing_behind() {
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
fn without_a_history_nothing_is_made_up_and_a_kept_database_can_be_used_again() {
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
