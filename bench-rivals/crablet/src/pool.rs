//! A bounded set of connections, each with the statements that it has prepared.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, Config, NoTls, Statement};

/// All connections, opened at the start.
pub struct Pool {
    free: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// A pooled connection.
pub struct Connection {
    pub client: Client,
    statements: HashMap<String, Statement>,
}

/// A borrowed connection, returned to the pool on drop.
pub struct Loan<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub async fn connect(socket: &Path, connections: usize) -> Result<Self> {
        let mut free = Vec::with_capacity(connections);
        for _ in 0..connections {
            let mut config = Config::new();
            config.host_path(socket).user("postgres").dbname("postgres");
            let (client, connection) = config.connect(NoTls).await.context("connecting to PostgreSQL")?;
            tokio::spawn(connection);
            free.push(Connection { client, statements: HashMap::new() });
        }
        Ok(Self { free: Mutex::new(free), permits: Semaphore::new(connections) })
    }

    /// Waits for a free connection.
    pub async fn get(&self) -> Result<Loan<'_>> {
        let permit = self.permits.acquire().await?;
        let connection = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Loan { pool: self, connection, _permit: permit })
    }
}

impl Connection {
    /// Prepares a statement unless this connection has it already.
    pub async fn statement(&mut self, text: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(text).await?;
        self.statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Deref for Loan<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("there is one for each permit")
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("there is one for each permit")
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.connection.take());
    }
}
