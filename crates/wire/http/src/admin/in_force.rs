//! The settings of the server in force, and where each came from.

use axum::Json;
use axum::extract::State;
use ropewalk_auth::{Needs, Resource};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::route::Route;
use crate::settings::SettingInForce;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::admin(Resource::AllStores), routes!(list))]
}

/// A setting in force.
#[derive(Serialize, ToSchema)]
#[schema(as = Setting)]
struct SettingOut {
    /// Its name in the settings file.
    #[schema(example = "http.listen")]
    name: String,
    /// Its value as text; empty for none.
    #[schema(example = "127.0.0.1:4780")]
    value: String,
    /// `default`, the path of a file, the name of a variable, or a flag.
    #[schema(example = "--http-listen")]
    origin: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Settings)]
struct SettingsOut {
    settings: Vec<SettingOut>,
}

/// The settings of the server in force, and where each came from. Needs the right `admin` on every store.
#[utoipa::path(
    get, path = "/v1/settings", operation_id = "list_settings", tag = "access",
    responses((status = 200, description = "All of them, in the order of the documentation.", body = SettingsOut)),
)]
async fn list(State(app): State<App>) -> Json<SettingsOut> {
    let out = |setting: &SettingInForce| SettingOut {
        name: setting.name.clone(),
        value: setting.value.clone(),
        origin: setting.origin.clone(),
    };
    Json(SettingsOut { settings: app.settings.in_force.iter().map(out).collect() })
}
