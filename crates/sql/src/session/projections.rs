//! CREATE, ALTER and DROP PROJECTION: declarations are validated and stored; the runner of the server reads
//! them.
//!
//! Statements are planned with the default settings, as the runner does: names without a schema are in
//! `public`, times are in UTC.

use std::sync::Arc;

use ropewalk::documents::{CollectionOptions, DocumentsError};
use ropewalk::projections::{Output, Projections};
use ropewalk::tables::Type;
use ropewalk::{Database, Isolation, Transaction};
use sqlparser::ast;

use crate::access::projections::{ParkedEvent, StoredProjection, all, find};
use crate::access::row_source::Access;
use crate::access::schemas;
use crate::access::standing::Standing;
use crate::ddl::read_only::check_no_definitions;
use crate::error::{Result, SqlError, state};
use crate::session::prepared::{Plan, Prepared};
use crate::session::{Session, read_only};
use crate::syntax::names::{ident, own, table_name};
use crate::syntax::parse::{self, Statement};
use crate::syntax::projections::{
    EVENT_COLUMNS, ProjectionChange, ProjectionDef, ProjectionStatement, tidy, with_parameters,
};
use crate::syntax::statements::Utility;
use crate::types::outcome::Outcome;
use crate::types::settings::Settings;

/// Most bytes of a declaration as text.
const TEXT_BYTES_MAX: usize = 1 << 20;

impl Session {
    pub(crate) fn projection(&mut self, statement: &ProjectionStatement) -> Result<Outcome> {
        let command = statement.command();
        let notice = match statement {
            ProjectionStatement::Create { def, or_replace } => {
                self.create_projection(def.clone(), *or_replace)?;
                None
            }
            ProjectionStatement::Alter { name, change } => {
                self.alter_projection(name, *change)?;
                None
            }
            ProjectionStatement::Drop { name, if_exists } => match self.drop_projection(name) {
                Err(error) if *if_exists && error.state == state::UNDEFINED_OBJECT => {
                    let message = format!("projection \"{name}\" does not exist, skipping");
                    Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message))
                }
                dropped => dropped.map(|()| None)?,
            },
        };
        Ok(Outcome { notice, ..Outcome::of(command) })
    }

    /// Declares a projection, as CREATE PROJECTION does; returns false if nothing changed.
    ///
    /// With `or_replace` a greater version replaces the declaration: its outputs are built next to the live
    /// ones.
    ///
    /// # Errors
    /// 42710: it exists. 42P01, 42703 and others: a statement cannot be planned. 55000: another projection
    /// writes one of the tables or collections.
    pub fn create_projection(&mut self, def: ProjectionDef, or_replace: bool) -> Result<bool> {
        let def = tidied(def)?;
        self.changing("CREATE PROJECTION", |db, tx| create(db, tx, def.clone(), or_replace))
    }

    /// Changes a declared projection, as ALTER PROJECTION does.
    ///
    /// # Errors
    /// 42704: there is no such projection or event.
    pub fn alter_projection(&mut self, name: &str, change: ProjectionChange) -> Result<()> {
        self.changing("ALTER PROJECTION", |db, tx| alter(db, tx, name, change))
    }

    /// Removes a declared projection; its tables and collections remain.
    ///
    /// # Errors
    /// 42704.
    pub fn drop_projection(&mut self, name: &str) -> Result<()> {
        self.changing("DROP PROJECTION", |db, tx| drop_one(db, tx, name))
    }

    /// Runs `work` in the open transaction, or in one for it.
    fn changing<R>(
        &mut self,
        command: &str,
        mut work: impl FnMut(&Database, &mut Transaction) -> Result<R>,
    ) -> Result<R> {
        self.acting.check(crate::access::rights::Rights::ADMIN)?;
        let Some(open) = &mut self.open else {
            let Settings { durability, attempts, .. } = *self.settings;
            return self.alone(Isolation::Serializable, durability, attempts, work);
        };
        if open.read_only {
            return Err(read_only(command));
        }
        open.has_run = true;
        open.transaction.begin_statement();
        work(&self.db, &mut open.transaction)
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("projection \"{name}\" does not exist"))
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// The projections of the store, and the declaration.
fn known(db: &Database, tx: &mut Transaction, name: &str) -> Result<(Projections, StoredProjection)> {
    let stored = find(&mut Access::Transaction(db, tx), name)?.ok_or_else(|| unknown(name))?;
    Ok((db.projections(&stored.store)?, stored))
}

