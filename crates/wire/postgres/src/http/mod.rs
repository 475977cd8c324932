//! `POST /v1/sql`: runs the statements of one text, with results as JSON, or the rows of one statement as
//! NDJSON, CSV or Arrow. `DELETE /v1/sql/{id}`: cancels a request that has a name.
//!
//! ```text
//! {"sql": "SELECT id, name FROM users WHERE id = $1", "params": [7]}
//! {"results": [{"command": "SELECT 1", "columns": [{"name": "id", "type": "bigint"}, …], "rows": [[7, "Ann"]]}]}
//! ```
//! Several statements are one transaction, unless they say otherwise; parameters are for a single statement.
//! No session state outlives the request but plans, which later requests of the caller use: a transaction that
//! is open at its end is rolled back, and the response is an error; earlier commits of the text remain.

mod arrow;
pub(crate) mod cancellable;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Extension, Router};
use ropewalk::Seq;
use ropewalk::tables::Value;
use ropewalk_auth::{Caller, Needs, Operation, Right};
use ropewalk_http_kit::body::{BodyError, RequestBody};
use ropewalk_http_kit::encoding::{Encoding, UnknownEncoding};
use ropewalk_http_kit::media::{MediaType, accepted};
use ropewalk_http_kit::response;
use ropewalk_http_kit::titles::statement_title;
use ropewalk_sql::{Outcome, Prepared, Progress, Rights, Settings, SqlError, StatementKind, Status, state};
use ropewalk_transactions::{
    Parameter, UsedSession, code_of, parameters, put_csv, put_ndjson, put_outcome, told,
};
use ropewalk_wire::{Code, Reservation, Service, committed, run_unpinned};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::failure::refused;
use crate::http::arrow::put_arrow;
use crate::http::cancellable::Named;
use crate::{Postgres, Shared};

/// Path of the route.
const PATH: &str = "/v1/sql";
/// Header with an id of the request, by which the caller can cancel it.
const ID_HEADER: &str = "x-statement-id";
/// Pause between two cancellations of a text past its deadline.
const CANCEL_PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    sql: String,
    #[serde(default)]
    params: Vec<Box<RawValue>>,
}

/// Form of a successful response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Results of all statements.
    Json,
    /// Rows of the only statement, one object in a line.
    Ndjson,
    /// Rows of the only statement.
    Csv,
    /// Rows of the only statement, as a stream in Arrow's IPC format.
    Arrow,
}

impl Form {
    const NDJSON: &'static str = "application/x-ndjson";
    const CSV: &'static str = "text/csv";
    const ARROW: &'static str = "application/vnd.apache.arrow.stream";

    fn of(headers: &HeaderMap) -> Self {
        match accepted(headers, &["application/json", Self::NDJSON, Self::CSV, Self::ARROW]) {
            Some(Self::NDJSON) => Self::Ndjson,
            Some(Self::CSV) => Self::Csv,
            Some(Self::ARROW) => Self::Arrow,
            _ => Self::Json,
        }
    }

