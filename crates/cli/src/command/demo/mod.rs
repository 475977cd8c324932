//! `ropewalk demo`: shows the purpose of this database in a minute, with a real server and real clients.
//!
//! ```text
//! 1 server ─▶ 2 git history: events, rows, documents ─▶ 3 one transaction over four models ─▶ 4 the counts of each protocol
//!             ─▶ 5 SIGKILL while clients write, restart, the same counts ─▶ 6 the turn of the reader
//! ```
//! A line that starts with `$` is a command that was run as it is shown. One failed check fails the demo.

mod clients;
mod cluster;
mod load;
mod server;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use serde_json::Value;

use self::clients::{Clients, connect, numbers, quoted};
use self::load::WRITERS;
use self::server::{Addresses, Server};
use self::story::Story;
use crate::command::import::Repository;
use crate::database::context::canonical;
use crate::output::cell::thousands;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// End after the checks and stop the server; for scripts
    #[arg(long)]
    once: bool,
    /// Show three nodes that share a log in three servers of NATS: the leader is killed, and the next one halted
    #[arg(long, conflicts_with = "repo")]
    cluster: bool,
    /// Import this git repository instead of the one of the current directory
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    repo: Option<PathBuf>,
    /// Python with the packages `pymongo` and `umadb`; the demo works without them, too
    #[arg(long, value_name = "PROGRAM", default_value = "python3", overrides_with = "python")]
    python: String,
}

/// Longest wait for the projections, and for the server's own metrics.
const PATIENCE: Duration = Duration::from_secs(30);

const FILES: [&str; 2] = [
    "CREATE TABLE files (path text PRIMARY KEY, changes bigint NOT NULL)",
    "CREATE PROJECTION files FROM EVENTS git ON 'FileAdded', 'FileChanged', 'FileRemoved' DO (
       INSERT INTO files VALUES (event.json->>'path', 1)
       ON CONFLICT (path) DO UPDATE SET changes = files.changes + 1)",
];
/// A batch of a projection whose worker is a client: effects and checkpoint are one commit.
const COMMITS: &str = r#"{"operations": [
  {"checkpoint": {"store": "git", "consumer": "commits", "position": HEAD, "expect": 0}},
  {"sql": {"sql": "INSERT INTO git.commits (_id, doc) SELECT e.json->>'sha', e.json FROM events.git AS e WHERE e.type = 'CommitAuthored' AND e.position <= HEAD"}}
]}"#;
const HISTORY_COUNTS: &str =
    "SELECT (SELECT count(*) FROM events.git AS e WHERE e.type = 'CommitAuthored') AS commits,
  (SELECT count(*) FROM git.commits) AS documents,
  (SELECT count(*) FROM events.git AS e WHERE e.type <> 'CommitAuthored') AS file_events,
  (SELECT coalesce(sum(changes), 0) FROM files) AS changes";
const SHOP: [&str; 4] = [
    "CREATE TABLE stock (item text PRIMARY KEY, sold bigint NOT NULL)",
    "INSERT INTO stock VALUES ('rope', 0)",
    "CREATE TABLE sales (buyer text PRIMARY KEY, ropes bigint NOT NULL)",
    "CREATE PROJECTION sales FROM EVENTS shop ON 'Sold' DO (
       INSERT INTO sales VALUES (event.json->>'buyer', 1) ON CONFLICT (buyer) DO UPDATE SET ropes = sales.ropes + 1)",
];

pub(crate) fn demo(at: Option<PathBuf>, arguments: &Demo) -> Result {
    let started = Instant::now();
    let (place, temporary) = match at {
        Some(path) => {
            std::fs::create_dir(&path).map_err(|error| Failure::file("create", &path, &error))?;
            (canonical(&path)?, None)
        }
        None => {
            let folder = tempfile::Builder::new().prefix("ropewalk-demo-").tempdir();
            let folder = folder.map_err(|error| Failure::file("create", &std::env::temp_dir(), &error))?;
            (canonical(folder.path())?, Some(folder))
        }
    };
    if arguments.cluster {
        return cluster::demo(&place, temporary.is_some(), &arguments.python, arguments.once);
    }
    let mut stage = Stage::open(place, &arguments.python)?;
    stage.history(arguments.repo.as_deref())?;
    stage.transaction()?;
    stage.crash()?;
    stage.story.say(&format!("Every check held. The demo took {:.1} s.", started.elapsed().as_secs_f64()))?;
    if arguments.once {
        return Ok(());
    }
    if let Some(folder) = temporary {
        let _retained = folder.keep();
    }
    stage.end()
}

/// The server, its clients, and the text about them.
struct Stage {
    story: Story,
    clients: Clients,
    server: Server,
    place: PathBuf,
}

impl Stage {
    /// Chapter 1: the server with every protocol on free ports.
    fn open(place: PathBuf, python: &str) -> Result<Self> {
        let (mut story, clients) = (Story::new(), Clients::find(python)?);
        story.title(
            "Ropewalk demo",
            "One server, four data models, one log. Lines after a $ are commands that you can repeat.",
        )?;
        story.chapter("A server for every protocol")?;
        story.command(&format!("alias ropewalk={}", quoted(clients.program.display())))?;
        let server = serve(&mut story, &place, &Addresses::free())?;
        let missing = clients.missing();
        if !missing.is_empty() {
            story.say(&format!("Not installed, so HTTP is used in their place: {missing}."))?;
        }
        Ok(Self { story, clients, server, place })
    }

