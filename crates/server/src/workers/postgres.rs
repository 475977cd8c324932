//! The PostgreSQL port: accepts connections, with the same bounds as HTTP.

use std::sync::Arc;

use ropewalk_postgres::Postgres;
use tokio::sync::Semaphore;

use crate::net::listen::Accepted;
use crate::net::timeout_stream::Patient;
use crate::workers::LanePort;

/// Clients beyond the limit that still get an error message; further ones are disconnected without one.
const TURNED_AWAY: usize = 64;

impl LanePort<Postgres> {
    /// Accepts connections for as long as it is polled.
    pub(crate) async fn serve(self) {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
        loop {
            let Accepted::Tcp(stream, peer) = self.listener.accept().await else { continue };
            let limits = self.room.limits();
            let (opening_time, stall_time) = (limits.header_time.0, limits.stall_time.0);
            let (postgres, tls) = (self.protocol.clone(), self.tls.clone());
            match self.room.enter(&self.places, peer) {
                Some(entered) => {
                    let served = self.lanes.run(stream, move |stream| async move {
                        // Boxed: otherwise each future up to the first read would reserve bytes for it.
                        let stream = Box::new(Patient::new(stream, opening_time, stall_time));
                        entered.serve(postgres.serve(stream, Some(peer), tls.as_ref())).await;
                    });
                    if let Err(error) = served {
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                }
                None => {
                    let Ok(turn) = turned_away.clone().try_acquire_owned() else { continue };
                    tokio::spawn(async move {
                        let stream = Patient::new(stream, opening_time, stall_time);
                        postgres.turn_away(stream, tls.as_ref()).await;
                        drop(turn);
                    });
                }
            }
        }
    }
}
