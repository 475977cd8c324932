//! A table as it is: what rows are read and written through. Immutable; a change makes a new one.
//!
//! Columns have an id for life, objects (rows, indexes, sequences) a number that is never given out again. `version` rises
//! with every change and tells a cached schema from the one in the catalog.

pub(crate) mod codec;
pub(crate) mod define;
pub(crate) mod enums;
pub(crate) mod layout;
pub(crate) mod names;

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_engine::LockMode;

use crate::error::TablesError;
use crate::schema::define::{Action, DefaultValue, Identity};
use crate::schema::enums::EnumType;
use crate::schema::layout::{Layout, LayoutColumn, Source};
use crate::schema::names::schema_and_name;
use crate::value::expr::Expr;
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::Type;
use crate::value::{Value, ValueError};

/// Columns of a table.
pub const COLUMNS_MAX: usize = 1600;
/// Columns of a primary key or an index.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Indexes, checks and foreign keys of a table, each.
pub const INDEXES_MAX: usize = 256;
/// Changes of the columns of a table that its rows can tell apart.
pub const LAYOUTS_MAX: usize = 10_000;
/// Bytes of a table's definition, which grows with every change of its columns.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// Bytes of a primary key, and of the columns of an index entry, encoded.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Bytes of a row, encoded.
pub const ROW_BYTES_MAX: usize = 16 << 20;

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
    pub(crate) default: DefaultValue,
    pub(crate) identity: Option<(Identity, u32)>,
    /// What rows show that are older than the column.
    pub(crate) missing: Value<'static>,
    /// The enum type of the column, or of its elements.
    pub(crate) labels: Option<Arc<EnumType>>,
    pub(crate) precision: Option<Precision>,
}

impl Column {
    /// The id that the column keeps when it is renamed.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn column_type(&self) -> Type {
        self.ty
    }

    /// The enum type that it is of, or its elements are.
    pub fn enum_type(&self) -> Option<&Arc<EnumType>> {
        self.labels.as_ref()
    }

    /// The value as the column keeps it: [`Value::assign`], and for an enum its labels' texts as values.
    ///
    /// # Errors
    /// It does not fit.
    pub fn assign<'v>(&self, value: Value<'v>) -> Result<Value<'v>, ValueError> {
        match &self.labels {
            None => value.assign(self.ty),
            Some(labels) => labels.read(value)?.assign(self.ty),
        }
    }

    /// The value as rows keep it: as [`Column::assign`], and no more exact than the column is.
    ///
    /// # Errors
    /// It does not fit.
    pub fn keep<'v>(&self, value: Value<'v>) -> Result<Value<'v>, ValueError> {
        let value = self.assign(value)?;
        Ok(match self.precision {
            None => value,
            Some(precision) => precision.keep(value),
        })
    }

    /// How exactly it keeps times.
    pub fn precision(&self) -> Option<Precision> {
        self.precision
    }

    /// True when NULL is allowed.
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// What a row gets that is given no value.
    pub fn default_value(&self) -> &DefaultValue {
        &self.default
    }

    /// Whether and how the column numbers its rows.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.map(|(identity, _)| identity)
    }

    /// Number of the sequence that an identity column draws from.
    pub fn sequence(&self) -> Option<u32> {
        self.identity.map(|(_, sequence)| sequence)
    }
}

/// A column or expression of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexColumn {
    /// What is indexed.
    pub expr: Expr,
    /// How it is ordered.
    pub order: KeyOrder,
    /// Its type.
    pub ty: Type,
}

/// A secondary index.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub(crate) object: u32,
    pub(crate) name: String,
    pub(crate) columns: Vec<IndexColumn>,
    pub(crate) unique: bool,
    /// It stands for no constraint.
    pub(crate) stands_alone: bool,
    /// A foreign key brought it, and nobody asked for it since.
    pub(crate) of_key: bool,
    pub(crate) filter: Option<Expr>,
    /// False while it is built: it is written, not read.
    pub(crate) ready: bool,
}

impl Index {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the object that holds its entries; another one after TRUNCATE.
    pub fn object(&self) -> u32 {
        self.object
    }

    /// What is indexed, in order.
    pub fn columns(&self) -> &[IndexColumn] {
        &self.columns
    }

    /// True when no two rows may be equal in it.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// True when it stands for a UNIQUE constraint.
    pub fn is_constraint(&self) -> bool {
        self.unique && !self.stands_alone && self.filter.is_none()
    }

    /// True when a foreign key brought it and nobody asked for it since: catalogs need not list it.
    pub fn is_of_foreign_key(&self) -> bool {
        self.of_key
    }

    /// Which rows are in it; all without one.
    pub fn filter(&self) -> Option<&Expr> {
        self.filter.as_ref()
    }

