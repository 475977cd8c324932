//! What systemd wants to be told: ready, stopping, still alive. One datagram each, to the socket that it names.
//!
//! Source: `sd_notify(3)`, section "Notes", and `sd_watchdog_enabled(3)`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, or nobody.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants a sign of life, at the least.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that started this process, by the environment that it set.
    pub(crate) fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog =
            number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self { socket: std::env::var_os("NOTIFY_SOCKET").and_then(connect), watchdog }
    }

    /// Between two signs of life: half of what is asked for.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|all| all / 2)
    }

    /// Everything is served.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Stopping has begun.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// A sign of life.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, state: &str) {
        if let Some((socket, to)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), to)
        {
            tracing::warn!(%error, state, "the service manager cannot be told");
        }
    }
}

fn connect(name: OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let both = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
    both.inspect_err(|error| tracing::warn!(%error, ?name, "NOTIFY_SOCKET cannot be used")).ok()
}
