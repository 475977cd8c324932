//! `ropewalk demo --cluster`: three nodes over three servers of NATS, of which the leader is killed and the next one halted.
//!
//! ```text
//! 1 log servers and nodes ─▶ 2 one transaction over four models, by any node ─▶ 3 SIGKILL of the leader while clients sell
//!             ─▶ 4 SIGSTOP of the next leader ─▶ 5 every node has every acknowledged sale, and the same contents
//! ```

mod contents;
mod http;
mod log_servers;
mod nodes;
mod processes;
mod sales;
mod waiting;

use std::path::Path;
use std::time::{Duration, Instant};

use self::contents::Contents;
use self::log_servers::LogServers;
use self::nodes::{LEASE, Nodes};
use self::sales::Sales;
use self::waiting::{note_signals, until, until_signalled};
use super::SHOP;
use super::clients::{Clients, connect, quoted};
use super::load::{now_ms, sale};
use super::story::Story;
use crate::output::cell::thousands;
use crate::output::failure::{Exit, Failure, Result};

/// Runs the demo with all files in `place`.
pub(super) fn demo(place: &Path, is_temporary: bool, python: &str, once: bool) -> Result {
    let started = Instant::now();
    note_signals()?;
    let mut stage = Stage::open(place, python)?;
    stage.transaction()?;
    stage.kill()?;
    stage.halt()?;
    stage.compare()?;
    stage.story.say(&format!("Every check held. The demo took {:.1} s.", started.elapsed().as_secs_f64()))?;
    if !once {
        stage.stay(place, is_temporary)?;
    }
    Ok(())
}

/// The cluster, its clients, and the text about them.
struct Stage {
    story: Story,
    clients: Clients,
    nodes: Nodes,
    sales: Sales,
    /// Documents that are no sales.
    other_documents: u64,
}

impl Stage {
    /// Chapter 1: the log service and the nodes.
    fn open(place: &Path, python: &str) -> Result<Self> {
        let (mut story, clients) = (Story::new(), Clients::find(python)?);
        story.title(
            "Ropewalk demo of a cluster",
            "Three nodes, one log in three servers of NATS. Lines after a $ are commands that you can repeat.",
        )?;
        story.chapter("Three log servers and three nodes")?;
        let program = log_servers::program(&mut story, &clients, python, place)?;
        story.command(&format!("alias ropewalk={}", quoted(clients.program.display())))?;
        for number in 1..=log_servers::SERVERS {
            let configuration = place.join(format!("nats{number}.conf"));
            story.command(&format!(
                "{} -c {}",
                quoted(program.display()),
                quoted(configuration.display())
            ))?;
        }
        let begun = Instant::now();
        let log = LogServers::start(&program, place)?;
        let url = log.url.clone();
        let nodes = Nodes::start(log, place, &clients)?;
        for node in &nodes.all {
            story.command(&node.command())?;
        }
        let leader = nodes.node(nodes.leader()?)?;
        story.say(&format!(
            "Ready after {:.1} s: {} leads. The shared log is {url}. A follower tries to lead after {LEASE} without an \
             entry; the default of cluster.lease is 3s.",
            begun.elapsed().as_secs_f64(),
            leader.name,
        ))?;
        let mut stage = Self { story, clients, nodes, sales: Sales::default(), other_documents: 0 };
        stage.status()?;
        Ok(stage)
    }

    /// Chapter 2: all models in one transaction, sent to a follower.
    fn transaction(&mut self) -> Result {
        self.story.chapter("One transaction over four models, at any node")?;
        let leader = self.nodes.leader()?;
        let [table, row, ..] = SHOP;
        let at = self.nodes.node(leader)?.at.clone();
        self.run(&self.clients.sql(&at, &[table, row]))?;
        self.story.say(
            "A sale is an event, a row, a document and a sample. It is sent to a follower, which sends it to the \
             leader. It is acknowledged after a majority of the log servers has synced it.",
        )?;
        let follower = self.nodes.node((leader + 1) % self.nodes.all.len())?.at.clone();
        let (began, order) = (Instant::now(), "curl-1");
        let body = sale(order, "curl", now_ms());
        let command = Clients::curl(&follower, Some(order), &body);
        self.story.command(&command)?;
        let response = match self.clients.has_curl {
            true => self.clients.shell(&command)?,
            false => connect(&follower.http)?.transact(Some(order), &body)?.to_string(),
        };
        self.story.output(&response)?;
        self.story.check(
            response.contains("\"repeated\":false"),
            "a follower accepts a transaction over four models",
        )?;
        self.sales.add(order.to_owned(), began);
        self.drivers()
    }

