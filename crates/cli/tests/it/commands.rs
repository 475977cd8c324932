//! Each command in each output format, and common user errors.

use crate::{Place, rows};

const ID: &str = "0190163d-8694-739b-aea5-966c26f8ad91";

fn place_with_events() -> Place {
    let place = Place::with_database();
    let defined = ["append", "--type", "CourseDefined", "--tag", "course:c1", "--data", r#"{"capacity":10}"#];
    place.ok(&[&defined[..], &["--metadata", "by=ann", "--metadata", "why=a=b", "--id", ID]].concat());
    place.ok(&["append", "--type", "Subscribed", "--tag", "course:c1", "--tag", "student:s1"]);
    let answer = place.run_with(&["append", "--type", "Picture", "--data-file", "-"], &[0xff, 0, b'\n']);
    assert_eq!(answer.code, 0, "{answer:?}");
    place
}

#[test]
fn init_creates_once() {
    let place = Place::new();
    assert_eq!(place.ok(&["init"]), "{\"path\":\"ropewalk.db\",\"created\":true}\n");
    assert_eq!(place.ok(&["init"]), "{\"path\":\"ropewalk.db\",\"created\":false}\n");
}

#[test]
fn without_a_database_everything_else_is_refused_and_nothing_is_created() {
    let place = Place::new();
    for command in
        ["read", "last", "count", "head", "stores", "tail", "stats", "verify", "checkpoint", "compact"]
    {
        place.refused(&[command], 3, &["there is no database in ropewalk.db", "ropewalk init"]);
    }
    place.refused(&["append", "--type", "A"], 3, &["there is no database"]);
    place.refused(&["count", "--at", "elsewhere"], 3, &["there is no database in elsewhere"]);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn the_path_comes_from_the_option_then_the_environment() {
    let place = Place::new();
    let from_environment = place.command(&["init"]).env("ROPEWALK_AT", "env.db").output().unwrap();
    assert!(from_environment.status.success());
    assert!(place.path().join("env.db/log").is_dir());
    let both = place.command(&["init", "--at", "option.db"]).env("ROPEWALK_AT", "env.db").output().unwrap();
    assert!(String::from_utf8(both.stdout).unwrap().contains("option.db"));
}

#[test]
fn append_prints_store_position_and_seq() {
    let place = Place::with_database();
    assert_eq!(place.ok(&["append", "--type", "A"]), "{\"store\":\"default\",\"position\":1,\"seq\":1}\n");
    for durability in ["sync", "buffered", "async:5"] {
        place.ok(&["append", "--type", "A", "--durability", durability]);
    }
    let other = place.ok(&["append", "--type", "B", "--store", "other"]);
    assert_eq!(other, "{\"store\":\"other\",\"position\":1,\"seq\":5}\n");
    assert_eq!(place.ok(&["count"]), "4\n");
}

#[test]
fn append_condition_rejects_only_matching_events() {
    let place = place_with_events();
    let append = ["append", "--type", "Subscribed", "--tag", "course:c1"];
    let with = |condition: &[&str]| place.run(&[&append[..], condition].concat());
    let refused = with(&["--if-none", "type=Subscribed,tag=course:c1"]);
    assert_eq!(refused.code, 4);
    assert!(refused.err.contains("position 2") && refused.err.contains("Nothing was written"), "{refused:?}");
    assert_eq!(with(&["--if-none", "any"]).code, 4);
    assert_eq!(with(&["--if-none", "tag=nobody", "--if-none", "type=Picture"]).code, 4);
    assert_eq!(place.ok(&["head"]), "3\n");
    assert_eq!(with(&["--if-none", "type=Subscribed,tag=course:c1", "--after", "2"]).code, 0);
    assert_eq!(with(&["--if-none", r#"{"tags":["no,body"]}"#]).code, 0);
    assert_eq!(place.ok(&["head"]), "5\n");
}

#[test]
fn tracking_must_rise_and_idempotency_key_appends_once() {
    let place = Place::with_database();
    place.ok(&["append", "--type", "A", "--tracking", "up:stream:7"]);
    place.refused(&["append", "--type", "A", "--tracking", "up:stream:7"], 4, &["position 7", "up:stream"]);
    let once = place.ok(&["append", "--type", "B", "--key", "k1"]);
    let again = place.ok(&["append", "--type", "B", "--key", "k1"]);
    assert_eq!(rows(&once)[0]["position"], rows(&again)[0]["position"]);
    place.refused(&["append", "--type", "C", "--key", "k1"], 2, &["k1", "other events"]);
    assert_eq!(place.ok(&["count"]), "2\n");
}

#[test]
fn read_in_every_mode() {
    let place = place_with_events();
    let events = rows(&place.ok(&["read"]));
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["type"], "CourseDefined");
    assert_eq!(events[0]["tags"], serde_json::json!(["course:c1"]));
    assert_eq!(events[0]["data"], r#"{"capacity":10}"#);
    assert_eq!(events[0]["metadata"], serde_json::json!({"by": "ann", "why": "a=b"}));
    assert_eq!(events[0]["id"], ID);
    assert!(events[0].get("data_encoding").is_none());
    let time = events[0]["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.contains('T'), "{time}");
    assert_eq!((&events[2]["data"], &events[2]["data_encoding"]), (&"/wAK".into(), &"base64".into()));

    let json: Vec<serde_json::Value> = serde_json::from_str(&place.ok(&["read", "--mode", "json"])).unwrap();
    assert_eq!(json, events);
    let csv = place.ok(&["read", "--mode", "csv"]);
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "position,seq,time,type,tags,id,metadata,data,data_encoding");
    assert!(lines[3].starts_with("3,3,20") && lines[3].ends_with("Picture,[],,,/wAK,base64"), "{csv}");
    let table = place.ok(&["read", "--mode", "table"]);
    assert!(table.contains("CourseDefined") && table.contains("course:c1 student:s1"), "{table}");
}

#[test]
fn group_commands_manage_groups_and_parked_events() {
    use ropewalk::groups::GroupSettings;
    use ropewalk::{Database, Position, Query};

    let place = place_with_events();
    assert_eq!(place.ok(&["group", "list"]), "");
    let created =
        place.ok(&["group", "create", "g", "--type", "Picture", "--type-prefix", "Sub", "--tries", "1"]);
    assert_eq!(created, "{\"group\":\"g\",\"cursor\":0}\n");
    {
        // The calls of consumers.
        let db = Database::open(place.path().join("ropewalk.db")).unwrap();
        let groups = db.consumer_groups("default").unwrap();
        groups.create("other", GroupSettings::new(Query::all()), Some(Position(3))).unwrap();
        let group = groups.group("g").unwrap();
        let lease = group.take(10).unwrap();
        group.retry(lease.id, Some(&[Position(2)]), None, "no such student").unwrap();
        group.park(lease.id, None, "too large").unwrap();
    }
    let listed = place.ok(&["group", "list"]);
    let expected = concat!(
        "{\"group\":\"g\",\"cursor\":3,\"waiting\":0,\"pending\":0,\"parked\":2}\n",
        "{\"group\":\"other\",\"cursor\":3,\"waiting\":0,\"pending\":0,\"parked\":0}\n",
    );
    assert_eq!(listed, expected);
    let parked = concat!(
        "{\"position\":2,\"type\":\"Subscribed\",\"tries\":1,\"reason\":\"no such student\"}\n",
        "{\"position\":3,\"type\":\"Picture\",\"tries\":1,\"reason\":\"too large\"}\n",
    );
    assert_eq!(place.ok(&["group", "parked", "g"]), parked);
    assert_eq!(place.ok(&["group", "replay", "g", "3", "9"]), "{\"group\":\"g\",\"events\":1}\n");
    assert_eq!(place.ok(&["group", "discard", "g"]), "{\"group\":\"g\",\"events\":1}\n");
    assert_eq!(place.ok(&["group", "parked", "g"]), "");
    place.ok(&["group", "delete", "other"]);
    place.refused(&["group", "delete", "other"], 3, &["no consumer group"]);
    place.refused(&["group", "list", "--store", "none"], 3, &["no event store"]);
    place.refused(&["group", "create", "g", "--tries", "0"], 2, &["at least 1"]);
}

#[test]
fn read_selects_and_bounds() {
    let place = place_with_events();
    let positions = |arguments: &[&str]| -> Vec<u64> {
        let read = place.ok(&[&["read"], arguments].concat());
        rows(&read).iter().map(|row| row["position"].as_u64().unwrap()).collect()
    };
    assert_eq!(positions(&["--backwards"]), [3, 2, 1]);
    assert_eq!(positions(&["--tag", "course:c1"]), [1, 2]);
    assert_eq!(positions(&["--tag", "course:c1", "--tag", "student:s1"]), [2]);
    assert_eq!(positions(&["--type", "Picture", "--type", "CourseDefined"]), [1, 3]);
    assert_eq!(positions(&["--type", "Picture", "--item", "type=Subscribed,tag=course:c1"]), [2, 3]);
    assert_eq!(positions(&["--item", "any", "--limit", "2"]), [1, 2]);
    assert_eq!(positions(&["--type-prefix", "Cour", "--type-prefix", "Pic"]), [1, 3]);
    assert_eq!(positions(&["--tag", "course:c1", "--tag-prefix", "student:"]), [2]);
    assert_eq!(positions(&["--item", "type-prefix=P", "--item", "tag-prefix=stu"]), [2, 3]);
    assert_eq!(positions(&["--from", "2"]), [2, 3]);
    assert_eq!(positions(&["--from", "2", "--backwards"]), [2, 1]);
    assert_eq!(positions(&["--after", "1", "--before", "3"]), [2]);
    assert!(positions(&["--after", "99"]).is_empty());
    assert!(positions(&["--type", "Nothing"]).is_empty());
    assert_eq!(place.ok(&["read", "--type", "Nothing", "--mode", "json"]), "[]\n");
}

#[test]
fn last_count_head_stores() {
    let place = place_with_events();
    assert_eq!(rows(&place.ok(&["last", "--tag", "course:c1"]))[0]["position"], 2);
    place.refused(&["last", "--type", "Nothing"], 3, &["no event of store \"default\" matches"]);
    assert_eq!(place.ok(&["count", "--tag", "course:c1"]), "2\n");
    assert_eq!(place.ok(&["count", "--type", "Nothing"]), "0\n");
    assert_eq!(place.ok(&["count", "--mode", "ndjson"]), "{\"count\":3}\n");
    assert_eq!(place.ok(&["head", "--mode", "csv"]), "position\n3\n");
    let stores = rows(&place.ok(&["stores"]));
    assert_eq!((&stores[0]["store"], &stores[0]["events"]), (&"default".into(), &3.into()));
}

#[test]
fn an_unknown_store_is_not_an_empty_one() {
    let place = place_with_events();
    for command in ["read", "last", "count", "head", "tail"] {
        place.refused(&[command, "--store", "defualt"], 3, &["\"defualt\"", "there are: default"]);
    }
    let fresh = Place::with_database();
    fresh.refused(&["count"], 3, &["has none yet", "first append"]);
}

#[test]
fn invalid_arguments_are_rejected_naming_the_rule() {
    let place = place_with_events();
    place.refused(&["append", "--type", ""], 2, &["type of 0 bytes; 1 to 65535"]);
    place.refused(&["append", "--type", "A", "--tag", "t", "--tag", "t"], 2, &["duplicate tag \"t\""]);
    place.refused(
        &["append", "--type", "A", "--metadata", "k=1", "--metadata", "k=2"],
        2,
        &["duplicate metadata key"],
    );
    place.refused(&["append", "--type", "A", "--store", "a\nb"], 2, &["event store", "control characters"]);
    place.refused(&["append", "--type", "A", "--data-file", "none.bin"], 3, &["none.bin"]);
    place.refused(&["init", "--at", "/dev/null/db"], 7, &["/dev/null/db"]);
    for wrong in [
        &["append"][..],
        &["append", "--type", "A", "--after", "3"],
        &["append", "--type", "A", "--if-none", "course:c1"],
        &["append", "--type", "A", "--data", "x", "--data-file", "y"],
        &["append", "--type", "A", "--durability", "maybe"],
        &["append", "--type", "A", "--id", "7"],
        &["append", "--type", "A", "--tracking", "up"],
        &["read", "--limit", "many"],
        &["read", "--mode", "xml"],
        &["read", "--memory", "12 potatoes"],
        &["fly"],
        &[],
    ] {
        let answer = place.run(wrong);
        assert_eq!(answer.code, 2, "{wrong:?}: {answer:?}");
        assert!(answer.out.is_empty() && !answer.err.is_empty(), "{wrong:?}: {answer:?}");
    }
    assert_eq!(place.ok(&["head"]), "3\n");
}

#[test]
fn table_escapes_stored_control_characters() {
    let place = Place::with_database();
    place.ok(&["append", "--type", "A", "--tag", "t\u{1b}[2J", "--data", "x\u{7}\ry"]);
    let table = place.ok(&["read", "--mode", "table"]) + &place.ok(&["tail", "--mode", "table"]);
    assert!(!table.contains(['\u{1b}', '\u{7}', '\r']), "{table:?}");
}

#[test]
fn stats_verify_checkpoint_compact() {
    let place = place_with_events();
    let figure = |name: &str| -> u64 {
        let stats = rows(&place.ok(&["stats"]));
        stats.iter().filter(|row| row["name"] == name).filter_map(|row| row["value"].as_u64()).sum()
    };
    assert_eq!((figure("newest commit"), figure("checkpointed commit"), figure("events")), (3, 0, 3));
    assert_eq!(figure("commits replayed"), 3);
    let checkpoint = rows(&place.ok(&["checkpoint"]));
    assert_eq!(checkpoint[0]["checkpoint"], 3);
    assert_eq!((figure("checkpointed commit"), figure("commits replayed")), (3, 0));
    assert!(figure("entries") > 0);
    place.ok(&["append", "--type", "Later"]);
    place.ok(&["compact"]);
    for mode in ["ndjson", "json", "csv", "table"] {
        assert!(place.ok(&["verify", "--mode", mode]).contains("ok"));
        assert!(place.ok(&["stats", "--mode", mode]).contains("write amplification"));
    }
    assert_eq!(place.ok(&["count"]), "4\n");
}

#[test]
fn a_small_memory_budget_is_enough() {
    let place = place_with_events();
    assert_eq!(place.ok(&["count", "--memory", "1MiB"]), "3\n");
}

#[test]
fn manual_and_completions() {
    let place = Place::new();
    let page = place.ok(&["man"]);
    assert!(page.contains(".TH ropewalk") && page.contains("Exit codes"), "{page}");
    place.ok(&["man", "pages"]);
    assert!(place.path().join("pages/ropewalk-append.1").is_file());
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("append"), "{shell}");
    }
    let help = place.ok(&["--help"]);
    assert!(help.contains("Exit codes"), "{help}");
    assert!(place.ok(&["--version"]).starts_with("ropewalk "));
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let place = Place::with_database();
    let lines: String = (0..20_000).map(|n| format!("{{\"type\":\"T\",\"data\":{n}}}\n")).collect();
    assert_eq!(place.run_with(&["import", "ndjson", "-"], lines.as_bytes()).code, 0);
    let mut command = place.command(&["read"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let answer = crate::answer(child);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
}

/// Hard-linked, not copied: a newly written file cannot be executed while another test forks.
#[test]
fn bench_without_its_program_explains_how_to_get_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = dir.path().join("ropewalk");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ropewalk"), &program).unwrap();
    let run = || {
        let mut command = std::process::Command::new(&program);
        command.args(["bench", "kernel", "--quick"]).env("PATH", "/nonexistent").output().unwrap()
    };
    let missing = run();
    assert_eq!(missing.status.code(), Some(3));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("./run bench"));
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("ropewalk-bench")).unwrap();
    assert_eq!(run().stdout, b"bench kernel --quick\n");
}
