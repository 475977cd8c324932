//! The definition of a table, through which rows are read and written. Immutable; a change makes a new
//! version.
//!
//! Columns have a fixed id, objects (rows, indexes, sequences) a number that is never reused. `version`
//! grows with every change and distinguishes a cached schema from the one in the catalog.

pub(crate) mod codec;
pub(crate) mod covering;
pub(crate) mod define;
pub(crate) mod enums;
pub(crate) mod layout;
pub(crate) mod names;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ropewalk_engine::LockMode;

use crate::error::{Result, TablesError};
use crate::schema::covering::Covering;
use crate::schema::define::{Action, DefaultValue, Deferral, Identity, OperatorClass};
use crate::schema::enums::EnumType;
use crate::schema::layout::{Layout, LayoutColumn, Source};
use crate::schema::names::schema_and_name;
use crate::value::expr::{Binary, Expr, Function};
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::Type;
use crate::value::{Value, ValueError};

/// Most columns of a table.
pub const COLUMNS_MAX: usize = 1600;
/// Most columns of a primary key or an index.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Most indexes, checks and foreign keys of a table, each.
pub const INDEXES_MAX: usize = 256;
/// Most layouts of a table's columns.
pub const LAYOUTS_MAX: usize = 10_000;
/// Most bytes of a table's definition, which grows with every change of its columns.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a primary key, and of the columns of an index entry, encoded.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a row, encoded.
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
    /// Value of the column in rows older than the column.
    pub(crate) missing: Value<'static>,
    /// The enum type of the column, or of its elements.
    pub(crate) labels: Option<Arc<EnumType>>,
    pub(crate) precision: Option<Precision>,
    /// The expression that computes its values.
    pub(crate) generated: Option<Expr>,
    pub(crate) collation: Option<String>,
}

impl Column {
    /// The id of the column, which a rename does not change.
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

    /// The enum type of the column, or of its elements.
    pub fn enum_type(&self) -> Option<&Arc<EnumType>> {
        self.labels.as_ref()
    }

    /// Converts a value to the column's type: [`Value::assign`], and for an enum texts to labels.
    ///
    /// # Errors
    /// It does not fit.
    pub fn assign<'v>(&self, value: Value<'v>) -> Result<Value<'v>, ValueError> {
        match &self.labels {
            None => value.assign(self.ty),
            Some(labels) => labels.read(value)?.assign(self.ty),
        }
    }

    /// Converts a value to its stored form: as [`Column::assign`], rounded to the column's precision.
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

    /// Precision of stored times.
    pub fn precision(&self) -> Option<Precision> {
        self.precision
    }

    /// True when NULL is allowed.
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// Value for inserts that give none.
    pub fn default_value(&self) -> &DefaultValue {
        &self.default
    }

    /// Whether and how the column numbers its rows.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.map(|(identity, _)| identity)
    }

    /// The name of the collation that it was declared with.
    pub fn collation(&self) -> Option<&str> {
        self.collation.as_deref()
    }

    /// The expression over the other columns that computes its values.
    pub fn generated(&self) -> Option<&Expr> {
        self.generated.as_ref()
    }

    /// Number of the sequence that an identity column draws from.
    pub fn sequence(&self) -> Option<u32> {
        self.identity.map(|(_, sequence)| sequence)
    }
}

/// A column or expression of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexColumn {
    /// The indexed column or expression.
    pub expr: Expr,
    /// Sort order.
    pub order: KeyOrder,
    /// Its type.
    pub ty: Type,
    /// Its operator class.
    pub class: OperatorClass,
}

/// A secondary index.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub(crate) object: u32,
    pub(crate) name: String,
    pub(crate) columns: Vec<IndexColumn>,
    pub(crate) unique: bool,
    /// Not a constraint.
    pub(crate) stands_alone: bool,
    /// Created by a foreign key, and not explicitly since.
    pub(crate) of_key: bool,
    pub(crate) filter: Option<Expr>,
    /// Columns that its entries hold in addition.
    pub(crate) include: Vec<u16>,
    /// For a unique one: NULLs are equal.
    pub(crate) nulls_equal: bool,
    /// When its uniqueness is checked.
    pub(crate) deferral: Deferral,
    /// False while it is being built: writes maintain it, reads do not use it.
    pub(crate) ready: bool,
}

impl Index {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the object that holds its entries; TRUNCATE changes it.
    pub fn object(&self) -> u32 {
        self.object
    }

    /// The indexed columns and expressions, in order.
    pub fn columns(&self) -> &[IndexColumn] {
        &self.columns
    }

    /// True when no two rows may be equal in it, at the latest when a transaction commits.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// True when no two rows are equal in it at any time.
    pub fn is_always_unique(&self) -> bool {
        self.unique && !self.deferral.is_deferrable()
    }

