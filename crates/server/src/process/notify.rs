//! Notifications to systemd: ready, stopping, alive. Each is one datagram to the socket in `NOTIFY_SOCKET`.
//!
//! Source: `sd_notify(3)`, section "Notes", and `sd_watchdog_enabled(3)`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Longest interval between two signs of life.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that started this process, from its environment.
    pub(crate) fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog =
            number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self { socket: std::env::var_os("NOTIFY_SOCKET").and_then(connect), watchdog }
    }

    /// Interval of signs of life: half of the requested timeout.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|all| all / 2)
    }

    /// Reports that everything is served.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that stopping has begun.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a sign of life.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, state: &str) {
        if let Some((socket, to)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), to)
        {
            tracing::warn!(%error, state, "cannot notify the service manager");
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
