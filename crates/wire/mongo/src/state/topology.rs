//! The replica set as this server shows it: its members, the primary, and a version that grows with each change.
//!
//! A server that is alone is the primary of a set without other members.

use ropewalk_wire::Cluster;

use crate::state::Shared;

/// Terms and members of a version, in one number.
const ROLES_PER_TERM: i64 = 2;
const MEMBERS_PER_ROLE: i64 = 1_000;

/// The replica set.
pub(crate) struct Topology {
    /// Address of this member, for its client.
    pub(crate) me: String,
    /// Addresses of all members.
    pub(crate) hosts: Vec<String>,
    /// Address of the primary, if one is known.
    pub(crate) primary: Option<String>,
    /// This member is the primary.
    pub(crate) is_primary: bool,
    /// The number of the primary, which grows with each election.
    pub(crate) term: u64,
    /// Lag of this member in milliseconds.
    pub(crate) lag_ms: i64,
}

impl Shared {
    fn cluster(&self) -> Option<&dyn Cluster> {
        self.service.cluster().map(|cluster| &**cluster)
    }

    /// The replica set for a client that has connected to the address `local`.
    pub(crate) fn topology(&self, local: Option<&str>) -> Topology {
        let announced = self.settings.announce.as_deref();
        let of_client = || local.unwrap_or("localhost:27017").to_owned();
        let Some(cluster) = self.cluster() else {
            let me = announced.map_or_else(of_client, str::to_owned);
            let (hosts, primary) = (vec![me.clone()], Some(me.clone()));
            return Topology { me, hosts, primary, is_primary: true, term: 1, lag_ms: 0 };
        };
        let status = cluster.status();
        // All members use the advertised addresses: clients compare them as text.
        let own = status.addresses.mongo().map(str::to_owned);
        let me = own.unwrap_or_else(|| announced.map_or_else(of_client, str::to_owned));
        let mut hosts: Vec<String> =
            status.members.iter().filter_map(|member| member.addresses.mongo().map(str::to_owned)).collect();
        if !hosts.contains(&me) {
            hosts.push(me.clone());
        }
        hosts.sort();
        let is_primary = self.service.database().leads();
        let leader = status.leader.as_ref().and_then(|leader| leader.mongo().map(str::to_owned));
        let primary = if is_primary { Some(me.clone()) } else { leader.filter(|leader| *leader != me) };
        let lag_ms = i64::try_from(status.lag.as_millis()).unwrap_or(i64::MAX);
        Topology { me, hosts, primary, is_primary, term: status.term, lag_ms }
    }

    /// Number of the state that [`Shared::topology`] shows; it grows while this process lasts.
    pub(crate) fn topology_version(&self) -> i64 {
        let Some(cluster) = self.cluster() else { return 0 };
        let term = i64::try_from(cluster.term()).unwrap_or(i64::MAX / ROLES_PER_TERM / MEMBERS_PER_ROLE / 2);
        let role = i64::from(self.service.database().leads());
        let members = i64::try_from(cluster.members().len()).unwrap_or(0).min(MEMBERS_PER_ROLE - 1);
        (term * ROLES_PER_TERM + role) * MEMBERS_PER_ROLE + members
    }

    /// Number of members that a write may be asked to reach.
    pub(crate) fn members(&self) -> usize {
        self.cluster().map_or(1, |cluster| cluster.members().len().max(1))
    }
}
