//! Connections that have not logged in, bounded for each client address.
//!
//! ```text
//! accepted ─▶ Newcomers::enter ─▶ Newcomer::scope(connection) ─▶ caller admitted ─▶ place released
//!               └─ None: too many of this address
//! ```
//! A connection counts until [`crate::Access`] admits its first caller, or until it ends. So the bound holds
//! for silent connections and wrong passwords, and not for pools of clients or for proxies, whose connections
//! carry credentials.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of one port that have not logged in, by address.
#[derive(Debug)]
pub struct Newcomers {
    /// Most of one address.
    max: u32,
    peers: Mutex<HashMap<IpAddr, u32>>,
}

/// The slot of one connection. Clones share the slot.
#[derive(Debug, Clone)]
pub struct Newcomer(Arc<Mutex<Option<Place>>>);

#[derive(Debug)]
struct Place {
    of: Arc<Newcomers>,
    peer: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = lock(&self.of.peers);
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

tokio::task_local! {
    static CURRENT: Option<Newcomer>;
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address that counts: one host usually has all of an IPv6 /64.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

impl Newcomers {
    /// Creates a bound of `max` for each address.
    pub fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max, peers: Mutex::default() })
    }

    /// A slot for a connection of `peer`; `None` when its address has too many.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Newcomer> {
        let peer = network(peer);
        let mut peers = lock(&self.peers);
        let count = peers.entry(peer).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Newcomer(Arc::new(Mutex::new(Some(Place { of: self.clone(), peer })))))
    }
}

impl Newcomer {
    /// Runs a connection, or a request of it; the first caller that is authenticated inside releases the slot,
    /// if the connection has one.
    ///
    /// Not an `async fn`, whose future would reserve bytes for two copies of `work`.
    pub fn scope<F: Future>(newcomer: Option<Self>, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(newcomer, work)
    }

    /// True once a caller has been authenticated.
    pub fn is_admitted(&self) -> bool {
        lock(&self.0).is_none()
    }
}

/// Records that the current connection has logged in.
pub(crate) fn admitted() {
    // Outside of a scope there is no slot.
    let _ = CURRENT.try_with(|newcomer| {
        if let Some(newcomer) = newcomer {
            drop(lock(&newcomer.0).take());
        }
    });
}

#[cfg(test)]
mod tests {
    use ropewalk::Database;

    use super::*;
    use crate::{Access, Caller, Credentials, Roles};

    #[tokio::test]
    async fn connections_of_one_address_are_bounded_until_they_log_in() {
        let newcomers = Newcomers::new(2);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|peer| peer.parse().unwrap());
        let (first, second) = (newcomers.enter(one).unwrap(), newcomers.enter(one).unwrap());
        assert!(newcomers.enter(one).is_none());
        assert!(newcomers.enter(other).is_some());
        // A connection that ends releases its slot.
        drop(first);
        let third = newcomers.enter(one).unwrap();
        assert!(newcomers.enter(one).is_none());
        // So does a caller that is admitted, and only within the connection's scope.
        let access = Access::open(Database::in_memory().unwrap(), false).unwrap();
        access.create_user(&Caller::everybody(), "ann", "secret", Roles::default()).await.unwrap();
        let wrong = Credentials::Password { user: "ann", password: "wrong" };
        let login = access.authenticate(wrong, Some(one));
        Newcomer::scope(Some(second.clone()), login).await.unwrap_err();
        assert!(!second.is_admitted());
        let right = Credentials::Password { user: "ann", password: "secret" };
        access.authenticate(right, Some(one)).await.unwrap();
        assert!(newcomers.enter(one).is_none());
        let login = access.authenticate(right, Some(one));
        Newcomer::scope(Some(second.clone()), login).await.unwrap();
        assert!(second.is_admitted());
        let fourth = newcomers.enter(one).unwrap();
        drop((second, third, fourth));
        assert!(lock(&newcomers.peers).is_empty());
    }

    #[test]
    fn scope_reserves_no_second_copy_of_its_work() {
        let work = std::future::ready([0_u8; 1000]);
        assert!(size_of_val(&Newcomer::scope(None, work)) < 1100);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let newcomers = Newcomers::new(1);
        let _first = newcomers.enter("2001:db8::1".parse().unwrap()).unwrap();
        assert!(newcomers.enter("2001:db8::2".parse().unwrap()).is_none());
        assert!(newcomers.enter("2001:db8:0:1::1".parse().unwrap()).is_some());
        let _v4 = newcomers.enter("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(newcomers.enter("192.0.2.1".parse().unwrap()).is_none());
    }
}
