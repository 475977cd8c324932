//! SET and `set_config`, with session or transaction scope.

use std::sync::Arc;

use ropewalk::tables::Value;
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::limits::budget::MEMORY_BYTES_MAX;
use crate::session::prepared::Prepared;
use crate::session::transaction::modes_of;
use crate::session::{Session, unsupported};
use crate::syntax::names::{folded, parts};
use crate::syntax::parse::{self, Statement};
use crate::types::interval;
use crate::types::outcome::Outcome;
use crate::types::settings::Settings;
use crate::types::zone::Zone;

/// The zone of an interval, which is the offset east of UTC.
fn offset_of(interval: &ast::Expr) -> Result<Zone> {
    let text = interval.to_string();
    let text = text.trim_matches('\'');
    let seconds =
        interval::parse(text, None).and_then(|interval| i32::try_from(interval.micros / 1_000_000).ok());
    seconds.and_then(Zone::of_offset).ok_or_else(|| {
        let message = format!("invalid value for parameter \"timezone\": \"{text}\"");
        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
    })
}

impl Session {
    pub(crate) fn set(&mut self, set: &ast::Set) -> Result<Outcome> {
        let done = Ok(Outcome::of("SET"));
        match set {
            ast::Set::SetTransaction { modes, snapshot: None, session: false } => {
                let db = self.db.clone();
                let (isolation, read_only) = modes_of(modes)?;
                self.check_mode(read_only)?;
                let open = self.inside("SET TRANSACTION")?;
                if let Some(isolation) = isolation.filter(|isolation| *isolation != open.isolation) {
                    if open.has_run || !open.savepoints.is_empty() {
                        let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                        return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
                    }
                    open.isolation = isolation;
                    open.transaction = db.begin_with(isolation);
                }
                open.read_only = read_only.unwrap_or(open.read_only);
                done
            }
            ast::Set::SetTransaction { modes, snapshot: None, session: true } => {
                let (isolation, read_only) = modes_of(modes)?;
                self.change_settings(false, |settings| {
                    settings.isolation = isolation.unwrap_or(settings.isolation);
                    settings.read_only = read_only.unwrap_or(settings.read_only);
                    Ok(())
                })?;
                done
            }
            ast::Set::SingleAssignment {
                scope: scope @ (None | Some(ast::ContextModifier::Session | ast::ContextModifier::Local)),
                hivevar: false,
                variable,
                values,
            } => {
                let is_local = *scope == Some(ast::ContextModifier::Local);
                let text = |value: &ast::Expr| match value {
                    ast::Expr::Value(value) => match &value.value {
                        ast::Value::SingleQuotedString(text) => text.clone(),
                        other => other.to_string(),
                    },
                    ast::Expr::Identifier(ident) => folded(ident),
                    other => other.to_string(),
                };
                let name = parts(variable)?.join(".");
                let value = match values.as_slice() {
                    [ast::Expr::Identifier(word)]
                        if word.quote_style.is_none() && folded(word) == "default" =>
                    {
                        self.settings.fresh().show(&name)?
                    }
                    // A list of names, each quoted as in SQL.
                    values if name == "search_path" => {
                        let written = |value: &ast::Expr| match text(value) {
                            empty if empty.is_empty() => "\"\"".to_owned(),
                            name => crate::syntax::names::ident(&name),
                        };
                        values.iter().map(written).collect::<Vec<_>>().join(", ")
                    }
                    values => values.iter().map(text).collect::<Vec<_>>().join(", "),
                };
                self.set_one(&name, &value, is_local)
            }
            ast::Set::SetTimeZone { local, value } => {
                let value = match value {
                    ast::Expr::Identifier(word) if matches!(folded(word).as_str(), "local" | "default") => {
                        self.settings.fresh().show("timezone")?
                    }
                    ast::Expr::Interval(interval) => offset_of(&interval.value)?.name().to_owned(),
                    value => value.to_string(),
                };
                let value = value.trim_matches('\'').to_owned();
                self.set_one("timezone", &value, *local)
            }
            ast::Set::SetNames { charset_name, collation_name: None } => {
                self.set_one("client_encoding", &charset_name.value, false)
            }
            other => Err(unsupported(other)),
        }
    }

    /// Sets a variable by its name. Outside of a transaction LOCAL has no effect.
    pub(crate) fn set_one(&mut self, name: &str, value: &str, is_local: bool) -> Result<Outcome> {
        match name {
            "transaction_isolation" | "transaction_read_only" => {
                let mode = if name == "transaction_isolation" {
                    format!("ISOLATION LEVEL {value}")
                } else {
                    format!(
                        "READ {}",
                        if matches!(value, "on" | "true" | "1" | "yes") { "ONLY" } else { "WRITE" }
                    )
                };
                return match parse::one(&format!("SET TRANSACTION {mode}"))? {
                    Statement::Sql(ast::Statement::Set(set)) => self.set(&set),
                    _ => Err(crate::expr::bug("SET TRANSACTION parsed as another statement")),
                };
            }
            _ => self.change_settings(is_local, |settings| settings.set(name, value))?,
        }
        if is_local && self.open.is_none() {
            let message = "SET LOCAL can only be used in transaction blocks";
            let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message);
            return Ok(Outcome { notice: Some(notice), ..Outcome::of("SET") });
        }
        Ok(Outcome::of("SET"))
    }

    /// Changes settings for the transaction (`is_local`), or for the session if the transaction commits.
    pub(crate) fn change_settings(
        &mut self,
        is_local: bool,
        change: impl Fn(&mut Settings) -> Result<()>,
    ) -> Result<()> {
        let mut settings = (*self.settings).clone();
        change(&mut settings)?;
        let is_own = self.acting.rights().admin;
        if !is_own && settings.memory_bytes_max > self.settings.memory_bytes_max.max(MEMORY_BYTES_MAX) {
            let message = format!("permission denied to set \"work_mem\" above {MEMORY_BYTES_MAX} bytes");
            return Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
                .hint("the right \"admin\" on all stores may set more"));
        }
        match &mut self.open {
            None if is_local => return Ok(()),
            None => {}
            Some(_) if is_local => {}
            Some(open) => {
                let mut lasting = (*open.lasting).clone();
                change(&mut lasting)?;
                open.lasting = Arc::new(lasting);
            }
        }
        self.settings = Arc::new(settings);
        Ok(())
    }

    /// Applies the `set_config` calls of a statement before the statement runs.
    pub(crate) fn set_configs(&mut self, prepared: &Prepared, params: &[Value<'_>]) -> Result<()> {
        if prepared.sets.is_empty() {
            return Ok(());
        }
        let db = self.db.clone();
        let bound = prepared.bound(params)?;
        let env = db.engine().env();
        let interrupt = &self.interrupt();
        let zone = &self.settings.zone.clone();
        let cx =
            Context { params: &bound, answers: &[], now: self.now(), env, zone, interrupt, nested: None };
        for set in &prepared.sets {
            let (name, value, local) =
                (set.name.constant(&cx)?, set.value.constant(&cx)?, set.is_local.constant(&cx)?);
            let (Value::Text(name), Value::Text(value)) = (&name, &value) else { continue };
            let done = self.set_one(&name.to_lowercase(), value, local == Value::Bool(true));
            self.failing(done)?;
        }
        Ok(())
    }
}
