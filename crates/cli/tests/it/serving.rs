//! The server as a real process: start, rejected settings, stop.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use crate::{Place, refused, rows};

/// A running server, stopped on drop.
pub(crate) struct Server {
    child: Child,
    addresses: Vec<(String, String)>,
}

impl Server {
    /// Serves `ropewalk.db` of the directory on free ports.
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Self {
        let ports = ["serve", "--http-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"];
        let mut command = place.command(&[&ports[..], arguments].concat());
        let log = std::fs::File::create(place.path().join("server.log")).unwrap();
        command.args(["--ready-file", "ready.json"]).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut addresses = Vec::new();
        let last = if arguments.contains(&"--postgres-listen") { "postgres" } else { "grpc" };
        while !addresses.iter().any(|(name, _)| name == last) {
            let Some(line) = lines.next() else {
                panic!("no server: {}", std::fs::read_to_string(place.path().join("server.log")).unwrap())
            };
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!((words.len(), words[0]), (3, "listening"), "{line}");
            addresses.push((words[1].to_owned(), words[2].to_owned()));
        }
        Self { child, addresses }
    }

    pub(crate) fn address(&self, protocol: &str) -> &str {
        &self.addresses.iter().find(|(name, _)| name == protocol).unwrap().1
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address("http"))
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it and returns its exit code.
    pub(crate) fn stop(self) -> i32 {
        self.signal("TERM");
        self.wait()
    }

    /// Its exit code, or -1 after a signal.
    pub(crate) fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One GET over a stream; returns the entire response.
fn get(mut stream: impl std::io::Read + std::io::Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// One POST to the server; returns the body of the response.
fn post(server: &Server, path: &str, body: &str) -> serde_json::Value {
    use std::io::{Read as _, Write as _};

    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    let head = "host: localhost\r\ncontent-type: application/json\r\nconnection: close";
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn server_without_settings_prints_addresses_and_stops_on_signal() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let ready: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("ready.json")).unwrap()).unwrap();
    let listed = ready["listening"].as_array().unwrap();
    let http = listed.iter().find(|place| place["protocol"] == "http").unwrap();
    assert_eq!((&http["address"], &http["tls"]), (&server.address("http").into(), &false.into()));
    assert_eq!(ready["pid"], server.child.id());
    let over_tcp = get(TcpStream::connect(server.address("http")).unwrap(), "/metrics");
    assert!(over_tcp.starts_with("HTTP/1.1 200") && over_tcp.contains("ropewalk_"), "{over_tcp}");
    let socket = place.path().join("ropewalk.db/ropewalk.sock");
    assert!(get(UnixStream::connect(&socket).unwrap(), "/metrics").starts_with("HTTP/1.1 200"));
    assert_eq!(server.stop(), 0);
    assert!(!socket.exists() && !place.path().join("ready.json").exists());
    place.ok(&["verify"]);
}

#[test]
fn d1_18_grpc_port_serves_a_single_store() {
    use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
    use ropewalk_grpc::proto::umadb::v1::{AppendRequest, Event, HeadRequest};

    let place = Place::new();
    let server = Server::start(&place, &["--grpc-stores", "shop=127.0.0.1:0"]);
    let ready: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("ready.json")).unwrap()).unwrap();
    let listed = ready["listening"].as_array().unwrap();
    assert_eq!(listed.iter().filter(|place| place["protocol"] == "grpc").count(), 2);
    let of_shop = listed.iter().find(|place| place["store"] == "shop").unwrap();
    let (of_shop, main) = (of_shop["address"].as_str().unwrap(), server.address("grpc"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut shop = DcbClient::connect(format!("http://{of_shop}")).await.unwrap();
        let mut main = DcbClient::connect(format!("http://{main}")).await.unwrap();
        assert_eq!(shop.head(HeadRequest {}).await.unwrap().into_inner().position, None);
        let events = vec![Event { event_type: "A".to_owned(), ..Event::default() }];
        shop.append(AppendRequest { events, ..AppendRequest::default() }).await.unwrap();
        assert_eq!(shop.head(HeadRequest {}).await.unwrap().into_inner().position, Some(1));
        assert_eq!(main.head(HeadRequest {}).await.unwrap().into_inner().position, None);
    });
    assert_eq!(server.stop(), 0);
}

