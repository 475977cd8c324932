//! The database of a server: commands as HTTP requests.
//!
//! ```text
//! --at URL, or a directory that a server holds ─▶ endpoint ─▶ client ─▶ Remote ─▶ the same rows as from files
//! ```

mod accounts;
mod client;
mod cluster;
mod endpoint;
mod problem;
mod shape;

use hyper::Method;
use ropewalk::events::{Appended, ReadOptions, SequencedEvent};
use ropewalk::groups::GroupSettings;
use ropewalk::{AppendOptions, Event, Position, Query, Seq};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use self::client::Client;
pub(crate) use self::cluster::{Contents, SteppedDown};
pub(crate) use self::endpoint::{Endpoint, Secrets, Url, is_served};
use self::shape::{
    AppendBody, AppendedAnswer, ChangeLine, Count, EventLine, Exists, GroupBody, Head, ListAnswer,
    ParkedAnswer, ParkedEvent, PositionsBody, QueryBody, ReadBody, SettledAnswer, TrackingAnswer,
};
pub(crate) use self::shape::{BackupAnswer, StatsAnswer};
use crate::database::listed::{ListedCommit, ListedGroup, ListedParked, ListedStore};
use crate::output::failure::{Failure, Result};

/// No body.
const NOTHING: Option<&()> = None;

/// A server, connected.
pub(crate) struct Remote {
    client: Client,
}

impl Remote {
    pub(crate) fn connect(endpoint: Endpoint, secrets: Secrets) -> Result<Self> {
        Ok(Self { client: Client::connect(endpoint, secrets)? })
    }

    /// Runs SQL statements.
    pub(crate) fn sql<A: DeserializeOwned>(&self, text: &str) -> Result<A> {
        self.client.ask(Method::POST, "/v1/sql", Some(&serde_json::json!({ "sql": text })))
    }

    /// Runs a transaction over all models, whose JSON is `body`. With a key it takes effect once.
    pub(crate) fn transact(&self, key: Option<&str>, body: &str) -> Result<serde_json::Value> {
        // As it is: a repeated request has the same bytes.
        let body: &RawValue =
            serde_json::from_str(body).map_err(|error| Failure::invalid(error.to_string()))?;
        self.client.ask_once(Method::POST, "/v1/transactions", Some(&body), key)
    }

    pub(crate) fn append(&self, store: &str, events: &[Event], options: &AppendOptions) -> Result<Appended> {
        let body = AppendBody::new(events, options);
        let answer: AppendedAnswer = self.client.ask(Method::POST, &path(store, "events"), Some(&body))?;
        let position = |position: Option<u64>| Position(position.unwrap_or_default());
        Ok(Appended { first: position(answer.first), last: position(answer.last), seq: Seq(answer.seq) })
    }

    pub(crate) fn read(
        &self,
        store: &str,
        query: &Query,
        options: ReadOptions,
        mut visit: impl FnMut(SequencedEvent) -> Result,
    ) -> Result {
        let body = ReadBody::new(query, options);
        self.client.lines(Method::POST, &read_path(store, "events:query"), Some(&body), |line: EventLine| {
            visit(line.event()?)
        })
    }

    pub(crate) fn last(&self, store: &str, query: &Query) -> Result<Option<SequencedEvent>> {
        let mut last = None;
        self.read(store, query, ReadOptions::backwards().limit(1), |event| {
            last = Some(event);
            Ok(())
        })?;
        Ok(last)
    }

    pub(crate) fn count(&self, store: &str, query: &Query) -> Result<u64> {
        let body = QueryBody::new(query);
        Ok(self.client.ask::<Count>(Method::POST, &read_path(store, "events:count"), Some(&body))?.count)
    }

    pub(crate) fn exists(&self, store: &str, query: &Query) -> Result<bool> {
        let body = QueryBody::new(query);
        Ok(self.client.ask::<Exists>(Method::POST, &read_path(store, "events:exists"), Some(&body))?.exists)
    }

    pub(crate) fn head(&self, store: &str) -> Result<Option<Position>> {
        let head: Head = self.client.ask(Method::GET, &read_path(store, "head"), NOTHING)?;
        Ok(head.head.map(Position))
    }

    pub(crate) fn tracking(&self, store: &str, source: &str) -> Result<Option<u64>> {
        let path = read_path(store, &format!("tracking/{}", encode(source)));
        Ok(self.client.ask::<TrackingAnswer>(Method::GET, &path, NOTHING)?.position)
    }

