//! The client of a connection, as commands see it.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use ropewalk_auth::{Caller, Credentials, ScramExchange};

use crate::protocol::compress::Compressor;
use crate::protocol::failure::Outcome;
use crate::state::Shared;
use crate::state::operations::Seated;

/// The client of a connection.
pub(crate) struct Client {
    /// Number of the connection.
    pub(crate) connection: i32,
    /// Where the connection records what it runs.
    pub(crate) seat: Seated,
    /// The peer's address.
    pub(crate) peer: Option<IpAddr>,
    /// The same, with the port.
    pub(crate) peer_text: String,
    /// The server's address that the client connected to.
    pub(crate) local: Option<String>,
    /// The caller, after login.
    pub(crate) caller: Option<Caller>,
    /// Version of users and tokens when the caller was last checked.
    pub(crate) seen: u64,
    /// A login in progress.
    pub(crate) login: Option<Conversation>,
    /// The mechanism by which the client logged in.
    pub(crate) logged_in: bool,
    /// The application's name, as the client reported it.
    pub(crate) application: Option<String>,
    /// The current write had been executed before; only its result is repeated.
    pub(crate) answered_again: AtomicBool,
    /// The negotiated compressors.
    pub(crate) compressors: Vec<Compressor>,
}

impl Client {
    /// Authenticates the client again; while there are no users, every client is admitted.
    ///
    /// # Errors
    /// Users cannot be read.
    pub(crate) async fn look_again(&mut self, shared: &Shared) -> Outcome<()> {
        let access = shared.service.access();
        if let Some(caller) = &mut self.caller
            && access.revalidate(caller, &mut self.seen).is_ok()
        {
            return Ok(());
        }
        self.caller = access.authenticate(Credentials::None, self.peer).await.ok();
        self.logged_in = false;
        Ok(())
    }
}

/// A login in progress.
pub(crate) enum Conversation {
    /// The server's first message has been sent.
    Proof(Box<ScramExchange>, bool),
    /// The client is authenticated, and has one more empty message to send.
    Empty,
}

/// The client's connection while a command runs.
pub(crate) trait Line: Sync {
    /// True once the client has disconnected. Cheap enough to call every few hundred documents.
    fn is_dead(&self) -> bool;
}