/// Brings the statements to the form in which they are stored.
fn tidied(mut def: ProjectionDef) -> Result<ProjectionDef> {
    let is_name = |name: &str| !name.is_empty() && name.len() <= 255 && !name.chars().any(char::is_control);
    if let Some(name) = [&def.name, &def.store].into_iter().find(|name| !is_name(name)) {
        let message = format!("{name:?} is no name of 1 to 255 bytes without control characters");
        return Err(SqlError::new(state::INVALID_NAME, message));
    }
    if def.version == 0 || i64::try_from(def.version).is_err() {
        return Err(invalid(format!("version {} is not positive", def.version)));
    }
    if def.rules.is_empty() {
        return Err(invalid("a projection needs the statements of at least one event type"));
    }
    for rule in &mut def.rules {
        if rule.types.iter().any(String::is_empty) || rule.types.is_empty() {
            return Err(invalid("a type of events is empty"));
        }
        let statements = rule.statements.iter().map(|text| tidy(text)).collect::<Result<Vec<_>>>()?;
        rule.statements = statements.concat();
        if rule.statements.is_empty() {
            return Err(invalid(format!("there is no statement for events {:?}", rule.types)));
        }
    }
    // Before its statements are planned.
    stored_text(&def)?;
    Ok(def)
}

/// The text that is stored.
fn stored_text(def: &ProjectionDef) -> Result<String> {
    let text = def.to_string();
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("a projection of {} bytes exceeds the limit of {TEXT_BYTES_MAX}", text.len());
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(text)
}

fn create(db: &Database, tx: &mut Transaction, mut def: ProjectionDef, or_replace: bool) -> Result<bool> {
    def.outputs = declared(db, tx, &def.outputs)?;
    let written = check(db, tx, &def)?;
    if def.outputs.is_empty() {
        def.outputs = written;
    } else if let Some(output) = written.iter().find(|output| !def.outputs.contains(output)) {
        return Err(invalid(format!("a statement writes {}, which INTO does not name", shown(output))));
    }
    let others = all(&mut Access::Transaction(db, tx))?.readable;
    for other in others.iter().filter(|other| other.name != def.name) {
        // A damaged declaration is not run.
        let Ok(ProjectionDef { outputs, .. }) = StoredProjection::parse(&other.text) else { continue };
        if let Some(output) = def.outputs.iter().find(|output| outputs.contains(output)) {
            let message = format!("projection \"{}\" writes {}", other.name, shown(output));
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("a table or collection is written by one projection"));
        }
    }
    let text = stored_text(&def)?;
    let known = find(&mut Access::Transaction(db, tx), &def.name)?;
    let projections = db.projections(&def.store)?;
    let generation = projections.status_at(&tx.snapshot(), &def.name, &def.query())?.generation;
    let stored = match known {
        None if generation.is_some() => {
            let message = format!("the application has a projection \"{}\" of this store", def.name);
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        None => StoredProjection {
            name: def.name,
            store: def.store,
            text,
            before: None,
            since: Some(1),
            is_paused: false,
            wants_rebuild: false,
            requests: 0,
        },
        Some(_) if !or_replace => {
            let message = format!("projection \"{}\" already exists", def.name);
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message)
                .hint("CREATE OR REPLACE PROJECTION with a greater VERSION replaces it"));
        }
        Some(known) if known.text == text => return Ok(false),
        Some(known) => replaced(known, &def, text, generation)?,
    };
    stored.put_in(tx)?;
    Ok(true)
}

/// The declaration with a new version.
fn replaced(
    known: StoredProjection,
    def: &ProjectionDef,
    text: String,
    generation: Option<u64>,
) -> Result<StoredProjection> {
    let old = StoredProjection::parse(&known.text)?;
    if def.version <= old.version {
        let message = format!("projection \"{}\" has version {}", def.name, old.version);
        return Err(SqlError::new(state::DUPLICATE_OBJECT, message).hint("give the change a greater VERSION"));
    }
    if (&old.store, &old.outputs) != (&def.store, &def.outputs) {
        let message = "a new version reads the same store and writes the same tables and collections";
        return Err(invalid(message).hint("drop the projection and create it again"));
    }
    let before = generation.map(|generation| known.text_of(generation).to_owned());
    let since = if before.is_some() { None } else { Some(1) };
    Ok(StoredProjection { wants_rebuild: before.is_some(), text, before, since, ..known })
}

