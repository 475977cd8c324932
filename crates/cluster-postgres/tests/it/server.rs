//! A server of PostgreSQL in a temporary directory, on a Unix socket.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ropewalk_cluster_postgres::{PostgresLog, PostgresOpenError, PostgresOptions};
use ropewalk_log::shared::SharedError;

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Time for a server to start or a condition to hold; only to end a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns from the test when PostgreSQL is not installed.
macro_rules! needs_postgres {
    () => {
        if !crate::server::is_installed() {
            return;
        }
    };
}
pub(crate) use needs_postgres;

pub(crate) fn is_installed() -> bool {
    let found = Path::new(PROGRAMS).join("initdb").is_file();
    if !found {
        eprintln!("SKIPPED: PostgreSQL 15 is not installed in {PROGRAMS}");
    }
    found
}

/// A server; stopped and removed on drop.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    process: Option<Child>,
    settings: Vec<String>,
    /// It also names the socket.
    port: u16,
}

impl Server {
    /// Creates a server with these settings in addition to the defaults, and starts it.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let mut server = Self::prepare(settings);
        let mut initdb = program("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]);
        run(initdb.arg(server.data()));
        server.launch();
        server
    }

    fn prepare(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("ropewalk-log-").tempdir().unwrap();
        // PostgreSQL does not run as root, so another user must be able to write here.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self { folder, process: None, settings, port: 5432 }
    }

    /// Copies this server into a standby of the name `s1`, and starts it.
    pub(crate) fn standby(&self) -> Self {
        let mut standby = Self::prepare(&[]);
        let from = format!("{} application_name=s1", self.connection());
        let mut backup = program("pg_basebackup");
        run(backup
            .args(["-d", &from, "-c", "fast", "-X", "stream", "-R", "--no-sync", "-D"])
            .arg(standby.data()));
        standby.launch();
        standby
    }

    pub(crate) fn launch(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut postgres = program("postgres");
            postgres.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
            postgres.args([
                "-p",
                &self.port.to_string(),
                "-c",
                "listen_addresses=",
                "-c",
                "shared_buffers=32MB",
            ]);
            self.settings.iter().for_each(|setting| {
                postgres.args(["-c", setting]);
            });
            let log =
                fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
            let mut process = postgres.stdout(Stdio::null()).stderr(log).spawn().unwrap();
            while process.try_wait().unwrap().is_none() {
                if self.psql("SELECT 1").output().unwrap().status.success() {
                    self.process = Some(process);
                    return;
                }
                assert!(Instant::now() < end, "PostgreSQL does not start:\n{}", self.log());
                std::thread::sleep(Duration::from_millis(50));
            }
            // After SIGKILL a process of the previous server may still end.
            assert!(Instant::now() < end, "PostgreSQL does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn connection(&self) -> String {
        let folder = self.folder.path().display();
        format!("host={folder} port={} user=postgres dbname=postgres", self.port)
    }

    pub(crate) fn open(&self) -> PostgresLog {
        open(&self.connection(), options())
    }

    /// Opens the log for a test in which the server does not respond.
    pub(crate) fn open_impatient(&self) -> PostgresLog {
        open(&self.connection(), impatient())
    }

    /// Runs a statement and returns its output.
    pub(crate) fn sql(&self, statement: &str) -> String {
        run(&mut self.psql(statement))
    }

    fn psql(&self, statement: &str) -> Command {
        let mut psql = Command::new(Path::new(PROGRAMS).join("psql"));
        psql.args([
            "-XAtq",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-c",
            statement,
            "-p",
            &self.port.to_string(),
        ]);
        psql.arg("-h").arg(self.folder.path()).env_clear();
        psql
    }

    /// Waits until a query returns true.
    pub(crate) fn wait_for(&self, query: &str) {
        let end = Instant::now() + PATIENCE;
        while self.sql(query) != "t" {
            assert!(Instant::now() < end, "{query}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sets a setting of the running server and waits until new sessions have it.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.sql(&format!("ALTER SYSTEM SET {name} = {value}"));
        self.sql("SELECT pg_reload_conf()");
        self.wait_for(&format!("SELECT current_setting('{name}') = {value}"));
    }

    /// Ends all processes of the server at once, as a failure of the machine does, except that the page cache survives.
    pub(crate) fn kill(&mut self) {
        let processes = self.processes();
        if let Some(mut process) = self.process.take() {
            signal("KILL", &processes);
            process.wait().unwrap();
        }
    }

    /// Stops all processes without ending them.
    pub(crate) fn pause(&self) {
        signal("STOP", &self.processes());
    }

    pub(crate) fn resume(&self) {
        signal("CONT", &self.processes());
    }

    fn processes(&self) -> Vec<u32> {
        let Some(process) = &self.process else { return Vec::new() };
        let id = process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        std::iter::once(id).chain(children.split_whitespace().map(|child| child.parse().unwrap())).collect()
    }

    /// Writes a file that the server reads as its own.
    pub(crate) fn write(&self, name: &str, contents: &str) {
        let path = self.data().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let owner = fs::metadata(self.data()).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    /// Starts the server again on a free port of 127.0.0.1, which it returns.
    pub(crate) fn listen(&mut self) -> u16 {
        self.kill();
        self.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.settings.push("listen_addresses=127.0.0.1".to_owned());
        self.launch();
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Opens a log, also when the machine is so busy that an attempt takes too long.
pub(crate) fn open(connection: &str, options: PostgresOptions) -> PostgresLog {
    let end = Instant::now() + PATIENCE;
    loop {
        match PostgresLog::open(connection, options.clone()) {
            Err(PostgresOpenError::Log(SharedError::Unavailable { .. })) if Instant::now() < end => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Options with a time limit that only ends a hang.
pub(crate) fn options() -> PostgresOptions {
    PostgresOptions { call_timeout: PATIENCE, ..PostgresOptions::default() }
}

/// Options with a time limit that the test waits for.
pub(crate) fn impatient() -> PostgresOptions {
    PostgresOptions { call_timeout: Duration::from_secs(2), ..PostgresOptions::default() }
}

fn signal(name: &str, processes: &[u32]) {
    let ids = processes.iter().map(u32::to_string);
    // A process may have ended.
    let _ = Command::new("kill").arg("-s").arg(name).arg("--").args(ids).stderr(Stdio::null()).status();
}

/// A program of PostgreSQL, run as its user when we are root.
fn program(name: &str) -> Command {
    let path = Path::new(PROGRAMS).join(name);
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { &path });
    if is_root {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(&path);
    }
    command.current_dir("/");
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