    /// Chapter 2: a git history as events, rows by a declared projection, documents by the projection of a client.
    fn history(&mut self, repo: Option<&Path>) -> Result {
        self.story.chapter("A git history as events, rows and documents")?;
        let path = repo.unwrap_or(Path::new("."));
        match (Repository::find(path, "HEAD"), repo) {
            (Ok(_), _) => {}
            (Err(failure), Some(_)) => return Err(failure),
            (Err(_), None) => {
                return self.story.say(
                    "The current directory has no git history, so nothing is imported. --repo PATH names a repository.",
                );
            }
        }
        self.story.say(
            "The server runs a declared projection: for each event about a file it updates a row, exactly once.",
        )?;
        self.sql(&FILES)?;
        self.story
            .say("Each git commit is one append: CommitAuthored, and an event for each of its files.")?;
        let (shown, http) = (quoted(path.display()), self.server.at.http.clone());
        let imported = self.run(&format!("ropewalk import git {shown} --store git --at http://{http}"))?;
        let imported: Value = serde_json::from_str(&imported).map_err(|error| {
            Failure::new(Exit::Internal, format!("the result of the import: {error}"), "")
        })?;
        let count = |name: &str| imported.get(name).and_then(Value::as_u64).unwrap_or_default();
        let (commits, events) = (count("items"), count("events"));
        self.story.say(
            "A client projects the commits to documents. The documents and its checkpoint are one commit, and `expect` \
             fences a second client.",
        )?;
        self.post(None, &COMMITS.replace("HEAD", &events.to_string()))?;
        self.settle()?;
        self.story
            .say("The files that changed most often, and one snapshot of all of it, next to git's count:")?;
        self.sql(&["SELECT path, changes FROM files ORDER BY changes DESC, path LIMIT 3"])?;
        let counts = numbers(&self.sql(&[HISTORY_COUNTS])?);
        let in_git = numbers(&self.run(&format!("git -C {shown} rev-list --count HEAD"))?);
        let files = events.saturating_sub(commits);
        self.story.check(
            counts == [commits, commits, files, files] && in_git == [commits],
            "events, rows and documents tell the same history",
        )
    }

    /// Chapters 3 and 4: one transaction over four models, and the same truth by every protocol.
    fn transaction(&mut self) -> Result {
        self.story.chapter("One transaction over four models, by curl")?;
        self.sql(&SHOP)?;
        self.story.say(
            "A sale is an event (if its order number is new), a row, a document and a sample: one commit, one sync.",
        )?;
        let sale = load::sale("o1", "curl", load::now_ms());
        let first = self.post(Some("o1"), &sale)?;
        self.story.say("The same command again, as after a lost response: nothing is written.")?;
        let again = self.send(Some("o1"), &sale)?;
        self.story.check(
            first.contains("\"repeated\":false") && again.contains("\"repeated\":true"),
            "a repeated request returns the first result",
        )?;
        self.story.chapter("The same truth by every protocol")?;
        self.agree(1, true)?;
        self.story.say("The server also stores its own metrics, as a series among the others:")?;
        self.wait_for("SELECT time FROM metrics.ropewalk_commits_total LIMIT 1", |rows| rows > 0)?;
        let commits = self.clients.promql(&self.server.at, "sum(ropewalk_commits_total)");
        let commits = numbers(&self.run(&commits)?);
        self.story
            .check(commits.last().is_some_and(|count| *count > 0), "PromQL reads the server's own metrics")
    }

    /// Chapter 5: the server is killed while clients write.
    fn crash(&mut self) -> Result {
        self.story.chapter("SIGKILL in the middle of writes")?;
        self.story.say(&format!(
            "{WRITERS} clients send the same transaction with new order numbers, each as soon as it has a response. Then:",
        ))?;
        let killed = format!("kill -9 {}", self.server.id());
        let load = load::run(&mut self.server)?;
        self.story.command(&killed)?;
        let lost = load.pending.len() as u64;
        let acknowledged = thousands(load.acknowledged);
        self.story
            .say(&format!("{acknowledged} sales were acknowledged; {lost} requests got no response."))?;
        let (wanted, place) = (self.server.at.clone(), &self.place);
        self.server = match serve(&mut self.story, place, &wanted) {
            Ok(server) => server,
            // Another process may have taken a port.
            Err(_) => serve(&mut self.story, place, &Addresses::free())?,
        };
        let remote = connect(&self.server.at.http)?;
        let mut committed = 0;
        for (key, body) in &load.pending {
            let response = remote.transact(Some(key), body)?;
            committed += u64::from(response.get("repeated").and_then(Value::as_bool) == Some(true));
        }
        self.story.say(&format!(
            "The {lost} requests are sent again with their keys: {committed} had been committed before the kill, {} are \
             committed now. Together: 1 sale by curl + {acknowledged} acknowledged + {lost}. The same five commands:",
            lost.saturating_sub(committed),
        ))?;
        self.agree(1 + load.acknowledged + lost, false)
    }

