//! Serves a database over gRPC: `cargo run -p ropewalk-grpc --example serve -- DIR [ADDRESS]`. The smallest program that
//! does; `ropewalk serve` is the one for use.

use std::error::Error;

use ropewalk::Database;
use ropewalk_grpc::GrpcSettings;
use ropewalk_wire::{Service, ServiceSettings};
use tonic::transport::server::TcpIncoming;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: serve DIR [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let service = Service::new(Database::open(dir)?, ServiceSettings::default())?;
    let connections = TcpIncoming::bind(address.parse()?)?.with_nodelay(Some(true));
    let stop = service.stop().clone();
    tokio::spawn(async move {
        // Without the signal there is nothing to do but to serve on.
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.begin();
        }
    });
    ropewalk_grpc::serve(service.clone(), GrpcSettings::default(), connections).await?;
    service.database().clone().close()?;
    Ok(())
}
