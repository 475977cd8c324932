//! Servers of NATS as processes on loopback addresses that no other test uses.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, process};

use ropewalk_cluster_nats::{NatsError, NatsLog, NatsSettings};
use ropewalk_log::LogId;
use ropewalk_log::shared::{
    AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog, SharedResult,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Name of the stream of every test.
pub(crate) const STREAM: &str = "LOG";
/// Only to end a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Repeats a call while the service does not answer: a busy machine may take seconds.
pub(crate) fn patiently<T>(call: impl Fn() -> SharedResult<T>) -> SharedResult<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(SharedError::Unavailable { .. }) if start.elapsed() < PATIENCE => {}
            result => return result,
        }
    }
}

/// A log whose calls, except for the append, are repeated while the service does not answer.
#[derive(Debug)]
pub(crate) struct Patient(pub(crate) NatsLog);

impl Deref for Patient {
    type Target = NatsLog;

    fn deref(&self) -> &NatsLog {
        &self.0
    }
}

impl Patient {
    pub(crate) fn identity(&self) -> SharedResult<LogId> {
        patiently(|| self.0.identity())
    }

    pub(crate) fn bounds(&self) -> SharedResult<SharedBounds> {
        patiently(|| self.0.bounds())
    }

    pub(crate) fn warnings(&self) -> SharedResult<Vec<String>> {
        patiently(|| self.0.warnings())
    }

    pub(crate) fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        patiently(|| self.0.trim(oldest))
    }

    pub(crate) fn read(
        &self,
        after: EntryIndex,
        bytes_max: usize,
        wait: Duration,
    ) -> SharedResult<Vec<SharedEntry>> {
        patiently(|| self.0.read(after, bytes_max, wait))
    }

    /// Appends as the leader of a cluster does: an unknown outcome is cleared up by repetition, or by reading the place.
    /// Returns the newest entry if another one is in the place.
    pub(crate) fn append_clearly(&self, expected: EntryIndex, bytes: &[u8]) -> Result<(), EntryIndex> {
        let start = Instant::now();
        let mut is_unknown = false;
        loop {
            match self.0.append(expected, bytes) {
                Ok(stored) => {
                    assert_eq!(stored, expected.next());
                    return Ok(());
                }
                Err(AppendError::Unknown { .. }) if start.elapsed() < PATIENCE => is_unknown = true,
                Err(AppendError::Fenced { newest }) if is_unknown => {
                    if let Some(entry) = self.read(expected, 1, Duration::from_secs(5)).unwrap().first() {
                        return if entry.bytes == bytes { Ok(()) } else { Err(newest) };
                    }
                }
                Err(AppendError::Fenced { newest }) => return Err(newest),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// As [`Patient::append_clearly`], without another writer.
    pub(crate) fn append_surely(&self, expected: EntryIndex, bytes: &[u8]) {
        assert_eq!(self.append_clearly(expected, bytes), Ok(()));
    }
}

/// The first three numbers of addresses that only this call has: the fourth is the server.
pub(crate) fn loopback() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, test) = (process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}", 64 + (process >> 8 & 63), (process & 255) ^ (test & 255))
}

fn program() -> Option<PathBuf> {
    if let Some(program) = env::var_os("ROPEWALK_NATS_SERVER").map(PathBuf::from) {
        assert!(program.is_file(), "ROPEWALK_NATS_SERVER names no file: {}", program.display());
        return Some(program);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|path| path.is_file())
}

/// Servers of one test. They are killed when it ends.
pub(crate) struct Servers {
    dir: TempDir,
    program: PathBuf,
    network: String,
    children: Vec<Option<Child>>,
}

impl Servers {
    /// Starts `count` servers, with `more` in their configuration. `None`, with a message, without the program.
    pub(crate) fn start(count: usize, more: &str) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("SKIPPED: nats-server is neither in ROPEWALK_NATS_SERVER nor on the search path");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let mut servers =
            Self { dir, program, network: loopback(), children: (0..count).map(|_| None).collect() };
        for server in 0..count {
            servers.write_configuration(server, more);
            servers.restart(server);
        }
        Some(servers)
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn address(&self, server: usize) -> String {
        format!("{}.{}", self.network, server + 1)
    }

