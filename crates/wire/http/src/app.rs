//! State available to every handler.

use std::ops::Deref;
use std::sync::Arc;

use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;

use crate::settings::HttpSettings;

/// The state. One pointer, because each layer of a route has it, and a request clones its layers.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub(crate) service: Service,
    pub(crate) settings: HttpSettings,
    pub(crate) transactions: OpenTransactions,
}

impl App {
    pub(crate) fn new(service: Service, settings: HttpSettings, transactions: OpenTransactions) -> Self {
        Self(Arc::new(AppState { service, settings, transactions }))
    }
}

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}