    /// All entries of a list that comes page by page. `path` has a query string.
    fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let (mut all, mut page) = (Vec::new(), path.to_owned());
        loop {
            let answer: ListAnswer<T> = self.client.ask(Method::GET, &page, NOTHING)?;
            all.extend(answer.entries);
            let Some(next) = answer.next else { return Ok(all) };
            page = format!("{path}&after={}", encode(&next));
        }
    }

    pub(crate) fn stores(&self) -> Result<Vec<ListedStore>> {
        let mut stores: Vec<ListedStore> = self.list("/v1/stores?limit=1000")?;
        for store in &mut stores {
            store.newest = self.last(&store.name, &Query::all())?.map(|event| event.time_micros);
        }
        Ok(stores)
    }

    pub(crate) fn groups(&self, store: &str) -> Result<Vec<ListedGroup>> {
        self.list(&read_path(store, "groups"))
    }

    /// Returns the cursor of the group.
    pub(crate) fn create_group(
        &self,
        store: &str,
        name: &str,
        settings: &GroupSettings,
        after: Option<Position>,
    ) -> Result<u64> {
        let body = GroupBody::new(settings, after);
        let answer: ListedGroup = self.client.ask(Method::PUT, &group_path(store, name, ""), Some(&body))?;
        Ok(answer.cursor)
    }

    pub(crate) fn delete_group(&self, store: &str, name: &str) -> Result {
        self.client.act(Method::DELETE, &group_path(store, name, ""), NOTHING)
    }

    pub(crate) fn parked(
        &self,
        store: &str,
        name: &str,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<ListedParked>> {
        let after = after.map_or(0, |after| after.0);
        let path = group_path(store, name, &format!("/parked?after={after}&limit={limit}"));
        let answer: ParkedAnswer = self.client.ask(Method::GET, &path, NOTHING)?;
        let listed = answer.parked.into_iter().map(|one| {
            let ParkedEvent { position, event_type } = one.event;
            ListedParked { position, event_type, tries: one.tries, reason: one.reason }
        });
        Ok(listed.collect())
    }

    /// Replays or discards the given parked events, or all. Returns their number.
    pub(crate) fn settle_parked(
        &self,
        store: &str,
        name: &str,
        positions: &[u64],
        replays: bool,
    ) -> Result<u64> {
        let path = group_path(store, name, if replays { "/parked/replay" } else { "/parked/discard" });
        let body = PositionsBody { positions };
        Ok(self.client.ask::<SettledAnswer>(Method::POST, &path, Some(&body))?.done)
    }

    pub(crate) fn stats(&self) -> Result<StatsAnswer> {
        let mut all: StatsAnswer = self.client.ask(Method::GET, "/v1/stats", NOTHING)?;
        while let Some(next) = all.next.take() {
            let path = format!("/v1/stats?after={}", encode(&next));
            let page: StatsAnswer = self.client.ask(Method::GET, &path, NOTHING)?;
            all.keyspaces.extend(page.keyspaces);
            all.next = page.next;
        }
        Ok(all)
    }

    /// Requests a backup on the server, which chooses a name if `name` is `None`.
    pub(crate) fn backup(&self, name: Option<&str>) -> Result<BackupAnswer> {
        match name {
            Some(name) => self.client.ask(Method::PUT, &format!("/v1/backups/{}", encode(name)), NOTHING),
            None => self.client.ask(Method::POST, "/v1/backups", NOTHING),
        }
    }

    /// Sends a request to the Prometheus API; `value` is the last parameter of `path`.
    pub(crate) fn prometheus<A: DeserializeOwned>(&self, path: &str, value: &str) -> Result<A> {
        self.client.ask(Method::GET, &format!("/api/v1/{path}{}", encode(value)), NOTHING)
    }

    /// Visits the commits from `from` on, or the newest `last`; with `follow` without an end.
    pub(crate) fn changes(
        &self,
        from: Option<Seq>,
        last: u64,
        follow: bool,
        mut visit: impl FnMut(ListedCommit) -> Result,
    ) -> Result {
        let begin = from.map_or_else(|| format!("last={last}"), |from| format!("from={}", from.0));
        let path = format!("/v1/changes?{begin}&follow={follow}");
        self.client.lines(Method::GET, &path, NOTHING, |line: ChangeLine| visit(line.commit()?))
    }
}

fn path(store: &str, rest: &str) -> String {
    format!("/v1/stores/{}/{rest}", encode(store))
}

/// Same as [`path`], for a read that fails if the store does not exist, as in a directory.
fn read_path(store: &str, rest: &str) -> String {
    format!("{}?must_exist=true", path(store, rest))
}

fn group_path(store: &str, name: &str, rest: &str) -> String {
    path(store, &format!("groups/{}{rest}", encode(name)))
}

/// A name as one segment of a path.
fn encode(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
