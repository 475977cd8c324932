//! The peer of `crablet`: PostgreSQL 15 as Debian ships it, in a cluster of its own with the settings that initdb gives,
//! and the thin server over it that `bench-rivals/crablet` is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

use super::servers::{beside, free_port, spawn, wait};

/// Its name as a peer.
pub(crate) const CRABLET: &str = "go_crablet_sql";

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The thin server and its cluster; both end with the value.
pub(crate) struct Crablet {
    server: Child,
    cluster: Child,
    /// The socket's path must be short, so it does not lie beside the data.
    socket: PathBuf,
    /// Host and port.
    pub(crate) http: String,
}

/// Fails unless all that is needed is here.
pub(crate) fn installed() -> Result<PathBuf> {
    let initdb = Path::new(PROGRAMS).join("initdb");
    ensure!(initdb.is_file(), "{} is not installed", initdb.display());
    beside("ropewalk-crablet-sql")
}

impl Crablet {
    /// Makes a cluster in `dir` and serves it.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let program = installed()?;
        let socket = std::env::temp_dir().join(format!("ropewalk-pg-{}", std::process::id()));
        fs::create_dir(&socket)?;
        // PostgreSQL refuses to run as root, so another user must be able to write here.
        for open in [dir, &socket] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777))?;
        }
        let data = dir.join("cluster");
        let mut initdb = as_postgres("initdb");
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data);
        let said = initdb.output().context("starting initdb")?;
        ensure!(said.status.success(), "initdb: {}", String::from_utf8_lossy(&said.stderr).trim());
        let mut postgres = as_postgres("postgres");
        postgres.arg("-D").arg(&data).arg("-k").arg(&socket).args(["-c", "listen_addresses="]);
        let mut cluster = spawn(&mut postgres, dir)?;
        wait(&mut cluster, dir, || ready(&socket).then_some(()))?;
        let http = format!("127.0.0.1:{}", free_port()?);
        let mut serve = Command::new(program);
        serve.arg("--socket").arg(&socket).args(["--listen", &http]);
        let logs = dir.join("thin");
        fs::create_dir(&logs)?;
        let server = spawn(&mut serve, &logs)?;
        let mut running = Self { server, cluster, socket, http };
        wait(&mut running.server, &logs, || std::net::TcpStream::connect(&running.http).ok())?;
        Ok(running)
    }
}

impl Drop for Crablet {
    fn drop(&mut self) {
        // Either may have ended by itself; the data is thrown away.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("kill").args(["-s", "QUIT", &self.cluster.id().to_string()]).status();
        let _ = self.cluster.wait();
        let _ = fs::remove_dir_all(&self.socket);
    }
}

fn ready(socket: &Path) -> bool {
    let mut asked = Command::new(Path::new(PROGRAMS).join("pg_isready"));
    asked.arg("-q").arg("-h").arg(socket).status().is_ok_and(|status| status.success())
}

/// A program of PostgreSQL's, as its user when we are root.
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