    /// Chapter 3: SIGKILL of the leader, which then starts again.
    fn kill(&mut self) -> Result {
        self.story.chapter("SIGKILL of the leader while clients sell")?;
        let (leader, before) = (self.nodes.leader()?, self.sales.count());
        let others = self.nodes.except(leader);
        let (story, nodes, sales) = (&mut self.story, &mut self.nodes, &self.sales);
        story.say(
            "A client at each other node sells a rope every few milliseconds, and repeats a sale that fails.",
        )?;
        let gap = sales.during("killed", &others, || {
            let node = nodes.node_mut(leader)?;
            story.command(&format!("kill -9 {}", node.process.id()))?;
            node.process.kill()?;
            // The process has ended: no later sale can be acknowledged by it.
            let gap = sales.gap(Instant::now())?;
            story.command(&node.command())?;
            node.restart()?;
            Ok(gap)
        })?;
        self.after(gap, before)?;
        self.drivers()
    }

    /// Chapter 4: SIGSTOP of the leader for longer than its lease.
    fn halt(&mut self) -> Result {
        self.story.chapter("SIGSTOP of the next leader")?;
        self.story.say(
            "A halted process believes that it leads when it continues, as after a pause of a virtual machine. The \
             log rejects its appends, and it follows.",
        )?;
        let (leader, before) = (self.nodes.leader()?, self.sales.count());
        let others = self.nodes.except(leader);
        let (story, nodes, sales, clients) = (&mut self.story, &self.nodes, &self.sales, &self.clients);
        let node = nodes.node(leader)?;
        let gap = sales.during("halted", &others, || {
            let mut signal = |name: &str| {
                let command = format!("kill -s {name} {}", node.process.id());
                story.command(&command)?;
                clients.shell(&command)
            };
            signal("STOP")?;
            let gap = sales.gap(Instant::now())?;
            signal("CONT")?;
            until("the halted node follows", || {
                Ok(node.status().filter(|status| status.role == "follower").map(drop))
            })?;
            Ok(gap)
        })?;
        self.after(gap, before)?;
        self.story.say(&format!("{} follows.", self.nodes.node(leader)?.name))?;
        self.status()
    }

    /// Prints a gap, and who leads after it.
    fn after(&mut self, gap: Duration, before: usize) -> Result {
        let leader = self.nodes.leader()?;
        let sales = thousands(self.sales.count().saturating_sub(before) as u64);
        self.story.say(&format!(
            "No sale was acknowledged for {:.2} s; then {} led. {sales} sales were acknowledged.",
            gap.as_secs_f64(),
            self.nodes.node(leader)?.name,
        ))
    }

    /// Chapter 5: every node has every acknowledged sale in each model, and the same contents.
    fn compare(&mut self) -> Result {
        self.story.chapter("Every acknowledged sale on every node")?;
        self.story.say(
            "A linearizable read contains every sale that was acknowledged before it, on any node. Its response has \
             the number of the newest commit, for which the other nodes then wait.",
        )?;
        let follower = self.nodes.node((self.nodes.leader()? + 1) % self.nodes.all.len())?;
        let found = until("no commit between the reads of all nodes", || {
            let read = |seq| self.nodes.all.iter().map(move |node| Contents::read(node, seq));
            match contents::newest(follower).and_then(|seq| read(seq).collect::<Result<Option<Vec<_>>>>()) {
                // A node that has lost the leadership opens its database again, with closed ports.
                Err(Failure::Said { exit: Exit::Io, .. }) => Ok(None),
                found => found,
            }
        })?;
        let row = |(node, has): (&nodes::Node, &Contents)| {
            let counts = [has.seq, has.events, has.sold, has.documents, has.samples].map(thousands);
            let [seq, events, sold, documents, samples] = counts;
            [node.name.clone(), seq, events, sold, documents, samples, has.digest()]
        };
        let table: Vec<_> = self.nodes.all.iter().zip(&found).map(row).collect();
        let header = ["node", "newest commit", "events", "sold by the row", "documents", "samples", "digest"];
        self.story.table(&header, &table)?;
        let (sales, orders) = (self.sales.count() as u64, self.sales.orders());
        let has_all = |has: &Contents| {
            let documents = sales + self.other_documents;
            has.orders == orders
                && [has.events, has.sold, has.samples] == [sales; 3]
                && has.documents == documents
        };
        let exact =
            format!("each of {} acknowledged sales is on every node, once in each model", thousands(sales));
        self.story.check(found.iter().all(has_all), &exact)?;
        let are_equal = found.iter().all(|has| Some(has) == found.first());
        self.story.check(are_equal, "all nodes have the same newest commit and the same contents")
    }

