//! Prepared statements of one connection: named statements, portals over them, and a cache of recent plans.
//!
//! ```text
//! Parse ─▶ Statement (a plan, shared) ◀─ Portal ◀─ Bind        Execute ─▶ rows, as many as requested
//! ```
//! Portals end with the transaction. A text that is parsed again, as by drivers that do not prepare, gets its
//! cached plan, if the definitions are unchanged.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk::tables::{Type, Value};
use ropewalk_sql::{Hold, Outcome, Prepared, ResultColumn, Session, SqlError, Status, state};

use crate::backends::shown;
use crate::failure::{DUPLICATE_CURSOR, INVALID_CURSOR_NAME, PROTOCOL_VIOLATION};
use crate::frame::{Bind, Format, Formats, Kind, Out};
use crate::types::{oid_in_catalogs, oid_of, type_of};
use crate::value;

/// Most prepared statements, and portals, of one connection.
const STATEMENTS_MAX: usize = 10_000;
const PORTALS_MAX: usize = 1_000;
/// Most cached plans of statement texts, and the longest such text.
const PLANNED_MAX: usize = 32;
const PLANNED_BYTES_MAX: usize = 4 << 10;
/// Most parameterized texts for which it is cached whether a plan serves them.
const LIFTED_MAX: usize = 64;

/// A statement that was parsed.
pub(crate) struct Planned {
    /// `None` for the empty statement.
    pub(crate) prepared: Option<Prepared>,
    /// Result columns as described, or describable, to the client.
    pub(crate) columns: Option<Arc<[ResultColumn]>>,
    /// The displayed part of its text, when it was prepared alone.
    pub(crate) text: Option<Arc<str>>,
}

impl Planned {
    pub(crate) fn new(prepared: Option<Prepared>, text: Option<&str>) -> Statement {
        let columns = prepared.as_ref().and_then(Prepared::shape);
        Arc::new(Mutex::new(Self { prepared, columns, text: text.map(|text| shown(text).into()) }))
    }

    fn is_over_catalogs(&self) -> bool {
        self.prepared.as_ref().is_some_and(Prepared::is_over_catalogs)
    }

    /// Replans if definitions have changed; false when the result would differ from what the client expects.
    pub(crate) fn renew(&mut self, session: &mut Session) -> Result<bool, SqlError> {
        let Some(prepared) = &mut self.prepared else { return Ok(true) };
        session.renew(prepared)?;
        Ok(prepared.shape() == self.columns)
    }
}

/// Shared by the statement's name and the portals over it; never locked for longer than one run.
pub(crate) type Statement = Arc<Mutex<Planned>>;

pub(crate) fn lock(statement: &Statement) -> MutexGuard<'_, Planned> {
    statement.lock().unwrap_or_else(|held| held.into_inner())
}

/// A statement with its parameters.
pub(crate) struct Portal {
    pub(crate) statement: Statement,
    pub(crate) params: Vec<Value<'static>>,
    pub(crate) formats: Formats,
    /// Set once it has run.
    pub(crate) ran: Option<Ran>,
    /// Counts its parameters for the session's memory.
    _params: Option<Hold>,
}

/// The result of a portal, the number of rows sent, and the memory reserved for the rest.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) sent: usize,
    pub(crate) hold: Option<Hold>,
}

pub(crate) struct StatementCache {
    pub(crate) session: Session,
    statements: BTreeMap<String, Statement>,
    /// The unnamed one, which drivers use for nearly everything.
    portal: Option<Portal>,
    portals: BTreeMap<String, Portal>,
    planned: HashMap<(String, Vec<u32>), Statement>,
    lifted: HashMap<String, Option<Statement>>,
    pub(crate) out: Out,
}

