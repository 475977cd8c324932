//! Documents over HTTP: databases, collections and their indexes; documents by `_id` and by query;
//! change streams.
//!
//! ```text
//! JSON ─▶ BSON (Extended JSON) ─▶ filter, update, … ─▶ one commit, awaited ─▶ JSON
//!                                                  └─▶ cursor ─▶ chunks as fast as the client takes them
//! ```
//! `document` has single documents, `queries` queries, `watch` change streams; `requests` has the bodies,
//! `compat_bundoc` the paths of Bundoc's server.
//!
//! For users and tokens a database of documents is like a store of events: `read`, `append` and `admin` on
//! its name. Rules of collections apply to every caller who may not administer the database.

/// Implements [`InDatabase`] by the field with the name of the database.
macro_rules! in_database {
    ($field:ident: $($name:ty),+) => {
        $(impl $crate::documents::InDatabase for $name {
            fn database(&self) -> &str {
                &self.$field
            }
        })+
    };
}

pub(crate) mod collections;
mod compat_bundoc;
mod document;
pub(crate) mod queries;
pub(crate) mod requests;
pub(crate) mod responses;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;

use ropewalk::documents::lang::{Options, Value, Writer};
use ropewalk::documents::{
    Caller as Asked, Collection, Count, Definition, Documents, DocumentsAt, DocumentsError, DocumentsTx,
};
use ropewalk::{Durability, Seq};
use ropewalk_auth::{Caller, Right};
use ropewalk_sql::hide_rebuilds;
use ropewalk_transactions::code_of;
use ropewalk_wire::{Bounds, Code, Service, WireError, committed};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::kit::body::JsonText;
use crate::kit::path::Named;
use crate::kit::problem::{Problem, Refusal, Result};
use crate::route::Route;

/// Attempts at a write that conflicts with others.
const ATTEMPTS: usize = 1000;
/// Longest wait for the conflicting commit.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);

/// Routes whose responses end.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = collections::routes();
    routes.extend(document::routes());
    routes.extend(queries::routes());
    routes.extend(compat_bundoc::routes());
    routes
}

/// Routes whose responses may never end.
pub(crate) fn live() -> Vec<Route> {
    watch::routes()
}

/// The names in a path, one of which is that of a database.
trait InDatabase: DeserializeOwned + Send {
    fn database(&self) -> &str;
}

/// Context of every request: the caller at the database in the path, and the path's other names.
struct Place<N> {
    context: DocumentContext,
    name: N,
}

impl<N: InDatabase> FromRequestParts<App> for Place<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Named(name) = Named::<N>::from_request_parts(parts, app).await?;
        let caller = Extension::<Caller>::from_request_parts(parts, app).await;
        let Extension(caller) = caller.map_err(|error| Problem::new(Code::Internal, error.body_text()))?;
        let bounds = Bounds::new(&app.service);
        let database = name.database().to_owned();
        let context = DocumentContext { service: app.service.clone(), caller, database, bounds };
        Ok(Self { context, name })
    }
}

/// Request context: a caller at the documents of one database.
pub(crate) struct DocumentContext {
    service: Service,
    caller: Caller,
    database: String,
    bounds: Bounds,
}

impl DocumentContext {
    fn documents(&self) -> &Documents {
        self.service.database().documents()
    }

    /// Parses a body within the bounds of the request.
    async fn parse<T: Send + 'static>(
        &self,
        body: JsonText,
        build: impl FnOnce(&str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let bounds = self.bounds.clone();
        body.parse(move |text| bounds.run(|| build(text))).await
    }

    /// Evaluates within the bounds of the request, as blocking work.
    async fn run_blocking_limited<R>(&self, work: impl FnOnce() -> R) -> R {
        self.service.run_blocking_limited(|| self.bounds.run(work)).await
    }

    /// Admits a read; hold the permit until the read has been sent.
    fn reading(&self) -> Result<OwnedSemaphorePermit> {
        Ok(self.service.admit_read(&self.caller, &self.database)?)
    }

    /// Rejects a name that no database may have.
    fn named(&self) -> Result<()> {
        self.collection("any").map(drop)
    }

    /// A collection, which need not exist.
    fn collection(&self, name: &str) -> Result<Collection> {
        self.documents().collection(&self.database, name).map_err(refused)
    }

    /// A collection that exists.
    fn existing(&self, name: &str) -> Result<(Collection, Arc<Definition>)> {
        let collection = self.collection(name)?;
        let definition = collection.definition().map_err(refused)?;
        let unknown = || DocumentsError::UnknownCollection {
            database: self.database.clone(),
            collection: name.to_owned(),
        };
        let definition = definition.ok_or_else(|| refused(unknown()))?;
        Ok((collection, definition))
    }

