//! Tables inside a transaction: the visible schema, and the guards of writes.
//!
//! A transaction that writes rows depends on the table's definition as it knows it, at any isolation: the
//! definition is guarded. So a commit after another transaction's CREATE INDEX cannot leave that index
//! without its rows. A read committed transaction that changes a definition reads one snapshot from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_base::{Seq, is_rebuild_name};
use ropewalk_engine::{
    EachEntry, Isolation, KeySpan, Keyspace, KvTransaction, LockError, LockMode, Operation,
};

use crate::catalog::tables::Tables;
use crate::catalog::{Spaces, name_key, number, object_range, table_key};
use crate::error::{Result, TablesError};
use crate::read::TablesRead;
use crate::read::sealed::Sealed;
use crate::read::table::{Table, find};
use crate::row::OwnedRow;
use crate::row::keys::put_row_key;
use crate::schema::{Parts, Schema};
use crate::value::Value;
use crate::write::Keys;
use crate::write::commit::DdlOperation;
use crate::write::frontier::Frontiers;
use crate::write::loaded::Loaded;

/// State of a transaction on tables, in addition to its writes.
#[derive(Default)]
pub struct TablesState {
    /// Tables whose definitions it changed.
    pub(super) ddl: BTreeSet<u32>,
    /// Tables whose definitions are guarded.
    guarded: BTreeSet<u32>,
    pub(super) schemas: BTreeMap<u32, Arc<Schema>>,
    /// Tables by name, as committed; their reads are recorded.
    names: BTreeMap<String, Option<Table>>,
    /// The commit at which schemas and names were read.
    schemas_at: Seq,
    /// Objects that it loaded, bypassing the log.
    pub(crate) loaded: Vec<Loaded>,
    pub(crate) frontiers: Frontiers,
    /// Buffer of the next statement.
    pub(super) peeked: Keys,
    /// It rebuilds a projection.
    is_rebuild: bool,
}

impl TablesState {
    /// Allows the names of tables that are reserved for rebuilds of projections.
    pub fn mark_rebuild(&mut self) {
        self.is_rebuild = true;
    }

    /// True when it loaded objects, bypassing the log.
    pub fn has_loaded(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// To be called after the transaction's writes were rolled back to a mark.
    pub fn rolled_back(&mut self) {
        self.guarded.clear();
        self.schemas.clear();
    }

    /// The operation to commit in addition to the writes. If it loaded tables, call
    /// [`Tables::remove_orphaned_loads`] after the commit.
    pub fn operation(&mut self) -> Option<Box<dyn Operation>> {
        let tables: Vec<u32> = self.ddl.iter().copied().collect();
        let loading = self.loaded.iter().flat_map(Loaded::keys).collect();
        self.loaded.drain(..).for_each(Loaded::hand_over);
        if tables.is_empty() { None } else { Some(Box::new(DdlOperation { tables, loading })) }
    }
}

/// The tables as one transaction reads and writes them.
pub struct TablesTx<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) kv: &'a mut KvTransaction,
    pub(crate) state: &'a mut TablesState,
}

impl<'a> TablesTx<'a> {
    /// Rejects a new name that is reserved for rebuilds of projections.
    pub(crate) fn check_unreserved(&self, name: &str) -> Result<()> {
        if !self.state.is_rebuild && is_rebuild_name(name) {
            return Err(TablesError::ReservedName { name: name.to_owned() });
        }
        Ok(())
    }

    /// The tables within a transaction; `state` begins empty and belongs to the transaction.
    pub fn new(tables: &'a Tables, kv: &'a mut KvTransaction, state: &'a mut TablesState) -> Self {
        Self { tables, kv, state }
    }

