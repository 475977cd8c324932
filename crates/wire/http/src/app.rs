//! State available to every handler.

use std::sync::Arc;

use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;

use crate::settings::HttpSettings;

#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) settings: Arc<HttpSettings>,
    pub(crate) transactions: OpenTransactions,
}