#[test]
fn open_transaction_is_the_same_over_http_and_grpc() {
    use ropewalk_grpc::proto::ropewalk::events::v1::Event;
    use ropewalk_grpc::proto::ropewalk::v1::operation::Operation as Kind;
    use ropewalk_grpc::proto::ropewalk::v1::transactions_client::TransactionsClient;
    use ropewalk_grpc::proto::ropewalk::v1::{AppendEvents, ExecuteRequest, Operation};

    let place = Place::new();
    let server = Server::start(&place, &[]);
    let begun = post(&server, "/v1/transactions/begin", "{}");
    let transaction = begun["transaction"].as_str().unwrap().to_owned();
    let events = vec![Event { r#type: "A".to_owned(), ..Event::default() }];
    let append = AppendEvents { store: "shop".to_owned(), events, ..AppendEvents::default() };
    let operations = vec![Operation { operation: Some(Kind::Append(append)) }];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = format!("http://{}", server.address("grpc"));
        let mut client = TransactionsClient::connect(address).await.unwrap();
        let transaction = transaction.clone();
        let request = ExecuteRequest { transaction, operations, ..ExecuteRequest::default() };
        assert_eq!(client.execute(request).await.unwrap().into_inner().results.len(), 1);
    });
    let committed = post(&server, &format!("/v1/transactions/{transaction}/commit"), "");
    let expected = serde_json::json!([{ "store": "shop", "first": 1, "last": 1 }]);
    assert_eq!(committed["appended"], expected, "{committed}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn killed_server_starts_again() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    server.signal("KILL");
    drop(server);
    assert!(place.path().join("ropewalk.db/ropewalk.sock").exists(), "a stale socket is left");
    // Without a server, a command can open the directory although the socket file exists.
    place.ok(&["append", "--type", "A"]);
    let server = Server::start(&place, &[]);
    let socket = UnixStream::connect(place.path().join("ropewalk.db/ropewalk.sock")).unwrap();
    assert!(get(socket, "/metrics").starts_with("HTTP/1.1 200"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn settings_come_from_flag_environment_file_and_default_in_this_order() {
    let place = Place::new();
    std::fs::write(
        place.path().join("ropewalk.toml"),
        "memory = \"64MiB\"\n[log]\nlevel = \"warn\"\nformat = \"json\"\n[http]\nlisten = \"off\"\n",
    )
    .unwrap();
    let mut command = place.command(&["serve", "--check", "--http-listen", "[::1]:0"]);
    command.env("ROPEWALK_LOG_LEVEL", "debug").env("ROPEWALK_HTTP_LISTEN", "127.0.0.1:1");
    let checked = rows(&String::from_utf8(command.output().unwrap().stdout).unwrap());
    let row = |name: &str| {
        let row = checked.iter().find(|row| row["setting"] == name).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["from"].as_str().unwrap().to_owned())
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(row("http.listen"), pair("[::1]:0", "--http-listen"));
    assert_eq!(row("log.level"), pair("debug", "ROPEWALK_LOG_LEVEL"));
    assert_eq!(row("log.format"), pair("json", "ropewalk.toml"));
    assert_eq!(row("memory"), pair("64MiB", "ropewalk.toml"));
    assert_eq!(row("grpc.listen"), pair("127.0.0.1:50051", "default"));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "--check creates nothing");
}

#[test]
fn console_is_served_unless_its_setting_is_off() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let ask = |server: &Server, path: &str| get(TcpStream::connect(server.address("http")).unwrap(), path);
    assert!(ask(&server, "/").contains("location: /ui/\r\n"));
    let page = ask(&server, "/ui/sql");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<div id=\"app\">"), "{page}");
    let script = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(ask(&server, script).contains("content-type: text/javascript"), "{script}");
    assert!(ask(&server, "/v1/settings").contains(r#"{"name":"console","value":"on","origin":"default"}"#));
    assert_eq!(server.stop(), 0);
    let server = Server::start(&place, &["--console", "off"]);
    for path in ["/", "/ui/", script] {
        assert!(ask(&server, path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(
        ask(&server, "/v1/settings").contains(r#"{"name":"console","value":"off","origin":"--console"}"#)
    );
}

#[test]
fn invalid_settings_are_rejected_naming_their_source() {
    let place = Place::new();
    std::fs::write(place.path().join("bad.toml"), "[http]\nlisten = \"127.0.0.1:0\"\nport = 1\n").unwrap();
    refused(&place.run(&["serve", "--config", "bad.toml"]), 2, &["bad.toml, line 3", "port"]);
    refused(&place.run(&["serve", "--config", "none.toml"]), 3, &["none.toml"]);
    refused(&place.run(&["serve", "--http-listen", "here"]), 2, &["--http-listen", "here"]);
    refused(
        &place.run(&["serve", "--http-listen", "off", "--grpc-listen", "off", "--socket=false"]),
        2,
        &["off"],
    );
    refused(&place.run(&["serve", "a.db", "--at", "b.db"]), 2, &["--at"]);
    refused(&place.run(&["serve", "--grpc-stores", "127.0.0.1:0"]), 2, &["--grpc-stores", "STORE=IP:PORT"]);
    refused(
        &place.run(&["serve", "--grpc-stores", "shop=off"]),
        2,
        &["--grpc-stores", "leave the store out"],
    );
    let off = ["serve", "--http-listen", "off", "--grpc-listen", "off"];
    let answer = place.run(&[&off[..], &["--grpc-stores", "a\u{7}=127.0.0.1:0"]].concat());
    refused(&answer, 2, &["grpc.stores", "control"]);
    refused(&place.run(&["serve", "--tls-cert", "c.pem"]), 2, &["tls", "key"]);
    refused(&place.run(&["serve", "--tls-cert", "c.pem", "--tls-key", "k.pem"]), 2, &["c.pem"]);
    refused(&place.run(&["serve", "--colour", "red"]), 2, &["--colour"]);
    refused(&place.run(&["serve", "http://127.0.0.1:4780"]), 2, &["http://127.0.0.1:4780", "directory"]);
    refused(&place.run(&["serve", "--log-level", "info,loud"]), 2, &["loud", "debug"]);
}

#[test]
fn public_address_requires_users_and_tls_or_insecure() {
    let place = Place::new();
    let answer = place.run(&["serve", "--http-listen", "0.0.0.0:0"]);
    refused(&answer, 2, &["http.listen = 0.0.0.0:0", "no user", "no TLS", "--insecure"]);
    let answer = place.run(&["serve", "--http-listen", "0.0.0.0:0", "--dev-tls"]);
    refused(&answer, 2, &["no user"]);
    assert!(!answer.err.contains("no TLS"), "{answer:?}");
    refused(
        &place.run(&["serve", "--grpc-stores", "a=0.0.0.0:0"]),
        2,
        &["grpc.stores = 0.0.0.0:0", "no user"],
    );
    let server = Server::start(&place, &["--insecure", "--grpc-listen", "0.0.0.0:0"]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn locked_directory_and_used_port_are_reported() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    refused(&place.run(&["serve", "--http-listen", "127.0.0.1:0"]), 5, &["ropewalk.db", "in use", "pid"]);
    let taken = server.address("http").to_owned();
    refused(&place.run(&["serve", "other.db", "--http-listen", &taken]), 7, &["listen on", &taken]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn acknowledged_appends_survive_a_signal() {
    for signal in ["TERM", "INT", "KILL"] {
        let place = Place::with_database();
        let server = Server::start(&place, &[]);
        let address = server.address("http").to_owned();
        // Each writer appends until the server stops, and counts acknowledgements.
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let address = address.clone();
                std::thread::spawn(move || {
                    let mut acknowledged = 0;
                    let Ok(mut stream) = TcpStream::connect(address) else { return 0 };
                    while append(&mut stream).is_some() {
                        acknowledged += 1;
                    }
                    acknowledged
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(200));
        server.signal(signal);
        let acknowledged: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        server.wait();
        let count: u64 = place.ok(&["count", "--wait", "10"]).trim().parse().unwrap();
        assert!(acknowledged > 0, "{signal}: nothing was appended before the signal");
        assert!(count >= acknowledged, "{signal}: {acknowledged} were acknowledged, {count} are there");
        place.ok(&["verify"]);
    }
}

/// One append over a persistent connection; `None` unless it was acknowledged.
fn append(stream: &mut TcpStream) -> Option<()> {
    use std::io::{Read as _, Write as _};
    let body = r#"{"events":[{"type":"T"}]}"#;
    let head =
        "POST /v1/stores/default/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).ok().filter(|read| *read > 0)?;
        answer.extend_from_slice(&bytes[..read]);
    }
    answer.starts_with(b"HTTP/1.1 200").then_some(())
}

#[test]
fn silent_and_partial_requests_release_their_connection_slot() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let server = Server::start(&place, &["--limits-header-time", "300ms", "--limits-connections", "2"]);
    let connect = || TcpStream::connect(server.address("http")).unwrap();
    let mut silent = connect();
    let mut slow = connect();
    slow.write_all(b"GET /ready HTTP/1.1\r\nhos").unwrap();
    // A third connection is rejected until the two are closed.
    let mut answer = String::new();
    connect().read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after"), "{answer}");
    let mut rest = Vec::new();
    // Both end, with a response or a reset.
    let _ = silent.read_to_end(&mut rest);
    let _ = slow.read_to_end(&mut rest);
    while !get_again(&connect()) {}
    assert_eq!(server.stop(), 0);
}

#[test]
fn persistent_connection_has_a_separate_idle_timeout() {
    use std::io::Read as _;
    let place = Place::new();
    let server = Server::start(&place, &["--limits-header-time", "300ms"]);
    let mut kept = TcpStream::connect(server.address("http")).unwrap();
    append(&mut kept).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(900));
    append(&mut kept).unwrap();
    assert_eq!(server.stop(), 0);
    let server = Server::start(&place, &["--limits-idle-time", "300ms"]);
    let mut kept = TcpStream::connect(server.address("http")).unwrap();
    append(&mut kept).unwrap();
    assert_eq!(kept.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn prometheus_configuration_is_reloaded_on_sighup() {
    let place = Place::new();
    let (config, rules) = (place.path().join("prometheus.yml"), place.path().join("rules.yml"));
    let rule = |name: &str| format!("groups: [{{name: g, rules: [{{record: {name}, expr: vector(1)}}]}}]\n");
    std::fs::write(&config, "rule_files: [rules.yml]\n").unwrap();
    std::fs::write(&rules, rule("first")).unwrap();
    let server = Server::start(&place, &["--prometheus-config", "prometheus.yml"]);
    let shown = || get(TcpStream::connect(server.address("http")).unwrap(), "/api/v1/rules");
    let hears = |word: &str| {
        server.signal("HUP");
        while !std::fs::read_to_string(place.path().join("server.log")).unwrap().contains(word) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    assert!(shown().contains("first"));
    std::fs::write(&rules, "groups: [{nam").unwrap();
    hears("keeping the current configuration");
    assert!(shown().contains("first"));
    std::fs::write(&rules, rule("second")).unwrap();
    hears("was read again");
    assert!(shown().contains("second") && !shown().contains("first"));
    assert_eq!(server.stop(), 0);
}

/// True if the server responds.
fn get_again(mut stream: &TcpStream) -> bool {
    use std::io::{Read as _, Write as _};
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

#[test]
fn server_recovers_from_exhausted_file_descriptors() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_ropewalk");
    let mut command = std::process::Command::new("sh");
    // Hard limit: the server cannot raise it.
    let script = format!("ulimit -n 64; exec {program} serve --http-listen 127.0.0.1:0 --grpc-listen off");
    command.args(["-c", &script]).current_dir(place.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("listening http ").map(str::to_owned)).unwrap();
    let held: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    drop(held);
    assert!(get_again(&TcpStream::connect(&address).unwrap()));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn systemd_is_notified_of_ready_watchdog_and_stopping() {
    let place = Place::new();
    let manager = std::os::unix::net::UnixDatagram::bind(place.path().join("notify")).unwrap();
    let mut command = place.command(&["serve", "--http-listen", "off", "--grpc-listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", place.path().join("notify")).env("WATCHDOG_USEC", "100000");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let hear = || {
        let mut bytes = [0; 64];
        let read = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!((hear(), hear()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    let stop = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(stop.success());
    while hear() != "STOPPING=1" {}
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn first_signal_drains_requests_and_second_stops_at_once() {
    use std::io::{Read as _, Write as _};
    let body = r#"{"events":[{"type":"T"}]}"#;
    let head = "POST /v1/stores/default/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    // A request whose header was read: the server has sent 100 Continue.
    let half = |server: &Server| {
        let mut stream = TcpStream::connect(server.address("http")).unwrap();
        write!(stream, "{head}content-length: {}\r\n\r\n", body.len()).unwrap();
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).unwrap();
        assert!(asked.starts_with(b"HTTP/1.1 100"), "{asked:?}");
        stream
    };
    let stopping = |place: &Place| {
        while !std::fs::read_to_string(place.path().join("server.log")).unwrap().contains("stopping") {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    let place = Place::new();
    let server = Server::start(&place, &["--stop-drain-time", "1h"]);
    let mut request = half(&server);
    server.signal("TERM");
    stopping(&place);
    request.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    request.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(server.wait(), 0);

    let server = Server::start(&place, &["--stop-drain-time", "1h"]);
    let request = half(&server);
    server.signal("TERM");
    stopping(&place);
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
    drop(request);
}

#[test]
fn l5_world_writable_directory_is_rejected() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.ok(&["init"]);
    let dir = place.path().join("ropewalk.db");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = place.run(&["serve", "--http-listen", "127.0.0.1:0"]);
    assert!(
        refused.code != 0 && refused.err.contains("every user of this machine may write"),
        "{}",
        refused.err
    );
}

#[test]
fn m5_silent_connections_of_one_port_leave_places_for_others() {
    let place = Place::new();
    let server = Server::start(&place, &["--limits-connections", "16"]);
    let connect = |protocol: &str| TcpStream::connect(server.address(protocol)).unwrap();
    let silent: Vec<_> = (0..40).map(|_| connect("grpc")).collect();
    // An eighth of the connection slots is reserved for HTTP, and the local socket has separate ones.
    while !get_again(&connect("http")) {}
    place.ok(&["user", "list"]);
    drop(silent);
    assert_eq!(server.stop(), 0);
}

/// Sends a request on a connection that remains open, and reads the start of the response.
fn asked(mut stream: &TcpStream, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut answer = [0; 4096];
    // A rejected connection may be closed before the request arrives.
    let _ = stream.write_all(request.as_bytes());
    let read = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[test]
fn c_connections_of_one_address_are_bounded_until_they_log_in() {
    let place = Place::new();
    let server = Server::start(&place, &["--limits-peer-connections", "3"]);
    let connect = || TcpStream::connect(server.address("http")).unwrap();
    // There are no users, so each caller is admitted.
    let known: Vec<_> = (0..8)
        .map(|_| {
            let stream = connect();
            let answer = asked(&stream, "/v1/stores");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            stream
        })
        .collect();
    let mut newcomers: Vec<_> = (0..3)
        .map(|_| {
            let stream = connect();
            assert!(asked(&stream, "/ready").starts_with("HTTP/1.1 200"));
            stream
        })
        .collect();
    let answer = asked(&connect(), "/ready");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(asked(&known[0], "/ready").starts_with("HTTP/1.1 200"));
    place.ok(&["user", "list"]);
    newcomers.pop();
    while !get_again(&connect()) {}
    drop((known, newcomers));
    assert_eq!(server.stop(), 0);
}

/// Calls a method of gRPC without credentials, and reads the types of frames until GOAWAY or for `patience`.
fn frames_after_call(server: &Server, path: &str, patience: std::time::Duration) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let text = |value: &str| [&[value.len() as u8][..], value.as_bytes()].concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    // :method POST, :scheme http, :path, :authority, content-type, te (RFC 7541, appendix A).
    let headers = [
        b"\x83\x86\x04".to_vec(),
        text(path),
        b"\x01".to_vec(),
        text("localhost"),
        b"\x0f\x10".to_vec(),
        text("application/grpc"),
        b"\x00".to_vec(),
        text("te"),
        text("trailers"),
    ]
    .concat();
    let mut stream = TcpStream::connect(server.address("grpc")).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let empty_message = frame(0, 1, 1, &[0; 5]);
    stream.write_all(&[frame(4, 0, 0, &[]), frame(1, 4, 1, &headers), empty_message].concat()).unwrap();
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while !(kinds.contains(&GOAWAY) && kinds.contains(&HEADERS)) && stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).unwrap();
        kinds.push(head[3]);
    }
    kinds
}

const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;

/// Routes of other protocols on the HTTP port have the checks of the API.
#[test]
fn a5_form_of_another_site_reaches_no_protocol_of_the_http_port() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let server = Server::start(&place, &[]);
    for path in ["/api/v1/import/prometheus", "/api/v1/write", "/write", "/v1/sql", "/v1/stores/s/events"] {
        for (host, origin, status) in
            [("localhost", "origin: http://evil.example\r\n", 403), ("evil.example", "", 421)]
        {
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: {host}\r\n{origin}content-type: text/plain\r\n\
                 content-length: 5\r\nconnection: close\r\n\r\nup 1\n"
            );
            let mut stream = TcpStream::connect(server.address("http")).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} of {host}: {answer}");
        }
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn c1_streams_of_a_grpc_connection_are_bounded() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut stream = TcpStream::connect(server.address("grpc")).unwrap();
    // The preface and empty settings; the server begins with its settings.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "{head:?}");
    let mut settings = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut settings).unwrap();
    let streams = settings.chunks_exact(6).find(|setting| setting[..2] == [0, 3]);
    assert_eq!(streams.map(|setting| &setting[2..]), Some(&1024_u32.to_be_bytes()[..]));
    drop(stream);
    assert_eq!(server.stop(), 0);
}

#[test]
fn d1_24_grpc_connection_ends_after_call_without_credentials() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let append = "/ropewalk.events.v1.Events/Append";
    let pause = std::time::Duration::from_millis(500);
    let kinds = frames_after_call(&server, append, pause);
    assert!(kinds.contains(&HEADERS) && !kinds.contains(&GOAWAY), "the server is open: {kinds:?}");
    assert_eq!(place.run_with(&["user", "add", "root", "--role", "admin"], b"the root password\n").code, 0);
    let kinds = frames_after_call(&server, append, std::time::Duration::from_secs(30));
    assert!(kinds.contains(&HEADERS) && kinds.contains(&GOAWAY), "{kinds:?}");
    let kinds = frames_after_call(&server, "/grpc.health.v1.Health/Check", pause);
    assert!(kinds.contains(&HEADERS) && !kinds.contains(&GOAWAY), "health needs no credentials: {kinds:?}");
    assert_eq!(server.stop(), 0);
}