    /// When its uniqueness is checked.
    pub fn deferral(&self) -> Deferral {
        self.deferral
    }

    /// True for a unique index in which NULLs are equal.
    pub fn has_equal_nulls(&self) -> bool {
        self.nulls_equal
    }

    /// Ids of the columns that its entries hold in addition.
    pub fn included(&self) -> &[u16] {
        &self.include
    }

    /// True for the index of a UNIQUE constraint.
    pub fn is_constraint(&self) -> bool {
        self.unique && !self.stands_alone && self.filter.is_none()
    }

    /// True for an index created by a foreign key, and not explicitly since: catalogs need not list it.
    pub fn is_of_foreign_key(&self) -> bool {
        self.of_key
    }

    /// Condition of a partial index; `None`: all rows are in it.
    pub fn filter(&self) -> Option<&Expr> {
        self.filter.as_ref()
    }

    /// False while it is being built.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Ids of its columns when it is on plain ascending columns of all rows.
    pub fn plain_columns(&self) -> Option<Vec<u16>> {
        let plain = |column: &IndexColumn| match column.expr {
            Expr::Column(crate::value::expr::ColumnRef::Id(id)) if column.order == KeyOrder::ASC => Some(id),
            _ => None,
        };
        if self.filter.is_some() { None } else { self.columns.iter().map(plain).collect() }
    }

    /// True when its columns or its condition read the column with this id.
    pub fn reads(&self, column: u16) -> bool {
        self.columns.iter().any(|c| c.expr.reads(column))
            || self.filter.as_ref().is_some_and(|f| f.reads(column))
    }

    /// True when the column with this id is in its definition.
    pub fn uses(&self, column: u16) -> bool {
        self.reads(column) || self.include.contains(&column)
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
    pub(crate) deferral: Deferral,
    /// The index over `columns` that finds the children.
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

    /// Number of the object of the index that finds its rows.
    pub fn index_object(&self) -> u32 {
        self.index
    }

    /// The action when a parent is deleted.
    pub fn on_delete(&self) -> Action {
        self.on_delete
    }

    /// The action when a parent's key changes.
    pub fn on_update(&self) -> Action {
        self.on_update
    }

    /// When its references are checked.
    pub fn deferral(&self) -> Deferral {
        self.deferral
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

    /// The condition, which must not be false.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// The text and n, if it only limits the length of the text or of each element to n.
    pub fn length_bound(&self) -> Option<(&Expr, i64)> {
        let Expr::Binary(Binary::Le, left, right) = &self.expr else { return None };
        match (&**left, &**right) {
            (Expr::Call(Function::Length, arguments), Expr::Literal(bound)) => {
                Some((arguments.first()?, bound.as_integer()?))
            }
            _ => None,
        }
    }
}

/// The stored parts of a table's definition.
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
    /// The columns that rows store outside their key.
    pub(crate) fn stored(&self) -> Vec<LayoutColumn> {
        let in_key = |column: &Column| self.key.contains(&column.id) && column.ty.is_exact_in_keys();
        let stored = self.columns.iter().filter(|column| !in_key(column));
        stored.map(|c| LayoutColumn { id: c.id, ty: c.ty, nullable: c.nullable }).collect()
    }

    /// Makes the columns of the key NOT NULL.
    pub(crate) fn forbid_null_in_key(&mut self) -> Result<(), String> {
        for column in self.columns.iter_mut().filter(|column| self.key.contains(&column.id)) {
            column.nullable = false;
            if !column.ty.is_ordered() {
                return Err(format!(
                    "column {:?} of type {} cannot be part of a key",
                    column.name, column.ty
                ));
            }
        }
        Ok(())
    }

    /// Adds a layout for the present columns, if it is new.
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

    /// Checks a definition that is about to be stored: what every change of it preserves.
    pub(crate) fn check(&self) {
        let column = |id: &u16| self.columns.iter().find(|column| column.id == *id);
        let ids: HashSet<u16> = self.columns.iter().map(|column| column.id).collect();
        let names: HashSet<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let count = self.columns.len();
        assert_eq!((ids.len(), names.len()), (count, count), "columns differ in number and name");
        assert!(ids.iter().all(|id| *id < self.next_column), "numbers of columns rise");
        for column in &self.columns {
            let is_enum = column.ty.enum_number().is_some();
            assert_eq!(column.labels.is_some(), is_enum, "column {:?} has its type's labels", column.name);
        }
        assert_eq!(self.rowid.is_some(), self.key.is_empty(), "rows without a key have numbers");
        assert!(
            self.key.iter().all(|id| column(id).is_some_and(|column| !column.nullable)),
            "columns of the key exist and are NOT NULL"
        );
        assert_eq!(self.layouts.last(), Some(&self.stored()), "the newest layout has the present columns");
        let objects: HashSet<u32> = self.objects().collect();
        assert_eq!(objects.len(), self.objects().count(), "rows and indexes differ in their objects");
        for index in &self.indexes {
            assert!(index.include.iter().all(|id| column(id).is_some()), "columns of {:?} exist", index.name);
            let is_constraint = index.is_constraint() || !index.deferral.is_deferrable();
            assert!(is_constraint, "{:?} can be deferred, so it is a constraint", index.name);
        }
        for key in &self.foreign_keys {
            assert_eq!(key.columns.len(), key.parent_columns.len(), "{:?} pairs columns", key.name);
            assert!(key.columns.iter().all(|id| column(id).is_some()), "columns of {:?} exist", key.name);
            let mut indexes = self.indexes.iter();
            assert!(indexes.any(|index| index.object == key.index), "{:?} has its index", key.name);
        }
    }

    /// A column by its position in the schema that the parts were copied from.
    pub(crate) fn column_mut(&mut self, place: usize) -> &mut Column {
        self.columns.get_mut(place).expect("a copy has the columns of its schema")
    }

    /// An index by its position.
    pub(crate) fn index_mut(&mut self, place: usize) -> &mut Index {
        self.indexes.get_mut(place).expect("the position was found among the indexes")
    }

    /// All objects that hold keys of this table.
    pub(crate) fn objects(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.rows).chain(self.indexes.iter().map(|index| index.object))
    }

