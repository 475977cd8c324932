//! LISTEN, UNLISTEN and NOTIFY: announcements that take effect when the transaction commits.
//!
//! ```text
//! NOTIFY c, 'x' ─▶ waits in the transaction ──COMMIT──▶ Session::announced ─▶ the server delivers it
//!                        └─ROLLBACK, ROLLBACK TO──▶ discarded
//! ```
//! An embedded session has no other sessions to notify: these statements fail with 0A000 until a server calls
//! [`Session::announces`].

use std::collections::BTreeSet;
use std::sync::Arc;

use ropewalk::tables::{Array, Scalar, Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::{Context, Expr};
use crate::plan::Planner;
use crate::plan::bind::scope::Scope;
use crate::plan::bind::{Binder, Typed};
use crate::session::Session;
use crate::syntax::names::{folded, parts};
use crate::types::outcome::Outcome;

/// PostgreSQL's limit on the length of a channel name.
const CHANNEL_BYTES_MAX: usize = 63;
/// PostgreSQL's limit on the length of a payload.
const PAYLOAD_BYTES_MAX: usize = 7999;
/// Maximum number of announcements in one transaction.
const WAITING_MAX: usize = 100_000;

/// A LISTEN, UNLISTEN or NOTIFY of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// Start receiving notifications of a channel.
    Listen(String),
    /// Stop receiving notifications of a channel; `None`: of all channels.
    Unlisten(Option<String>),
    /// Send a notification to all sessions that listen on the channel.
    Notify {
        /// Name of the channel.
        channel: String,
        /// The payload, often empty.
        payload: String,
    },
}

/// Pending and committed announcements of a session.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    is_carried: bool,
    /// Announcements of the open transaction, each with the number of savepoints before it.
    waiting: Vec<(usize, Announcement)>,
    committed: Vec<Announcement>,
    /// Channels that the session listens on.
    heard: Arc<BTreeSet<String>>,
}

impl Announcements {
    /// Adds an announcement to a transaction with `savepoints` savepoints, or outside of one.
    fn say(&mut self, savepoints: Option<usize>, announcement: Announcement) -> Result<()> {
        if !self.is_carried {
            return Err(SqlError::unsupported(
                "LISTEN and NOTIFY in an embedded session",
                "connect to the server's PostgreSQL port",
            ));
        }
        let Some(savepoints) = savepoints else {
            self.committed.push(announcement);
            return Ok(());
        };
        // A repeated notification in one transaction is sent once, as in PostgreSQL. We compare with the
        // previous one only.
        if self.waiting.last().is_some_and(|(_, last)| *last == announcement) {
            return Ok(());
        }
        if self.waiting.len() >= WAITING_MAX {
            let message = format!("more than {WAITING_MAX} notifications in a transaction");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        self.waiting.push((savepoints, announcement));
        Ok(())
    }

    /// Drops announcements made after the transaction had this number of savepoints.
    pub(crate) fn back_to(&mut self, savepoints: usize) {
        self.waiting.retain(|(before, _)| *before <= savepoints);
    }

    /// Takes the announcements of the transaction that ends; dropping them discards them.
    pub(crate) fn take(&mut self) -> Vec<(usize, Announcement)> {
        std::mem::take(&mut self.waiting)
    }

    /// Adds the announcements of a committed transaction.
    pub(crate) fn commit(&mut self, said: Vec<(usize, Announcement)>) {
        self.committed.extend(said.into_iter().map(|(_, announcement)| announcement));
    }

    /// True if the open transaction has pending announcements.
    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The channels that the session listens on.
    pub(crate) fn heard(&self) -> Arc<BTreeSet<String>> {
        self.heard.clone()
    }

    /// DISCARD ALL: stops listening on all channels.
    pub(crate) fn leave(&mut self) {
        if self.is_carried {
            self.committed.push(Announcement::Unlisten(None));
        }
    }
}

/// A call of `pg_notify`.
pub(crate) struct NotifyCall {
    channel: Expr,
    payload: Expr,
}

impl NotifyCall {
    /// Returns the call if the query consists of it alone.
    pub(crate) fn of(query: &ast::Query) -> Option<&ast::Function> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [ast::SelectItem::UnnamedExpr(ast::Expr::Function(function))] = select.projection.as_slice()
        else {
            return None;
        };
        let is_notify = parts(&function.name).is_ok_and(|parts| parts == ["pg_notify"]);
        (is_notify && select.from.is_empty() && select.selection.is_none()).then_some(function)
    }

