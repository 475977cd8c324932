//! The clients of the demo, as commands of a shell. `ropewalk` replaces a client that is not installed.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::server::{Addresses, command, failed};
use super::story::Story;
use crate::database::remote::{Endpoint, Remote, Secrets, Url};
use crate::output::failure::{Exit, Failure, Result};

/// The installed clients.
pub(super) struct Clients {
    /// This program.
    pub(super) program: PathBuf,
    /// The variable PATH, extended by the directory of this program.
    path: OsString,
    /// Python, as a word of a shell.
    pub(super) python: String,
    pub(super) has_curl: bool,
    pub(super) has_psql: bool,
    pub(super) has_pymongo: bool,
    has_umadb: bool,
}

impl Clients {
    /// Finds the clients of this machine.
    pub(super) fn find(python: &str) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed("find this program", &error))?;
        let folder = program.parent().map(Path::to_owned);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(folder.into_iter().chain(std::env::split_paths(&path)));
        let path = path.map_err(|error| Failure::invalid(format!("PATH: {error}")))?;
        let works = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        Ok(Self {
            program,
            path,
            python: quoted(python),
            has_curl: works("curl", &["--version"]),
            has_psql: works("psql", &["--version"]),
            has_pymongo: works(python, &["-c", "import pymongo"]),
            has_umadb: works(python, &["-c", "import umadb"]),
        })
    }

    /// Names of the clients that are not installed.
    pub(super) fn missing(&self) -> String {
        let clients = [
            ("curl", self.has_curl),
            ("psql", self.has_psql),
            ("pymongo", self.has_pymongo),
            ("umadb", self.has_umadb),
        ];
        let missing = clients.into_iter().filter(|(_, is_installed)| !is_installed).map(|(name, _)| name);
        missing.collect::<Vec<_>>().join(", ")
    }

    /// Prints a command, runs it in a shell, and prints its output.
    pub(super) fn run(&self, command: &str, story: &mut Story) -> Result<String> {
        story.command(command)?;
        let output = self.shell(command)?;
        story.output(&output)?;
        Ok(output)
    }

    /// Runs a command in a shell and returns its output. A command that fails is an error.
    pub(super) fn shell(&self, text: &str) -> Result<String> {
        let mut shell = command("sh");
        // The server is on this machine.
        shell.args(["-c", text]).env("PATH", &self.path).env("no_proxy", "127.0.0.1").stdin(Stdio::null());
        let output = shell.output().map_err(|error| failed("run sh", &error))?;
        let [out, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() {
            return Ok(out.trim_end().to_owned());
        }
        Err(Failure::new(Exit::Internal, format!("{text}: {out}{}", errors.trim_end()), ""))
    }

    /// Runs SQL statements, each as a separate transaction.
    pub(super) fn sql(&self, at: &Addresses, statements: &[&str]) -> String {
        let program = match self.has_psql {
            true => format!("psql {} -v ON_ERROR_STOP=1 -XAt", at.psql()),
            false => format!("ropewalk sql --at http://{}", at.http),
        };
        let statements: Vec<_> = statements.iter().map(|statement| format!("-c \"{statement}\"")).collect();
        format!("{program} {}", statements.join(" \\\n  "))
    }

    /// Evaluates PromQL.
    pub(super) fn promql(&self, at: &Addresses, query: &str) -> String {
        match self.has_curl {
            true => format!("curl -sG http://{}/api/v1/query --data-urlencode 'query={query}'", at.http),
            false => format!("ropewalk promql --at http://{} '{query}'", at.http),
        }
    }

    /// Sends the JSON of a transaction.
    pub(super) fn curl(at: &Addresses, key: Option<&str>, body: &str) -> String {
        let key = key.map_or_else(String::new, |key| format!(" -H 'Idempotency-Key: {key}'"));
        let json = "-H 'Content-Type: application/json'";
        format!("curl -s http://{}/v1/transactions {json}{key} -d @- <<'END'\n{body}\nEND", at.http)
    }

    /// Counts the sales: model, protocol, and a command whose last number is the count.
    pub(super) fn counts(&self, at: &Addresses) -> [(&'static str, &'static str, String); 5] {
        let (python, http) = (&self.python, &at.http);
        let (events_by, events) = match self.has_umadb {
            true => (
                "UmaDB's client",
                format!(
                    "{python} -c \"import umadb; client = umadb.Client('http://{}'); print(sum(1 for event in client.read()))\"",
                    at.shop
                ),
            ),
            false => ("HTTP", format!("ropewalk count --store shop --at http://{http}")),
        };
        let (documents_by, documents) = match self.has_pymongo {
            true => (
                "pymongo",
                format!(
                    "{python} -c \"import pymongo; \
                     print(pymongo.MongoClient('mongodb://{}/?directConnection=true').shop.orders.count_documents({{}}))\"",
                    at.mongo
                ),
            ),
            false => (
                "SQL over HTTP",
                format!("ropewalk sql --at http://{http} \"SELECT count(*) FROM shop.orders\""),
            ),
        };
        let rows_by = if self.has_psql { "psql" } else { "SQL over HTTP" };
        [
            ("events", events_by, events),
            ("documents", documents_by, documents),
            ("samples", "PromQL", self.promql(at, "sum(count_over_time(ropes_sold[1h]))")),
            ("rows", rows_by, self.sql(at, &["SELECT sold FROM stock"])),
            ("rows of the projection", rows_by, self.sql(at, &["SELECT sum(ropes) FROM sales"])),
        ]
    }
}

/// Connects the built-in client to the HTTP port.
pub(super) fn connect(http: &str) -> Result<Remote> {
    let url = Url::parse(&format!("http://{http}")).map_err(Failure::invalid)?;
    Remote::connect(Endpoint::Url(url), Secrets::default())
}

/// The whole numbers in a text.
pub(super) fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The text as one word of a shell.
pub(super) fn quoted(text: impl Display) -> String {
    let text = text.to_string();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