    /// Prints commands to type next, and waits for a signal.
    fn stay(mut self, place: &Path, is_temporary: bool) -> Result {
        self.story.chapter("Your turn: the cluster runs until Ctrl-C")?;
        let leader = self.nodes.node(self.nodes.leader()?)?;
        let each =
            |url: fn(&nodes::Node) -> String| self.nodes.all.iter().map(url).collect::<Vec<_>>().join(" ");
        let http = leader.at.http.clone();
        let events = "-H 'Ropewalk-Read: linearizable'";
        let lines = [
            ("Nodes", each(|node| format!("{} (process {})", node.name, node.process.id()))),
            ("Console", each(|node| format!("http://{}/", node.at.http))),
            (
                "HTTP",
                format!("curl -s 'http://{http}/v1/stores/shop/events?backwards=true&limit=1' {events}"),
            ),
            ("PromQL", self.clients.promql(&leader.at, "sum(count_over_time(ropes_sold[1h]))")),
            ("PostgreSQL", format!("psql {} -c 'SELECT * FROM stock'", self.nodes.psql())),
            ("MongoDB", format!("mongosh '{}' --eval 'db.hello()'", self.nodes.mongo())),
            ("gRPC", each(|node| format!("grpcurl -plaintext {} list;", node.at.grpc))),
            ("ropewalk", format!("ropewalk cluster status --at http://{http}")),
            ("step down", format!("ropewalk cluster step-down --at http://{http}")),
            ("fail over", format!("kill -9 {}", leader.process.id())),
            ("and back", leader.command()),
            ("files", quoted(place.display())),
        ];
        for (name, text) in &lines {
            self.story.line(&format!("{name:<10}  {text}"))?;
        }
        if is_temporary {
            self.story.say("Ctrl-C also removes the files; with --at DIR they are retained.")?;
        }
        until_signalled();
        Ok(())
    }

    /// Writes through psql and pymongo, which find the leader among all nodes.
    fn drivers(&mut self) -> Result {
        let number = self.other_documents + 1;
        if self.clients.has_psql {
            let sql = format!("INSERT INTO stock VALUES ('twine{}', 0)", self.sales.count());
            self.run(&format!("psql {} -v ON_ERROR_STOP=1 -XAt \\\n  -c \"{sql}\"", self.nodes.psql()))?;
        }
        if self.clients.has_pymongo {
            self.run(&format!(
                "{} -c \"import pymongo; print(pymongo.MongoClient('{}') \\\n  \
                 .shop.orders.insert_one({{'_id': 'pymongo-{number}', 'buyer': 'pymongo'}}))\"",
                self.clients.python,
                self.nodes.mongo(),
            ))?;
            self.other_documents = number;
        }
        Ok(())
    }

    /// Prints the state of the cluster.
    fn status(&mut self) -> Result {
        let http = self.nodes.node(self.nodes.leader()?)?.at.http.clone();
        self.run(&format!("ropewalk cluster status --at http://{http}")).map(drop)
    }

    /// Prints a command, runs it in a shell, and prints its output.
    fn run(&mut self, command: &str) -> Result<String> {
        self.clients.run(command, &mut self.story)
    }
}
