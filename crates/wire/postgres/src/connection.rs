//! The life of one client connection: login, then message by message until either side ends.
//!
//! ```text
//! simple:    Query ─▶ statement by statement, one transaction unless the text says otherwise ─▶ ReadyForQuery
//! extended:  Parse, Bind, Describe, Execute … ─▶ Sync ─▶ ReadyForQuery        an error: skip messages until Sync
//! ```
//! A statement that reads a few keys runs on the connection's thread, without a hop to another one; any other
//! runs where blocking is allowed, a few at a time. Commits are submitted and awaited, so that no thread
//! waits for the disk.
//!
//! Between two Syncs statements are one transaction. When the Sync after an Execute is already there, as
//! drivers send it, the statement is a separate transaction, which is retried when another commit conflicts.
//!
//! Dropping a connection at any point drops its session, and with it the open transaction.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use ropewalk::Seq;
use ropewalk::hooks::WriteCapacity;
use ropewalk::tables::Value;
use ropewalk_auth::{Caller, Right};
use ropewalk_sql::{
    Announcement, Outcome, Prepared, Progress, Rights, RowWait, Session, Settings, SqlError, Status, state,
};
use ropewalk_wire::{Requests, committed, run_unpinned};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::Shared;
use crate::backends::{Entered, Who, shown};
use crate::channel::{Bounds, Channel, Ended, Frame, in_time};
use crate::failure::{
    ADMIN_SHUTDOWN, IDLE_IN_TRANSACTION, INVALID_CATALOG_NAME, NOT_IN_PREREQUISITE_STATE, PROTOCOL_VIOLATION,
    Severity, code_of, malformed, refused, told,
};
use crate::frame::{Formats, Out, Request};
use crate::login::login;
use crate::notifications::{Mailbox, Overflow, Ticket};
use crate::startup::{self, Opened, Startup};
use crate::statement_cache::{Planned, Portal, Ran, Statement, StatementCache, lock};

/// Replies are sent when the buffer has grown to this.
const SEND_BYTES: usize = 64 << 10;
/// The name of the only database; `postgres` and the user's name, which clients try by default, are aliases.
const DATABASE: &str = "ropewalk";
/// Settings reported to clients at login and when they change.
const REPORTED: [&str; 11] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "in_hot_standby",
    "default_transaction_read_only",
];

/// Largest message before login; those of SCRAM need a few hundred bytes.
const LOGIN_BYTES_MAX: usize = 8 << 10;

pub(crate) type Outcomes<T> = Result<T, SqlError>;

pub(crate) struct Connection<'s, S> {
    pub(crate) shared: &'s Shared,
    pub(crate) channel: Channel<S>,
    pub(crate) statements: StatementCache,
    caller: Caller,
    seen: u64,
    executes: Requests,
    pub(crate) backend: Entered,
    mailbox: Mailbox,
    /// The last reported values of [`REPORTED`], and the settings they came from.
    reported: Vec<String>,
    told: Option<Arc<Settings>>,
    /// After an error, messages are skipped until Sync.
    is_skipping: bool,
}

/// Serves one client until it or the server ends.
///
/// A client without login costs no more memory than its opening. The session's future, which is much larger,
/// is allocated after login.
pub(crate) async fn serve<S>(
    shared: &Shared,
    stream: S,
    peer: Option<SocketAddr>,
    tls: Option<&TlsAcceptor>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let patience = shared.settings.opening_time;
    let open = Box::pin(startup::open(stream, tls));
    let (stream, startup) = match in_time(patience, open).await? {
        Opened::Cancel(mut stream, process, secret) => {
            shared.backends.cancel(process, secret);
            // Under TLS a client takes an end without close_notify for an attack.
            return in_time(patience, async { Ok(stream.shutdown().await?) }).await;
        }
        Opened::Session(stream, startup) => (stream, startup),
    };
    let bounds = Bounds {
        message_bytes_max: LOGIN_BYTES_MAX,
        patience: shared.service.limits().request_time,
        memory: shared.service.request_memory().connection(),
    };
    let mut channel = Channel::new(stream, bounds);
    let mut out = Out::default();
    put_version(&startup, &mut out);
    let ip = peer.map(|peer| peer.ip());
    let login = Box::pin(login(shared.service.access(), &startup.user, ip, &mut channel, &mut out));
    let begun = match in_time(patience, login).await? {
        Ok(caller) => begin(shared, &startup).map(|session| Box::new((caller, session))),
        Err(error) => Err(error),
    };
    match begun {
        Ok(begun) => {
            let conversation = async move {
                let (caller, session) = *begun;
                converse(shared, channel, session, out, caller, peer).await
            };
            Box::pin(conversation).await
        }
        Err(error) => {
            let error = told(&error, shared.service.database().engine().dir()).into_owned();
            out.failure(Severity::Fatal, &error);
            channel.send(&mut out).await?;
            channel.close().await;
            Err(Ended::Said(error.message))
        }
    }
}

