//! The servers under test as child processes, each on a port of its own that nobody else knows, with its data below the
//! directory of the measurement. Dropping a [`Server`] kills it: the data is not kept either.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// UmaDB's name as a peer.
pub(crate) const UMADB: &str = "umadb";

/// Longer than any server takes to start.
const START: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Host and port of gRPC.
    pub(crate) grpc: String,
    /// Host and port of HTTP; empty where the server does not speak it.
    pub(crate) http: String,
}

impl Server {
    /// Starts `system` with its data in `dir`, and waits until it serves.
    pub(crate) fn start(system: &str, dir: &Path) -> Result<Self> {
        match system {
            ropewalk_bench::report::OURS => Self::ours(dir),
            UMADB => Self::umadb(dir),
            other => bail!("{other} is no server that this program starts"),
        }
    }

    fn ours(dir: &Path) -> Result<Self> {
        let ready = dir.join("ready.json");
        let mut command = Command::new(beside("ropewalk")?);
        command.arg("serve").arg(dir.join("data")).args(["--dev", "--log-level=warn"]);
        command
            .args(["--http-listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0"])
            .arg("--ready-file")
            .arg(&ready);
        let mut child = spawn(&mut command, dir)?;
        let said = wait(&mut child, dir, || fs::read(&ready).ok())?;
        let said: Ready = serde_json::from_slice(&said).context("the file that says where we listen")?;
        let address = |protocol: &str| {
            let listening = said.listening.iter().find(|listening| listening.protocol == protocol);
            listening.map(|listening| listening.address.clone()).unwrap_or_default()
        };
        Ok(Self { child, grpc: address("grpc"), http: address("http") })
    }

    fn umadb(dir: &Path) -> Result<Self> {
        let grpc = format!("127.0.0.1:{}", free_port()?);
        let data = dir.join("data");
        fs::create_dir_all(&data)?;
        let mut command = Command::new(umadb()?);
        command.args(["--listen", &grpc, "--db-path"]).arg(data);
        let mut child = spawn(&mut command, dir)?;
        wait(&mut child, dir, || std::net::TcpStream::connect(&grpc).ok())?;
        Ok(Self { child, grpc, http: String::new() })
    }

    /// Processor time that the server has used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        /// What the kernel counts in on every platform that we know (`getconf CLK_TCK`).
        const TICKS_PER_SECOND: u64 = 100;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name of the program, in brackets, may hold anything.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Ok(Duration::from_millis(ticks.sum::<Result<u64, _>>()? * 1000 / TICKS_PER_SECOND))
    }

    /// Memory that the server holds, in MiB.
    pub(crate) fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
struct Ready {
    listening: Vec<Listening>,
}

#[derive(Deserialize)]
struct Listening {
    protocol: String,
    address: String,
}

/// A program that cargo built beside this one.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.is_file(), "{} is not built", path.display());
    Ok(path)
}

/// Where `./run bench --peers` puts what cargo does not build.
pub(crate) fn peers() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let target = here.parent().and_then(Path::parent).context("this program lies in no target directory")?;
    Ok(target.join("peers"))
}

/// UmaDB's server, from its wheel.
pub(crate) fn umadb() -> Result<PathBuf> {
    let path = peers()?.join("umadb/bin/umadb");
    ensure!(path.is_file(), "{} is not installed", path.display());
    Ok(path)
}

/// A port that was free a moment ago, for servers that take no port 0.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a server whose output goes to a file, so that a failure can be told.
pub(crate) fn spawn(command: &mut Command, dir: &Path) -> Result<Child> {
    let log = fs::File::create(dir.join("server.log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("starting {}", command.get_program().display()))
}

/// Waits until `there` has something, or the server has ended.
pub(crate) fn wait<T>(child: &mut Child, dir: &Path, mut there: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = there() {
            return Ok(found);
        }
        if let Some(status) = child.try_wait()? {
            let log = fs::read_to_string(dir.join("server.log")).unwrap_or_default();
            bail!("the server ended with {status}: {}", log.trim());
        }
        if begin.elapsed() > START {
            // Nobody else will.
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server does not get ready");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
