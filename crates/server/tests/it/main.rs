//! Checks of the generated documents of settings and rights.
#![allow(clippy::unwrap_used)] // helpers outside of test functions

mod rights;

/// `docs/ropewalk.schema.json` matches the code. `UPDATE=1 cargo test -p ropewalk-server` rewrites it.
#[test]
fn the_schema_of_the_settings_file_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ropewalk.schema.json");
    let current = serde_json::to_string_pretty(&ropewalk_server::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), current, "UPDATE=1 writes it anew");
}

/// `docs/server.md` names every setting.
#[test]
fn every_setting_is_documented() {
    let page = include_str!("../../../../docs/server.md");
    for key in ropewalk_server::keys() {
        assert!(page.contains(&format!("`{}`", key.name)), "{} is missing in docs/server.md", key.name);
    }
}
