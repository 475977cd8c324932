//! The MongoDB port: accepts connections, with the same bounds as HTTP.

use std::net::SocketAddr;

use ropewalk_mongo::Mongo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::net::listen::Accepted;
use crate::net::timeout_stream::Patient;
use crate::workers::LanePort;
use crate::workers::spin_stream::Direct;

impl LanePort<Mongo> {
    /// Accepts connections for as long as it is polled.
    pub(crate) async fn serve(self) {
        tokio::spawn(self.protocol.clone().tend());
        loop {
            let Accepted::Tcp(stream, peer) = self.listener.accept().await else { continue };
            // This protocol has no message before the client's first one, so the connection is closed without
            // an error.
            let Some(entered) = self.room.enter(&self.places, peer) else { continue };
            let (mongo, tls) = (self.protocol.clone(), self.tls.clone());
            let limits = self.room.limits();
            let (opening_time, stall_time) = (limits.header_time.0, limits.stall_time.0);
            let local = stream.local_addr().ok();
            let connection = move |stream: Direct| async move {
                match tls {
                    None => speak(mongo, Patient::new(stream, opening_time, stall_time), peer, local).await,
                    // Boxed: a handshake needs memory that a connection without TLS does not.
                    Some(tls) => match tokio::time::timeout(opening_time, Box::pin(tls.accept(stream))).await
                    {
                        Ok(Ok(stream)) => {
                            speak(mongo, Patient::new(stream, opening_time, stall_time), peer, local).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
                    },
                }
            };
            let served = self.lanes.run(stream, move |stream| entered.serve(connection(stream)));
            if let Err(error) = served {
                tracing::debug!(%peer, %error, "connection ended");
            }
        }
    }
}

async fn speak<S>(mongo: Mongo, stream: Patient<S>, peer: SocketAddr, local: Option<SocketAddr>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Boxed: otherwise each future up to the first read would reserve bytes for it.
    mongo.serve(Box::new(stream), Some(peer), local).await;
}