    pub(crate) fn plan(function: &ast::Function, planner: &mut Planner<'_>) -> Result<Self> {
        let wrong = || SqlError::new(state::UNDEFINED_FUNCTION, "pg_notify takes a channel and a payload");
        let ast::FunctionArguments::List(list) = &function.args else { return Err(wrong()) };
        let nothing = Scope::default();
        let mut texts = Vec::new();
        for argument in &list.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
                return Err(wrong());
            };
            let mut binder = Binder::new(planner, &nothing, "pg_notify");
            texts.push(binder.bind_as(expr, Type::TEXT, Strength::Assignment)?);
        }
        let [channel, payload] = <[Expr; 2]>::try_from(texts).map_err(|_| wrong())?;
        Ok(Self { channel, payload })
    }

    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        [&self.channel, &self.payload].into_iter().for_each(each);
    }

    /// Evaluates the call.
    pub(crate) fn said(&self, cx: &Context<'_>) -> Result<Announcement> {
        let text = |expr: &Expr| -> Result<String> {
            Ok(match expr.constant(cx)? {
                Value::Text(text) => text.into_owned(),
                _ => String::new(),
            })
        };
        notification(text(&self.channel)?, text(&self.payload)?)
    }
}

fn notification(channel: String, payload: String) -> Result<Announcement> {
    if channel.is_empty() {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "channel name cannot be empty"));
    }
    if channel.len() > CHANNEL_BYTES_MAX {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "channel name too long"));
    }
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "payload string too long"));
    }
    Ok(Announcement::Notify { channel, payload })
}

impl Planner<'_> {
    /// The array of channels for `pg_listening_channels()`, if the call is that; the plan is then valid for
    /// one run.
    pub(crate) fn listening(&mut self, name: &str, arguments: usize) -> Result<Option<Typed>> {
        if (name, arguments) != ("pg_listening_channels", 0) {
            return Ok(None);
        }
        self.is_fleeting = true;
        let channels = self.standing.heard.iter().map(|channel| Value::text(channel.clone()));
        let array = Array::new(Scalar::Text, channels.collect::<Vec<_>>());
        let array = array.map_err(|_| crate::expr::bug("names that make no array"))?;
        Ok(Some(Typed::new(Expr::Const(Value::Array(array)), Type::TEXT.array())))
    }
}

impl Session {
    /// Declares that the caller delivers announcements, and calls [`Session::announced`] after each
    /// statement.
    pub fn announces(&mut self) {
        self.announcements_mut().is_carried = true;
    }

    /// Takes the announcements of committed transactions, in order. Use them only after an awaited commit
    /// succeeded.
    pub fn announced(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements_mut().committed)
    }

    /// True when the commit of the open transaction will announce something.
    pub fn announces_at_commit(&self) -> bool {
        self.announcements.is_waiting()
    }

    /// Applies delivered LISTEN and UNLISTEN announcements to `pg_listening_channels`.
    pub fn is_heard(&mut self, announced: &[Announcement]) {
        for announcement in announced {
            let heard = &mut self.announcements_mut().heard;
            match announcement {
                Announcement::Listen(channel) => drop(Arc::make_mut(heard).insert(channel.clone())),
                Announcement::Unlisten(None) => *heard = Arc::default(),
                Announcement::Unlisten(Some(channel)) => drop(Arc::make_mut(heard).remove(channel)),
                Announcement::Notify { .. } => {}
            }
        }
    }

    pub(crate) fn say(&mut self, announcement: Announcement) -> Result<()> {
        let savepoints = self.savepoints();
        self.announcements_mut().say(savepoints, announcement)
    }

    /// Runs LISTEN, UNLISTEN and NOTIFY; `None` for any other statement.
    pub(crate) fn announce(&mut self, statement: &ast::Statement) -> Result<Option<Outcome>> {
        let (command, announcement) = match statement {
            ast::Statement::LISTEN { channel } => ("LISTEN", Announcement::Listen(folded(channel))),
            ast::Statement::UNLISTEN { channel } => {
                let all = channel.value == "*" && channel.quote_style.is_none();
                ("UNLISTEN", Announcement::Unlisten((!all).then(|| folded(channel))))
            }
            ast::Statement::NOTIFY { channel, payload } => {
                ("NOTIFY", notification(folded(channel), payload.clone().unwrap_or_default())?)
            }
            _ => return Ok(None),
        };
        self.say(announcement)?;
        Ok(Some(Outcome::of(command)))
    }
}
