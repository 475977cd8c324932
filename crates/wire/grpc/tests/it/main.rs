//! The gRPC services over real sockets: a client per test, a database in memory, a separate port.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod access;
#[path = "../../../../promql/tests/it/allocations.rs"]
mod allocations;
mod bombs;
#[path = "../../../core/tests/cluster/mod.rs"]
mod cluster;
mod ending;
mod events;
mod generated;
mod health;
mod in_cluster;
mod limits;
#[path = "../../../core/tests/matrix/mod.rs"]
mod matrix;
mod rights;
mod transactions;
mod umadb;

use core::time::Duration;
use std::future::Future;

use ropewalk::Database;
use ropewalk_grpc::GrpcSettings;
use ropewalk_grpc::proto::ropewalk::events::v1::events_client::EventsClient;
use ropewalk_grpc::proto::ropewalk::v1::transactions_client::TransactionsClient;
use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::{Limits, Service, ServiceSettings};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

/// A server with a client's connection to it.
pub struct Server {
    pub service: Service,
    pub transactions: OpenTransactions,
    pub channel: Channel,
    pub address: String,
    serving: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let settings = ServiceSettings { limits, ..ServiceSettings::default() };
        let service = Service::new(Database::in_memory().unwrap(), settings).unwrap();
        let connections = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("http://{}", connections.local_addr().unwrap());
        let transactions = OpenTransactions::new(service.clone());
        let serving = serve(&service, &transactions, GrpcSettings::default(), connections).await;
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        Self { service, transactions, channel, address, serving }
    }

    /// A connection to another port of the server, whose store is this one.
    pub async fn port(&self, store: &str) -> Channel {
        let connections = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("http://{}", connections.local_addr().unwrap());
        let settings = GrpcSettings { store: Some(store.to_owned()), ..GrpcSettings::default() };
        serve(&self.service, &self.transactions, settings, connections).await;
        Endpoint::from_shared(address).unwrap().connect().await.unwrap()
    }

    pub fn umadb(&self) -> DcbClient<Channel> {
        DcbClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub fn events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone())
    }

    pub fn transactions(&self) -> TransactionsClient<Channel> {
        TransactionsClient::new(self.channel.clone())
    }

    /// Waits for the server to end after it was stopped.
    pub async fn ended(self) {
        drop(self.channel);
        within(self.serving).await.unwrap();
    }
}

async fn serve(
    service: &Service,
    transactions: &OpenTransactions,
    settings: GrpcSettings,
    connections: TcpIncoming,
) -> JoinHandle<()> {
    let routes = ropewalk_grpc::routes(service, transactions, &settings).await;
    let stop = service.stop().clone();
    let serving = tonic::transport::Server::builder()
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, async move { stop.wait().await });
    tokio::spawn(async move { serving.await.unwrap() })
}

/// Ends a test that hangs.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("must not hang")
}

/// Waits until `done`.
pub async fn until(mut done: impl FnMut() -> bool) {
    within(async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
