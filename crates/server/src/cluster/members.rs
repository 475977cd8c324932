//! The nodes that have joined: followers report to the leader, which stores their addresses in the database.
//!
//! ```text
//! follower ── POST /v1/cluster/members, with the secret ─▶ leader ─▶ sys.cluster ─▶ every node, by the shared log
//!
//! sys.cluster    m name    addresses as text
//!                s         the secret, in hexadecimal digits: a node has it once it follows
//! ```
//! How far a follower is remains in the memory of the leader.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use ropewalk::engine::WatchMark;
use ropewalk::hooks::{WatchedKeyspace, hex};
use ropewalk::{Database, Durability, Isolation, Seq};
use ropewalk_http_kit::leader::ToLeader as _;
use ropewalk_wire::{
    Cluster as _, Code, Member, MemberReport, NodeAddresses, Service, TakenReport, WireError,
};
use serde::Deserialize;

use crate::cluster::forward::Forward;
use crate::cluster::identity::random;
use crate::cluster::view::View;

const KEYSPACE: &str = "sys.cluster";
const MEMBERS: &[u8] = b"m";
const SECRET: &[u8] = b"s";
/// Header with the secret.
const SECRET_HEADER: &str = "ropewalk-cluster-secret";
/// Header with the hashes of the node's contents.
const HASHES_HEADER: &str = "ropewalk-cluster-hashes";
/// Digits of a node's name.
const NAME_DIGITS: usize = 32;
/// Most nodes.
const MEMBERS_MAX: usize = 256;
/// Attempts to remove a member while others change.
const REMOVE_ATTEMPTS: usize = 100;
/// Pause between two reports of a follower.
const REPORT_PAUSE: Duration = Duration::from_secs(2);
/// A node whose last report is older does not run, or reaches no leader.
pub(super) const LIVE_TIME: Duration = Duration::from_secs(6);
/// Time for one report.
const REPORT_TIME: Duration = Duration::from_secs(5);
/// Most bytes of the answer to a report.
const ANSWER_BYTES_MAX: usize = 1 << 10;

/// Names and addresses, by name.
type Known = Arc<Vec<(String, NodeAddresses)>>;

/// The members of a cluster.
pub(super) struct Members {
    stored: WatchedKeyspace,
    known: RwLock<(Known, Option<WatchMark>)>,
    /// The last reports to this node.
    heard: Mutex<HashMap<String, (Seq, Instant)>>,
}

