//! A server on a free port, and a small HTTP/1.1 client that can also send invalid requests.

use std::net::SocketAddr;
use std::time::Duration;

use ropewalk::Database;
use ropewalk_http::HttpSettings;
use ropewalk_wire::{Limits, Service, ServiceSettings};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The code of a problem, after a check of its form.
    pub(crate) fn problem(&self) -> (u16, String) {
        let json = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{json}");
        assert_eq!(json["status"], self.status, "{json}");
        let code = json["code"].as_str().unwrap();
        assert_eq!(json["type"], format!("urn:ropewalk:problem:{code}"));
        assert!(!json["title"].as_str().unwrap().is_empty() && json["detail"].is_string());
        (self.status, code.to_owned())
    }

    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.problem(), (status, code.to_owned()), "{}", self.text());
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Limits::default(), HttpSettings::default()).await
    }

    pub(crate) async fn with(limits: Limits, http: HttpSettings) -> Self {
        Self::with_settings(ServiceSettings { limits, ..ServiceSettings::default() }, http).await
    }

    pub(crate) async fn with_settings(settings: ServiceSettings, http: HttpSettings) -> Self {
        Self::over(Service::new(Database::in_memory().unwrap(), settings).unwrap(), http).await
    }

    pub(crate) async fn over(service: Service, http: HttpSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = ropewalk_http::router(service.clone(), http);
        let make = router.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, make).await.unwrap() });
        Self { address, service, task }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: impl ToString) -> Reply {
        let body = body.to_string();
        self.request("POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut raw = head(method, path, headers);
        if !body.is_empty() {
            raw.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        raw.extend_from_slice(b"connection: close\r\n\r\n");
        raw.extend_from_slice(body);
        self.raw(&raw).await
    }

    /// Sends bytes unchanged and reads the response to its end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Reply {
        let mut socket = self.connect().await;
        // The server may respond and close before it has read everything.
        let _ = socket.write_all(bytes).await;
        let mut answer = Vec::new();
        let read = async {
            let mut buffer = vec![0; 65_536];
            while let Ok(n @ 1..) = socket.read(&mut buffer).await {
                answer.extend_from_slice(&buffer[..n]);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an answer");
        parse(&answer)
    }

    /// Opens a stream that does not end.
    pub(crate) async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        let mut raw = head("GET", path, headers);
        raw.extend_from_slice(b"\r\n");
        self.open(&raw).await
    }

    async fn open(&self, raw: &[u8]) -> Stream {
        let mut socket = self.connect().await;
        socket.write_all(raw).await.unwrap();
        let mut stream =
            Stream { socket, raw: Vec::new(), text: String::new(), status: 0, headers: Vec::new() };
        stream.read_head().await;
        stream
    }

    /// The status of a response whose body is not read.
    pub(crate) async fn status(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> u16 {
        let mut raw = head(method, path, headers);
        raw.extend_from_slice(b"\r\n");
        raw.extend_from_slice(body);
        self.open(&raw).await.status
    }

    /// Appends events of `{"type":…}` objects.
    pub(crate) async fn append(&self, store: &str, events: Value) -> Value {
        let body = serde_json::json!({ "events": events });
        self.post(&format!("/v1/stores/{store}/events"), body).await.ok()
    }
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut raw = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        raw.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    raw
}

fn parse_head(text: &[u8]) -> (u16, Vec<(String, String)>) {
    let text = std::str::from_utf8(text).unwrap();
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    (status, lines.filter_map(header).collect())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn parse(answer: &[u8]) -> Reply {
    let end = find(answer, b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(answer)));
    let (status, headers) = parse_head(&answer[..end]);
    let mut rest = &answer[end + 4..];
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked {
        let mut body = Vec::new();
        while let Some(chunk) = chunk(&mut rest) {
            body.extend_from_slice(chunk);
        }
        body
    } else {
        rest.to_vec()
    };
    Reply { status, headers, body }
}

/// Splits one chunk off; `None` when it is incomplete, or the last.
fn chunk<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let line = find(rest, b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
    let (from, to) = (line + 2, line + 2 + size);
    if size == 0 || rest.len() < to + 2 {
        return None;
    }
    let chunk = &rest[from..to];
    *rest = &rest[to + 2..];
    Some(chunk)
}

/// A response that is read as it arrives.
pub(crate) struct Stream {
    socket: TcpStream,
    raw: Vec<u8>,
    text: String,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Stream {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 16_384];
        let read =
            tokio::time::timeout(PATIENCE, self.socket.read(&mut buffer)).await.expect("more of the stream");
        let n = read.unwrap_or(0);
        self.raw.extend_from_slice(&buffer[..n]);
        n > 0
    }

    async fn read_head(&mut self) {
        loop {
            if let Some(end) = find(&self.raw, b"\r\n\r\n") {
                (self.status, self.headers) = parse_head(&self.raw[..end]);
                self.raw.drain(..end + 4);
                return;
            }
            assert!(self.more().await, "a head");
        }
    }

    /// Text up to the separator; `None` at the end of the stream.
    pub(crate) async fn until(&mut self, separator: &str) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.text.split_once(separator) {
                let frame = frame.to_owned();
                self.text = rest.to_owned();
                return Some(frame);
            }
            let mut rest = &self.raw[..];
            let before = rest.len();
            while let Some(chunk) = chunk(&mut rest) {
                self.text.push_str(std::str::from_utf8(chunk).unwrap());
            }
            let used = before - rest.len();
            self.raw.drain(..used);
            let ended = self.raw.starts_with(b"0\r\n");
            if used == 0 && (ended || !self.more().await) {
                return None;
            }
        }
    }

    /// The next server-sent event as (id, event, data); heartbeats are skipped.
    pub(crate) async fn event(&mut self) -> Option<(String, String, Value)> {
        loop {
            let frame = self.until("\n\n").await?;
            let field = |name: &str| {
                frame
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                    .unwrap_or_default()
                    .to_owned()
            };
            let data = field("data");
            if !data.is_empty() {
                return Some((field("id"), field("event"), serde_json::from_str(&data).unwrap()));
            }
        }
    }

    /// The next line as JSON.
    pub(crate) async fn line(&mut self) -> Option<Value> {
        self.until("\n").await.map(|line| serde_json::from_str(&line).unwrap())
    }
}
