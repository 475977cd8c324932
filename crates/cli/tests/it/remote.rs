//! Commands on a server: by its URL, and through the local socket of a locked directory.

use crate::serving::Server;
use crate::{Answer, Place, rows};

/// The results of a sequence of commands, without commit times.
fn session(place: &Place, at: &[&str]) -> Vec<(i32, String, String)> {
    let run = |arguments: &[&str]| place.run(&[arguments, at].concat());
    let lines =
        "{\"type\":\"L\",\"data\":1}\n{\"type\":\"L\",\"data_encoding\":\"base64\",\"data\":\"/wA=\"}\n";
    std::fs::write(place.path().join("lines.ndjson"), lines).unwrap();
    let id = "0190163d-8694-739b-aea5-966c26f8ad91";
    let append = ["append", "--type", "CourseDefined", "--tag", "course:c1", "--data", r#"{"capacity":10}"#];
    let answers = vec![
        run(&[&append[..], &["--metadata", "by=ann", "--id", id, "--tracking", "up:1"]].concat()),
        run(&[&append[..], &["--if-none", "tag=course:c1"]].concat()),
        run(&[&append[..], &["--if-none", "type=CourseDefined,tag=course:c1", "--after", "1"]].concat()),
        run(&["append", "--type", "A", "--tracking", "up:1"]),
        run(&["append", "--type", "A", "--key", "k", "--durability", "buffered"]),
        run(&["append", "--type", "A", "--key", "k"]),
        run(&["append", "--type", "B", "--key", "k"]),
        run(&["append", "--type", "T", "--data", "not JSON", "--store", "other/store é"]),
        run(&["append", "--type", "Spaced", "--data", " { \"a\" :\n 1 }\n", "--store", "other/store é"]),
        run(&["append", "--type", ""]),
        run(&["append", "--type", "A", "--tag", "t", "--tag", "t"]),
        run(&["import", "ndjson", "lines.ndjson", "--source", "lines"]),
        run(&["import", "ndjson", "lines.ndjson", "--source", "lines"]),
        run(&["read"]),
        run(&["read", "--mode", "csv", "--tag", "course:c1", "--backwards", "--limit", "1"]),
        run(&["read", "--item", "type=L", "--item", "type=A", "--after", "1", "--before", "9"]),
        run(&["read", "--store", "other/store é", "--mode", "json"]),
        run(&["read", "--store", "none"]),
        run(&["last", "--type", "L"]),
        run(&["last", "--type", "Nothing"]),
        run(&["count"]),
        run(&["count", "--type", "L"]),
        run(&["head"]),
        run(&["head", "--mode", "json"]),
        run(&["stores"]),
        run(&["group", "create", "g h", "--type-prefix", "L", "--tries", "1", "--lease", "0.5"]),
        run(&["group", "create", "all", "--after", "4", "--in-order"]),
        run(&["group", "list"]),
        run(&["group", "parked", "g h"]),
        run(&["group", "replay", "g h"]),
        run(&["group", "discard", "g h", "7", "8"]),
        run(&["group", "delete", "all"]),
        run(&["group", "delete", "all"]),
        run(&["group", "parked", "all"]),
        run(&["group", "create", "x", "--tries", "0"]),
        run(&["group", "list", "--store", "none"]),
        run(&["group", "list"]),
    ];
    answers.into_iter().map(|answer| (answer.code, timeless(&answer.out), timeless(&answer.err))).collect()
}

/// Removes times and rates.
fn timeless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) =
        rest.find("\"time\":\"").or_else(|| rest.find("\"newest\":\"")).or_else(|| rest.find("\"seconds\":"))
    {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let end = after.find(['}', '\n']).unwrap_or(after.len());
        let end = if after.starts_with("\"time\"") { after.find(',').unwrap_or(end) } else { end };
        rest = &after[end..];
    }
    out.push_str(rest);
    let csv_time = |word: &str| word.len() > 20 && word.starts_with("20") && word.ends_with('Z');
    out.split(',').map(|word| if csv_time(word) { "TIME" } else { word }).collect::<Vec<_>>().join(",")
}

#[test]
fn every_command_returns_the_same_over_url_socket_and_files() {
    let (files, socket, url) = (Place::with_database(), Place::with_database(), Place::with_database());
    // A server creates its default store; here all three have it.
    let behind = Server::start(&socket, &[]);
    let server = Server::start(&url, &["--socket=false"]);
    files.ok(&["append", "--type", "First"]);
    socket.ok(&["append", "--type", "First"]);
    url.ok(&["append", "--type", "First", "--at", &server.url()]);
    let expected = session(&files, &[]);
    for (which, found) in
        [("socket", session(&socket, &[])), ("url", session(&url, &["--at", &server.url()]))]
    {
        for (ordinal, (expected, found)) in expected.iter().zip(found).enumerate() {
            let numbers = |text: &str| text.replace("\"seq\":", "\n\"seq\":");
            let seqless = |text: &str| -> String {
                numbers(text)
                    .lines()
                    .map(|line| {
                        line.strip_prefix("\"seq\":")
                            .map_or(line, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()))
                    })
                    .collect()
            };
            if ordinal == 14 {
                continue; // CSV has the commit number, which the internal commits of the server shift
            }
            assert_eq!(
                (expected.0, seqless(&expected.1), &expected.2),
                (found.0, seqless(&found.1), &found.2),
                "{which}, command {ordinal}"
            );
        }
    }
    assert_eq!((behind.stop(), server.stop()), (0, 0));
    assert_eq!(socket.ok(&["count"]), files.ok(&["count"]));
}