    /// False while it is being built.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Ids of its columns when it is on plain ascending columns of all rows.
    pub(crate) fn plain_columns(&self) -> Option<Vec<u16>> {
        let plain = |column: &IndexColumn| match column.expr {
            Expr::Column(crate::value::expr::ColumnRef::Id(id)) if column.order == KeyOrder::ASC => Some(id),
            _ => None,
        };
        if self.filter.is_some() { None } else { self.columns.iter().map(plain).collect() }
    }

    pub(crate) fn reads(&self, column: u16) -> bool {
        self.columns.iter().any(|c| c.expr.reads(column))
            || self.filter.as_ref().is_some_and(|f| f.reads(column))
    }
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignKey {
    pub(crate) name: String,
    pub(crate) columns: Vec<u16>,
    pub(crate) parent: u32,
    pub(crate) parent_columns: Vec<u16>,
    pub(crate) on_delete: Action,
    pub(crate) on_update: Action,
    /// The index over `columns` by which children are found.
    pub(crate) index: u32,
}

impl ForeignKey {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when an action of the key may put NULL into the column.
    pub(crate) fn sets_null(&self, column: u16) -> bool {
        [self.on_delete, self.on_update].contains(&Action::SetNull) && self.columns.contains(&column)
    }

    /// Ids of its columns.
    pub fn columns(&self) -> &[u16] {
        &self.columns
    }

    /// Ids of the columns that it refers to.
    pub fn parent_columns(&self) -> &[u16] {
        &self.parent_columns
    }

    /// Number of the table it refers to.
    pub fn parent(&self) -> u32 {
        self.parent
    }

    /// What a deleted parent does.
    pub fn on_delete(&self) -> Action {
        self.on_delete
    }

    /// What a changed parent does.
    pub fn on_update(&self) -> Action {
        self.on_update
    }
}

/// A named condition on every row.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    pub(crate) name: String,
    pub(crate) expr: Expr,
}

impl Check {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What must not be false.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }
}

/// What the catalog keeps of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts {
    pub(crate) id: u32,
    pub(crate) version: u32,
    pub(crate) name: String,
    /// The object that holds the rows.
    pub(crate) rows: u32,
    /// The sequence that numbers the rows of a table without a primary key.
    pub(crate) rowid: Option<u32>,
    pub(crate) key: Vec<u16>,
    pub(crate) key_name: String,
    pub(crate) next_column: u16,
    pub(crate) columns: Vec<Column>,
    pub(crate) layouts: Vec<Vec<LayoutColumn>>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) checks: Vec<Check>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// Tables with foreign keys to this one.
    pub(crate) referenced_by: Vec<u32>,
}

impl Parts {
    /// The columns that rows keep outside their key.
    pub(crate) fn stored(&self) -> Vec<LayoutColumn> {
        let in_key = |column: &Column| self.key.contains(&column.id) && column.ty.is_exact_in_keys();
        let stored = self.columns.iter().filter(|column| !in_key(column));
        stored.map(|c| LayoutColumn { id: c.id, ty: c.ty, nullable: c.nullable }).collect()
    }

    /// Adds the layout that the columns now need, if it is new.
    pub(crate) fn renew_layout(&mut self) -> Result<(), String> {
        let stored = self.stored();
        if self.layouts.last() != Some(&stored) {
            if self.layouts.len() >= LAYOUTS_MAX {
                return Err(format!(
                    "its columns have been changed {LAYOUTS_MAX} times; copy it into a new table"
                ));
            }
            self.layouts.push(stored);
        }
        Ok(())
    }

    /// Every object that holds keys of this table.
    pub(crate) fn objects(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.rows).chain(self.indexes.iter().map(|index| index.object))
    }

    /// Every sequence.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = u32> {
        self.rowid.into_iter().chain(self.columns.iter().filter_map(|c| Some(c.identity?.1)))
    }
}

/// A table as of one version of its definition.
#[derive(Debug)]
pub struct Schema {
    pub(crate) parts: Parts,
    layouts: Vec<Layout>,
    key: Vec<usize>,
    /// Per column: which key column holds it exactly.
    key_sources: Vec<Option<usize>>,
    /// Per layout and column.
    sources: Vec<Vec<Source>>,
    /// Columns of the newest layout, by their place in the schema.
    stored: Vec<usize>,
}

