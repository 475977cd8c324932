//! The rights and rules under which a cursor was opened.
//!
//! A cursor outlives the checks of the command that opened it, so each batch repeats them: a withdrawn right,
//! and new or changed rules, end the cursor. Buffered results were filtered by the rules of their time.

use std::sync::Arc;

use ropewalk::documents::{Collection, Definition, Documents, Target};
use ropewalk_auth::{Caller, Right};

use crate::protocol::failure::{Code, Failure, Outcome};

/// The caller of a command, with the database that the command names.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The caller; `None` before login.
    pub(crate) caller: Option<&'a Caller>,
    /// The documents.
    pub(crate) documents: &'a Documents,
    /// The database of the command.
    pub(crate) database: &'a str,
}

impl Reader<'_> {
    /// Rejects a caller who has no right on a database.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub(crate) fn may(self, right: Right, database: Option<&str>) -> Outcome<()> {
        match self.caller {
            Some(caller) => Ok(caller.check(right, database)?),
            None => Err(Failure::new(Code::Unauthorized, "authentication is needed")),
        }
    }
}

/// The right needed to read a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    /// To read the database of the command.
    Database,
    /// To read this event store.
    Events(String),
    /// To read the rows of tables.
    Rows,
    /// To read every database.
    Everything,
    /// To see the operations of every user.
    Operations,
    /// None: it shows only the reader's data.
    Nothing,
}

/// Conditions checked at each batch.
pub(crate) struct Guard {
    needs: Needs,
    /// Rules of collections bind the reader.
    bound: bool,
    /// The collections read, with their definitions when the cursor was opened.
    read: Vec<(Collection, Option<Arc<Definition>>)>,
    /// A change stream: none of its collections may have rules.
    watched: Option<Target>,
}

impl Guard {
    /// Checks the right, and records the rules of the collections that are about to be read.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub(crate) fn new(reader: Reader<'_>, needs: Needs, collections: Vec<Collection>) -> Outcome<Self> {
        check_right(reader, &needs)?;
        let bound = is_bound(reader, &needs);
        let mut read = Vec::new();
        for collection in collections.into_iter().filter(|_| bound) {
            let definition = collection.definition()?;
            read.push((collection, definition));
        }
        Ok(Self { needs, bound, read, watched: None })
    }

    /// The same for a change stream.
    ///
    /// # Errors
    /// `Unauthorized`, also when rules bind the reader and a collection of `target` has some.
    pub(crate) fn watching(reader: Reader<'_>, target: &Target) -> Outcome<Self> {
        let needs = if *target == Target::All { Needs::Everything } else { Needs::Database };
        let guard = Self { watched: Some(target.clone()), ..Self::new(reader, needs, Vec::new())? };
        guard.check(reader)?;
        Ok(guard)
    }

    /// Whether rules of collections bind the reader.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound
    }

    /// Repeats the checks of the command that opened the cursor.
    ///
    /// # Errors
    /// `Unauthorized`: a right or the rules have changed.
    pub(crate) fn check(&self, reader: Reader<'_>) -> Outcome<()> {
        check_right(reader, &self.needs)?;
        if !is_bound(reader, &self.needs) {
            return Ok(());
        }
        if !self.bound {
            let message =
                "the right to administer was withdrawn since the cursor was opened; run the command again";
            return Err(Failure::new(Code::Unauthorized, message));
        }
        for (collection, definition) in &self.read {
            let now = collection.definition()?;
            let rules = |definition: &Option<Arc<Definition>>| {
                definition.as_ref().and_then(|definition| definition.options().rules.clone())
            };
            if rules(definition) != rules(&now) {
                let message = format!(
                    "the rules of collection {} changed since the cursor was opened; run the command again",
                    collection.name()
                );
                return Err(Failure::new(Code::Unauthorized, message));
            }
        }
        match &self.watched {
            Some(target) => check_unruled(reader, target),
            None => Ok(()),
        }
    }
}

fn check_right(reader: Reader<'_>, needs: &Needs) -> Outcome<()> {
    match needs {
        Needs::Database => reader.may(Right::Read, Some(reader.database)),
        Needs::Events(store) => reader.may(Right::Read, Some(store)),
        Needs::Rows => reader.may(Right::Read, None),
        Needs::Everything => reader.may(Right::Read, None),
        Needs::Operations => reader.may(Right::Admin, None),
        Needs::Nothing => Ok(()),
    }
}

fn is_bound(reader: Reader<'_>, needs: &Needs) -> bool {
    let database = match needs {
        // They have no rules, so being bound by rules changes nothing.
        Needs::Events(_) | Needs::Rows => return true,
        Needs::Everything => None,
        _ => Some(reader.database),
    };
    reader.may(Right::Admin, database).is_err()
}

/// Rejects a stream over a collection with rules: rules apply to documents, and events contain them. A stream
/// over everything omits such documents instead.
fn check_unruled(reader: Reader<'_>, target: &Target) -> Outcome<()> {
    let names = match target {
        Target::Collection { name, .. } => vec![name.clone()],
        Target::Database(database) => reader.documents.collections(database)?,
        Target::All => return Ok(()),
    };
    for name in names {
        let collection = reader.documents.collection(reader.database, &name)?;
        if has_rules(&collection)? {
            let message =
                format!("collection {name} has rules; who may administer the database may watch it");
            return Err(Failure::new(Code::Unauthorized, message));
        }
    }
    Ok(())
}

/// True for a collection with rules.
///
/// # Errors
/// The definition cannot be read.
pub(crate) fn has_rules(collection: &Collection) -> Outcome<bool> {
    Ok(collection.definition()?.is_some_and(|definition| definition.options().rules.is_some()))
}
