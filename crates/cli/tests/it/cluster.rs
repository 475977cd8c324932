//! Nodes of a cluster, as far as they need no log service: settings, and commands for operators.

use crate::serving::Server;
use crate::{Answer, Place, rows};

/// The beginning of a node's command line. Nothing listens on port 1.
const NODE: &[&str] =
    &["serve", "--http-listen", "127.0.0.1:0", "--grpc-listen", "off", "--advertise", "127.0.0.1"];
const LOG: &[&str] = &["--cluster", "nats://127.0.0.1:1/shop"];

fn refused(answer: &Answer, code: i32, words: &[&str]) {
    assert_eq!(answer.code, code, "{answer:?}");
    for word in words {
        assert!(answer.err.contains(word), "{word:?} is missing in {:?}", answer.err);
    }
}

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
    for command in [&["status"][..], &["step-down"], &["remove", node.as_str()]] {
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
    // Through the local socket, too.
    place.refused(&["cluster", "step-down"], 3, &["belongs to no cluster"]);
}
