//! `ropewalk serve` as a child process, which can be killed and started again.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ropewalk_server::ReadyFile;

use crate::output::failure::{Exit, Failure, Result};

/// Longest wait for the server's ports.
const START: Duration = Duration::from_secs(30);

/// Addresses of the server's ports.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) http: String,
    pub(super) grpc: String,
    /// The gRPC port whose event store is `shop`: UmaDB's client for Python cannot name a store.
    pub(super) shop: String,
    pub(super) postgres: String,
    pub(super) mongo: String,
}

impl Addresses {
    /// Ports that the system chooses.
    pub(super) fn free() -> Self {
        let [http, grpc, shop, postgres, mongo] = std::array::from_fn(|_| "127.0.0.1:0".to_owned());
        Self { http, grpc, shop, postgres, mongo }
    }

    /// The ports of a running server.
    fn of_ready(ready: &ReadyFile) -> Self {
        let of = |protocol: &str, store: Option<&str>| {
            let mut ports = ready.listening.iter();
            let port = ports.find(|port| port.protocol == protocol && port.store.as_deref() == store);
            port.map_or_else(String::new, |port| port.address.clone())
        };
        Self {
            http: of("http", None),
            grpc: of("grpc", None),
            shop: of("grpc", Some("shop")),
            postgres: of("postgres", None),
            mongo: of("mongo", None),
        }
    }

    /// The URL of the database for psql.
    pub(super) fn psql(&self) -> String {
        format!("postgres://demo@{}/ropewalk", self.postgres)
    }

    /// Settings of a server at these addresses, whose files are in `place`.
    fn settings(&self, place: &Path) -> String {
        let Self { http, grpc, shop, postgres, mongo } = self;
        format!(
            r#"dir = {:?}
[http]
listen = "{http}"
[grpc]
listen = "{grpc}"
stores = ["shop={shop}"]
[postgres]
listen = "{postgres}"
[mongo]
listen = "{mongo}"
[prometheus]
self_scrape = "200ms"
[log]
level = "error"
"#,
            place.join("data").display().to_string(),
        )
    }
}

/// A running server, killed when it is dropped.
pub(super) struct Server {
    child: Child,
    /// Its settings file, which names its ports.
    pub(super) config: PathBuf,
    pub(super) at: Addresses,
}

impl Server {
    /// Starts a server whose files are in `place`.
    pub(super) fn start(place: &Path, wanted: &Addresses) -> Result<Self> {
        let (config, ready) = (place.join("ropewalk.toml"), place.join("ready.json"));
        let write = |addresses: &Addresses| {
            std::fs::write(&config, addresses.settings(place))
                .map_err(|error| Failure::file("write", &config, &error))
        };
        write(wanted)?;
        // That of a killed server is left.
        let _ = std::fs::remove_file(&ready);
        let child = serve(&config)?
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| failed("start the server", &error))?;
        let mut server = Self { child, config: config.clone(), at: wanted.clone() };
        let text = server.await_ready(&ready)?;
        let ready: ReadyFile = serde_json::from_str(&text)
            .map_err(|error| Failure::new(Exit::Internal, format!("the server's ready file: {error}"), ""))?;
        server.at = Addresses::of_ready(&ready);
        write(&server.at)?;
        Ok(server)
    }

    fn await_ready(&mut self, ready: &Path) -> Result<String> {
        let started = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(ready) {
                return Ok(text);
            }
            let ended = self.child.try_wait().map_err(|error| failed("wait for the server", &error))?;
            if ended.is_some() || started.elapsed() > START {
                return Err(Failure::new(Exit::Internal, "the server did not start", ""));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process with SIGKILL.
    pub(super) fn kill(&mut self) -> Result {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|error| failed("kill the server", &error))
    }

    /// Replaces this process by the server, so that signals reach it. Returns only if that fails.
    pub(super) fn stay(self) -> Failure {
        let config = self.config.clone();
        drop(self);
        match serve(&config) {
            Ok(mut command) => failed("run the server", &command.exec()),
            Err(failure) => failure,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill(); // it may have ended
    }
}

fn serve(config: &Path) -> Result<Command> {
    let program = std::env::current_exe().map_err(|error| failed("find this program", &error))?;
    let mut command = command(program);
    command.args(["serve", "--config"]).arg(config);
    Ok(command)
}

/// A command without the variables that would change settings and targets of `ropewalk`.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ROPEWALK_") {
            command.env_remove(name);
        }
    }
    command
}

pub(super) fn failed(doing: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("{doing}: {error}"), "")
}
