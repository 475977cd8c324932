//! Listening: TCP ports and the local socket, through one type.
//!
//! Accepting never ends the server. An error of one connection is ignored; when the process has no file
//! descriptors left, the loop pauses and retries, and logs that at most once a minute.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Instant;

/// Name of the local socket in the database directory.
pub const SOCKET_NAME: &str = "ropewalk.sock";
/// Its name until it is private.
const NEW_SOCKET_NAME: &str = "ropewalk.sock.new";
/// Connections that the system queues until we accept them.
const BACKLOG: i32 = 1024;
/// A peer that is silent for this long is probed, …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// … this often, …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// … and this many times.
const KEEPALIVE_RETRIES: u32 = 4;
/// Longest path that a socket address holds, with its final zero.
const SOCKET_PATH_BYTES: usize = 108;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// An open port.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// The local socket, removed with the value.
    Local(LocalSocket),
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Over TCP, with the peer's address.
    Tcp(TcpStream, SocketAddr),
    /// Over the local socket: a process of the user who owns the directory.
    Local(UnixStream),
}

impl Listener {
    /// Listens on a TCP port.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not this machine's.
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Self> {
        Self::on(Self::bind(address)?)
    }

    /// Takes a TCP port to which no client can connect yet.
    ///
    /// # Errors
    /// As [`Listener::tcp`].
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket)
    }

    /// Listens on a port that was taken.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn on(socket: Socket) -> io::Result<Self> {
        socket.listen(BACKLOG)?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into())?))
    }

    /// The address in use; with a configured port 0, the assigned one.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn address(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Self::Local(socket) => Ok(socket.path.display().to_string()),
        }
    }

    /// Returns the next connection; retries after errors.
    pub(crate) async fn accept(&self) -> Accepted {
        let mut said: Option<Instant> = None;
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(error) if of_one_connection(&error) => {}
                Err(error) => {
                    if said.is_none_or(|at| at.elapsed() > Duration::from_secs(60)) {
                        said = Some(Instant::now());
                        tracing::error!(%error, "cannot accept connections; retrying");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn try_accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // A socket with default options still works.
                let _ = tune(&stream);
                Ok(Accepted::Tcp(stream, peer))
            }
            Self::Local(socket) => Ok(Accepted::Local(socket.listener.accept().await?.0)),
        }
    }
}

/// Errors that concern only one connection.
fn of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// The socket in a database directory. Only its owner may connect.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Listens in `dir`, whose lock this process holds, so that a socket file there is stale and is replaced.
    /// The socket gets its name only after its mode makes it private.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bind(dir: &Path) -> io::Result<Self> {
        let listener = with_short_path(dir, |dir| {
            let (new, path) = (dir.join(NEW_SOCKET_NAME), dir.join(SOCKET_NAME));
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&new)?;
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&new, &path)?;
            Ok(listener)
        })?;
        Ok(Self { listener, path: dir.join(SOCKET_NAME) })
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // A socket file that remains is stale and does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects to the server that holds `dir`.
///
/// # Errors
/// The system's: no server is running, or the directory belongs to another user.
pub fn connect_local(dir: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    with_short_path(dir, |dir| std::os::unix::net::UnixStream::connect(dir.join(SOCKET_NAME)))
}

/// Calls `work` with a path of `dir` short enough for a socket address, however deep `dir` is.
fn with_short_path<T>(dir: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if dir.as_os_str().len() + 1 + NEW_SOCKET_NAME.len() < SOCKET_PATH_BYTES {
        return work(dir);
    }
    // The system resolves a path through an open directory, which has a short name.
    let open = std::fs::File::open(dir)?;
    work(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn local_socket_is_private_replaces_a_stale_one_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        for dir in [dir.path(), deep.as_path()] {
            std::fs::create_dir_all(dir).unwrap();
            let path = dir.join(SOCKET_NAME);
            drop(
                with_short_path(dir, |dir| std::os::unix::net::UnixListener::bind(dir.join(SOCKET_NAME)))
                    .unwrap(),
            );
            assert!(path.exists(), "std leaves a stale socket behind");
            let socket = Listener::Local(LocalSocket::bind(dir).unwrap());
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let connected = connect_local(dir).unwrap();
            assert!(matches!(socket.accept().await, Accepted::Local(_)));
            drop((socket, connected));
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_taken_port_is_an_error() {
        let first = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = first.address().unwrap().parse().unwrap();
        assert_eq!(Listener::tcp(taken).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