impl Members {
    /// The members that `db` has.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) fn new(db: &Database) -> Result<Self, ropewalk::Error> {
        let stored = WatchedKeyspace::new(db.system_keyspace(KEYSPACE)?);
        let mark = stored.mark(db);
        let known = RwLock::new((load(db, &stored)?, mark));
        Ok(Self { stored, known, heard: Mutex::default() })
    }

    /// The members as of the newest visible commit.
    fn known(&self, db: &Database) -> Known {
        let (known, mark) = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        if self.stored.is_current(db, mark) {
            return known;
        }
        let mark = self.stored.mark(db);
        match load(db, &self.stored) {
            Ok(known) => {
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = (known.clone(), mark);
                known
            }
            Err(error) => {
                tracing::error!(%error, "the members of the cluster cannot be read");
                known
            }
        }
    }

    /// The members, with their reports if this node leads.
    pub(super) fn list(&self, db: &Database, leads: bool) -> Vec<Member> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let member = |(node, addresses): &(String, NodeAddresses)| {
            let report = heard.get(node).filter(|_| leads);
            Member {
                node: node.clone(),
                addresses: addresses.clone(),
                seq: report.map(|(seq, _)| *seq),
                heard: report.map(|(_, at)| at.elapsed()),
            }
        };
        self.known(db).iter().map(member).collect()
    }

    /// Notes a report; stores the member if it is new or has moved.
    ///
    /// # Errors
    /// A name that no node has; too many members; errors of the database.
    pub(super) fn take(&self, db: &Database, report: MemberReport) -> Result<(), WireError> {
        let MemberReport { node, addresses, seq, .. } = report;
        if node.len() != NAME_DIGITS || !node.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(WireError::invalid("the name of a node has 32 hexadecimal digits"));
        }
        let known = self.known(db);
        let stored = known.iter().find(|(name, _)| *name == node);
        if stored.is_none() && known.len() >= MEMBERS_MAX {
            return Err(WireError::exhausted(format!(
                "the cluster has {MEMBERS_MAX} members, and no more join"
            )));
        }
        if stored.is_none_or(|(_, known)| *known != addresses) {
            tracing::info!(node, %addresses, "a node has joined, or has moved");
            let key = [MEMBERS, node.as_bytes()].concat();
            let keyspace = self.stored.to_write(db)?;
            db.put(keyspace, &key, addresses.to_string().as_bytes(), Durability::Sync)?;
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(node, (seq, Instant::now()));
        Ok(())
    }

    /// Checks that a node does not run, as far as this leader knows.
    ///
    /// # Errors
    /// It has reported to this leader lately.
    pub(super) fn check_silent(&self, node: &str) -> Result<(), WireError> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match heard.get(node).map(|(_, at)| at.elapsed()).filter(|age| *age < LIVE_TIME) {
            None => Ok(()),
            Some(age) => {
                let what = format!("node {node} has reported {} ms ago; stop it first", age.as_millis());
                Err(WireError::exhausted(what))
            }
        }
    }

    /// Removes a node; returns its addresses if it was a member.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) fn remove(&self, db: &Database, node: &str) -> Result<Option<NodeAddresses>, WireError> {
        let keyspace = self.stored.to_write(db)?;
        let key = [MEMBERS, node.as_bytes()].concat();
        let removed = db.transact(Isolation::Serializable, REMOVE_ATTEMPTS, |tx| {
            let stored = tx.get(keyspace, &key)?;
            if stored.is_some() {
                tx.delete(keyspace, &key);
            }
            Ok::<_, ropewalk::Error>(stored)
        })?;
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
        let addresses =
            |text: Vec<u8>| NodeAddresses::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
        Ok(removed.map(addresses))
    }

    /// Makes the secret, unless there is one.
    ///
    /// # Errors
    /// Errors of the database; the system has no random bytes.
    pub(super) fn make_secret(&self, db: &Database) -> Result<(), WireError> {
        let keyspace = self.stored.to_write(db)?;
        if self.secret(db)?.is_none() {
            let secret = random::<32>().map_err(|error| WireError::new(Code::Internal, error.to_string()))?;
            db.put(keyspace, SECRET, hex(&secret).as_bytes(), Durability::Sync)?;
        }
        Ok(())
    }

    /// The secret, once a leader has made it and this node has followed so far.
    fn secret(&self, db: &Database) -> Result<Option<String>, WireError> {
        let Some(keyspace) = self.stored.to_read(db) else { return Ok(None) };
        let snapshot = db.snapshot();
        let stored = snapshot.get(keyspace, SECRET)?;
        Ok(stored.map(|secret| String::from_utf8_lossy(&secret).into_owned()))
    }

    /// True if `given` is the secret. Takes the same time wherever the two differ.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) fn is_secret(&self, db: &Database, given: &str) -> Result<bool, WireError> {
        let Some(secret) = self.secret(db)? else { return Ok(false) };
        let differences = secret.bytes().zip(given.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        Ok(secret.len() == given.len() && differences == 0)
    }
}

fn load(db: &Database, stored: &WatchedKeyspace) -> Result<Known, ropewalk::Error> {
    let Some(keyspace) = stored.to_read(db) else { return Ok(Known::default()) };
    let snapshot = db.snapshot();
    let mut cursor = snapshot.cursor(keyspace);
    let mut known = Vec::new();
    cursor.seek(MEMBERS)?;
    while cursor.valid() {
        let Some(node) = cursor.key().strip_prefix(MEMBERS) else { break };
        let addresses =
            std::str::from_utf8(cursor.value()).ok().and_then(|text| NodeAddresses::parse(text).ok());
        if let Some(addresses) = addresses {
            known.push((String::from_utf8_lossy(node).into_owned(), addresses));
        }
        cursor.next()?;
    }
    Ok(known.into())
}

#[derive(Deserialize)]
struct Answer {
    seq: u64,
    /// Absent in the answer of an earlier version.
    #[serde(default)]
    differs: bool,
}

/// Reports to the leader for as long as this node follows; ends when it leads, or the server stops.
pub(super) async fn report(service: Service, view: Arc<View>, forward: Arc<Forward>) {
    let mut failed = String::new();
    loop {
        tokio::select! {
            _ = service.until_leading() => return,
            () = tokio::time::sleep(REPORT_PAUSE) => {}
        }
        let reported = tokio::time::timeout(REPORT_TIME, once(&view, &forward)).await;
        let why = reported.unwrap_or_else(|_| Err(format!("no answer within {REPORT_TIME:?}"))).err();
        // Each reason once: during an election there is one for every report.
        match why {
            Some(why) if why != failed => {
                tracing::debug!(why, "the leader has not taken the report of this node");
                failed = why;
            }
            Some(_) => {}
            None => failed.clear(),
        }
    }
}