    /// A handle on the table `name`, own definitions included.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn table(&mut self, name: &str) -> Result<Table> {
        self.begin();
        self.named_table(name)?.ok_or_else(|| TablesError::UnknownTable { name: name.to_owned() })
    }

    /// The number of the table `name`.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<u32>> {
        Ok(self.named_table(name)?.map(|table| table.id()))
    }

    fn named_table(&mut self, name: &str) -> Result<Option<Table>> {
        let (tables, catalog) = (self.tables, self.spaces().catalog);
        let handle = |id| Table::new(&tables.model, id, name);
        self.forget_older();
        // A name is written together with a definition.
        if self.state.ddl.is_empty() || !self.kv.wrote(catalog, &name_key(name)) {
            // A projection asks for its table at each event: one recorded read is enough.
            if let Some(found) = self.state.names.get(name) {
                return Ok(found.clone());
            }
            let found = find(&tables.model, self.kv.snapshot().reading().view(), name)?.map(handle);
            self.kv.note_read(catalog, &name_key(name));
            self.state.names.insert(name.to_owned(), found.clone());
            return Ok(found);
        }
        Ok(self.kv.get(catalog, &name_key(name))?.as_deref().and_then(number).map(handle))
    }

    /// True if `key` is after all rows of the object `rows`; false also if that is not known without a search.
    pub(super) fn is_after_all_rows(&mut self, rows: u32, key: &[u8]) -> Result<bool> {
        let space = self.spaces().rows;
        let is_plain = self.state.ddl.is_empty() && self.state.loaded.is_empty();
        let Some(frontier) = self.state.frontiers.worthwhile(rows).filter(|_| is_plain) else {
            return Ok(false);
        };
        let snapshot = self.kv.snapshot();
        frontier.is_before(key, || {
            let (start, end) = object_range(rows);
            let (end, mut last) = (end.as_ref().map(<[u8; 4]>::as_slice), Vec::new());
            snapshot.reading().view().visit(
                space,
                KeySpan { start: &start, end, backward: true },
                |key, _| {
                    last.extend_from_slice(key);
                    false
                },
            )?;
            Ok(last)
        })
    }

    /// Forgets definitions that were read at an earlier snapshot.
    fn forget_older(&mut self) {
        let at = self.kv.snapshot().seq();
        if self.state.schemas_at != at {
            // Another transaction's change may be visible by now; own ones are found in the own writes.
            self.state.schemas.clear();
            self.state.names.clear();
            self.state.frontiers.forget_stored();
            self.state.schemas_at = at;
        }
    }

    pub(crate) fn schema_by_id(&mut self, id: u32) -> Result<Arc<Schema>> {
        match self.state.schemas.get(&id) {
            Some(schema) => Ok(schema.clone()),
            None => self.schema_of(&Table::new(&self.tables.model, id, &format!("number {id}"))),
        }
    }

    /// Guards the definition, on which the following reads and writes depend.
    pub(crate) fn guard_schema(&mut self, schema: &Schema) {
        // Also for a definition that the transaction changed itself: that change may yet be rolled back.
        if self.state.guarded.insert(schema.id()) {
            self.kv.guard_key(self.spaces().catalog, &table_key(schema.id()));
        }
    }

    /// Locks a key of the rows, if the statement takes locks.
    pub(crate) fn hold(&mut self, key: &[u8], mode: LockMode, waits: bool) -> Result<()> {
        if self.kv.is_locking() {
            self.kv.lock(self.spaces().rows, key, mode, waits)?;
        }
        Ok(())
    }

    /// True in a statement that locks the rows it writes.
    pub fn is_locking(&self) -> bool {
        self.kv.is_locking()
    }

    /// Locks rows that were read in this statement before they are written: `places` are the columns to
    /// change, `None` to delete them. All are locked before a concurrent change of one restarts the
    /// statement.
    ///
    /// # Errors
    /// [`TablesError::Lock`].
    pub fn lock_rows(&mut self, rows: &[OwnedRow], places: Option<&[usize]>) -> Result<()> {
        let mut changed = Ok(());
        for row in rows {
            let mode = places.map_or(LockMode::Update, |places| {
                row.schema().lock_of_change(&|place| places.contains(place))
            });
            let held = self.hold(row.key(), mode, true);
            match self.kv.needs_statement_restart() {
                true => changed = changed.and(held),
                false => held?,
            }
        }
        if self.kv.needs_statement_restart() { Err(LockError::Again.into()) } else { changed }
    }

    /// Locks a row that was read in this statement, to write it or to prevent its change. Without `waits` it
    /// returns false if another transaction holds the lock. A row changed since it was read restarts the
    /// statement. For statements that lock.
    ///
    /// # Errors
    /// [`TablesError::Lock`]; values that are not a key of the table.
    pub fn lock(&mut self, table: &Table, key: &[Value<'_>], mode: LockMode, waits: bool) -> Result<bool> {
        let schema = self.schema_of(table)?;
        let mut row_key = Vec::new();
        put_row_key(&schema, key, &mut row_key)?;
        match self.hold(&row_key, mode, waits) {
            Err(TablesError::Lock(LockError::Taken)) => Ok(false),
            held => held.map(|()| true),
        }
    }

    /// True when the isolation level does not validate ranges that were read.
    pub(crate) fn guards_ranges(&self) -> bool {
        self.kv.isolation() != Isolation::Serializable
    }
}

impl Sealed for TablesTx<'_> {}

impl TablesRead for TablesTx<'_> {
    fn begin(&mut self) {
        self.kv.begin_statement();
        self.forget_older();
    }

    #[allow(private_interfaces)] // the trait is sealed
    fn spaces(&self) -> Spaces {
        self.tables.model.spaces()
    }

    fn schema_of(&mut self, table: &Table) -> Result<Arc<Schema>> {
        let id = table.id();
        if let Some(schema) = self.state.schemas.get(&id) {
            return Ok(schema.clone());
        }
        let catalog = self.spaces().catalog;
        let schema = if self.state.ddl.contains(&id) {
            let stored = self.kv.get(catalog, &table_key(id))?.ok_or_else(|| table.unknown())?;
            let parts = Parts::decode(&stored).map_err(TablesError::damaged(format!("definition {id}")))?;
            Arc::new(Schema::new(parts))
        } else {
            self.kv.note_read(catalog, &table_key(id));
            table.schema_at(&self.tables.model, self.kv.snapshot().reading().view())?
        };
        self.state.schemas.insert(id, schema.clone());
        Ok(schema)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.kv.get(self.spaces().rows, key)?)
    }

    fn walk(&mut self, keyspace: Keyspace, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()> {
        Ok(self.kv.visit(keyspace, span, each)?)
    }
}
