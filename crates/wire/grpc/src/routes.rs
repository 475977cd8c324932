use std::sync::Arc;

use ropewalk_http_kit::leader::ToLeader;
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;
use tonic::service::Routes;

use crate::admission::{self, Port};
use crate::alias::Alias;
use crate::events::Events;
use crate::health::health;
use crate::server::events::events_server::EventsServer;
use crate::server::transactions::transactions_server::TransactionsServer;
use crate::server::umadb::d_c_b_server::DCBServer;
use crate::transactions::Transactions;
use crate::umadb::Umadb;

pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("../generated/descriptors.bin");

/// Allowance for a message beyond the bytes of an append: field numbers, lengths, conditions.
const MESSAGE_ROOM: usize = 1 << 20;

/// Optional services of a port, its default store, and its way to the leader.
#[derive(Debug, Clone)]
pub struct GrpcSettings {
    /// The event store of calls that name none. Default: the service's default store, `None`.
    pub store: Option<String>,
    /// Serves the reflection protocols, so that tools need no proto files. Default true.
    pub reflection: bool,
    /// Sends writes to the leader while this node follows. Default: they are rejected with its address.
    pub leader: Option<Arc<dyn ToLeader>>,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self { store: None, reflection: true, leader: None }
    }
}

/// The services of one port, whose open transactions other ports and protocols may share. For throttling by
/// address, a connection puts tonic's `TcpConnectInfo` into its requests. Health ends with the service's stop
/// signal, so this is called in the runtime that serves.
pub async fn routes(service: &Service, transactions: &OpenTransactions, settings: &GrpcSettings) -> Routes {
    let message_bytes = service.limits().request_bytes.saturating_add(MESSAGE_ROOM);
    let store: Arc<str> = settings.store.as_deref().unwrap_or(service.default_store()).into();
    let umadb = DCBServer::new(Umadb(service.clone(), store.clone()))
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(usize::MAX);
    let events = EventsServer::new(Events(service.clone(), store.clone()))
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(usize::MAX);
    let transactions = Transactions::new(service.clone(), transactions.clone(), store.clone());
    let transactions = TransactionsServer::new(transactions)
        .max_decoding_message_size(service.limits().request_bytes)
        .max_encoding_message_size(usize::MAX);
    let mut routes = Routes::builder();
    routes
        .add_service(umadb.clone())
        .add_service(Alias(umadb))
        .add_service(events)
        .add_service(transactions)
        .add_service(health(service).await);
    if settings.reflection {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        routes
            .add_service(builder().build_v1().expect("our own descriptors are well-formed"))
            .add_service(builder().build_v1alpha().expect("our own descriptors are well-formed"));
    }
    let router = routes.routes().into_axum_router();
    let port = Port {
        service: service.clone(),
        store,
        is_of_one_store: settings.store.is_some(),
        leader: settings.leader.clone(),
    };
    Routes::from(router.layer(axum::middleware::from_fn_with_state(port, admission::admit)))
}
