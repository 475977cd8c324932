//! Two simple blocking clients: HTTP/1.1 on one persistent connection, and the generated tonic client.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

/// HTTP on one connection.
pub(super) struct Http(BufReader<TcpStream>);

impl Http {
    pub(super) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends JSON and returns status and body.
    pub(super) fn post(&mut self, path: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection was closed");
        line.trim_end().to_owned()
    }
}

/// A client and the runtime of its thread.
pub(super) struct Grpc {
    pub(super) runtime: Runtime,
    pub(super) client: DcbClient<Channel>,
}

impl Grpc {
    pub(super) fn connect(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(client(address));
        Self { runtime, client }
    }
}

/// One connection.
pub(super) async fn client(address: &str) -> DcbClient<Channel> {
    DcbClient::connect(format!("http://{address}")).await.unwrap().max_decoding_message_size(16 << 20)
}
