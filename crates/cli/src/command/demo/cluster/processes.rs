//! A child process that writes to a file, and can be killed and started again.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::command::demo::server::failed;
use crate::output::failure::{Exit, Failure, Result};

/// A process, killed when it is dropped.
pub(super) struct Process {
    command: Command,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a command whose output is appended to the file `log`.
    pub(super) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let wrong = |error| Failure::file("write", log, &error);
        let out = File::options().create(true).append(true).open(log).map_err(wrong)?;
        let errors = out.try_clone().map_err(wrong)?;
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let child = spawned(&mut command)?;
        Ok(Self { command, log: log.to_owned(), child })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|error| failed("kill a process", &error))
    }

    /// Starts a killed process again.
    pub(super) fn restart(&mut self) -> Result {
        self.child = spawned(&mut self.command)?;
        Ok(())
    }

    /// Fails with the last line of its output if the process has ended.
    pub(super) fn must_run(&mut self) -> Result {
        let ended = self.child.try_wait().map_err(|error| failed("wait for a process", &error))?;
        let Some(status) = ended else { return Ok(()) };
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = text.lines().last().unwrap_or_default();
        let what = format!("{} has ended, {status}: {last}", self.command.get_program().display());
        Err(Failure::new(Exit::Internal, what, ""))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill(); // it may have ended
    }
}

fn spawned(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| failed(&format!("start {}", command.get_program().display()), &error))
}

/// Ports that are tried for the addresses of one call.
const PORTS_MAX: usize = 200;

/// Addresses on which no process listens, each with a different port.
pub(super) fn free_addresses(number: usize) -> Result<Vec<String>> {
    // Below those that the system gives to clients: a node that starts again must find its port free.
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let bind = || TcpListener::bind(("127.0.0.1", first + TRIED.fetch_add(1, Ordering::Relaxed))).ok();
    let listeners: Vec<_> = (0..PORTS_MAX).filter_map(|_| bind()).take(number).collect();
    let wrong = |error| failed("find a free port", &error);
    if listeners.len() < number {
        return Err(wrong(io::Error::from(io::ErrorKind::AddrInUse)));
    }
    let addresses = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string()));
    addresses.collect::<Result<Vec<_>, _>>().map_err(wrong)
}
