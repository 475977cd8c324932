//! A checkpoint store that can be stopped, so that a long download or checkpoint ends with its next call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpoint::store::{CheckpointStore, ObjectError};

/// A store whose calls fail after [`StoppableStore::stop`]. Calls that are under way are carried out.
///
/// A call is about one object, of at most some megabytes, so a caller of a store that responds ends soon.
#[derive(Debug)]
pub struct StoppableStore {
    store: Arc<dyn CheckpointStore>,
    is_stopped: AtomicBool,
}

impl StoppableStore {
    /// A store that passes calls on to `store`.
    pub fn new(store: Arc<dyn CheckpointStore>) -> Self {
        Self { store, is_stopped: AtomicBool::new(false) }
    }

    /// Lets every later call fail, without an effect.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// True after [`StoppableStore::stop`].
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn check(&self, call: &'static str, name: &str) -> Result<(), ObjectError> {
        if !self.is_stopped() {
            return Ok(());
        }
        Err(ObjectError { call, name: name.to_owned(), cause: "this node stops".to_owned() })
    }
}

impl CheckpointStore for StoppableStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.check("create", name)?;
        self.store.create(name, bytes)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        self.check("read", name)?;
        self.store.read(name)
    }

    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError> {
        self.check("list", kind)?;
        self.store.list(kind)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.check("delete", name)?;
        self.store.delete(name)
    }
}
