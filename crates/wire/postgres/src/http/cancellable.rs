//! Requests of `POST /v1/sql` that their caller can cancel, by the name that the request has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk_sql::{SqlError, state};
use tokio::sync::Notify;

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// The caller and the name of a request.
type Key = (String, String);

/// Requests in progress.
#[derive(Clone, Default)]
pub(crate) struct Cancellable(Arc<Mutex<BTreeMap<Key, Arc<Notify>>>>);

/// A request in progress; its name is free again when the value is dropped.
pub(crate) struct Named {
    all: Cancellable,
    key: Key,
    cancelled: Arc<Notify>,
}

impl Cancellable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Registers a request.
    ///
    /// # Errors
    /// A name without bytes or with too many; a request of the caller has it.
    pub(crate) fn enter(&self, caller: &str, name: &str) -> Result<Named, SqlError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let what = format!("an id of {} bytes; 1 to {NAME_BYTES_MAX} are allowed", name.len());
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, what));
        }
        let key = (caller.to_owned(), name.to_owned());
        let cancelled = match self.all().entry(key.clone()) {
            Entry::Vacant(free) => free.insert(Arc::default()).clone(),
            Entry::Occupied(_) => {
                let what = format!("a request with the id {name:?} is being run");
                return Err(SqlError::new(state::DUPLICATE_OBJECT, what));
            }
        };
        Ok(Named { all: self.clone(), key, cancelled })
    }

    /// Cancels a request of the caller; false if no request has this name.
    pub(crate) fn cancel(&self, caller: &str, name: &str) -> bool {
        let found = self.all().get(&(caller.to_owned(), name.to_owned())).cloned();
        found.inspect(|cancelled| cancelled.notify_one()).is_some()
    }
}

impl Named {
    /// Notified when the request is cancelled.
    pub(crate) fn cancelled(&self) -> Arc<Notify> {
        self.cancelled.clone()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.all.all().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn name_is_of_one_request_of_its_caller() {
        let all = Cancellable::default();
        let named = all.enter("ann", "a").unwrap();
        assert_eq!(all.enter("ann", "a").err().unwrap().state.0, "42710");
        let other = all.enter("bob", "a").unwrap();
        assert!(!all.cancel("ann", "b") && all.cancel("ann", "a"));
        named.cancelled().notified().await;
        drop(named);
        assert!(!all.cancel("ann", "a") && all.cancel("bob", "a"));
        drop(other);
        assert!(all.enter("ann", "").is_err() && all.enter("ann", &"x".repeat(65)).is_err());
    }
}
