//! Read and write concerns of a command: checked, and applied to reads and commits.

use ropewalk::documents::lang::Value;
use ropewalk::{Durability, Seq, Snapshot};

use crate::call::Call;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::Request;

/// Accepted fields of a read concern.
const READ_CONCERN: &[&str] = &["level", "afterClusterTime", "atClusterTime", "provenance"];
const WRITE_CONCERN: &[&str] = &["w", "j", "wtimeout", "fsync", "provenance"];

impl<'a> Call<'a> {
    /// Rejects invalid read and write concerns.
    ///
    /// # Errors
    /// The field and its value.
    pub(crate) fn check_concerns(&self) -> Outcome<()> {
        if let Some(concern) = self.args.document("readConcern")? {
            let concern = Args::statement("readConcern", concern, READ_CONCERN)?;
            let level = concern.text("level")?.unwrap_or("local");
            if !["local", "available", "majority", "linearizable", "snapshot"].contains(&level) {
                let message = format!(
                    "Enumeration value '{level}' for field 'readConcern.level' is not a valid value."
                );
                return Err(Failure::new(Code::BadValue, message));
            }
            let newest = self.shared.service.database().seq().0;
            // A member of a set waits for the time, which another member may have.
            if let Some(Value::Timestamp(after)) = concern.get("afterClusterTime")
                && after > newest
                && self.shared.service.cluster().is_none()
            {
                let message = "readConcern afterClusterTime lies in the future of this server";
                return Err(Failure::new(Code::InvalidOptions, message));
            }
            if concern.get("atClusterTime").is_some() && (level != "snapshot" || self.in_transaction) {
                let message =
                    "atClusterTime is only allowed with readConcern level 'snapshot' outside of transactions";
                return Err(Failure::new(Code::InvalidOptions, message));
            }
        }
        if let Some(concern) = self.args.document("writeConcern")? {
            let concern = Args::statement("writeConcern", concern, WRITE_CONCERN)?;
            match concern.get("w") {
                None | Some(Value::String(_)) => {}
                Some(w) if matches!(w.as_integer(), Some(0..=50)) => {}
                Some(w) => {
                    let message = "w has to be a non-negative number and not greater than 50; found: ";
                    return Err(Failure::new(Code::FailedToParse, format!("{message}{w}")));
                }
            }
            concern.flag("j")?;
        }
        Ok(())
    }

    /// When a write is acknowledged: once it is durable, unless the client says that it need not be.
    pub(crate) fn durability(&self) -> Durability {
        let concern = self.args.get("writeConcern").and_then(Value::as_document);
        let says = |field: &str| concern.and_then(|concern| concern.get(field));
        let unjournaled = says("j").is_some_and(|j| !j.is_truthy());
        let unacknowledged = says("w").and_then(Value::as_integer) == Some(0);
        let majority = says("w").and_then(Value::as_str) == Some("majority");
        if (unjournaled && !majority) || unacknowledged { Durability::Buffered } else { Durability::Sync }
    }

    /// The level of the read concern, if one is named.
    pub(crate) fn read_level(&self) -> Option<&'a str> {
        let concern = self.args.get("readConcern").and_then(Value::as_document);
        concern.and_then(|concern| concern.get("level")).and_then(Value::as_str)
    }

    /// The commit that the read has to see.
    pub(crate) fn after_cluster_time(&self) -> Option<Seq> {
        let concern = self.args.get("readConcern").and_then(Value::as_document);
        match concern.and_then(|concern| concern.get("afterClusterTime")) {
            Some(Value::Timestamp(after)) => Some(Seq(after)),
            _ => None,
        }
    }

    /// True when the client lets a member other than the primary serve its reads.
    pub(crate) fn allows_secondary(&self) -> bool {
        let preference = self.args.get("$readPreference").and_then(Value::as_document);
        let mode = preference.and_then(|preference| preference.get("mode")).and_then(Value::as_str);
        mode.is_some_and(|mode| mode != "primary")
    }

    /// `readConcern: { level: "snapshot" }` outside of a transaction: the reply contains the snapshot time.
    pub(crate) fn wants_snapshot_time(&self) -> bool {
        !self.in_transaction && self.read_level() == Some("snapshot")
    }

    /// The current snapshot, or the one that the read concern names.
    ///
    /// # Errors
    /// `SnapshotTooOld`: the snapshot is no longer held.
    pub(crate) fn snapshot(&self) -> Outcome<Snapshot> {
        let concern = self.args.get("readConcern").and_then(Value::as_document);
        match concern.and_then(|concern| concern.get("atClusterTime")) {
            Some(Value::Timestamp(at)) => self.shared.snapshots.at(Seq(at)),
            _ => {
                let snapshot = self.shared.service.database().snapshot();
                if self.wants_snapshot_time() {
                    self.shared.snapshots.keep(snapshot.clone());
                }
                Ok(snapshot)
            }
        }
    }
}

/// The write concern error of a completed write that requested more members than exist.
pub(crate) fn unsatisfied(request: &Request, all_members: usize) -> Option<Failure> {
    let concern = request.body().get("writeConcern")?.as_document()?;
    match concern.get("w")? {
        Value::String("majority") => None,
        Value::String(mode) => {
            let message = format!("No write concern mode named '{mode}' found in replica set configuration");
            Some(Failure::new(Code::UnknownReplWriteConcern, message))
        }
        // The shared log has each write on a majority of its servers before a member confirms it.
        w if w.as_integer().is_some_and(|members| members > 1 && members > all_members as i64) => {
            Some(Failure::new(Code::UnsatisfiableWriteConcern, "Not enough data-bearing nodes"))
        }
        _ => None,
    }
}
