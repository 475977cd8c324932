//! The servers under test as child processes, each on a free private port, with its data below the directory
//! of the measurement. Dropping a [`Server`] kills it: the data is deleted, too.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::http::Http;

/// UmaDB's name as a peer.
pub(crate) const UMADB: &str = "umadb";
/// Prometheus' name as a peer.
pub(crate) const PROMETHEUS: &str = "prometheus";
/// VictoriaMetrics' name as a peer.
pub(crate) const VICTORIAMETRICS: &str = "victoriametrics";

/// Longer than any server takes to start: a new node of a cluster applies the whole shared log.
const START: Duration = Duration::from_secs(300);

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Host and port of gRPC.
    pub(crate) grpc: String,
    /// Host and port of HTTP; empty where the server does not support it.
    pub(crate) http: String,
    /// Host and port of the PostgreSQL protocol; empty where the server does not support it.
    pub(crate) postgres: String,
}

impl Server {
    /// Starts `system` with its data in `dir`, and waits until it is ready.
    pub(crate) fn start(system: &str, dir: &Path) -> Result<Self> {
        match system {
            ropewalk_bench::harness::report::OURS => Self::ours(dir),
            UMADB => Self::umadb(dir),
            PROMETHEUS => Self::prometheus(dir),
            VICTORIAMETRICS => Self::victoriametrics(dir),
            other => bail!("{other} is no server that this program starts"),
        }
    }

    fn ours(dir: &Path) -> Result<Self> {
        Self::serve(Command::new(beside("ropewalk")?), dir, &["--dev"])
    }

    /// A node of the cluster with the shared log `url`, with its data in `dir`; on one processor if it is named.
    /// Returns when the node has applied the log.
    pub(crate) fn node(dir: &Path, url: &str, lease: &str, processor: Option<usize>) -> Result<Self> {
        let program = beside("ropewalk")?;
        let command = match processor {
            None => Command::new(program),
            Some(processor) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &processor.to_string()]).arg(program);
                command
            }
        };
        fs::create_dir_all(dir)?;
        let cluster = ["--cluster", url, "--advertise", "127.0.0.1", "--cluster-lease", lease];
        Self::serve(command, dir, &cluster)
    }

    fn serve(mut command: Command, dir: &Path, more: &[&str]) -> Result<Self> {
        let ready = dir.join("ready.json");
        // That of a server which was killed here.
        if ready.exists() {
            fs::remove_file(&ready)?;
        }
        command.arg("serve").arg(dir.join("data")).arg("--log-level=warn").args(more);
        command
            .args(["--http-listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0", "--postgres-listen=127.0.0.1:0"])
            .arg("--ready-file")
            .arg(&ready);
        let mut child = spawn(&mut command, dir)?;
        let said = wait(&mut child, dir, || fs::read(&ready).ok())?;
        let said: Ready = serde_json::from_slice(&said).context("reading our listening addresses")?;
        let address = |protocol: &str| {
            let listening = said.listening.iter().find(|listening| listening.protocol == protocol);
            listening.map(|listening| listening.address.clone()).unwrap_or_default()
        };
        Ok(Self { child, grpc: address("grpc"), http: address("http"), postgres: address("postgres") })
    }

    fn umadb(dir: &Path) -> Result<Self> {
        let grpc = format!("127.0.0.1:{}", free_port()?);
        let data = dir.join("data");
        fs::create_dir_all(&data)?;
        let mut command = Command::new(umadb()?);
        command.args(["--listen", &grpc, "--db-path"]).arg(data);
        let mut child = spawn(&mut command, dir)?;
        wait(&mut child, dir, || std::net::TcpStream::connect(&grpc).ok())?;
        Ok(Self { child, grpc, http: String::new(), postgres: String::new() })
    }

    /// Defaults, except for settings that enable remote write, data of any age, and snapshots.
    fn prometheus(dir: &Path) -> Result<Self> {
        let http = format!("127.0.0.1:{}", free_port()?);
        let config = dir.join("prometheus.yml");
        fs::write(&config, "global: {}\n")?;
        let mut command = Command::new(prometheus()?);
        command.arg("--config.file").arg(config).arg("--storage.tsdb.path").arg(dir.join("data"));
        command.args(["--web.enable-remote-write-receiver", "--web.enable-admin-api", "--log.level=warn"]);
        command.args(["--storage.tsdb.retention.time=10y", "--web.listen-address", &http]);
        let mut child = spawn(&mut command, dir)?;
        wait(&mut child, dir, || asked(&http, "/-/ready"))?;
        Ok(Self { child, grpc: String::new(), http, postgres: String::new() })
    }

    /// Defaults, except for settings that allow data of any age and large query results.
    fn victoriametrics(dir: &Path) -> Result<Self> {
        let http = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(victoriametrics()?);
        command.arg("-storageDataPath").arg(dir.join("data")).args(["-httpListenAddr", &http]);
        command.args(["-retentionPeriod=100y", "-search.maxUniqueTimeseries=1000000"]);
        command.args(["-search.maxQueryDuration=60s", "-loggerLevel=ERROR"]);
        let mut child = spawn(&mut command, dir)?;
        wait(&mut child, dir, || asked(&http, "/health"))?;
        Ok(Self { child, grpc: String::new(), http, postgres: String::new() })
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        let told = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status()?;
        ensure!(told.success(), "cannot signal the server to stop");
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begin.elapsed() < START, "the server does not stop");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Processor time that the server has used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.child.id().to_string())
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
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time that a process has used; `self` is this one.
pub(crate) fn cpu_of(process: &str) -> Result<Duration> {
    /// The kernel's unit on every known platform (`getconf CLK_TCK`).
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program name, in brackets, may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(ticks.sum::<Result<u64, _>>()? * 1000 / TICKS_PER_SECOND))
}

/// `Some` when a GET of `path` returns 200.
fn asked(http: &str, path: &str) -> Option<()> {
    let mut client = Http::connect(http).ok()?;
    (client.get(path).ok()? == 200).then_some(())
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

/// A program that cargo built next to this one.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.is_file(), "{} is not built", path.display());
    Ok(path)
}

/// Directory of programs that `./run bench --peers` installs.
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

/// Prometheus, as built by `--peers`.
pub(crate) fn prometheus() -> Result<PathBuf> {
    let path = peers()?.join("prometheus/prometheus");
    ensure!(path.is_file(), "{} is not installed", path.display());
    Ok(path)
}

/// VictoriaMetrics, as Debian packs it.
pub(crate) fn victoriametrics() -> Result<PathBuf> {
    let path = peers()?.join("victoria-metrics/usr/bin/victoria-metrics");
    ensure!(path.is_file(), "{} is not installed", path.display());
    Ok(path)
}

/// A port that was free just before, for servers that do not accept port 0.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// As [`free_port`], several different ones.
pub(crate) fn free_ports(number: usize) -> Result<Vec<u16>> {
    // All are open at the same time: none is given twice.
    let open: Vec<TcpListener> =
        (0..number).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    open.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Starts a server with its output in a file, so that failures can be reported.
pub(crate) fn spawn(command: &mut Command, dir: &Path) -> Result<Child> {
    let log = fs::File::create(dir.join("server.log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("starting {}", command.get_program().display()))
}

/// Waits until `there` returns a value, or the server has exited.
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
            // Without it the server would keep running.
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server does not get ready");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
