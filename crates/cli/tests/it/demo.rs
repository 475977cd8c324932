//! The demo runs and checks its results.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::Place;
use crate::importing::repository;

#[test]
fn demo_with_a_repository_agrees_after_sigkill_and_leaves_no_files() {
    let place = Place::new();
    repository(&place);
    let temporary = place.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.command(&["demo", "--once", "--repo", "repo"]);
    let demo = command.env("TMPDIR", &temporary).output().unwrap();
    let story = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{story}\n{}", String::from_utf8_lossy(&demo.stderr));
    for part in ["$ ropewalk import git repo ", "$ kill -9 ", "Every check held."] {
        assert!(story.contains(part), "{part}: {story}");
    }
    // The history, the repeated request, the models before and after the kill, the server's metrics.
    assert_eq!(story.matches("[ok]").count(), 5, "{story}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn demo_without_once_serves_until_its_signal_and_retains_the_directory() {
    let place = Place::new();
    let mut command = place.command(&["demo", "--at", "retained", "--python", "/nonexistent/python"]);
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut story = String::new();
    let mut http = None;
    for line in BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap) {
        if let Some(address) = line.strip_prefix("listening http ") {
            http = Some(address.to_owned());
        }
        let is_ready = line.starts_with("listening postgres ");
        story.push_str(&line);
        story.push('\n');
        if is_ready {
            break;
        }
    }
    for part in ["no git history", "pymongo, umadb", "Your turn", "Console     http://", "PostgreSQL  psql "]
    {
        assert!(story.contains(part), "{part}: {story}");
    }
    let mut stream = TcpStream::connect(http.unwrap()).unwrap();
    write!(stream, "GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The demo has become the server.
    let signalled = Command::new("kill").args(["-s", "TERM", &demo.id().to_string()]).status().unwrap();
    assert!(signalled.success() && demo.wait().unwrap().success());
    assert!(place.ok(&["verify", "--at", "retained/data"]).contains("ok"));
    let csv = |sql: &str| place.ok(&["sql", "--at", "retained/data", "--mode", "csv", sql]);
    assert_eq!(csv("SELECT sum(sold) AS n FROM stock"), csv("SELECT sum(ropes) AS n FROM sales"));
    place.refused(&["demo", "--once", "--at", "retained"], 7, &["create retained"]);
}

#[test]
fn demo_of_a_cluster_rejects_a_repository_and_a_missing_log_server_and_leaves_no_files() {
    let place = Place::new();
    let both = place.run(&["demo", "--cluster", "--repo", "."]);
    assert!(both.code == 2 && both.err.contains("--repo"), "{both:?}");
    let temporary = place.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.command(&["demo", "--cluster", "--once"]);
    let demo =
        command.env("TMPDIR", &temporary).env("ROPEWALK_NATS_SERVER", "/nonexistent").output().unwrap();
    let errors = String::from_utf8(demo.stderr).unwrap();
    assert_eq!(demo.status.code(), Some(3), "{errors}");
    assert!(errors.contains("ROPEWALK_NATS_SERVER names no file: /nonexistent"), "{errors}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}
