//! PostgreSQL 15 as Debian ships it, in a temporary cluster: the peer of `sql-point`, with a standby that of
//! `cluster`, and the store of the thin server in `bench-rivals/crablet`, the peer of `crablet`, with initdb's
//! settings.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

use super::servers::{beside, free_port, spawn, wait};

/// Its name as a peer.
pub(crate) const CRABLET: &str = "go_crablet_sql";

pub(crate) const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The cluster's files, in its directory.
const DATA: &str = "cluster";

/// Port in the name of the socket that the thin server connects to.
const SOCKET_PORT: u16 = 5432;

/// A temporary PostgreSQL cluster; stopped on drop.
pub(crate) struct Cluster {
    process: Child,
    /// The socket's path must be short, so it is not in the data directory.
    socket: PathBuf,
    /// Host and port.
    pub(crate) tcp: String,
}

/// The thin server and its cluster; both are stopped on drop.
pub(crate) struct Crablet {
    server: Child,
    _cluster: Cluster,
    /// Host and port.
    pub(crate) http: String,
}

/// True when PostgreSQL 15 and its programs are installed.
pub(crate) fn is_there() -> bool {
    ["initdb", "postgres", "psql", "pgbench", "pg_basebackup"]
        .iter()
        .all(|name| Path::new(PROGRAMS).join(name).is_file())
}

/// Fails unless all required programs are installed.
pub(crate) fn installed() -> Result<PathBuf> {
    let initdb = Path::new(PROGRAMS).join("initdb");
    ensure!(initdb.is_file(), "{} is not installed", initdb.display());
    beside("ropewalk-crablet-sql")
}

impl Cluster {
    /// Creates a cluster in `dir` with these settings in addition to initdb's, and serves it on a socket, and
    /// on TCP where the settings say so. Its port names the socket, too.
    pub(crate) fn start(dir: &Path, port: u16, settings: &[&str]) -> Result<Self> {
        open_to_all(dir)?;
        let mut initdb = as_postgres("initdb");
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(dir.join(DATA));
        succeed("initdb", &mut initdb)?;
        Self::serve(dir, port, settings)
    }

    /// A standby of this cluster in `dir`, which is connected to it over TCP.
    pub(crate) fn copy(&self, dir: &Path, port: u16, settings: &[&str]) -> Result<Self> {
        open_to_all(dir)?;
        let (host, own) = self.tcp.rsplit_once(':').context("an address without a port")?;
        let mut copy = as_postgres("pg_basebackup");
        copy.args(["-h", host, "-p", own, "-U", "postgres", "-R", "-X", "stream", "-c", "fast"]);
        copy.args(["--no-sync", "-D"]).arg(dir.join(DATA));
        succeed("pg_basebackup", &mut copy)?;
        Self::serve(dir, port, settings)
    }

    fn serve(dir: &Path, port: u16, settings: &[&str]) -> Result<Self> {
        let socket = std::env::temp_dir().join(format!("ropewalk-pg-{}-{port}", std::process::id()));
        fs::create_dir(&socket)?;
        open_to_all(&socket)?;
        let mut postgres = as_postgres("postgres");
        postgres.arg("-D").arg(dir.join(DATA)).arg("-k").arg(&socket);
        postgres.args(["-p", &port.to_string()]);
        for setting in settings {
            postgres.args(["-c", setting]);
        }
        let process = spawn(&mut postgres, dir)?;
        let mut cluster = Self { process, socket, tcp: format!("127.0.0.1:{port}") };
        wait(&mut cluster.process, dir, || ready(&cluster.socket, port).then_some(()))?;
        Ok(cluster)
    }

    /// Directory of its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// PostgreSQL refuses to run as root, so another user must be able to write here.
fn open_to_all(dir: &Path) -> Result<()> {
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?)
}

fn succeed(name: &str, command: &mut Command) -> Result<()> {
    let said = command.output().with_context(|| format!("starting {name}"))?;
    ensure!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stderr).trim());
    Ok(())
}

impl Crablet {
    /// Creates a cluster in `dir` and serves it.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let program = installed()?;
        let cluster = Cluster::start(dir, SOCKET_PORT, &["listen_addresses="])?;
        let http = format!("127.0.0.1:{}", free_port()?);
        let mut serve = Command::new(program);
        serve.arg("--socket").arg(&cluster.socket).args(["--listen", &http]);
        let logs = dir.join("thin");
        fs::create_dir(&logs)?;
        let server = spawn(&mut serve, &logs)?;
        let mut running = Self { server, _cluster: cluster, http };
        wait(&mut running.server, &logs, || std::net::TcpStream::connect(&running.http).ok())?;
        Ok(running)
    }
}

impl Drop for Crablet {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have exited already; the data is deleted.
        let _ = Command::new("kill").args(["-s", "QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.socket);
    }
}

fn ready(socket: &Path, port: u16) -> bool {
    let mut asked = Command::new(Path::new(PROGRAMS).join("pg_isready"));
    asked
        .args(["-q", "-p", &port.to_string(), "-h"])
        .arg(socket)
        .status()
        .is_ok_and(|status| status.success())
}

/// A program of PostgreSQL, run as its user when we are root.
fn as_postgres(name: &str) -> Command {
    let program = Path::new(PROGRAMS).join(name);
    let root = fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0);
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}
