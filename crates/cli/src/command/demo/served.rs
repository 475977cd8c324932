//! Chapter 7: the same database over HTTP, PostgreSQL's and MongoDB's protocol, by the programs of this machine.
//!
//! Programs that are not installed are left out, and the text says so.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::shop::{STOCK, Sold, metric};
use super::story::Story;
use crate::output::failure::{Exit, Failure, Result};

/// Longest wait for the server's ports.
const START: Duration = Duration::from_secs(30);

/// A running server, and its addresses.
pub(super) struct Server {
    child: Child,
    http: String,
    postgres: String,
    mongo: String,
}

/// A program of this machine with its arguments, and what its output has to contain.
struct Call {
    program: &'static str,
    arguments: Vec<String>,
    /// The command as a person types it.
    shown: String,
    expected: String,
}

/// Serves the database in `at`, and reads all four models by the clients that are installed.
pub(super) fn serve(story: &mut Story, at: &Path, sold: &Sold) -> Result<Server> {
    story.chapter("The same database over the network")?;
    story.say("`ropewalk serve` opens the directory; unmodified clients read and write what the chapters above wrote.")?;
    let server = Server::start(at)?;
    let mut missing = Vec::new();
    for call in calls(&server, sold) {
        match run(&call) {
            Some(output) => {
                story.line(&format!("$ {}", call.shown))?;
                story.line(&format!("  {}", output.trim().replace('\n', " ")))?;
                let holds = output.contains(&call.expected);
                story.check(holds, &format!("{} returns {}", call.program, call.expected))?;
            }
            None if missing.contains(&call.program) => {}
            None => missing.push(call.program),
        }
    }
    if !missing.is_empty() {
        story.say(&format!("Left out, because it is not installed: {}.", missing.join(", ")))?;
    }
    Ok(server)
}

fn calls(server: &Server, sold: &Sold) -> Vec<Call> {
    let (name, order) = (&sold.shop, sold.order);
    let (http, metric) = (&server.http, metric(name));
    let curl = |url: String, expected: String| Call {
        program: "curl",
        shown: format!("curl -s '{url}'"),
        arguments: vec!["-sg".to_owned(), url],
        expected,
    };
    let psql = |statement: String, expected: String| Call {
        program: "psql",
        shown: format!("psql -h {} -c \"{statement}\"", server.postgres.replace(':', " -p ")),
        arguments: psql_arguments(&server.postgres, &statement),
        expected,
    };
    let document = format!(r#"{{"_id":{order},"item":"rope"}}"#);
    let counts = format!(
        "SELECT (SELECT count(*) FROM events.{name}) AS events, (SELECT count(*) FROM \"default\".{name}) AS documents, \
         (SELECT count(*) FROM metrics.{metric}) AS samples, (SELECT {STOCK} - available FROM {name}) AS rows"
    );
    let restock = format!(
        "BEGIN; UPDATE {name} SET available = available + 50; \
         SELECT append_event('Restocked', '{{}}', '{{\"ropes\":50}}', store => '{name}'); COMMIT"
    );
    let find = format!(
        "import pymongo; print(pymongo.MongoClient('{}')['default']['{name}'].count_documents({{'item': 'rope'}}))",
        server.mongo
    );
    vec![
        curl(
            format!("http://{http}/v1/databases/default/collections/{name}/documents/{order}?id=json"),
            document,
        ),
        curl(
            format!("http://{http}/api/v1/query?query=count_over_time({metric}[1h])"),
            format!("\"{STOCK}\""),
        ),
        psql(counts, format!("{STOCK}|{STOCK}|{STOCK}|{STOCK}")),
        psql(restock, "COMMIT".to_owned()),
        psql(format!("SELECT available FROM {name}"), "50".to_owned()),
        Call {
            program: "python3 with pymongo",
            shown: format!("python3 -c \"{find}\""),
            arguments: vec!["-c".to_owned(), find],
            expected: STOCK.to_string(),
        },
    ]
}

fn psql_arguments(address: &str, statement: &str) -> Vec<String> {
    let (host, port) = address.split_once(':').unwrap_or((address, "5432"));
    let mut arguments: Vec<String> =
        ["-h", host, "-p", port, "-U", "demo", "-d", "postgres", "-XAt", "-v", "ON_ERROR_STOP=1"]
            .map(str::to_owned)
            .into();
    for part in statement.split("; ") {
        arguments.extend(["-c".to_owned(), part.to_owned()]);
    }
    arguments
}

/// The output of a program; `None` where the program, or a module that it needs, is not installed.
fn run(call: &Call) -> Option<String> {
    let program = call.program.split(' ').next().unwrap_or_default();
    let output = Command::new(program).args(&call.arguments).stdin(Stdio::null()).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ModuleNotFoundError") {
        return None;
    }
    Some(format!("{}{errors}", String::from_utf8_lossy(&output.stdout)))
}

impl Server {
    fn start(at: &Path) -> Result<Self> {
        let failed = |doing: &str, error: &std::io::Error| {
            Failure::new(Exit::Io, format!("{doing} the server: {error}"), "")
        };
        let program = std::env::current_exe().map_err(|error| failed("find", &error))?;
        let folder = tempfile::tempdir().map_err(|error| failed("prepare", &error))?;
        let ready = folder.path().join("ready.json");
        let port = "127.0.0.1:0";
        let mut child = Command::new(program)
            .arg("serve")
            .arg(at)
            .args([
                "--http-listen",
                port,
                "--postgres-listen",
                port,
                "--mongo-listen",
                port,
                "--grpc-listen",
                "off",
            ])
            .args(["--log-level", "error", "--ready-file"])
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| failed("start", &error))?;
        let started = Instant::now();
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                break text;
            }
            let ended = child.try_wait().map_err(|error| failed("wait for", &error))?;
            if ended.is_some() || started.elapsed() > START {
                let _ = child.kill();
                return Err(Failure::new(Exit::Internal, "the server did not start", ""));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let listening: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::new(Exit::Internal, format!("the server's ready file: {error}"), ""))?;
        let address = |protocol: &str| {
            let mut ports = listening.get("listening").and_then(Value::as_array).into_iter().flatten();
            let port = ports.find(|port| port.get("protocol").and_then(Value::as_str) == Some(protocol));
            port.and_then(|port| port.get("address")?.as_str()).unwrap_or_default().to_owned()
        };
        let mongo = format!("mongodb://{}/?directConnection=true", address("mongo"));
        Ok(Self { http: address("http"), postgres: address("postgres"), mongo, child })
    }

    /// Prints what to type next, and serves until the server ends.
    pub(super) fn stay(mut self, story: &mut Story, shop: &str) -> Result {
        let (host, port) = self.postgres.split_once(':').unwrap_or((&self.postgres, ""));
        let name = shop;
        story.chapter("Your turn: the server runs until Ctrl-C")?;
        for line in [
            format!("psql -h {host} -p {port} -U demo postgres"),
            format!("    SELECT * FROM events.{name} ORDER BY position DESC LIMIT 5;"),
            format!("    UPDATE {name} SET available = available - 1 RETURNING *;"),
            format!("mongosh '{}'", self.mongo),
            format!("    db.getSiblingDB('default').{name}.findOne()"),
            format!("curl -sN 'http://{}/v1/stores/{name}/subscribe?format=ndjson'", self.http),
            format!("curl -s 'http://{}/api/v1/query?query={}'", self.http, metric(shop)),
            format!("http://{}/openapi.json    the HTTP API", self.http),
        ] {
            story.line(&line)?;
        }
        self.child
            .wait()
            .map_err(|error| Failure::new(Exit::Io, format!("wait for the server: {error}"), ""))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