    /// Reads an existing collection at one snapshot and with the caller's rights.
    async fn look<R>(
        &self,
        collection: &str,
        look: impl FnOnce(&mut DocumentsAt<'_>, &Collection) -> Result<R, DocumentsError>,
    ) -> Result<R> {
        let _permit = self.reading()?;
        let (collection, _) = self.existing(collection)?;
        let db = self.service.database();
        let snapshot = db.snapshot();
        let may_continue = || self.bounds.look();
        let work = || {
            let mut at = snapshot.documents(db).as_caller(self.asked()).with_cancellation(&may_continue);
            look(&mut at, &collection)
        };
        self.run_blocking_limited(work).await.map_err(refused)
    }

    /// The caller to whom rules of collections apply.
    fn asked(&self) -> Option<Asked> {
        self.asked_in(None)
    }

    /// The same for a request that also touches another database: rules apply unless the caller may
    /// administer both.
    fn asked_in(&self, other: Option<&str>) -> Option<Asked> {
        let may_administer = |database| self.caller.may(Right::Admin, Some(database));
        if may_administer(&self.database) && other.is_none_or(may_administer) {
            return None;
        }
        let mut auth = Writer::new();
        auth.put("uid", Value::String(self.caller.name()));
        Some(Asked { auth: Some(auth.finish()) })
    }

    /// Whether rules of this collection apply to the caller.
    fn ruled(&self, collection: &Collection) -> Result<bool> {
        let definition = collection.definition().map_err(refused)?;
        let ruled = definition.is_some_and(|definition| definition.options().rules.is_some());
        Ok(ruled && self.asked().is_some())
    }

    /// Names of the collections, or of those that match a glob, without those that rebuilds of projections fill.
    fn collections(&self, glob: Option<&str>) -> Result<Vec<String>> {
        self.collections_after(glob, None, usize::MAX)
    }

    /// The first `max` of these names that come after `after`.
    fn collections_after(&self, glob: Option<&str>, after: Option<&str>, max: usize) -> Result<Vec<String>> {
        let db = self.service.database();
        let before = db.snapshot();
        let (mut found, mut after) = (Vec::new(), after.map(str::to_owned));
        while found.len() < max {
            let sought = max - found.len();
            let names = db.documents().collections_after(&self.database, glob, after.as_deref(), sought);
            let mut names = names.map_err(refused)?;
            let is_end = names.len() < sought;
            after = names.last().cloned();
            let hidden = hide_rebuilds(db, &before, &mut names, Some(&self.database));
            hidden.map_err(|error| Problem::new(code_of(&error), error.message))?;
            found.append(&mut names);
            if is_end {
                break;
            }
        }
        Ok(found)
    }

    /// Size of a collection; `None` when access rules may hide documents of it from the caller.
    fn count(&self, collection: &Collection) -> Result<Option<Count>, DocumentsError> {
        match self.caller.may(Right::Admin, Some(&self.database)) {
            true => collection.estimated_count().map(Some),
            false => collection.unruled_count(),
        }
    }

    /// Options for parsers.
    fn options(&self) -> Options {
        self.bounds.options()
    }

    /// Runs `work` in a transaction, retried until it commits without conflict. No thread waits for the disk
    /// write. `long`: it may take longer than sending a response.
    async fn change<R: Unpin + Send>(
        &self,
        size: (usize, bool),
        durability: Durability,
        work: impl FnMut(&mut DocumentsTx<'_>) -> Result<R, DocumentsError> + Send,
    ) -> Result<R> {
        self.change_for(self.asked(), size, durability, work).await
    }

    /// The same with the rights of `requests`.
    async fn change_for<R: Unpin + Send>(
        &self,
        asked: Option<Asked>,
        (bytes, long): (usize, bool),
        durability: Durability,
        mut work: impl FnMut(&mut DocumentsTx<'_>) -> Result<R, DocumentsError> + Send,
    ) -> Result<R> {
        let _in_flight = self.service.admit(&self.caller, &self.database, bytes).await?;
        let mut attempt = 1;
        loop {
            let may_continue = || self.bounds.look();
            let submit = || {
                self.documents().submit(durability, |tx| {
                    tx.act_for(asked.clone());
                    work(&mut tx.with_cancellation(&may_continue))
                })
            };
            let submitted =
                if long { self.run_blocking_limited(submit).await } else { self.bounds.run(submit) };
            let answered = match submitted {
                Ok(submitted) => committed(submitted).await,
                Err(error) => Err(error),
            };
            match answered {
                Err(DocumentsError::Conflict { seq, .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                    // The other commit may not be durable yet, and is not visible before.
                    let visible = self.service.database().wait_visible_after(Seq(seq.0.saturating_sub(1)));
                    let _ = tokio::time::timeout(CONFLICT_WAIT, visible).await;
                }
                answered => return answered.map_err(refused),
            }
        }
    }
}

/// Converts an error of the documents crate to a problem.
pub(crate) fn refused(error: DocumentsError) -> Problem {
    match &error {
        DocumentsError::Validation { .. } | DocumentsError::Reference { .. } => {
            Problem::refused(Refusal::Unfit, error.to_string())
        }
        DocumentsError::Quota { .. } => Problem::refused(Refusal::Quota, error.to_string()),
        _ => WireError::from(error).into(),
    }
}
