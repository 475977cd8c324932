//! TCP ports that stay the same while the database is opened again, and whose numbers are known before they are served.
//!
//!   reserve: bound, no client can connect ─▶ listen ─▶ … ─▶ closed ─▶ listen: the same number

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::net::listen::Listener;

/// How long a port that this process had is waited for: an outgoing connection may have its number meanwhile.
const AGAIN: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The ports of this process, by name.
#[derive(Debug, Default)]
pub(crate) struct Ports(Vec<Port>);

#[derive(Debug)]
struct Port {
    name: String,
    address: SocketAddr,
    /// Until it is served.
    socket: Option<Socket>,
}

impl Ports {
    /// Takes a port without serving it; returns its address, with a number where `asked` has 0.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not this machine's.
    pub(crate) fn reserve(&mut self, name: &str, asked: SocketAddr) -> io::Result<SocketAddr> {
        if let Some(port) = self.0.iter().find(|port| port.name == name) {
            return Ok(port.address);
        }
        let socket = Listener::bind(asked)?;
        let bound = socket.local_addr()?.as_socket();
        let address = bound.ok_or_else(|| io::Error::other("a TCP port has an IP address"))?;
        self.0.push(Port { name: name.to_owned(), address, socket: Some(socket) });
        Ok(address)
    }

    /// Listens on a port: the reserved one, or that of an earlier call.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen(&mut self, name: &str, asked: SocketAddr) -> io::Result<Listener> {
        let Some(port) = self.0.iter_mut().find(|port| port.name == name) else {
            let listener = Listener::tcp(asked)?;
            let address = listener.address()?.parse().unwrap_or(asked);
            self.0.push(Port { name: name.to_owned(), address, socket: None });
            return Ok(listener);
        };
        if let Some(socket) = port.socket.take() {
            return Listener::on(socket);
        }
        let until = Instant::now() + AGAIN;
        loop {
            match Listener::tcp(port.address) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                listener => return listener,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_keeps_its_number_when_it_is_served_again() {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut ports = Ports::default();
        let reserved = ports.reserve("http", any).unwrap();
        assert_ne!(reserved.port(), 0);
        assert_eq!(ports.reserve("http", any).unwrap(), reserved);
        // Bound, but not served yet.
        assert!(std::net::TcpStream::connect(reserved).is_err());
        for _ in 0..2 {
            let listener = ports.listen("http", any).unwrap();
            assert_eq!(listener.address().unwrap(), reserved.to_string());
            assert!(std::net::TcpStream::connect(reserved).is_ok());
        }
        let first = ports.listen("grpc", any).unwrap().address().unwrap();
        assert_eq!(ports.listen("grpc", any).unwrap().address().unwrap(), first);
    }
}