impl StatementCache {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            statements: BTreeMap::new(),
            portal: None,
            portals: BTreeMap::new(),
            planned: HashMap::new(),
            lifted: HashMap::new(),
            out: Out::default(),
        }
    }

    pub(crate) fn parse(&mut self, name: &str, sql: &str, types: Vec<u32>) -> Result<(), SqlError> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_PREPARED_STATEMENT, message));
        }
        if self.statements.len() >= STATEMENTS_MAX {
            let message = format!("more than {STATEMENTS_MAX} prepared statements");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("close some of them"));
        }
        let statement = self.plan(sql, types)?;
        self.statements.insert(name.to_owned(), statement);
        self.out.empty(b'1');
        Ok(())
    }

    /// Plan shared by all texts that differ only in numbers, and the numbers of this one
    /// (`ropewalk_sql::lift`); `None` without such a plan.
    pub(crate) fn lifted(&mut self, sql: &str) -> Option<(Statement, Vec<Value<'static>>)> {
        let (text, numbers) = ropewalk_sql::parameterize_literals(sql)?;
        if let Some(known) = self.lifted.get(&text) {
            return Some((known.clone()?, numbers));
        }
        if self.session.status() == Status::Failed {
            return None;
        }
        let statement = self.session.prepare_lifted(&text, numbers.len());
        let statement = statement.map(|prepared| Planned::new(Some(prepared), None));
        if self.lifted.len() >= LIFTED_MAX {
            self.lifted.clear();
        }
        self.lifted.insert(text, statement.clone());
        Some((statement?, numbers))
    }

    fn plan(&mut self, sql: &str, types: Vec<u32>) -> Result<Statement, SqlError> {
        let key = (sql.to_owned(), types);
        if let Some(known) = self.planned.get(&key).cloned()
            && lock(&known).renew(&mut self.session)?
        {
            return Ok(known);
        }
        let wanted = key.1.iter().map(|oid| declared(*oid)).collect::<Result<Vec<_>, _>>()?;
        let located = |error: SqlError| error.located_in(sql);
        let mut script = self.session.script(sql).map_err(located)?;
        let mut prepared = match script.len() {
            0 => None,
            1 => self.session.next_of(&mut script, &wanted).transpose().map_err(located)?,
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
        };
        if let Some(prepared) = &mut prepared {
            prepared.reserve(sql)?;
        }
        let statement = Planned::new(prepared, Some(sql));
        if sql.len() <= PLANNED_BYTES_MAX {
            if self.planned.len() >= PLANNED_MAX {
                self.planned.clear();
            }
            self.planned.insert(key, statement.clone());
        }
        Ok(statement)
    }

    fn statement(&self, name: &str) -> Result<&Statement, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(state::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    pub(crate) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), SqlError> {
        let violation = |message: String| Err(SqlError::new(PROTOCOL_VIOLATION, message));
        let statement = self.statement(bind.statement)?.clone();
        let (params, columns) = {
            let planned = lock(&statement);
            let wanted = planned.prepared.as_ref().map_or(&[][..], Prepared::parameters);
            if !bind.formats.fit(bind.values.len()) {
                return violation(format!(
                    "bind message has formats that do not fit its {} parameters",
                    bind.values.len()
                ));
            }
            if bind.values.len() != wanted.len() {
                return violation(format!(
                    "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                    bind.values.len(),
                    bind.statement,
                    wanted.len()
                ));
            }
            let zone = &self.session.settings().zone;
            let read = |(place, (bytes, ty)): (usize, (&Option<&[u8]>, &Type))| match bytes {
                None => Ok(Value::Null),
                Some(bytes) => value::read(bytes, bind.formats.of(place), *ty, zone),
            };
            let params =
                bind.values.iter().zip(wanted).enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
            (params, planned.columns.as_ref().map_or(0, |columns| columns.len()))
        };
        if !bind.results.fit(columns) && columns > 0 {
            return violation(format!(
                "bind message has result formats that do not fit its {columns} columns"
            ));
        }
        if self.portals.contains_key(bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(DUPLICATE_CURSOR, message));
        }
        if self.portals.len() >= PORTALS_MAX {
            let message = format!("more than {PORTALS_MAX} portals");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("close some of them"));
        }
        let are_oids = lock(&statement).is_over_catalogs();
        let formats = bind.results.clone().with_oids(are_oids);
        let params = [params];
        // Parameters of the unnamed portal last until the next one.
        let hold = (!bind.portal.is_empty()).then(|| self.session.hold(&params)).transpose()?;
        let [params] = params;
        let portal = Portal { statement, params, formats, ran: None, _params: hold };
        self.put_portal(bind.portal.to_owned(), portal);
        self.out.empty(b'2');
        Ok(())
    }

    pub(crate) fn describe(&mut self, kind: Kind, name: &str) -> Result<(), SqlError> {
        match kind {
            Kind::Statement => {
                let statement = self.statement(name)?.clone();
                let planned = lock(&statement);
                let parameters = planned.prepared.as_ref().map_or(&[][..], Prepared::parameters);
                let formats = Formats::default().with_oids(planned.is_over_catalogs());
                self.out.message(b't', |body| {
                    body.count(parameters.len());
                    let oid = if formats.are_oids { oid_in_catalogs } else { oid_of };
                    parameters.iter().for_each(|ty| body.i32(oid(*ty).oid.cast_signed()));
                });
                self.out.row_description(planned.columns.as_deref(), &formats);
            }
            Kind::Portal => {
                let portal = if name.is_empty() { self.portal.as_ref() } else { self.portals.get(name) };
                if let Some(portal) = portal {
                    let planned = lock(&portal.statement);
                    self.out.row_description(planned.columns.as_deref(), &portal.formats);
                    return Ok(());
                }
                // An SQL cursor is a portal, too.
                let (columns, is_binary) = self.session.cursor(name).ok_or_else(|| no_portal(name))?;
                self.out.row_description(Some(&columns), &Formats::all_binary(is_binary));
            }
        }
        Ok(())
    }

    /// Closes a statement or a portal; a missing one is no error.
    pub(crate) fn close(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Statement => drop(self.statements.remove(name)),
            Kind::Portal => {
                if self.take_portal(name).is_err() {
                    self.session.close_cursor(name);
                }
            }
        }
        self.out.empty(b'3');
    }

    /// Takes a portal out, to be run and put back.
    pub(crate) fn take_portal(&mut self, name: &str) -> Result<Portal, SqlError> {
        let portal = if name.is_empty() { self.portal.take() } else { self.portals.remove(name) };
        portal.ok_or_else(|| no_portal(name))
    }

    pub(crate) fn put_portal(&mut self, name: String, portal: Portal) {
        match name.as_str() {
            "" => self.portal = Some(portal),
            _ => drop(self.portals.insert(name, portal)),
        }
    }

    /// Closes all portals at the end of the transaction.
    pub(crate) fn end_portals(&mut self) {
        self.portal = None;
        self.portals.clear();
    }

    /// Drops the unnamed statement and portal, as a simple query does.
    pub(crate) fn forget_unnamed(&mut self) {
        self.statements.remove("");
        self.portal = None;
    }

    /// Drops all statements, as DISCARD ALL and DEALLOCATE ALL do.
    pub(crate) fn forget_statements(&mut self) {
        self.statements.clear();
        self.planned.clear();
        self.lifted.clear();
    }

    /// Drops a prepared statement, as DEALLOCATE does. Returns false if it does not exist.
    pub(crate) fn forget_statement(&mut self, name: &str) -> bool {
        self.statements.remove(name).is_some()
    }

    /// Appends a row to the pending replies.
    pub(crate) fn put_row(&mut self, row: &[Value<'static>], formats: &Formats) -> Result<(), SqlError> {
        let format = |place: usize| -> Format { formats.of(place) };
        let values = row.iter().enumerate().map(|(place, value)| (value, format(place)));
        value::put_row(&mut self.out, values, formats.are_oids, &self.session.settings().zone)
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

/// The type that a client declares for a parameter; 0 and `unknown` leave it to the statement.
fn declared(oid: u32) -> Result<Option<Type>, SqlError> {
    match oid {
        0 | 705 => Ok(None),
        oid => type_of(oid).map(Some).ok_or_else(|| {
            SqlError::new(state::FEATURE_NOT_SUPPORTED, format!("a parameter of type {oid} is not supported"))
                .hint("send it as text and cast it")
        }),
    }
}