    /// All sequences of this table.
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
    /// By column: the key column that holds its exact value.
    key_sources: Vec<Option<usize>>,
    /// By layout and column.
    sources: Vec<Vec<Source>>,
    /// Columns of the newest layout, by their position in the schema.
    stored: Vec<usize>,
    /// Positions of generated columns.
    generated: Vec<usize>,
    /// Of indexes with included columns.
    covering: Vec<Covering>,
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
        // Only a damaged definition has no layout.
        let newest = layouts.last().map(|l| l.columns.as_slice()).unwrap_or_default();
        let stored = newest.iter().filter_map(|column| place(column.id)).collect();
        let all = parts.columns.iter().enumerate();
        let generated =
            all.filter(|(_, column)| column.generated.is_some()).map(|(place, _)| place).collect();
        let covering = parts.indexes.iter().filter_map(|index| Covering::new(&parts, &key_sources, index));
        let covering = covering.collect();
        Self { layouts, key, key_sources, sources, stored, generated, covering, parts }
    }

    /// The table's number, which never changes.
    pub fn id(&self) -> u32 {
        self.parts.id
    }

    /// The table's stored name: see [`crate::schema::names::schema_and_name`].
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The table's name in its schema.
    pub fn unqualified_name(&self) -> &str {
        schema_and_name(&self.parts.name).1
    }

    /// Grows with every change of the definition.
    pub fn version(&self) -> u32 {
        self.parts.version
    }

    /// Number of the object that holds the rows in primary key order; TRUNCATE changes it.
    pub fn rows_object(&self) -> u32 {
        self.parts.rows
    }

    /// Name of the primary key, even if there is no key.
    pub fn key_name(&self) -> &str {
        &self.parts.key_name
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.parts.columns
    }

    /// Rejects a row that does not have one value for each column.
    pub(crate) fn check_arity(&self, values: &[Value<'_>]) -> Result<()> {
        let (expected, found) = (self.columns().len(), values.len());
        if expected == found {
            return Ok(());
        }
        Err(TablesError::Arity { table: self.name().to_owned(), expected, found })
    }

    /// Indexes in [`Schema::columns`] of the primary key; empty without one.
    pub fn key_columns(&self) -> &[usize] {
        &self.key
    }

    /// Lock mode for a row of which the columns at the positions in `is_set` change. A change that touches
    /// no referenced column does not block rows that refer to it.
    pub fn lock_of_change(&self, is_set: &dyn Fn(&usize) -> bool) -> LockMode {
        // Generated columns may change with any other.
        let is_set = |place: &usize| is_set(place) || self.generated.contains(place);
        let is_read = |index: &Index| {
            let mut columns = self.columns().iter().enumerate();
            columns.any(|(place, column)| is_set(&place) && index.reads(column.id))
        };
        let moves = self.key.iter().any(is_set) || self.parts.indexes.iter().any(|i| i.unique && is_read(i));
        if moves { LockMode::Update } else { LockMode::NoKeyUpdate }
    }

    /// Computes the generated columns of a row.
    ///
    /// # Errors
    /// The expression fails for the row, or its value does not fit the column.
    pub fn generate(&self, values: &mut [Value<'_>]) -> Result<()> {
        for place in &self.generated {
            let known = self.column_at(*place)?;
            let Some(expr) = &known.generated else { continue };
            let column = |id| {
                let place = self.place_of(id).ok_or("a generated column reads a column that is gone")?;
                values.get(place).map(Value::borrowed).ok_or_else(|| "a row is short of a column".to_owned())
            };
            let names = || (self.name().to_owned(), known.name.clone());
            let value = expr.eval(&column).map_err(|what| {
                let (table, column) = names();
                TablesError::Evaluation { table, what: format!("column {column:?}: {what}") }
            })?;
            let value = crate::schema::assigned(self, known, value)?.into_owned();
            *values.get_mut(*place).expect("a row has a value for each column") = value;
        }
        Ok(())
    }

    /// True when one of the generated columns is part of the primary key.
    pub(crate) fn generates_key(&self) -> bool {
        self.generated.iter().any(|place| self.key.contains(place))
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

    /// When the foreign key or unique constraint `name` is checked; `None` without one. A primary key and a
    /// check are not deferrable.
    pub fn deferral_of(&self, name: &str) -> Option<Deferral> {
        let foreign = self.foreign_keys().iter().find(|key| key.name == name).map(|key| key.deferral);
        let index = || {
            let found = self.indexes().iter().find(|index| index.name == name && index.is_constraint());
            found.map(|index| index.deferral)
        };
        let other = || {
            let is_key = !self.key_columns().is_empty() && self.key_name() == name;
            let is_check = self.checks().iter().any(|check| check.name == name);
            (is_key || is_check).then_some(Deferral::NotDeferrable)
        };
        foreign.or_else(index).or_else(other)
    }

    /// The position of a column.
    ///
    /// # Errors
    /// [`TablesError::UnknownColumn`].
    pub fn index_of(&self, name: &str) -> Result<usize> {
        let found = self.columns().iter().position(|column| column.name == name);
        found.ok_or_else(|| self.unknown_column(name))
    }

    /// The index called `name`, if it can be read.
    ///
    /// # Errors
    /// [`TablesError::UnknownIndex`].
    pub fn index_named(&self, name: &str) -> Result<&Index> {
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
    pub(crate) fn column_at(&self, index: usize) -> Result<&Column> {
        self.columns().get(index).ok_or_else(|| self.unknown_column(&format!("number {index}")))
    }

    /// The present key of a row that was read, perhaps before the table got new objects.
    pub(crate) fn present_key(&self, key: &[u8]) -> Vec<u8> {
        let suffix = key.get(4..).expect("a row's key begins with its object");
        [&self.parts.rows.to_be_bytes(), suffix].concat()
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
        match self.layouts.get(number) {
            Some(layout) => Some((layout, *self.sources.get(number)?.get(index)?)),
            None => self.covering.iter().find_map(|covering| covering.source(number, index)),
        }
    }

    /// The columns that the entries of an index hold, if it has included columns.
    pub(crate) fn covering(&self, index: &Index) -> Option<&Covering> {
        self.covering.iter().find(|covering| covering.object == index.object)
    }

    /// True when the entries of the index hold the column at this position: [`TablesRead::scan_entries`] reads it.
    ///
    /// [`TablesRead::scan_entries`]: crate::read::TablesRead::scan_entries
    pub fn is_covered(&self, index: &str, place: usize) -> bool {
        let index = self.indexes().iter().find(|known| known.name == index);
        index.and_then(|index| self.covering(index)).is_some_and(|covering| covering.has(place))
    }

    /// Bytes of a row in the newest layout, without the contents of its varying columns.
    pub(crate) fn row_bytes_min(&self) -> usize {
        self.layouts.last().map_or(0, Layout::bytes_min)
    }

    /// Appends the row of `values`, one per column, in the newest layout.
    pub(crate) fn put_row(&self, values: &[Value<'_>], out: &mut Vec<u8>) {
        let layout = self.layouts.last().expect("every stored definition has a layout");
        let value = |place: &usize| values.get(*place).expect("a row has a value for each column");
        layout.put(self.layouts.len() - 1, self.stored.iter().map(value), out);
    }
}

/// A value in the stored form of a column.
///
/// # Errors
/// NULL in a column that does not allow it; a value that does not fit.
pub(crate) fn assigned<'v>(schema: &Schema, column: &Column, value: Value<'v>) -> Result<Value<'v>> {
    let names = || (schema.name().to_owned(), column.name.clone());
    if value.is_null() && !column.nullable {
        let (table, column) = names();
        return Err(TablesError::NotNull { table, column });
    }
    column.keep(value).map_err(|source| {
        let (table, column) = names();
        TablesError::Value { table, column, source }
    })
}