/// Serves a client that has logged in.
async fn converse<S>(
    shared: &Shared,
    mut channel: Channel<S>,
    session: Session,
    out: Out,
    caller: Caller,
    peer: Option<SocketAddr>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    channel.set_logged_in(shared.service.limits().request_bytes);
    let mut statements = StatementCache::new(session);
    statements.out = out;
    let settings = statements.session.settings();
    let who = Who {
        user: settings.user.clone(),
        database: settings.database.clone(),
        peer,
        role: caller.name().to_owned(),
        is_admin: caller.may(Right::Admin, None),
        since: shared.service.database().engine().env().clock.wall_micros(),
    };
    let backend = shared.backends.enter(statements.session.canceller(), who);
    let backend = backend.map_err(|error| Ended::Said(error.to_string()))?;
    statements.session.set_number(backend.process);
    statements.session.set_peers(backend.peers());
    let mut connection = Connection {
        shared,
        channel,
        statements,
        caller,
        seen: 0,
        executes: shared.service.metrics().requests_of("postgres", "execute"),
        mailbox: shared.hub.mailbox(backend.process),
        backend,
        reported: vec![String::new(); REPORTED.len()],
        told: None,
        is_skipping: false,
    };
    connection.act();
    connection.welcome();
    match connection.speak().await {
        Ok(Some(last)) => {
            connection.statements.out.failure(Severity::Fatal, &last);
            connection.channel.send(&mut connection.statements.out).await?;
        }
        Ok(None) => {}
        Err(Ended::Memory(error)) => {
            connection.statements.out.failure(Severity::Fatal, &refused(&error));
            connection.channel.send(&mut connection.statements.out).await?;
        }
        Err(Ended::Length(bytes)) => {
            let error = SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, format!("a message of {bytes} bytes"))
                .hint("the limit is limits.request_bytes of the server");
            connection.statements.out.failure(Severity::Fatal, &error);
            connection.channel.send(&mut connection.statements.out).await?;
        }
        Err(ended) => return Err(ended),
    }
    connection.channel.close().await;
    Ok(())
}

/// Replies to a client that requested a protocol version above 3.0.
fn put_version(startup: &Startup, out: &mut Out) {
    if let Some((_, options)) = &startup.beyond {
        out.message(b'v', |body| {
            body.i32(0);
            body.i32(i32::try_from(options.len()).unwrap_or(i32::MAX));
            options.iter().for_each(|option| body.text(option));
        });
    }
}