    pub(crate) fn write_configuration(&self, server: usize, more: &str) {
        let (name, address) = (format!("n{}", server + 1), self.address(server));
        let mut text = format!(
            "server_name: {name}\nlisten: \"{address}:4222\"\nmax_payload: 8MB\nmax_pending: 64MB\n\
             jetstream {{ store_dir: \"{}\", sync_interval: always, max_mem: 64MB, max_file: 8GB }}\n{more}\n",
            self.dir().join(&name).display()
        );
        if self.children.len() > 1 {
            let routes: Vec<String> = (0..self.children.len())
                .map(|other| format!("\"nats-route://{}:6222\"", self.address(other)))
                .collect();
            let routes = routes.join(", ");
            writeln!(text, "cluster {{ name: test, listen: \"{address}:6222\", routes: [{routes}] }}")
                .unwrap();
        }
        fs::write(self.dir().join(format!("{name}.conf")), text).unwrap();
    }

    /// Starts a server that does not run.
    pub(crate) fn restart(&mut self, server: usize) {
        let name = self.dir().join(format!("n{}", server + 1));
        let log = File::options().append(true).create(true).open(name.with_extension("log")).unwrap();
        let child = Command::new(&self.program)
            .arg("-c")
            .arg(name.with_extension("conf"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        assert!(self.children[server].replace(child).is_none(), "it runs");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, server: usize) {
        let mut child = self.children[server].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, server: usize, signal: &str) {
        let pid = self.children[server].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Settings for all servers.
    pub(crate) fn settings(&self) -> NatsSettings {
        let servers: Vec<String> = (0..self.children.len()).map(|server| self.address(server)).collect();
        let mut settings: NatsSettings = format!("nats://{}/{STREAM}", servers.join(",")).parse().unwrap();
        settings.allow_one_server = self.children.len() == 1;
        settings
    }

    /// Creates the log, as soon as the servers can.
    pub(crate) fn create(&self) -> Patient {
        let start = Instant::now();
        loop {
            match NatsLog::create(&self.settings()) {
                Ok(log) => return Patient(log),
                // A cluster without all of its servers has no place for three replicas.
                Err(NatsError::Unreachable { .. } | NatsError::Refused { .. })
                    if start.elapsed() < PATIENCE => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn open(&self) -> Patient {
        self.open_with(&self.settings())
    }

    /// Opens the log, as soon as the servers can.
    pub(crate) fn open_with(&self, settings: &NatsSettings) -> Patient {
        let start = Instant::now();
        loop {
            match NatsLog::open(settings) {
                Ok(log) => return Patient(log),
                Err(NatsError::Unreachable { .. }) if start.elapsed() < PATIENCE => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A request to JetStream, past the log.
    pub(crate) fn api(&self, verb: &str, body: &Value) -> Value {
        let addresses: Vec<String> = (0..self.children.len()).map(|server| self.address(server)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
            let client = options.connect(addresses).await.unwrap();
            let start = Instant::now();
            loop {
                let subject = format!("$JS.API.{verb}.{STREAM}");
                match client.request(subject, body.to_string().into()).await {
                    Ok(answer) => return serde_json::from_slice(&answer.payload).unwrap(),
                    Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
                }
                thread::sleep(Duration::from_millis(100));
            }
        })
    }

    /// The server that is the leader of the stream.
    pub(crate) fn leader(&self) -> usize {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let info = self.api("STREAM.INFO", &json!({}));
            if let Some(name) = info.pointer("/cluster/leader").and_then(Value::as_str) {
                return name.strip_prefix('n').unwrap().parse::<usize>().unwrap() - 1;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the stream has no leader");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            for server in 0..self.children.len() {
                let log =
                    fs::read_to_string(self.dir().join(format!("n{}.log", server + 1))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(20)..].join("\n");
                eprintln!("end of the log of server {}:\n{end}", server + 1);
            }
        }
    }
}
