//! `/api/v1/admin/tsdb`: deletion, reclaiming deleted space, and backups.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk_auth::Caller;
use ropewalk_wire::WireError;

use crate::app::App;
use crate::query::names::selectors;
use crate::request::params::Params;
use crate::request::response::{ApiError, Notes, put_labels, success};

/// `delete_series`: hides the samples immediately and permanently; 204.
pub(crate) async fn delete_series(State(app): State<App>, params: Params) -> Result<StatusCode, ApiError> {
    let from = params.time("start")?.unwrap_or(i64::MIN);
    let to = params.time("end")?.unwrap_or(i64::MAX);
    if to < from {
        return Err(ApiError::parameter("end", "end timestamp must not be before start time"));
    }
    if params.all("match[]").next().is_none() {
        return Err(ApiError::bad("no match[] parameter provided"));
    }
    let store = app.store()?;
    let work = move || -> Result<(), ApiError> {
        let selectors = selectors(&params)?;
        Ok(selectors.iter().try_for_each(|matchers| store.delete(matchers, from, to).map(drop))?)
    };
    app.wait_for(work).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// `clean_tombstones`: flushes memory and compacts files, so that deleted data leaves the disk; 204.
pub(crate) async fn clean(State(app): State<App>) -> Result<StatusCode, ApiError> {
    let db = app.service.database().clone();
    let done = app.wait_for(move || db.checkpoint().and_then(|()| db.compact())).await?;
    done.map_err(WireError::from)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `snapshot`: a backup of the complete database, of which Prometheus' snapshot is one part; returns its
/// name.
pub(crate) async fn snapshot(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, ApiError> {
    match params.get("skip_head") {
        None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => {}
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => {
            return Err(ApiError::parameter("skip_head", "a snapshot has everything that was acknowledged"));
        }
        Some(other) => {
            let why =
                format!("unable to parse boolean: strconv.ParseBool: parsing {other:?}: invalid syntax");
            return Err(ApiError::parameter("skip_head", why));
        }
    }
    let made = app.service.backup(&caller, None).await?;
    Ok(success(&Notes::default(), |out| put_labels(out, [("name", made.name.as_str())])))
}
