//! Settings of the log, and the servers that its connection string names.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{PostgresOpenError, describe};

/// Longest name of a log, in bytes: it is part of the key of every entry.
const SHARD_BYTES_MAX: usize = 100;

/// Silence of a connection after which TCP checks it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

const PORT: u16 = 5432;

/// Settings of a log in PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Name of the log: several logs may share the tables. At most 100 bytes.
    pub shard: String,
    /// True if a log that does not exist is created. A node with a local copy belongs to a log that exists: for it a
    /// missing one is lost.
    pub create: bool,
    /// Time after which a call gives up. A read waits for entries in addition to it.
    pub call_timeout: Duration,
    /// Name and password of the user, instead of those of the connection string.
    pub user: Option<(String, String)>,
    /// Certificates that the server's certificate is checked against, in PEM; by default those of the system.
    pub certificates: Option<Vec<u8>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            shard: "ropewalk".to_owned(),
            create: true,
            call_timeout: Duration::from_secs(5),
            user: None,
            certificates: None,
        }
    }
}

/// One server of the connection string.
#[derive(Clone)]
pub(crate) struct Server {
    /// Host and port, for messages.
    pub(crate) name: String,
    pub(crate) config: Config,
    /// True when other machines may read the connection.
    pub(crate) is_exposed: bool,
}

