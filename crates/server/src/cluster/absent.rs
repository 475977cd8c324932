//! A build without clusters: the same functions, which reject the setting.

use std::sync::Arc;

use ropewalk::{Database, Options};
use ropewalk_http_kit::leader::ToLeader;
use ropewalk_wire::{NodeAddresses, Service};

use crate::config::settings::{Settings, SettingsError};
use crate::server::ServeError;

const WHAT: &str = "this build has no clusters: it was made without the feature `cluster`";

/// Nothing outlives the database.
#[derive(Default)]
pub(crate) struct Lasting;

/// There is no node.
pub(crate) enum Joined {}

/// There is no end of a node.
pub(crate) enum End {}

/// No node is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {}

/// No directory is filled.
pub(crate) enum Filling {}

impl Filling {
    pub(crate) async fn finished(&mut self) -> Result<(), ServeError> {
        match *self {}
    }

    pub(crate) fn stop(self) {
        match self {}
    }
}

impl Lasting {
    pub(crate) fn fill(&mut self, _settings: &Settings) -> Result<Option<Filling>, ServeError> {
        Ok(None)
    }

    pub(crate) fn prepare(&mut self, again: Again, _settings: &Settings) -> Result<(), ServeError> {
        match again {}
    }
}

pub(crate) fn join(
    _lasting: &mut Lasting,
    _options: Options,
    _settings: &Settings,
    _addresses: &NodeAddresses,
) -> Result<(Database, Joined), ServeError> {
    Err(SettingsError::Invalid { place: "cluster.log".to_owned(), what: WHAT.to_owned() }.into())
}

impl Joined {
    pub(crate) async fn caught_up(&self) -> Result<(), ServeError> {
        match *self {}
    }

    pub(crate) async fn ended(&self) -> End {
        match *self {}
    }

    pub(crate) fn serve(&self, _service: &Service, _settings: &Settings) -> Result<(), ServeError> {
        match *self {}
    }

    pub(crate) fn to_leader(&self) -> Arc<dyn ToLeader> {
        match *self {}
    }

    pub(crate) fn stop(self) {
        match self {}
    }
}

pub(crate) fn after(end: &End, _settings: &Settings) -> Result<Again, ServeError> {
    match *end {}
}

/// Directories of nodes, which this build cannot read.
pub(crate) mod directories {
    use std::path::Path;

    use ropewalk::Class;

    use super::WHAT;
    use crate::config::settings::Settings;
    use crate::directories::{DirectoryError, LeftCluster, NewLog, NewLogMade, Restored};

    fn absent() -> DirectoryError {
        DirectoryError::new(Class::Invalid, WHAT, "")
    }

    /// Rejects every call.
    ///
    /// # Errors
    /// Always.
    pub fn make_log(_settings: &Settings, _new: &NewLog) -> Result<NewLogMade, DirectoryError> {
        Err(absent())
    }

    /// Rejects every call.
    ///
    /// # Errors
    /// Always.
    pub fn adopt(_settings: &Settings, _dir: &Path) -> Result<u64, DirectoryError> {
        Err(absent())
    }

    /// Rejects every call.
    ///
    /// # Errors
    /// Always.
    pub fn leave(_dir: &Path) -> Result<LeftCluster, DirectoryError> {
        Err(absent())
    }

    /// Rejects every call.
    ///
    /// # Errors
    /// Always.
    pub fn restore(
        _store: &Path,
        _dir: &Path,
        _notice: &mut dyn FnMut(String),
    ) -> Result<Restored, DirectoryError> {
        Err(absent())
    }
}