    /// Chapter 6: prints commands to type next, and becomes the server.
    fn end(mut self) -> Result {
        let Addresses { http, grpc, shop, mongo, .. } = self.server.at.clone();
        let psql = self.server.at.psql();
        let python = &self.clients.python;
        self.story.chapter("Your turn: the server runs until Ctrl-C")?;
        for (name, command) in [
            ("Console", format!("http://{http}/ in a browser")),
            ("HTTP", format!("curl -sN 'http://{http}/v1/stores/shop/subscribe?format=ndjson'")),
            ("OpenAPI", format!("curl -s http://{http}/openapi.json")),
            (
                "PostgreSQL",
                format!("psql {psql} -c 'SELECT * FROM events.shop ORDER BY position DESC LIMIT 5'"),
            ),
            (
                "MongoDB",
                format!(
                    "mongosh 'mongodb://{mongo}/shop?directConnection=true' --eval 'db.orders.findOne()'"
                ),
            ),
            (
                "PromQL",
                self.clients.promql(&self.server.at, "sum by (buyer) (count_over_time(ropes_sold[1h]))"),
            ),
            ("UmaDB", format!("{python} -c \"import umadb; print(umadb.Client('http://{shop}').head())\"")),
            ("gRPC", format!("grpcurl -plaintext {grpc} list")),
            ("ropewalk", format!("ropewalk tail -f --at http://{http}")),
            ("remove it", format!("rm -r {}", quoted(self.place.display()))),
        ] {
            self.story.line(&format!("{name:<10}  {command}"))?;
        }
        Err(self.server.stay())
    }

    /// Prints a command, runs it in a shell, and prints its output.
    fn run(&mut self, command: &str) -> Result<String> {
        self.clients.run(command, &mut self.story)
    }

    fn sql(&mut self, statements: &[&str]) -> Result<String> {
        self.run(&self.clients.sql(&self.server.at, statements))
    }

    /// Prints the request of a transaction as a command, and sends it.
    fn post(&mut self, key: Option<&str>, body: &str) -> Result<String> {
        self.story.command(&Clients::curl(&self.server.at, key, body))?;
        self.send(key, body)
    }

    /// Sends the request of a transaction, by curl if it is installed, and prints the response.
    fn send(&mut self, key: Option<&str>, body: &str) -> Result<String> {
        let at = &self.server.at;
        let response = match self.clients.has_curl {
            true => self.clients.shell(&Clients::curl(at, key, body))?,
            false => connect(&at.http)?.transact(key, body)?.to_string(),
        };
        self.story.output(&response)?;
        let is_committed = response.contains("\"repeated\":");
        is_committed
            .then_some(response)
            .ok_or_else(|| Failure::new(Exit::Internal, "a transaction failed", ""))
    }

    /// Waits until the declared projections have applied every event.
    fn settle(&self) -> Result {
        let late = "SELECT name, state, lag, error FROM ropewalk_projections WHERE lag > 0 OR lag IS NULL";
        self.wait_for(late, |rows| rows == 0)
    }

    /// Waits until a query returns such a number of rows.
    fn wait_for(&self, sql: &str, is_met: impl Fn(usize) -> bool) -> Result {
        let (remote, deadline) = (connect(&self.server.at.http)?, Instant::now() + PATIENCE);
        loop {
            let response: Value = remote.sql(sql)?;
            let rows = response.pointer("/results/0/rows").and_then(Value::as_array);
            if rows.is_some_and(|rows| is_met(rows.len())) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::new(Exit::Internal, format!("waited in vain: {sql}: {response}"), ""));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Counts the sales in each model by its protocol, and compares the counts.
    fn agree(&mut self, sales: u64, prints_commands: bool) -> Result {
        self.settle()?;
        let (mut rows, mut agrees) = (Vec::new(), true);
        for (model, protocol, command) in self.clients.counts(&self.server.at) {
            let output = if prints_commands { self.run(&command) } else { self.clients.shell(&command) };
            let count = numbers(&output?).last().copied();
            agrees &= count == Some(sales);
            rows.push([model.to_owned(), protocol.to_owned(), count.map_or_else(String::new, thousands)]);
        }
        self.story.table(&["model", "counted by", "sales"], &rows)?;
        self.story
            .check(agrees, &format!("all four models agree on {}, neither more nor less", thousands(sales)))
    }
}

/// Starts the server and prints its command and its addresses.
fn serve(story: &mut Story, place: &Path, wanted: &Addresses) -> Result<Server> {
    let begun = Instant::now();
    let server = Server::start(place, wanted)?;
    story.command(&format!("ropewalk serve --config {}", quoted(server.config.display())))?;
    let Addresses { http, grpc, postgres, mongo, .. } = &server.at;
    story.say(&format!(
        "Ready after {} ms: HTTP and PromQL {http}, gRPC {grpc}, PostgreSQL {postgres}, MongoDB {mongo}.",
        begun.elapsed().as_millis(),
    ))?;
    Ok(server)
}
