//! Nodes of a cluster, as far as they need no log service: settings, and commands for operators.

use crate::serving::Server;
use crate::{Place, refused, rows};

/// The beginning of a node's command line. Nothing listens on port 1.
const NODE: &[&str] =
    &["serve", "--http-listen", "127.0.0.1:0", "--grpc-listen", "off", "--advertise", "127.0.0.1"];
const LOG: &[&str] = &["--cluster", "nats://127.0.0.1:1/shop"];

#[test]
fn settings_of_checkpoints_are_checked_before_the_log_service_is_called() {
    let place = Place::new();
    let serve = |arguments: &[&str]| place.run(&[&["serve"], arguments].concat());
    refused(&serve(&["--cluster-checkpoints", "c"]), 2, &["cluster.log", "cluster.checkpoints"]);
    refused(&serve(&["--cluster-rejoin"]), 2, &["cluster.checkpoints", "cluster.rejoin"]);
    refused(&serve(&["--cluster-grace", "10s"]), 2, &["cluster.grace", "1m"]);
    refused(&serve(&["--cluster-checkpoint-interval", "0s"]), 2, &["--cluster-checkpoint-interval", "zero"]);
    std::fs::write(place.path().join("file"), "").unwrap();
    let answer = place.run(&[NODE, LOG, &["--cluster-checkpoints", "file/checkpoints"]].concat());
    refused(&answer, 2, &["cluster.checkpoints: ", "file/checkpoints"]);
    assert!(!place.path().join("ropewalk.db").exists(), "no node was made");
}

#[test]
fn commands_for_running_nodes_need_a_node() {
    let place = Place::with_database();
    let node = "0".repeat(32);
    for command in [&["status"][..], &["check"], &["step-down"], &["remove", node.as_str()]] {
        place.refused(&[&["cluster"], command].concat(), 2, &["ropewalk.db is not served", "--at URL"]);
    }
    let server = Server::start(&place, &[]);
    let url = server.url();
    let at = ["--at", url.as_str()];
    let status = rows(&place.ok(&[&["cluster", "status"], &at[..]].concat()));
    assert_eq!(
        (status.len(), &status[0]["role"], &status[0]["checkpoint"]),
        (1, &"alone".into(), &().into())
    );
    place.refused(&[&["cluster", "step-down"], &at[..]].concat(), 3, &["belongs to no cluster"]);
    for node in [node.as_str(), "../x"] {
        place.refused(&[&["cluster", "remove", node], &at[..]].concat(), 3, &["belongs to no cluster"]);
    }
    place.refused(&[&["cluster", "check"], &at[..]].concat(), 3, &["belongs to no cluster"]);
    // Through the local socket, too.
    place.refused(&["cluster", "step-down"], 3, &["belongs to no cluster"]);
}

/// Makes the database of the directory one of a node, as its files say.
fn as_node(place: &Place) {
    for file in ["place", "node"] {
        std::fs::write(place.path().join("ropewalk.db").join(file), "").unwrap();
    }
}

#[test]
fn commands_that_make_a_shared_log_check_their_directories_first() {
    let place = Place::with_database();
    for command in ["init", "reseed"] {
        place.refused(
            &["cluster", command, "--from", "ropewalk.db"],
            2,
            &["no shared log is named", "--cluster"],
        );
        let none = [&["cluster", command, "--from", "none"], LOG].concat();
        place.refused(&none, 3, &["no database in none"]);
        let kafka = ["cluster", command, "--from", "ropewalk.db", "--cluster", "kafka://a:9092/shop"];
        place.refused(&kafka, 2, &["cluster.log", "kafka"]);
        let no_file = ["--cluster-checkpoints", "ropewalk.db/LOCK/checkpoints"];
        let no_file = [&["cluster", command, "--from", "ropewalk.db"], LOG, &no_file].concat();
        place.refused(&no_file, 2, &["cluster.checkpoints"]);
    }
    // The setting is that of `serve`.
    std::fs::write(place.path().join("ropewalk.toml"), "[cluster]\nlog = \"kafka://b:9092/shop\"\n").unwrap();
    place.refused(&["cluster", "init", "--from", "ropewalk.db"], 2, &["cluster.log", "kafka://b:9092/shop"]);
    assert_eq!(place.run(&["cluster", "reseed"]).code, 2, "--from is required");
    as_node(&place);
    let node = [&["cluster", "init", "--from", "ropewalk.db"], LOG].concat();
    place.refused(&node, 4, &["is a node of a cluster already", "reseed"]);
}

#[test]
fn adopt_needs_a_database_and_a_shared_log() {
    let place = Place::new();
    place.refused(&[&["cluster", "adopt"], LOG].concat(), 3, &["no database"]);
    place.ok(&["init"]);
    place.refused(&["cluster", "adopt"], 2, &["no shared log is named"]);
    let url = [&["cluster", "adopt", "--at", "http://127.0.0.1:1"], LOG].concat();
    place.refused(&url, 2, &["works on a database directory"]);
}

#[test]
fn database_of_a_node_is_alone_after_leaving() {
    let place = Place::with_database();
    place.refused(&["cluster", "leave", "--at", "none"], 3, &["no database in none"]);
    place.refused(&["cluster", "leave"], 4, &["ropewalk.db is not a node"]);
    place.ok(&["append", "--type", "A"]);
    let held = ropewalk::Database::open(place.path().join("ropewalk.db")).unwrap();
    as_node(&place);
    place.refused(&["cluster", "leave"], 5, &["in use", "Stop the process"]);
    held.close().unwrap();
    place.refused(&["count"], 2, &["a node of a cluster"]);
    let left = rows(&place.ok(&["cluster", "leave"]));
    assert_eq!((&left[0]["path"], &left[0]["entry"]), (&"ropewalk.db".into(), &().into()));
    assert_eq!(place.ok(&["count"]).trim(), "1");
    for file in ["place", "node"] {
        assert!(!place.path().join("ropewalk.db").join(file).exists(), "{file}");
    }
}

#[test]
fn restore_needs_checkpoints_and_a_directory_without_a_database() {
    let place = Place::new();
    place.refused(&["cluster", "restore"], 2, &["no checkpoints are named", "cluster.checkpoints"]);
    let restore = ["cluster", "restore", "--cluster-checkpoints", "checkpoints"];
    place.refused(&restore, 3, &["no checkpoint store in checkpoints"]);
    std::fs::create_dir(place.path().join("checkpoints")).unwrap();
    place.refused(&restore, 3, &["no complete checkpoint", "none was found"]);
    assert!(!place.path().join("ropewalk.db/store").exists());
    place.ok(&["init"]);
    place.refused(&restore, 4, &["a database in ropewalk.db"]);
    place.refused(&[&restore[..], &["--at", "http://127.0.0.1:1"]].concat(), 2, &["database directory"]);
}