/// Sends one report.
async fn once(view: &View, forward: &Forward) -> Result<(), String> {
    let secret = view.members.secret(view.database()).map_err(|error| error.to_string())?;
    let Some(secret) = secret else { return Err("this node does not have the secret yet".to_owned()) };
    let leader = view.leader().ok_or("no leader is known")?;
    let leader = leader.http().ok_or("the leader advertises no HTTP address")?;
    let MemberReport { node, addresses, seq, hashes } = view.own_report();
    let body = serde_json::json!({ "node": node, "addresses": addresses.to_string(), "seq": seq.0 });
    let mut request = Request::builder()
        .method(Method::POST)
        .uri("/v1/cluster/members")
        .header(CONTENT_TYPE, "application/json")
        .header(SECRET_HEADER, secret);
    if let Some(hashes) = hashes {
        request = request.header(HASHES_HEADER, hashes);
    }
    let request = request.body(Body::from(body.to_string())).map_err(|error| error.to_string())?;
    let response = forward.send(leader, request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let answer = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)));
    }
    let Answer { seq, differs } = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
    view.leader_has(TakenReport { seq: Seq(seq), differs });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: char, address: &str) -> MemberReport {
        let addresses = NodeAddresses::parse(address).unwrap();
        MemberReport { node: node.to_string().repeat(NAME_DIGITS), addresses, seq: Seq(3), hashes: None }
    }

    #[test]
    fn members_are_stored_once_and_follow_their_addresses() {
        let db = Database::in_memory().unwrap();
        let members = Members::new(&db).unwrap();
        assert!(members.list(&db, true).is_empty());
        members.take(&db, report('a', "http://a:1")).unwrap();
        let seq = db.seq();
        members.take(&db, report('a', "http://a:1")).unwrap();
        assert_eq!(db.seq(), seq, "nothing has changed");
        members.take(&db, report('b', "http://b:1")).unwrap();
        members.take(&db, report('a', "http://a:2")).unwrap();
        let listed = |leads| members.list(&db, leads);
        let addresses: Vec<_> = listed(true).iter().map(|member| member.addresses.to_string()).collect();
        assert_eq!(addresses, ["http://a:2", "http://b:1"]);
        assert_eq!((listed(true)[0].seq, listed(false)[0].seq), (Some(Seq(3)), None));
        let again = Members::new(&db).unwrap();
        assert_eq!(again.list(&db, false), listed(false));
        let mut wrong = report('a', "http://a:1");
        wrong.node = "../x".to_owned();
        assert_eq!(members.take(&db, wrong).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn removed_member_is_gone_on_every_node_and_may_join_again() {
        let db = Database::in_memory().unwrap();
        let members = Members::new(&db).unwrap();
        let name = 'b'.to_string().repeat(NAME_DIGITS);
        members.take(&db, report('a', "http://a:1")).unwrap();
        members.take(&db, report('b', "http://b:1")).unwrap();
        assert_eq!(members.check_silent(&name).unwrap_err().code, Code::ResourceExhausted);
        members.check_silent(&'c'.to_string().repeat(NAME_DIGITS)).unwrap();
        let removed = members.remove(&db, &name).unwrap().unwrap();
        assert_eq!(removed.to_string(), "http://b:1");
        assert_eq!(members.remove(&db, &name).unwrap(), None);
        members.check_silent(&name).unwrap();
        assert_eq!(members.list(&db, true).len(), 1);
        assert_eq!(Members::new(&db).unwrap().list(&db, false).len(), 1);
        members.take(&db, report('b', "http://b:2")).unwrap();
        assert_eq!(members.list(&db, true).len(), 2);
    }

    #[test]
    fn secret_is_made_once_and_compared_whole() {
        let db = Database::in_memory().unwrap();
        let members = Members::new(&db).unwrap();
        assert!(!members.is_secret(&db, "").unwrap());
        members.make_secret(&db).unwrap();
        let secret = members.secret(&db).unwrap().unwrap();
        members.make_secret(&db).unwrap();
        assert_eq!(members.secret(&db).unwrap().as_deref(), Some(secret.as_str()));
        assert!(members.is_secret(&db, &secret).unwrap());
        for wrong in ["", &secret[1..], &format!("{secret}0"), &secret.replace(&secret[..1], "x")] {
            assert!(!members.is_secret(&db, wrong).unwrap(), "{wrong}");
        }
    }
}
