//! Injected failures: `configureFailPoint`, with which the test suites of drivers test their error handling.
//! Only available with `mongo.test_commands`, which must not be set for production data.
//!
//! | fail point | meets | does |
//! |---|---|---|
//! | failCommand | the commands that it lists, of one application if it names one | delays, disconnects, returns an error or a write concern error |
//! | onPrimaryTransactionalWrite | retryable writes | disconnects after the write, or fails before it |
//! | failGetMoreAfterCursorCheckout | getMore | returns an error and removes the cursor |
//! | maxTimeAlwaysTimeOut | commands with `maxTimeMS` | returns a timeout error |

use core::time::Duration;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use ropewalk::documents::lang::{Doc, DocBuf, Value, Writer};

use crate::protocol::args::Args;
use crate::protocol::failure;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::Request;

const POINTS: &[&str] =
    &["failCommand", "onPrimaryTransactionalWrite", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut"];
const DATA: &[&str] = &[
    "failCommands",
    "appName",
    "threadName",
    "errorCode",
    "errorLabels",
    "closeConnection",
    "blockConnection",
    "blockTimeMS",
    "writeConcernError",
    "failInternalCommands",
    "failBeforeCommitExceptionCode",
];
/// Commands that `onPrimaryTransactionalWrite` matches.
const WRITES: &[&str] = &["insert", "update", "delete", "findAndModify", "findandmodify"];
/// Longest delay that can be configured.
const BLOCK_MAX: Duration = Duration::from_secs(600);

/// How often a fail point triggers.
enum Mode {
    Always,
    /// The next so many matches.
    Times(u64),
    /// All but the next so many matches.
    Skip(u64),
}

struct Point {
    mode: Mode,
    data: DocBuf,
    /// Times triggered so far.
    entered: i64,
}

/// The active fail points. Without test commands none can be set.
#[derive(Default)]
pub(crate) struct FailPoints {
    /// The server was started with test commands.
    pub(crate) offered: bool,
    points: Mutex<HashMap<&'static str, Point>>,
}

/// Failures injected into one command.
#[derive(Default)]
pub(crate) struct Ordered {
    /// Delay before the command.
    pub(crate) block: Option<Duration>,
    /// Returned instead of running the command.
    pub(crate) failure: Option<Failure>,
    /// Disconnect instead of running the command.
    pub(crate) close: bool,
    /// Disconnect after the command.
    pub(crate) close_behind: bool,
    /// Remove the cursor that a getMore names.
    pub(crate) lose_cursor: bool,
    /// Added to the reply.
    pub(crate) write_concern_error: Option<DocBuf>,
    /// Labels of the reply, in place of the server's own.
    pub(crate) labels: Option<Vec<Cow<'static, str>>>,
}

impl FailPoints {
    /// No active fail points. `offered`: they can be set.
    pub(crate) fn new(offered: bool) -> Self {
        Self { offered, ..Self::default() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<&'static str, Point>> {
        self.points.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Failures to inject into a request of a client's `application`; `None` unless a test has set some.
    pub(crate) fn meet(&self, application: Option<&str>, request: &Request) -> Option<Ordered> {
        if !self.offered {
            return None;
        }
        let body = request.body();
        let (command, _) = body.first()?;
        let mut points = self.all();
        let mut ordered = None;
        for (name, point) in points.iter_mut() {
            if !meets(name, point.data.doc(), command, application, body) {
                continue;
            }
            // A fail point for writes counts statements.
            let times = if *name == "onPrimaryTransactionalWrite" { statements(request) } else { 1 };
            if (0..times).filter(|_| point.fails()).count() > 0 {
                point.order(name, command, ordered.get_or_insert_with(Ordered::default));
            }
        }
        ordered
    }

    /// Sets or removes a fail point, and reports how often it triggered before.
    ///
    /// # Errors
    /// An unknown fail point, mode or field.
    pub(crate) fn configure(&self, args: &Args<'_>) -> Outcome<Writer> {
        let asked = args.needed("configureFailPoint", args.text("configureFailPoint")?)?;
        let name = POINTS
            .iter()
            .find(|name| **name == asked)
            .ok_or_else(|| Failure::new(Code::BadValue, format!("there is no fail point {asked:?} here")))?;
        let data = args.document("data")?.unwrap_or(Doc::empty());
        Args::statement("data", data, DATA)?;
        let mode = mode(args.needed("mode", args.get("mode"))?)?;
        if *name == "failCommand"
            && mode.is_some()
            && data.get("failCommands").and_then(Value::as_array).is_none()
        {
            return Err(Failure::new(Code::BadValue, "failCommand needs an array failCommands"));
        }
        let before = match mode {
            Some(mode) => self.all().insert(name, Point { mode, data: data.to_buf(), entered: 0 }),
            None => self.all().remove(name),
        };
        let mut out = Writer::new();
        out.put("count", Value::Int64(before.map_or(0, |point| point.entered)));
        Ok(out)
    }
}

/// Number of statements of a write.
fn statements(request: &Request) -> usize {
    let fields = ["documents", "updates", "deletes"];
    let beside = fields.iter().find_map(|field| Some(request.sequence(field)?.len()));
    let within =
        || fields.iter().find_map(|field| Some(request.body().get(field)?.as_array()?.values().count()));
    beside.or_else(within).unwrap_or(1)
}

fn meets(point: &str, data: Doc<'_>, command: &str, application: Option<&str>, body: Doc<'_>) -> bool {
    let of_application = match data.get("appName").and_then(Value::as_str) {
        Some(wanted) => application == Some(wanted),
        None => true,
    };
    let met = match point {
        "failCommand" => {
            let listed = data.get("failCommands").and_then(Value::as_array);
            let names = listed.into_iter().flat_map(|listed| listed.values()).filter_map(Value::as_str);
            // Old command names differ only in case.
            names.into_iter().any(|name| name.eq_ignore_ascii_case(command))
        }
        "onPrimaryTransactionalWrite" => WRITES.contains(&command) && body.get("txnNumber").is_some(),
        "failGetMoreAfterCursorCheckout" => command == "getMore",
        _ => body.get("maxTimeMS").and_then(Value::as_integer).is_some_and(|millis| millis > 0),
    };
    of_application && met && command != "configureFailPoint"
}

impl Point {
    /// Counts a match; true if it triggers.
    fn fails(&mut self) -> bool {
        let fails = match &mut self.mode {
            Mode::Always | Mode::Skip(0) => true,
            Mode::Times(left) => {
                let fails = *left > 0;
                *left = left.saturating_sub(1);
                fails
            }
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
        };
        self.entered += i64::from(fails);
        fails
    }

    fn order(&self, name: &str, command: &str, ordered: &mut Ordered) {
        let data = self.data.doc();
        let on = |field: &str| data.get(field).is_some_and(Value::is_truthy);
        let code = |field: &str| data.get(field).and_then(Value::as_integer).map(|code| code as i32);
        let fail = |code| Failure {
            code,
            name: failure::name_of(code),
            message: format!("Failing command via '{name}' failpoint"),
            labels: Vec::new(),
            detail: None,
        };
        match name {
            "onPrimaryTransactionalWrite" => {
                ordered.failure = code("failBeforeCommitExceptionCode").map(fail);
                let close = data.get("closeConnection").is_none_or(Value::is_truthy);
                ordered.close = close && ordered.failure.is_some();
                ordered.close_behind = close && ordered.failure.is_none();
            }
            "maxTimeAlwaysTimeOut" => {
                ordered.failure = Some(Failure::new(Code::MaxTimeMSExpired, "operation exceeded time limit"));
            }
            _ => {
                if on("blockConnection") {
                    let millis = data.get("blockTimeMS").and_then(Value::as_integer).unwrap_or(0);
                    ordered.block = Some(Duration::from_millis(millis.max(0) as u64).min(BLOCK_MAX));
                }
                ordered.close = on("closeConnection");
                ordered.lose_cursor = name == "failGetMoreAfterCursorCheckout";
                ordered.failure = code("errorCode").filter(|code| *code != 0).map(fail);
                ordered.write_concern_error =
                    data.get("writeConcernError").and_then(Value::as_document).map(Doc::to_buf);
                ordered.labels = data.get("errorLabels").and_then(Value::as_array).map(|labels| {
                    labels.values().filter_map(Value::as_str).map(|label| label.to_owned().into()).collect()
                });
                tracing::debug!(command, "fail point triggered");
            }
        }
    }
}

/// `None`: off.
fn mode(mode: Value<'_>) -> Outcome<Option<Mode>> {
    let number = |value: Value<'_>| value.as_integer().and_then(|number| u64::try_from(number).ok());
    let found = match mode {
        Value::String("off") => return Ok(None),
        Value::String("alwaysOn") => Some(Mode::Always),
        Value::Document(doc) => match doc.first() {
            Some(("times", times)) => number(times).map(Mode::Times),
            Some(("skip", skip)) => number(skip).map(Mode::Skip),
            _ => None,
        },
        _ => None,
    };
    let unknown = || Failure::new(Code::BadValue, "a mode is off, alwaysOn, {times: n} or {skip: n}");
    found.map(Some).ok_or_else(unknown)
}