#[test]
fn git_history_is_imported_through_a_server_once() {
    let place = Place::with_database();
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=Ann", "-c", "user.email=ann@x"]).args(arguments);
        assert!(command.current_dir(place.path()).output().unwrap().status.success());
    };
    git(&["init", "-q", "repo"]);
    for n in 0..3 {
        std::fs::write(place.path().join(format!("repo/f{n}")), "x").unwrap();
        git(&["-C", "repo", "add", "."]);
        git(&["-C", "repo", "commit", "-q", "-m", "more"]);
    }
    let server = Server::start(&place, &[]);
    let first = &rows(&place.ok(&["import", "git", "repo", "--store", "g"]))[0];
    assert_eq!((&first["items"], &first["before"], &first["events"]), (&3.into(), &0.into(), &6.into()));
    let again = &rows(&place.ok(&["import", "git", "repo", "--store", "g"]))[0];
    assert_eq!((&again["items"], &again["before"]), (&0.into(), &3.into()));
    drop(server);
}

#[test]
fn directory_only_commands_reject_a_server() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    for command in [&["verify"][..], &["checkpoint"], &["compact"], &["init"], &["recover"], &["serve"]] {
        place.refused(
            &[command, &["--at", &server.url()]].concat(),
            2,
            &["database directory", &server.url()],
        );
    }
    let stats = rows(&place.ok(&["stats", "--at", &server.url()]));
    assert!(
        stats.iter().any(|row| row["name"] == "newest commit" && row["value"].as_u64() > Some(0)),
        "{stats:?}"
    );
    assert!(stats.iter().any(|row| row["part"] == "events default" && row["value"] == 0), "{stats:?}");
    // In a locked directory they are rejected as before: another process holds it.
    place.refused(&["verify", "--wait", "0"], 5, &["in use"]);
}

#[test]
fn unreachable_or_foreign_server_is_an_error() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    place.refused(&["count", "--at", &closed], 7, &[&closed, "ropewalk serve"]);
    place.refused(&["count", "--at", "ftp://x"], 2, &["ftp", "http"]);
    let server = Server::start(&place, &[]);
    place.refused(&["count", "--at", &format!("https://{}", server.address("http"))], 7, &["https://"]);
    let grpc = format!("http://{}", server.address("grpc"));
    assert_ne!(place.run(&["count", "--at", &grpc]).code, 0);
}

fn with_password(place: &Place, arguments: &[&str], password: &str) -> Answer {
    let mut command = place.command(arguments);
    command.env("ROPEWALK_PASSWORD", password);
    crate::answer(
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap(),
    )
}