    fn respond(self, body: impl Into<axum::body::Body>) -> Response {
        let mut response = response::json(body);
        let kind = match self {
            Self::Json => return response,
            Self::Ndjson => HeaderValue::from_static(Self::NDJSON),
            Self::Csv => HeaderValue::from_static("text/csv; charset=utf-8"),
            Self::Arrow => HeaderValue::from_static(Self::ARROW),
        };
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

/// The routes, with their rights.
pub(crate) fn operations() -> Vec<Operation> {
    let run = Needs::LOGIN.later("rights of each statement, see PostgreSQL");
    let cancel = Needs::LOGIN.later("only requests of the caller");
    vec![
        Operation { name: format!("POST {PATH}"), needs: run },
        Operation { name: format!("DELETE {PATH}/{{id}}"), needs: cancel },
    ]
}

impl Postgres {
    /// The routes for the HTTP port: a request must carry a [`Caller`] as extension.
    pub fn routes(&self) -> Router {
        let cancel_path = format!("{PATH}/{{id}}");
        Router::new().route(PATH, post(answer)).route(&cancel_path, delete(cancel)).with_state(self.clone())
    }
}

async fn cancel(
    State(postgres): State<Postgres>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    let shared = postgres.0;
    let timer = shared.service.metrics().request("http", "sql_cancel");
    if shared.cancellable.cancel(caller.name(), &id) {
        timer.done(Ok(()));
        return StatusCode::NO_CONTENT.into_response();
    }
    let what = format!("no request of this caller with the id {id:?} is being run");
    let error = SqlError::new(state::UNDEFINED_OBJECT, what);
    timer.done(Err(code_of(&error)));
    problem(code_of(&error), &error)
}

async fn answer(
    State(postgres): State<Postgres>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let shared = postgres.0;
    let timer = shared.service.metrics().request("http", "sql");
    let outcome = run(&shared, &caller, request).await;
    let code = |error: &SqlError| match shared.service.database().leads() {
        // The leader runs the same text.
        false if error.state == state::READ_ONLY_SQL_TRANSACTION => Code::NotLeader,
        _ => code_of(error),
    };
    timer.done(outcome.as_ref().map(|_| ()).map_err(code));
    match outcome {
        Ok(Answer { text, arrow, form, memory }) => {
            let body = if form == Form::Arrow { arrow } else { text.into_bytes() };
            form.respond(memory.hold(body))
        }
        Err(error) => problem(code(&error), &told(&error, shared.service.database().engine().dir())),
    }
}

async fn run(shared: &Shared, caller: &Caller, request: Request) -> Result<Answer, SqlError> {
    let form = Form::of(request.headers());
    let id =
        request.headers().get(ID_HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let named = id.map(|id| shared.cancellable.enter(caller.name(), &id)).transpose()?;
    let (asked, _body) = asked(&shared.service, request).await?;
    Running::new(shared, caller, named.as_ref()).run(&asked, form).await
}

/// Reads the body, which holds its memory.
async fn asked(service: &Service, request: Request) -> Result<(Asked, RequestBody), SqlError> {
    let invalid = |what: String| SqlError::new(state::INVALID_PARAMETER_VALUE, what);
    if !MediaType::of(request.headers()).is("application/json") {
        return Err(invalid("the body has to be application/json".to_owned()));
    }
    let refuse = |UnknownEncoding(text)| {
        invalid(format!("Content-Encoding {text:?}; the body must not be compressed"))
    };
    let encoding = Encoding::of(request.headers(), &[Encoding::Identity]).map_err(refuse)?;
    let body = RequestBody::read(service, request, encoding).await.map_err(|error| match error {
        BodyError::Memory(error) => refused(&error),
        BodyError::TooLarge(max) => {
            SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, format!("a body of more than {max} bytes"))
        }
        BodyError::TooSlow(_) => SqlError::new(state::QUERY_CANCELED, error.to_string()),
        BodyError::Broken(what) => invalid(what),
        BodyError::Inflate(error) => invalid(error.to_string()),
    })?;
    let asked = serde_json::from_slice(&body)
        .map_err(|error| invalid(format!("the body is not {{\"sql\": text, \"params\": [...]}}: {error}")))?;
    Ok((asked, body))
}

/// A text in execution. Its statements are cancelled at the deadline, on shutdown, and when the caller cancels
/// it. Dropped between two statements, it rolls back uncommitted changes.
struct Running<'s> {
    shared: &'s Shared,
    session: UsedSession,
    begun: Instant,
    /// Notified when the caller cancels the request, if it has a name.
    cancelled: Option<Arc<Notify>>,
    /// Cancels the statements; absent as long as only brief ones have run.
    watch: Option<JoinHandle<()>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

impl<'s> Running<'s> {
    fn new(shared: &'s Shared, caller: &Caller, named: Option<&Named>) -> Self {
        let Settings { isolation, durability, .. } = Settings::default();
        let mut session = shared.sessions.take(shared.service.database(), caller, isolation, durability);
        let may = |right| caller.may(right, None);
        let rights = Rights { read: may(Right::Read), append: may(Right::Append), admin: may(Right::Admin) };
        session.act_for(rights, caller.name());
        let cancelled = named.map(Named::cancelled);
        let mut running = Self { shared, session, begun: Instant::now(), cancelled, watch: None };
        if running.cancelled.is_some() {
            running.watch();
        }
        running
    }

    /// Cancels the statements from the deadline on, and when the caller cancels the request.
    fn watch(&mut self) {
        if self.watch.is_some() {
            return;
        }
        let service = &self.shared.service;
        let time = service.limits().request_time.saturating_sub(self.begun.elapsed());
        let (canceller, stop) = (self.session.canceller(), service.stop().clone());
        let cancelled = self.cancelled.clone().unwrap_or_default();
        self.watch = Some(tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = stop.wait() => {}
                () = cancelled.notified() => {}
            }
            // A text may have further statements.
            loop {
                canceller.cancel();
                tokio::time::sleep(CANCEL_PAUSE).await;
            }
        }));
    }

    async fn run(mut self, asked: &Asked, form: Form) -> Result<Answer, SqlError> {
        if self.shared.service.stop().stopping() {
            return Err(crate::connection::shutdown());
        }
        let answered = self.statements(asked, form).await;
        if answered.is_err() {
            self.session.fail();
        }
        if self.session.is_implicit()
            && let Some(commit) = self.session.end_implicit()?
        {
            let done = committed(commit).await?;
            self.session.committed(&done);
        }
        let answered = answered?;
        if self.session.status() != Status::Idle {
            return Err(SqlError::new(
                state::ACTIVE_SQL_TRANSACTION,
                "the transaction was still open at the end of the request and is rolled back",
            )
            .hint("send BEGIN and COMMIT in one text"));
        }
        Ok(answered)
    }

    async fn statements(&mut self, asked: &Asked, form: Form) -> Result<Answer, SqlError> {
        let located = |error: SqlError| error.located_in(&asked.sql);
        let memory = self.shared.service.answer_memory().connection().reservation();
        let mut answer = Answer { text: String::new(), arrow: Vec::new(), form, memory };
        let newest = self.shared.service.database().seq();
        if let Some(retained) = self.session.retained(&asked.sql) {
            let mut prepared = retained.map_err(located)?;
            self.planned(&mut prepared, asked, &mut answer).await?;
            self.session.retain_at(&asked.sql, prepared, newest);
            return Ok(answer.finish());
        }
        self.watch();
        let mut script = self.session.script(&asked.sql).map_err(located)?;
        let is_single = script.len() == 1;
        if !is_single && !asked.params.is_empty() {
            return Err(SqlError::new(state::SYNTAX_ERROR, "parameters go with a single statement"));
        }
        if !is_single && form != Form::Json {
            let what = "NDJSON, CSV and Arrow are the rows of a single statement";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, what));
        }
        loop {
            let planned = {
                // Never closed; if it were, running without a permit would still be correct.
                let _turn = self.shared.turns.acquire().await.ok();
                run_unpinned(|| self.session.next_of(&mut script, &[]))
            };
            let Some(prepared) = planned else { break };
            let mut prepared = prepared.map_err(located)?;
            self.planned(&mut prepared, asked, &mut answer).await?;
            if is_single {
                self.session.retain_at(&asked.sql, prepared, newest);
            }
        }
        Ok(answer.finish())
    }

    /// Runs a planned statement, and adds its result to the response.
    async fn planned(
        &mut self,
        prepared: &mut Prepared,
        asked: &Asked,
        answer: &mut Answer,
    ) -> Result<(), SqlError> {
        let given = asked.params.iter().map(|param| Parameter::from_json(param.get()));
        let params = parameters(prepared, &given.collect::<Result<Vec<_>, _>>()?)?;
        if prepared.columns().is_none() && answer.form != Form::Json {
            let what = "the statement returns no rows; NDJSON, CSV and Arrow are for rows";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, what));
        }
        // Its result must fit before it is committed.
        if prepared.columns().is_some() && prepared.kind() != Some(StatementKind::Query) {
            self.session.begin_implicit();
        }
        let outcome = self.statement(prepared, &params).await?;
        answer.push(&outcome)
    }

    /// Runs a statement. Its commit is durable when this returns.
    async fn statement(
        &mut self,
        prepared: &mut Prepared,
        params: &[Value<'static>],
    ) -> Result<Outcome, SqlError> {
        // It touches few keys, so it needs no turn and no thread for itself.
        let is_brief = prepared.is_brief_with(params);
        if !is_brief {
            self.watch();
        }
        let is_alone = self.session.status() == Status::Idle;
        let mut attempts = if is_alone { self.session.settings().attempts.max(1) } else { 1 };
        loop {
            attempts -= 1;
            let progress = if is_brief {
                self.session.submit(prepared, params)?
            } else {
                let _turn = self.shared.turns.acquire().await.ok();
                run_unpinned(|| self.session.submit(prepared, params))?
            };
            match progress {
                Progress::Waits(wait) => {
                    match wait.limit() {
                        None => wait.over().await,
                        Some(limit) => drop(tokio::time::timeout(limit, wait.over()).await),
                    }
                    if let Err(error) = wait.verdict() {
                        self.session.give_up();
                        return Err(error);
                    }
                    attempts += 1;
                }
                Progress::Ran(submitted) => {
                    if let Some(commit) = submitted.commit {
                        match committed(commit).await {
                            Ok(done) => self.session.committed(&done),
                            Err(error) if error.is_conflict() && attempts > 0 => continue,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    if let Some(Seq(seq)) = self.session.unsettled() {
                        let visible =
                            self.shared.service.database().wait_visible_after(Seq(seq.saturating_sub(1)));
                        visible.await.map_err(|error| SqlError::from(ropewalk::Error::from(error)))?;
                    }
                    return Ok(submitted.outcome);
                }
            }
        }
    }
}

/// The body of a response, built statement by statement. Its memory counts until the client has read it.
struct Answer {
    text: String,
    /// Instead of `text`, in Arrow's form.
    arrow: Vec<u8>,
    form: Form,
    memory: Reservation,
}

impl Answer {
    fn push(&mut self, outcome: &Outcome) -> Result<(), SqlError> {
        let Self { text, arrow, form, memory } = self;
        let cover = &mut |bytes| memory.try_cover(bytes);
        let put = match form {
            Form::Json => {
                text.push_str(if text.is_empty() { "{\"results\":[" } else { "," });
                put_outcome(text, outcome, cover)
            }
            Form::Ndjson => put_ndjson(text, outcome, cover),
            Form::Csv => put_csv(text, outcome, cover),
            Form::Arrow => return put_arrow(arrow, outcome, cover),
        };
        put.map_err(|error| refused(&error))
    }

    fn finish(mut self) -> Self {
        if self.form == Form::Json {
            if self.text.is_empty() {
                self.text.push_str("{\"results\":[");
            }
            self.text.push_str("]}");
        }
        self
    }
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::NoSuchLease => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::ConditionFailed | Code::TrackingConflict | Code::KeyConflict => {
            StatusCode::CONFLICT
        }
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Stopping | Code::NotLeader => StatusCode::SERVICE_UNAVAILABLE,
        Code::Timeout | Code::OutcomeUnknown => StatusCode::GATEWAY_TIMEOUT,
        Code::Corrupt | Code::Io | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::InvalidArgument | Code::IdempotencyMismatch => StatusCode::BAD_REQUEST,
    }
}

/// An error as `application/problem+json`, with the fields of PostgreSQL's protocol.
fn problem(code: Code, error: &SqlError) -> Response {
    let status = status(code);
    let mut body = serde_json::json!({
        "type": format!("urn:ropewalk:problem:{}", code.as_str()),
        "title": statement_title(code, error.state.0),
        "status": status.as_u16(),
        "detail": error.message,
        "code": code.as_str(),
        "sqlstate": error.state.0,
    });
    let about = error.about.clone().unwrap_or_default();
    let position = error.location.as_ref().and_then(|location| location.position);
    let members = [
        ("explanation", error.detail.clone()),
        ("hint", error.hint.clone()),
        ("schema", about.schema),
        ("table", about.table),
        ("column", about.column),
        ("constraint", about.constraint),
    ];
    if let Some(body) = body.as_object_mut() {
        for (name, member) in members {
            if let Some(member) = member {
                body.insert(name.to_owned(), member.into());
            }
        }
        if let Some(position) = position {
            body.insert("position".to_owned(), position.into());
        }
    }
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
    let mut response = (status, kind, body.to_string()).into_response();
    response.extensions_mut().insert(code);
    response
}

#[cfg(test)]
mod tests {
    use ropewalk::Database;
    use ropewalk_wire::ServiceSettings;

    use super::*;
    use crate::PostgresSettings;

    #[tokio::test]
    async fn plan_of_a_request_is_used_by_later_ones_of_the_caller() {
        let service = Service::new(Database::in_memory().unwrap(), ServiceSettings::default()).unwrap();
        let postgres = Postgres::new(service, PostgresSettings::default());
        let shared = &postgres.0;
        let caller = Caller::everybody();
        let run = async |sql: &str, params: &[&str]| {
            let params = params.iter().map(|param| RawValue::from_string((*param).to_owned()).unwrap());
            let asked = Asked { sql: sql.to_owned(), params: params.collect() };
            Running::new(shared, &caller, None).run(&asked, Form::Json).await.map(|answer| answer.text)
        };
        let Settings { isolation, durability, .. } = Settings::default();
        let is_retained = |sql: &str| {
            let mut session = shared.sessions.take(shared.service.database(), &caller, isolation, durability);
            session.retained(sql).is_some()
        };
        run("CREATE TABLE t (id int PRIMARY KEY, v int)", &[]).await.unwrap();
        let (insert, get) = ("INSERT INTO t VALUES ($1, 10)", "SELECT v FROM t WHERE id = $1");
        for id in ["1", "2"] {
            run(insert, &[id]).await.unwrap();
            assert!(run(get, &[id]).await.unwrap().contains("[[10]]"));
        }
        assert!(is_retained(get) && !is_retained("SELECT 1"));
        // A plan follows definitions, and the next request has no settings of an earlier one.
        run("SET timezone = 'Europe/Paris'; ALTER TABLE t ALTER COLUMN v TYPE text", &[]).await.unwrap();
        assert!(run(get, &["2"]).await.unwrap().contains(r#"[["10"]]"#));
        assert!(run("SHOW timezone", &[]).await.unwrap().contains("UTC"));
    }
}