impl Schema {
    pub(crate) fn new(parts: Parts) -> Self {
        let place = |id: u16| parts.columns.iter().position(|c| c.id == id);
        let key: Vec<usize> = parts.key.iter().filter_map(|id| place(*id)).collect();
        let key_sources: Vec<Option<usize>> = (0..parts.columns.len())
            .map(|index| {
                let exact = parts.columns.get(index).is_some_and(|c| c.ty.is_exact_in_keys());
                key.iter().position(|k| *k == index).filter(|_| exact)
            })
            .collect();
        let layouts: Vec<Layout> = parts.layouts.iter().cloned().map(Layout::new).collect();
        let sources = layouts
            .iter()
            .map(|layout| {
                // A map, since both lists may have COLUMNS_MAX columns and there may be many layouts.
                let places: HashMap<u16, usize> =
                    layout.columns.iter().enumerate().map(|(place, column)| (column.id, place)).collect();
                let columns = parts.columns.iter().zip(&key_sources);
                columns
                    .map(|(column, in_key)| match (in_key, places.get(&column.id)) {
                        (Some(ordinal), _) => Source::Key(*ordinal),
                        (None, Some(place)) => Source::Layout(*place),
                        (None, None) => Source::Missing,
                    })
                    .collect()
            })
            .collect();
        let newest = layouts.last().map(|l| l.columns.as_slice()).unwrap_or_default();
        let stored = newest.iter().filter_map(|column| place(column.id)).collect();
        Self { layouts, key, key_sources, sources, stored, parts }
    }

    /// The table's number, for life.
    pub fn id(&self) -> u32 {
        self.parts.id
    }

    /// The table's name, as it is kept: see [`crate::schema::names::schema_and_name`].
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The table's name in its schema.
    pub fn own_name(&self) -> &str {
        schema_and_name(&self.parts.name).1
    }

    /// Rises with every change of the definition.
    pub fn version(&self) -> u32 {
        self.parts.version
    }

    /// Number of the object that holds the rows in the order of the primary key; another one after TRUNCATE.
    pub fn rows_object(&self) -> u32 {
        self.parts.rows
    }

    /// Name of the primary key, whether there is one or not.
    pub fn key_name(&self) -> &str {
        &self.parts.key_name
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.parts.columns
    }

    /// Indexes in [`Schema::columns`] of the primary key; empty without one.
    pub fn key_columns(&self) -> &[usize] {
        &self.key
    }

    /// How a row is locked whose columns at the places that `is_set` names are changed: whoever refers to it need not wait while
    /// what it is found by stays.
    pub fn lock_of_change(&self, is_set: &dyn Fn(&usize) -> bool) -> LockMode {
        let is_read = |index: &Index| {
            let mut columns = self.columns().iter().enumerate();
            columns.any(|(place, column)| is_set(&place) && index.reads(column.id))
        };
        let moves = self.key.iter().any(is_set) || self.parts.indexes.iter().any(|i| i.unique && is_read(i));
        if moves { LockMode::Update } else { LockMode::NoKeyUpdate }
    }

    /// The secondary indexes.
    pub fn indexes(&self) -> &[Index] {
        &self.parts.indexes
    }

    /// The checks.
    pub fn checks(&self) -> &[Check] {
        &self.parts.checks
    }

    /// The foreign keys of this table.
    pub fn foreign_keys(&self) -> &[ForeignKey] {
        &self.parts.foreign_keys
    }

    /// The place of a column.
    ///
    /// # Errors
    /// [`TablesError::UnknownColumn`].
    pub fn index_of(&self, name: &str) -> Result<usize, TablesError> {
        let found = self.columns().iter().position(|column| column.name == name);
        found.ok_or_else(|| self.unknown_column(name))
    }

    /// The index called `name`, if it can be read.
    ///
    /// # Errors
    /// [`TablesError::UnknownIndex`].
    pub fn index_named(&self, name: &str) -> Result<&Index, TablesError> {
        let found = self.indexes().iter().find(|index| index.name == name && index.ready);
        found.ok_or_else(|| TablesError::UnknownIndex {
            table: self.name().to_owned(),
            index: name.to_owned(),
        })
    }

    pub(crate) fn unknown_column(&self, name: &str) -> TablesError {
        TablesError::UnknownColumn { table: self.name().to_owned(), column: name.to_owned() }
    }

    #[inline]
    pub(crate) fn column_at(&self, index: usize) -> Result<&Column, TablesError> {
        self.columns().get(index).ok_or_else(|| self.unknown_column(&format!("number {index}")))
    }

    pub(crate) fn place_of(&self, id: u16) -> Option<usize> {
        self.columns().iter().position(|column| column.id == id)
    }

    #[inline]
    pub(crate) fn key_source(&self, index: usize) -> Option<usize> {
        self.key_sources.get(index).copied().flatten()
    }

    #[inline]
    pub(crate) fn layout_source(&self, number: usize, index: usize) -> Option<(&Layout, Source)> {
        Some((self.layouts.get(number)?, *self.sources.get(number)?.get(index)?))
    }

    /// Appends the row of `values`, one per column, in the newest layout.
    pub(crate) fn put_row(&self, values: &[Value<'_>], out: &mut Vec<u8>) {
        let Some(layout) = self.layouts.last() else { return };
        let stored = self.stored.iter().filter_map(|place| values.get(*place));
        layout.put(self.layouts.len() - 1, stored, out);
    }
}