#[test]
fn users_and_tokens_control_access() {
    let place = Place::with_database();
    // Before the server starts, in the files.
    assert_eq!(place.run_with(&["user", "add", "root", "--role", "admin"], b"the root password\n").code, 0);
    let server = Server::start(&place, &[]);
    let at = |user: &str| format!("http://{user}@{}", server.address("http"));
    let count = |user: &str, password: &str| with_password(&place, &["count", "--at", &at(user)], password);
    place.refused(&["count", "--at", &server.url()], 8, &["credentials"]);
    assert_eq!(count("root", "the root password").out, "0\n");
    assert_eq!(count("root", "another password").code, 8);
    assert_eq!(count("nobody", "another password").code, 8);
    // Through the local socket, as the owner of the directory.
    assert_eq!(place.run_with(&["user", "add", "ann"], b"the ann password\n").code, 0);
    assert_eq!(place.run_with(&["user", "add", "ann"], b"the ann password\n").code, 4);
    let denied = count("ann", "the ann password");
    assert!(denied.code == 8 && denied.err.contains("read") && denied.err.contains("default"), "{denied:?}");
    place.ok(&["user", "grant", "ann", "read:default"]);
    assert_eq!(count("ann", "the ann password").out, "0\n");
    let listed = rows(&place.ok(&["user", "list"]));
    assert_eq!(
        (&listed[0]["user"], &listed[0]["roles"]),
        (&"ann".into(), &serde_json::json!(["read:default"]))
    );
    place.ok(&["user", "revoke", "ann", "read:default"]);
    assert_eq!(count("ann", "the ann password").code, 8);
    assert_eq!(place.run_with(&["user", "passwd", "ann"], b"a new password\n").code, 0);
    place.ok(&["user", "grant", "ann", "append"]);
    let append =
        |password: &str| with_password(&place, &["append", "--type", "A", "--at", &at("ann")], password).code;
    assert_eq!((append("the ann password"), append("a new password")), (8, 0));
    let refused = place.run(&["user", "drop", "root"]);
    assert!(refused.code != 0 && refused.err.contains("the last administrator"), "{}", refused.err);
    place.ok(&["user", "drop", "ann"]);
    place.refused(&["user", "drop", "ann"], 3, &["ann"]);

    let made = &rows(&place.ok(&["token", "add", "reader", "--role", "read", "--expires", "1h"]))[0];
    let token = made["token"].as_str().unwrap();
    assert_eq!(place.ok(&["count", "--at", &server.url(), "--token", token]), "1\n");
    place.refused(&["append", "--type", "A", "--at", &server.url(), "--token", token], 8, &["append"]);
    place.refused(&["user", "list", "--at", &server.url(), "--token", token], 8, &["admin"]);
    let brief = &rows(&place.ok(&["token", "add", "brief", "--role", "read", "--expires", "1s"]))[0];
    let brief = brief["token"].as_str().unwrap().to_owned();
    while place.run(&["count", "--at", &server.url(), "--token", &brief]).code == 0 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    place.refused(&["count", "--at", &server.url(), "--token", &brief], 8, &["expired"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!(rows(&place.ok(&["token", "list"])).len(), 2);
    place.ok(&["token", "drop", id]);
    place.refused(&["count", "--at", &server.url(), "--token", token], 8, &["token"]);
    assert_eq!(server.stop(), 0);
    // The files contain the changes made through the server.
    assert_eq!(rows(&place.ok(&["user", "list"])).len(), 1);
}

#[test]
fn too_many_wrong_passwords_are_slowed_down() {
    let place = Place::with_database();
    assert_eq!(place.run_with(&["user", "add", "root", "--role", "admin"], b"the root password\n").code, 0);
    let server = Server::start(&place, &[]);
    let at = format!("http://root@{}", server.address("http"));
    let slowed =
        (0..100).any(|_| with_password(&place, &["count", "--at", &at], "a wrong password").code == 5);
    assert!(slowed, "password guessing must be limited");
}

#[test]
fn tail_is_the_same_through_a_server_and_follows_after_it_stops() {
    use std::io::{BufRead as _, BufReader};
    let place = Place::with_database();
    for store in ["a", "b", "a"] {
        place.ok(&["append", "--store", store, "--type", "T", "--tag", "k:1", "--data", store]);
    }
    let asked = [
        &["tail"][..],
        &["tail", "--from", "2"],
        &["tail", "--store", "a", "--mode", "table"],
        &["tail", "--from", "4"],
    ];
    let in_files: Vec<_> = asked.iter().map(|arguments| place.ok(arguments)).collect();
    place.ok(&["sql", "-c", "CREATE TABLE t (id int PRIMARY KEY)"]);
    place.ok(&["sql", "-c", "INSERT INTO t VALUES (1)"]);
    let whole = place.ok(&["tail", "--from", "1"]);
    assert!(whole.contains(" bytes of tables"), "{whole}");
    let mut command = place.command(&["tail", "-f", "--wait", "60", "--type", "T", "--type", "U"]);
    let mut follower =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..3 {
        lines.next().unwrap();
    }
    let server = Server::start(&place, &["--wait", "60"]);
    let url = server.url();
    // The default store of the server is one more commit.
    let through = |arguments: &[&str]| place.ok(&[arguments, &["--type", "T", "--at", &url]].concat());
    assert_eq!(through(asked[0]), in_files[0]);
    assert_eq!(through(asked[1]), in_files[1]);
    assert_eq!(through(asked[2]), in_files[2]);
    // The internal commits of the server follow.
    assert!(place.ok(&["tail", "--from", "1", "--at", &url]).starts_with(&whole));
    for n in 0..3 {
        place.ok(&["append", "--type", "U", "--data", &n.to_string(), "--at", &url]);
        assert_eq!(rows(&lines.next().unwrap())[0]["data"], n.to_string());
    }
    assert_eq!(server.stop(), 0);
    place.ok(&["append", "--type", "U", "--data", "after", "--wait", "60"]);
    assert_eq!(rows(&lines.next().unwrap())[0]["data"], "after");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn d1_23_sql_runs_on_a_server() {
    let place = Place::with_database();
    let server = Server::start(&place, &[]);
    let url = server.url();
    let run = |arguments: &[&str]| place.run(&[arguments, &["--at", &url]].concat());
    let made = run(&[
        "sql",
        "CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'é'), (2, NULL)",
    ]);
    assert_eq!((made.code, made.out.as_str()), (0, ""), "{made:?}");
    let read = run(&["sql", "--mode", "csv", "SELECT * FROM t ORDER BY id", "-c", "SELECT count(*) FROM t"]);
    assert_eq!((read.code, read.out.as_str()), (0, "id,name\n1,é\n2,\ncount\n2\n"), "{read:?}");
    let refused = run(&["sql", "SELECT nothing FROM t"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("column \"nothing\" does not exist"), "{refused:?}");
}