fn alter(db: &Database, tx: &mut Transaction, name: &str, change: ProjectionChange) -> Result<()> {
    let (projections, mut stored) = known(db, tx, name)?;
    match change {
        ProjectionChange::Pause => stored.is_paused = true,
        ProjectionChange::Resume => stored.is_paused = false,
        ProjectionChange::Rebuild => stored.wants_rebuild = true,
        ProjectionChange::Retry(position) => return settle(db, tx, &projections, &stored, position, false),
        ProjectionChange::Skip(position) => return settle(db, tx, &projections, &stored, position, true),
    }
    stored.put_in(tx)
}

/// Retries or skips the failing event and parked events.
fn settle(
    db: &Database,
    tx: &mut Transaction,
    projections: &Projections,
    stored: &StoredProjection,
    position: Option<u64>,
    skips: bool,
) -> Result<()> {
    let name = &stored.name;
    let def = StoredProjection::parse(&stored.text)?;
    let status = projections.status_at(&tx.snapshot(), name, &def.query())?;
    let rebuild = status.rebuild.as_ref().and_then(|rebuild| rebuild.failure.as_ref());
    let failing = status.failure.as_ref().or(rebuild).map(|failure| failure.position.0);
    let mut found = 0;
    if failing.is_some() && (position.is_none() || position == failing) {
        match skips {
            true => projections.skip_in(tx, name)?,
            false => projections.retry_in(tx, name)?,
        };
        found += 1;
    }
    // Without a position, SKIP would discard events that no operator has read.
    if position.is_some() || !skips {
        let is_meant = |parked: &ParkedEvent| {
            Some(parked.generation) == status.generation && position.is_none_or(|at| parked.position == at)
        };
        for parked in ParkedEvent::all_in(db, tx, name)?.into_iter().filter(is_meant) {
            match skips {
                true => parked.remove_in(tx).map(|_| ())?,
                false => ParkedEvent { wants_retry: true, ..parked }.put_in(tx)?,
            }
            found += 1;
        }
    }
    match position {
        Some(position) if found == 0 => {
            let message =
                format!("projection \"{name}\" has no failing or parked event at position {position}");
            Err(SqlError::new(state::UNDEFINED_OBJECT, message))
        }
        // The change of the row also conflicts with a running batch.
        _ => StoredProjection { requests: stored.requests.wrapping_add(1), ..stored.clone() }.put_in(tx),
    }
}

fn drop_one(db: &Database, tx: &mut Transaction, name: &str) -> Result<()> {
    let (projections, stored) = known(db, tx, name)?;
    // A damaged declaration can be dropped; the outputs of its unfinished rebuild remain.
    let outputs = StoredProjection::parse(&stored.text).map(|def| def.outputs).unwrap_or_default();
    stored.remove_in(db, tx)?;
    projections.forget_in(tx, name, &outputs)?;
    Ok(())
}

/// An output in a message.
fn shown(output: &Output) -> String {
    match output {
        Output::Table(kept) => format!("table \"{}\"", own(kept)),
        Output::Collection { database, name } => format!("collection \"{database}.{name}\""),
    }
}

/// The outputs that INTO names, as they are stored. Creates collections that do not exist.
fn declared(db: &Database, tx: &mut Transaction, outputs: &[Output]) -> Result<Vec<Output>> {
    let mut declared = Vec::new();
    for output in outputs {
        declared.push(match output {
            Output::Table(reference) => Output::Table(table_meant(db, tx, reference)?),
            Output::Collection { database, name } => {
                create_collection(tx, database, name).map_err(ropewalk::Error::from)?;
                output.clone()
            }
        });
    }
    Ok(declared)
}

/// Creates a collection, unless it exists.
fn create_collection(
    tx: &mut Transaction,
    database: &str,
    name: &str,
) -> std::result::Result<(), DocumentsError> {
    let mut documents = tx.documents();
    let collection = documents.collection(database, name)?;
    if !documents.has_collection(&collection)? {
        documents.create_collection(&collection, CollectionOptions::default())?;
    }
    Ok(())
}