/// Begins the requested session.
fn begin(shared: &Shared, startup: &Startup) -> Outcomes<Session> {
    let who = Settings { user: startup.user.clone(), ..Settings::default() };
    let mut session = Session::with_settings(shared.service.database().clone(), who);
    session.announces();
    let database = startup.database.as_deref().unwrap_or(DATABASE);
    if ![DATABASE, "postgres", startup.user.as_str()].contains(&database) {
        let message = format!("database \"{database}\" does not exist");
        return Err(SqlError::new(INVALID_CATALOG_NAME, message).hint("its name is \"ropewalk\""));
    }
    for (name, value) in &startup.settings {
        session.configure(name, value)?;
    }
    Ok(session)
}

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// Sends the messages that follow a login.
    fn welcome(&mut self) {
        let out = &mut self.statements.out;
        out.message(b'R', |body| body.i32(0));
        let is_superuser = if self.caller.may(Right::Admin, None) { "on" } else { "off" };
        out.parameter_status("is_superuser", is_superuser);
        out.parameter_status("session_authorization", &self.statements.session.settings().user);
        self.report();
        let (process, secret) = (self.backend.process, self.backend.secret);
        self.statements.out.message(b'K', |body| {
            body.i32(process);
            body.i32(secret);
        });
        self.ready();
    }

    /// Reports changed settings that clients follow.
    fn report(&mut self) {
        if self.told.as_ref().is_some_and(|told| self.statements.session.keeps(told)) {
            return;
        }
        self.told = Some(self.statements.session.settings_held());
        for (name, told) in REPORTED.iter().zip(&mut self.reported) {
            let value =
                self.statements.session.settings().show(&name.to_ascii_lowercase()).unwrap_or_default();
            if *told != value {
                self.statements.out.parameter_status(name, &value);
                if *name == "application_name" {
                    self.backend.is_called(&value);
                }
                *told = value;
            }
        }
    }

    fn ready(&mut self) {
        if self.backend.is_terminated() {
            return;
        }
        let status = match self.statements.session.status() {
            Status::Idle => b'I',
            Status::Open => b'T',
            Status::Failed => b'E',
        };
        self.statements.out.ready(status);
    }

    /// Runs the message loop. Returns the error to send at its end, if any.
    async fn speak(&mut self) -> Result<Option<SqlError>, Ended> {
        let stop = self.shared.service.stop().clone();
        // Both last as long as the connection: a timer for each message would cost more than some messages
        // do.
        let backend = (*self.backend).clone();
        let mut stopped = pin!(async {
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = backend.terminated() => {}
            }
        });
        let patience = self.shared.settings.transaction_idle_time;
        let mut lapse = pin!(tokio::time::sleep(patience));
        let mut since = Instant::now();
        loop {
            if self.statements.session.status() == Status::Idle
                && let Err(Overflow) = self.heard()
            {
                return Ok(Some(overflow()));
            }
            if !self.channel.has_more() || self.statements.out.len() >= SEND_BYTES {
                self.channel.send(&mut self.statements.out).await?;
            }
            let frame = match self.channel.has_more() {
                true => self.channel.message().await?,
                false => {
                    let waits = self.statements.session.status() != Status::Idle;
                    tokio::select! {
                        biased;
                        frame = self.channel.message() => frame?,
                        () = self.mailbox.came(), if !waits => continue,
                        () = &mut stopped => return Ok(Some(shutdown())),
                        () = &mut lapse, if waits => {
                            if since.elapsed() < patience {
                                lapse.as_mut().reset(since + patience);
                                continue;
                            }
                            let message = "terminating connection due to idle-in-transaction timeout";
                            return Ok(Some(SqlError::new(IDLE_IN_TRANSACTION, message)));
                        }
                    }
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            match self.handle(frame).await? {
                Goes::On => {}
                Goes::Away => return Ok(None),
            }
            if !self.channel.has_more() {
                since = Instant::now();
            }
            if matches!(frame.tag, b'Q' | b'S') {
                backend.rests(self.statements.session.status(), since.into_std());
            }
            if stop.stopping() || backend.is_terminated() {
                return Ok(Some(shutdown()));
            }
        }
    }

    /// Sends received notifications.
    fn heard(&mut self) -> Result<(), Overflow> {
        while let Some(heard) = self.mailbox.next()? {
            self.statements.out.message(b'A', |body| {
                body.i32(heard.process);
                body.text(&heard.channel);
                body.text(&heard.payload);
            });
        }
        Ok(())
    }

    /// Publishes the announcements of a commit.
    fn announce(&mut self, announced: Vec<Announcement>, seq: Seq, ticket: Option<Ticket>) {
        self.statements.session.is_heard(&announced);
        self.mailbox.announce(announced, seq, ticket);
    }

    async fn handle(&mut self, frame: Frame) -> Result<Goes, Ended> {
        let following = self.channel.following(frame);
        let is_named = matches!(frame.tag, b'P' | b'B' | b'D');
        if is_named
            && !self.is_skipping
            && let Err(error) = self.recognize()
        {
            self.channel.done(frame);
            return Ok(self.after(Err(error)));
        }
        let request = match Request::read(frame.tag, self.channel.body(frame)) {
            Ok(request) => request,
            Err(error) => {
                // As in PostgreSQL, a message that cannot be parsed is skipped; its length was right.
                self.channel.done(frame);
                self.failed(&malformed(error));
                match frame.tag {
                    b'Q' => self.ready(),
                    b'S' => self.sync().await?,
                    _ => self.is_skipping = true,
                }
                return Ok(Goes::On);
            }
        };
        if self.is_skipping && !matches!(request, Request::Sync | Request::Terminate) {
            self.channel.done(frame);
            return Ok(Goes::On);
        }
        // A cancel request applies only to the statement before this one.
        self.statements.session.canceller().reset();
        if self.backend.is_terminated() {
            return Ok(Goes::On);
        }
        let statements = &mut self.statements;
        let outcome = match request {
            Request::Query(sql) => {
                let sql = Arc::<str>::from(sql);
                self.channel.done(frame);
                self.query(&sql).await?;
                return Ok(Goes::On);
            }
            Request::Execute(name, rows) => {
                let name = name.to_owned();
                self.channel.done(frame);
                let executed = self.execute(name, rows, following == Some(b'S')).await?;
                return Ok(self.after(executed));
            }
            Request::Sync => {
                self.channel.done(frame);
                self.sync().await?;
                return Ok(Goes::On);
            }
            Request::Terminate => return Ok(Goes::Away),
            Request::Parse { name, sql, types } => statements.parse(name, sql, types),
            Request::Bind(bind) => statements.bind(&bind),
            Request::Describe(kind, name) => statements.describe(kind, name),
            Request::Close(kind, name) => {
                statements.close(kind, name);
                Ok(())
            }
            Request::Flush => {
                self.channel.done(frame);
                self.channel.send(&mut self.statements.out).await?;
                return Ok(Goes::On);
            }
            // Rest of a COPY that failed.
            Request::CopyData(_) | Request::CopyDone | Request::CopyFail(_) => Ok(()),
            Request::FunctionCall => Err(SqlError::new(
                state::FEATURE_NOT_SUPPORTED,
                "calls of functions outside of statements are not supported",
            )
            .hint("use SELECT")),
            Request::Login(_) => Err(SqlError::new(PROTOCOL_VIOLATION, "unexpected password message")),
        };
        self.channel.done(frame);
        Ok(self.after(outcome))
    }

    /// Finishes a message of the extended protocol.
    fn after(&mut self, outcome: Outcomes<()>) -> Goes {
        if let Err(error) = outcome {
            self.failed(&error);
            self.is_skipping = true;
        }
        Goes::On
    }

    fn failed(&mut self, error: &SqlError) {
        self.statements.session.fail();
        // A terminated client gets only that error.
        if !self.backend.is_terminated() {
            let told = told(error, self.shared.service.database().engine().dir());
            self.statements.out.failure(Severity::Error, &told);
        }
    }

    /// Ends the implicit transaction at a Sync.
    async fn sync(&mut self) -> Result<(), Ended> {
        self.is_skipping = false;
        if let Err(error) = self.end_implicit().await {
            self.failed(&error);
        }
        if self.statements.session.status() == Status::Idle {
            self.statements.end_portals();
        }
        self.ready();
        Ok(())
    }

    /// Commits the implicit transaction of several statements, or rolls it back after an error.
    async fn end_implicit(&mut self) -> Outcomes<()> {
        let ticket = self.statements.session.announces_at_commit().then(|| self.mailbox.ticket());
        let commit = self.statements.session.end_implicit()?;
        let announced = self.statements.session.announced();
        let seq = match commit {
            Some(commit) => {
                let done = commit.await?;
                self.statements.session.committed(&done);
                done.seq
            }
            None => self.shared.service.database().seq(),
        };
        self.announce(announced, seq, ticket);
        Ok(())
    }

    /// The simple protocol: all statements of a query string.
    async fn query(&mut self, sql: &Arc<str>) -> Result<(), Ended> {
        let timer = self.shared.service.metrics().request("postgres", "query");
        match shown(sql) {
            whole if whole.len() == sql.len() => self.backend.runs(sql, timer.started()),
            part => self.backend.runs(&part.into(), timer.started()),
        }
        self.statements.forget_unnamed();
        let outcome = match self.statements(sql).await? {
            Ok(()) => self.end_implicit().await,
            Err(error) => {
                // The implicit transaction of the query string, if there is one, is rolled back.
                self.statements.session.fail();
                let ended = self.end_implicit().await;
                Err(ended.err().unwrap_or(error))
            }
        };
        timer.done(outcome.as_ref().map(|_| ()).map_err(code_of));
        if let Err(error) = outcome {
            self.failed(&error);
        }
        if self.statements.session.status() == Status::Idle {
            self.statements.end_portals();
        }
        self.report();
        self.ready();
        Ok(())
    }

    async fn statements(&mut self, sql: &str) -> Result<Outcomes<()>, Ended> {
        if let Err(error) = self.recognize() {
            return Ok(Err(error));
        }
        if let Some((statement, numbers)) = self.statements.lifted(sql) {
            return self.statement(&statement, &numbers).await;
        }
        let mut script = match self.statements.session.script(sql) {
            Ok(script) => script,
            Err(error) => return Ok(Err(error.located_in(sql))),
        };
        if script.is_empty() {
            self.statements.out.empty(b'I');
        }
        while let Some(prepared) = self.statements.session.next_of(&mut script, &[]) {
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return Ok(Err(error.located_in(sql))),
            };
            if let Err(error) = self.statement(&Planned::new(Some(prepared), None), &[]).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Runs a statement of the simple protocol and sends its complete result.
    async fn statement(
        &mut self,
        statement: &Statement,
        params: &[Value<'static>],
    ) -> Result<Outcomes<()>, Ended> {
        let outcome = match self.run(statement, params).await? {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        let formats = Formats::all_binary(outcome.is_binary);
        if let Some(columns) = &outcome.columns {
            self.statements.out.row_description(Some(columns), &formats);
        }
        if let Err(error) = self.rows(&outcome, &formats, 0, outcome.rows.len()).await? {
            return Ok(Err(error));
        }
        self.statements.out.command_complete(outcome.tag());
        Ok(Ok(()))
    }

    /// Sends rows of an outcome, from `first` up to `end`.
    async fn rows(
        &mut self,
        outcome: &Outcome,
        formats: &Formats,
        first: usize,
        end: usize,
    ) -> Result<Outcomes<()>, Ended> {
        for row in outcome.rows.get(first..end).unwrap_or_default() {
            if let Err(error) = self.statements.put_row(row, formats) {
                return Ok(Err(error));
            }
            if self.statements.out.len() >= SEND_BYTES {
                self.channel.send(&mut self.statements.out).await?;
            }
        }
        Ok(Ok(()))
    }

    /// Runs or continues a portal. `alone`: no other message precedes the next Sync.
    async fn execute(&mut self, name: String, rows_max: u32, alone: bool) -> Result<Outcomes<()>, Ended> {
        let timer = self.executes.begin();
        let mut portal = match self.statements.take_portal(&name) {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(text) = &lock(&portal.statement).text {
            self.backend.runs(text, timer.started());
        }
        let executed = self.execute_portal(&mut portal, rows_max, alone).await?;
        timer.done(executed.as_ref().map(|_| ()).map_err(code_of));
        self.statements.put_portal(name, portal);
        Ok(executed)
    }

    async fn execute_portal(
        &mut self,
        portal: &mut Portal,
        rows_max: u32,
        alone: bool,
    ) -> Result<Outcomes<()>, Ended> {
        if lock(&portal.statement).prepared.is_none() {
            self.statements.out.empty(b'I');
            return Ok(Ok(()));
        }
        let is_first = portal.ran.is_none();
        if is_first {
            if !alone && !lock(&portal.statement).prepared.as_ref().is_some_and(Prepared::begins_or_ends) {
                self.statements.session.begin_implicit();
            }
            let renewed = lock(&portal.statement).renew(&mut self.statements.session);
            match renewed {
                Ok(true) => {}
                Ok(false) => {
                    let message = "cached plan must not change result type";
                    return Ok(Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)));
                }
                Err(error) => return Ok(Err(error)),
            }
            match self.run(&portal.statement, &portal.params).await? {
                Ok(outcome) => {
                    // Rows beyond those of this Execute are held until the client fetches them or the
                    // transaction ends.
                    let stays = rows_max > 0 && outcome.rows.len() > rows_max as usize;
                    let hold = match stays.then(|| self.statements.session.hold(&outcome.rows)).transpose() {
                        Ok(hold) => hold,
                        Err(error) => return Ok(Err(error)),
                    };
                    portal.ran = Some(Ran { outcome, sent: 0, hold });
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        if !is_first && let Err(error) = self.admit(&portal.statement).await {
            return Ok(Err(error));
        }
        let Some(Ran { outcome, sent, hold }) = &mut portal.ran else { return Ok(Ok(())) };
        if !is_first && outcome.columns.is_none() {
            let message = "a statement that returns no rows cannot be run twice by one portal";
            return Ok(Err(SqlError::new(NOT_IN_PREREQUISITE_STATE, message)));
        }
        if outcome.columns.is_some() && lock(&portal.statement).columns.is_none() {
            // EXECUTE of a statement prepared in SQL, whose columns are known only now.
            let message = "the columns of the result were not described before";
            let error = SqlError::new(state::FEATURE_NOT_SUPPORTED, message);
            return Ok(Err(error.hint("prepare by the protocol, or use the simple one")));
        }
        let left = outcome.rows.len() - *sent;
        let count = if rows_max == 0 { left } else { left.min(rows_max as usize) };
        if let Err(error) = self.rows(outcome, &portal.formats, *sent, *sent + count).await? {
            return Ok(Err(error));
        }
        *sent += count;
        if *sent < outcome.rows.len() {
            self.statements.out.empty(b's');
            return Ok(Ok(()));
        }
        // A SELECT counts the rows sent by this Execute, other commands the affected rows.
        if outcome.command == "SELECT" {
            outcome.count = Some(count as u64);
        }
        self.statements.out.command_complete(outcome.tag());
        // A completed portal holds nothing.
        (outcome.rows, *sent, *hold) = (Vec::new(), 0, None);
        self.report();
        Ok(Ok(()))
    }

    /// Runs a statement: in place when it is brief, else where it may block. Its commit is durable when this
    /// returns.
    async fn run(
        &mut self,
        statement: &Statement,
        params: &[Value<'static>],
    ) -> Result<Outcomes<Outcome>, Ended> {
        if let Err(error) = self.admit(statement).await {
            return Ok(Err(error));
        }
        if let Some(done) = self.deallocated(statement) {
            return Ok(Ok(done));
        }
        let copy = lock(statement).prepared.as_ref().and_then(Prepared::copy);
        if let Some(shape) = copy {
            return self.copy(statement, shape).await;
        }
        let is_brief =
            lock(statement).prepared.as_ref().is_none_or(|prepared| prepared.is_brief_with(params));
        if !is_brief {
            // Earlier results need not wait for this statement.
            self.channel.send(&mut self.statements.out).await?;
        }
        let is_alone = self.statements.session.status() == Status::Idle;
        let mut attempts = if is_alone { self.statements.session.settings().attempts.max(1) } else { 1 };
        let ends = self.statements.session.announces_at_commit()
            && lock(statement).prepared.as_ref().is_some_and(Prepared::begins_or_ends);
        let mut ticket = ends.then(|| self.mailbox.ticket());
        loop {
            attempts -= 1;
            let session = &mut self.statements.session;
            let mut submit = || match &mut lock(statement).prepared {
                Some(prepared) => session.submit(prepared, params),
                None => Err(SqlError::new(state::SYNTAX_ERROR, "there is no statement")),
            };
            let submitted = match is_brief {
                true => submit(),
                false => {
                    // Never closed; if it were, running without a permit would still be correct.
                    let _turn = self.shared.turns.acquire().await.ok();
                    run_unpinned(submit)
                }
            };
            let submitted = match submitted {
                Ok(Progress::Ran(submitted)) => submitted,
                Ok(Progress::Waits(wait)) => {
                    self.backend.waits(true);
                    let waited = self.waited(wait).await;
                    self.backend.waits(false);
                    if let Err(error) = waited {
                        self.statements.session.give_up();
                        return Ok(Err(error));
                    }
                    attempts += 1;
                    continue;
                }
                Err(error) => return Ok(Err(self.settled().await.err().unwrap_or(error))),
            };
            let announced = self.statements.session.announced();
            let mut seq = self.shared.service.database().seq();
            match submitted.commit {
                None => {}
                Some(commit) => match committed(commit).await {
                    Ok(done) => {
                        self.statements.session.committed(&done);
                        seq = done.seq;
                    }
                    Err(error) if error.is_conflict() && attempts > 0 => continue,
                    Err(error) => return Ok(Err(error.into())),
                },
            }
            self.announce(announced, seq, ticket.take());
            let outcome = submitted.outcome;
            if (outcome.columns.is_some() || self.statements.session.status() == Status::Idle)
                && let Err(error) = self.settled().await
            {
                return Ok(Err(error));
            }
            if let Some(notice) = &outcome.notice {
                self.statements.out.notice(notice);
            }
            if outcome.command == "DISCARD ALL" {
                self.statements.forget_statements();
            }
            return Ok(Ok(outcome));
        }
    }

    /// Waits for a row that another transaction has locked, without a thread or a permit.
    async fn waited(&mut self, wait: RowWait) -> Outcomes<()> {
        let stop = self.shared.service.stop().clone();
        let over = async {
            match wait.limit() {
                None => wait.over().await,
                // The verdict says whether it was in time.
                Some(limit) => drop(tokio::time::timeout(limit, wait.over()).await),
            }
        };
        tokio::select! {
            () = over => wait.verdict(),
            () = stop.wait() => Err(shutdown()),
        }
    }

    /// Waits until the commits that the statement has read are durable.
    async fn settled(&mut self) -> Outcomes<()> {
        if let Some(Seq(seq)) = self.statements.session.unsettled() {
            let database = self.shared.service.database();
            let settled = database.wait_visible_after(Seq(seq.saturating_sub(1))).await;
            settled.map_err(|error| SqlError::from(ropewalk::Error::from(error)))?;
        }
        Ok(())
    }

    /// Gives the session the rights of its caller.
    fn act(&mut self) {
        let may = |right| self.caller.may(right, None);
        let rights = Rights { read: may(Right::Read), append: may(Right::Append), admin: may(Right::Admin) };
        self.statements.session.act_for(rights, self.caller.name());
    }

    /// Rejects a dropped caller; updates the rights of the session.
    fn recognize(&mut self) -> Outcomes<()> {
        let seen = self.seen;
        let access = self.shared.service.access();
        access.revalidate(&mut self.caller, &mut self.seen).map_err(|error| refused(&error.into()))?;
        if seen != self.seen {
            self.backend.is_now(&self.caller);
            self.act();
        }
        Ok(())
    }

    /// Rejects a dropped caller or one without the right, and a write while memory is short.
    async fn admit(&mut self, statement: &Statement) -> Outcomes<()> {
        self.recognize()?;
        let service = &self.shared.service;
        if service.stop().stopping() {
            return Err(shutdown());
        }
        let session = &self.statements.session;
        let needs =
            lock(statement).prepared.as_ref().map_or(Rights::NONE, |prepared| session.needs_of(prepared));
        session.check_rights(needs)?;
        if (needs.append || needs.admin) && service.database().write_capacity() != WriteCapacity::Free {
            let store = service.default_store();
            service.admit(&self.caller, store, 0).await.map(drop).map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// DEALLOCATE of a statement prepared by the protocol, which drivers use.
    fn deallocated(&mut self, statement: &Statement) -> Option<Outcome> {
        let planned = lock(statement);
        match planned.prepared.as_ref()?.deallocates()? {
            None => {
                self.statements.forget_statements();
                None
            }
            Some(name) => self.statements.forget_statement(&name).then(Outcome::deallocated),
        }
    }
}

enum Goes {
    On,
    Away,
}

fn overflow() -> SqlError {
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "too many notifications are waiting for this connection")
        .hint("read them sooner, or listen to fewer channels")
}

pub(crate) fn shutdown() -> SqlError {
    SqlError::new(ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    /// Size of the future that `serve` returns.
    fn serve_bytes<'a, F>(
        _serve: impl Fn(&'a Shared, DuplexStream, Option<SocketAddr>, Option<&'a TlsAcceptor>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn d1_24_future_before_login_is_small() {
        let bytes = serve_bytes(serve::<DuplexStream>);
        assert!(bytes <= 3 << 10, "{bytes} bytes");
    }
}