/// Reads a connection string. Each of its hosts becomes a server, in its order.
pub(crate) fn parse(connection: &str, options: &PostgresOptions) -> Result<Vec<Server>, PostgresOpenError> {
    let wrong = |cause: String| PostgresOpenError::Configuration { cause };
    if options.shard.is_empty() || options.shard.len() > SHARD_BYTES_MAX || options.shard.contains('\0') {
        let rule = format!("1 to {SHARD_BYTES_MAX} bytes, none of them zero");
        return Err(wrong(format!("name {:?} of the log: {rule}", options.shard)));
    }
    let mut given = Config::from_str(connection).map_err(|error| wrong(describe(&error)))?;
    if let Some((name, password)) = &options.user {
        given.user(name).password(password);
    }
    let (hosts, addresses, ports) = (given.get_hosts(), given.get_hostaddrs(), given.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0 {
        return Err(wrong("the connection string names no host".to_owned()));
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(wrong(format!("{} hosts, but {} addresses", hosts.len(), addresses.len())));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(wrong(format!("{count} hosts, but {} ports", ports.len())));
    }
    let server = |i: usize| {
        let port = ports.get(i).or_else(|| ports.first()).copied().unwrap_or(PORT);
        server(&given, hosts.get(i), addresses.get(i).copied(), port, options)
    };
    Ok((0..count).map(server).collect())
}

/// The settings of `given` for one of its hosts.
fn server(
    given: &Config,
    host: Option<&Host>,
    address: Option<IpAddr>,
    port: u16,
    options: &PostgresOptions,
) -> Server {
    let mut config = Config::new();
    let (name, is_local) = match host {
        Some(Host::Unix(path)) => {
            config.host_path(path);
            (path.display().to_string(), true)
        }
        Some(Host::Tcp(host)) => {
            config.host(host);
            (host.clone(), address.map_or_else(|| is_loopback(host), |address| address.is_loopback()))
        }
        None => {
            (address.map(|a| a.to_string()).unwrap_or_default(), address.is_some_and(|a| a.is_loopback()))
        }
    };
    let is_unix = matches!(host, Some(Host::Unix(_)));
    // "prefer", the default, gives no guarantee: it means TLS where other machines can read the connection.
    let mode = match given.get_ssl_mode() {
        _ if is_unix => SslMode::Disable,
        SslMode::Prefer if is_local => SslMode::Disable,
        SslMode::Prefer => SslMode::Require,
        given => given,
    };
    config.port(port).ssl_mode(mode).ssl_negotiation(given.get_ssl_negotiation());
    config.channel_binding(given.get_channel_binding());
    config.connect_timeout(options.call_timeout).tcp_user_timeout(options.call_timeout);
    config.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_IDLE);
    config.application_name(given.get_application_name().unwrap_or("ropewalk"));
    if let Some(address) = address {
        config.hostaddr(address);
    }
    if let Some(user) = given.get_user() {
        config.user(user);
    }
    if let Some(password) = given.get_password() {
        config.password(password);
    }
    if let Some(database) = given.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = given.get_options() {
        config.options(options);
    }
    Server { name: format!("{name}:{port}"), config, is_exposed: !is_local && mode == SslMode::Disable }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(connection: &str) -> Vec<Server> {
        parse(connection, &PostgresOptions::default()).unwrap()
    }

    #[test]
    fn given_user_comes_before_the_one_of_the_connection_string() {
        let user = Some(("bob".to_owned(), "word".to_owned()));
        let options = PostgresOptions { user, ..PostgresOptions::default() };
        let servers = parse("postgres://ann:secret@a/d", &options).unwrap();
        assert_eq!(servers[0].config.get_user(), Some("bob"));
        assert_eq!(servers[0].config.get_password(), Some(b"word".as_slice()));
    }

    #[test]
    fn each_host_becomes_a_server() {
        let servers = parsed("host=a,b port=1,2 user=ann password=secret dbname=d");
        assert_eq!(servers.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a:1", "b:2"]);
        for server in &servers {
            assert_eq!((server.config.get_user(), server.config.get_dbname()), (Some("ann"), Some("d")));
            assert_eq!(server.config.get_password(), Some(b"secret".as_slice()));
            assert_eq!(server.config.get_hosts().len(), 1);
        }
        assert_eq!(parsed("postgres://ann@a,b:7/d").len(), 2);
        assert_eq!(parsed("host=/run/p")[0].name, "/run/p:5432");
        assert_eq!(parsed("hostaddr=10.0.0.1")[0].name, "10.0.0.1:5432");
    }

    #[test]
    fn connection_to_another_machine_needs_tls_unless_disabled() {
        let mode = |connection| parsed(connection)[0].config.get_ssl_mode();
        assert_eq!(mode("host=db.example"), SslMode::Require);
        assert_eq!(mode("host=db.example sslmode=prefer"), SslMode::Require);
        assert_eq!(mode("host=localhost hostaddr=10.0.0.1"), SslMode::Require);
        assert_eq!(mode("host=db.example sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("host=127.0.0.1"), SslMode::Disable);
        assert_eq!(mode("host=localhost sslmode=require"), SslMode::Require);
        assert_eq!(mode("host=/run/p sslmode=require"), SslMode::Disable);
        assert!(parsed("host=db.example sslmode=disable")[0].is_exposed);
        assert!(!parsed("host=127.0.0.1 sslmode=disable")[0].is_exposed);
    }

    #[test]
    fn unusable_settings_are_rejected_without_the_password() {
        let cause = |connection: &str, shard: &str| {
            let options = PostgresOptions { shard: shard.to_owned(), ..PostgresOptions::default() };
            match parse(connection, &options) {
                Err(PostgresOpenError::Configuration { cause }) => cause,
                other => panic!("{connection}: {:?}", other.map(|servers| servers.len())),
            }
        };
        assert!(cause("user=ann", "s").contains("no host"));
        assert!(cause("host=a,b,c port=1,2", "s").contains("2 ports"));
        assert!(cause("host=a,b hostaddr=10.0.0.1", "s").contains("1 addresses"));
        assert!(cause("host=a sslmode=verify-ca password=secret", "s").contains("sslmode"));
        assert!(!cause("host=a sslmode=verify-ca password=secret", "s").contains("secret"));
        assert!(cause("host=a", "").contains("name"));
        assert!(cause("host=a", &"x".repeat(101)).contains("100 bytes"));
    }
}