/// Plans each statement; returns the outputs that they write, in order of their names.
fn check(db: &Database, tx: &mut Transaction, def: &ProjectionDef) -> Result<Vec<Output>> {
    let mut settings = Settings::default();
    for output in &def.outputs {
        if let Output::Collection { database, name } = output {
            settings.collections.insert((database.clone(), name.clone()), name.clone());
        }
    }
    let settings = Arc::new(settings);
    let mut written = Vec::new();
    for rule in &def.rules {
        for text in &rule.statements {
            let output = checked(db, tx, text, &settings).map_err(|error| {
                let detail = format!("In the statement: {text}");
                SqlError { location: None, detail: error.detail.clone().or(Some(detail)), ..error }
            })?;
            if !written.contains(&output) {
                written.push(output);
            }
        }
    }
    written.sort_by_key(Output::to_string);
    Ok(written)
}

/// Plans a statement; returns the output that it writes.
fn checked(db: &Database, tx: &mut Transaction, text: &str, settings: &Arc<Settings>) -> Result<Output> {
    let refused = || {
        SqlError::unsupported(
            "this statement in a projection",
            "write INSERT, UPDATE, DELETE or MERGE of a table, or INSERT, UPDATE or DELETE of documents",
        )
    };
    let (text, columns) = with_parameters(text)?;
    let statement = parse::one(&text)?;
    let target = table_name(target(&statement).ok_or_else(refused)?)?;
    let types: Vec<Option<Type>> =
        columns.iter().map(|column| EVENT_COLUMNS.get(*column).map(|(_, ty)| *ty)).collect();
    let access = Access::Transaction(db, tx);
    let standing = Standing { settings: settings.clone(), ..Standing::default() };
    let prepared = Prepared::plan(Arc::new(statement), &types, access, standing)?;
    match &prepared.plan {
        Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) | Plan::Keyed(_) | Plan::Merge(_) => {
            Ok(Output::Table(table_meant(db, tx, &target)?))
        }
        Plan::Model(write) => {
            let collection = write.collection().ok_or_else(refused)?;
            let (database, name) = (collection.database(), collection.name());
            if !tx.documents().has_collection(collection).map_err(ropewalk::Error::from)? {
                let message = format!("relation \"{database}.{name}\" does not exist");
                let hint = format!("INTO COLLECTION {}.{} creates it", ident(database), ident(name));
                return Err(SqlError::new(state::UNDEFINED_TABLE, message).hint(hint));
            }
            Ok(Output::collection_in(database, name))
        }
        _ => Err(refused()),
    }
}

/// The stored name of a table that a reference denotes.
fn table_meant(db: &Database, tx: &mut Transaction, reference: &str) -> Result<String> {
    let mut access = Access::Transaction(db, tx);
    let (kept, _) = schemas::relation(&mut access, &Settings::default(), &[], reference)?;
    check_no_definitions(&kept)?;
    access.table(&kept).map(|_| kept)
}

/// The table that a statement writes.
pub(crate) fn target(statement: &Statement) -> Option<&ast::ObjectName> {
    match statement {
        Statement::Utility(Utility::Merge(merge)) => table_of(&merge.merge.table),
        Statement::Utility(_) => None,
        Statement::Sql(statement) => target_of(statement),
    }
}

fn target_of(statement: &ast::Statement) -> Option<&ast::ObjectName> {
    match statement {
        ast::Statement::Insert(insert) => match &insert.table {
            ast::TableObject::TableName(name) => Some(name),
            _ => None,
        },
        ast::Statement::Update(update) => table_of(&update.table.relation),
        ast::Statement::Delete(delete) => match &delete.from {
            ast::FromTable::WithFromKeyword(tables) => table_of(&tables.first()?.relation),
            ast::FromTable::WithoutKeyword(_) => None,
        },
        // WITH before INSERT, UPDATE or DELETE.
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(inner) | ast::SetExpr::Update(inner) | ast::SetExpr::Delete(inner) => {
                target_of(inner)
            }
            _ => None,
        },
        _ => None,
    }
}

fn table_of(factor: &ast::TableFactor) -> Option<&ast::ObjectName> {
    match factor {
        ast::TableFactor::Table { name, args: None, .. } => Some(name),
        _ => None,
    }
}
