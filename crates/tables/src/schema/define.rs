//! What a caller says about a table that is to be.

use crate::value::Value;
use crate::value::expr::Expr;
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::Type;

/// What a column gets that is given no value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DefaultValue {
    /// NULL.
    #[default]
    None,
    /// This.
    Value(Value<'static>),
    /// The time of the statement: timestamp, timestamptz, date and time columns.
    Now,
    /// A new random UUID (version 4).
    NewUuid,
    /// The next number of a sequence of [`crate::catalog::tables::Tables::new_sequence`]: integer columns.
    Next(u32),
}

/// Who numbers the rows of an identity column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The database, unless a value is given.
    ByDefault,
    /// The database; a value given is refused.
    Always,
}

/// A column that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDef {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
    pub(crate) default: DefaultValue,
    pub(crate) identity: Option<Identity>,
    pub(crate) precision: Option<Precision>,
}

impl ColumnDef {
    /// A column that may be NULL and has no default.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        let (default, identity, precision) = (DefaultValue::None, None, None);
        Self { name: name.into(), ty, nullable: true, default, identity, precision }
    }

    /// NULL is refused.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }

    /// What rows get that are given no value.
    #[must_use]
    pub fn default(mut self, default: DefaultValue) -> Self {
        self.default = default;
        self
    }

    /// Times are kept like this.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = Some(precision);
        self
    }

    /// Rows are numbered from 1; NOT NULL. Numbers of transactions that did not commit are lost.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self.nullable = false;
        self
    }
}

/// A secondary index that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<(Expr, KeyOrder)>,
    pub(crate) unique: bool,
    pub(crate) stands_alone: bool,
    pub(crate) of_key: bool,
    pub(crate) filter: Option<Expr>,
}

impl IndexDef {
    /// On columns, ascending.
    pub fn on<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        let columns = columns.into_iter().map(|name| (Expr::column(name), KeyOrder::ASC)).collect();
        Self { name: None, columns, unique: false, stands_alone: false, of_key: false, filter: None }
    }

    /// One more column or expression.
    #[must_use]
    pub fn then(mut self, expr: Expr, order: KeyOrder) -> Self {
        self.columns.push((expr, order));
        self
    }

    /// Named; otherwise it is called after its table and columns.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// No two rows with equal values; NULLs are never equal.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// An index alone, that stands for no constraint even if it is unique: what CREATE UNIQUE INDEX makes. What is stored and refused
    /// is the same; catalogs tell them apart.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.stands_alone = true;
        self
    }

    /// Only the rows for which `filter` is true.
    #[must_use]
    pub fn filter(mut self, filter: Expr) -> Self {
        self.filter = Some(filter);
        self
    }
}

/// What happens to the rows that refer to a row when that goes or changes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Refused if they still refer to it at the end of the statement.
    #[default]
    NoAction,
    /// Refused at once.
    Restrict,
    /// They go, or change, with it.
    Cascade,
    /// They refer to nothing.
    SetNull,
    /// They get their defaults.
    SetDefault,
}

/// A foreign key that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignKeyDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) parent: String,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) on_delete: Action,
    pub(crate) on_update: Action,
}

impl ForeignKeyDef {
    /// `columns` refer to `parent_columns` of `parent`: its primary key or the columns of a unique index.
    pub fn new<S: Into<String>, P: Into<String>>(
        columns: impl IntoIterator<Item = S>,
        parent: impl Into<String>,
        parent_columns: impl IntoIterator<Item = P>,
    ) -> Self {
        Self {
            name: None,
            columns: columns.into_iter().map(Into::into).collect(),
            parent: parent.into(),
            parent_columns: parent_columns.into_iter().map(Into::into).collect(),
            on_delete: Action::NoAction,
            on_update: Action::NoAction,
        }
    }

    /// Named; otherwise it is called after its table and columns.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What a deleted parent does to its children.
    #[must_use]
    pub fn on_delete(mut self, action: Action) -> Self {
        self.on_delete = action;
        self
    }

    /// What a changed key of a parent does to its children.
    #[must_use]
    pub fn on_update(mut self, action: Action) -> Self {
        self.on_update = action;
        self
    }
}

/// A table that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDef {
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnDef>,
    pub(crate) key: Vec<String>,
    pub(crate) key_name: Option<String>,
    pub(crate) indexes: Vec<IndexDef>,
    pub(crate) checks: Vec<(Option<String>, Expr)>,
    pub(crate) foreign_keys: Vec<ForeignKeyDef>,
}

impl TableDef {
    /// A table without columns yet. Without a primary key its rows are numbered in secret.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            columns: Vec::new(),
            key: Vec::new(),
            key_name: None,
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
        }
    }

    /// One more column.
    #[must_use]
    pub fn column(mut self, column: ColumnDef) -> Self {
        self.columns.push(column);
        self
    }

    /// The primary key; its columns become NOT NULL.
    #[must_use]
    pub fn primary_key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The name of the primary key's constraint; `table_pkey` by itself.
    #[must_use]
    pub fn key_named(mut self, name: impl Into<String>) -> Self {
        self.key_name = Some(name.into());
        self
    }

    /// A secondary index.
    #[must_use]
    pub fn index(mut self, index: IndexDef) -> Self {
        self.indexes.push(index);
        self
    }

    /// No two rows with equal values in these columns.
    #[must_use]
    pub fn unique<S: Into<String>>(self, columns: impl IntoIterator<Item = S>) -> Self {
        self.index(IndexDef::on(columns).unique())
    }

    /// A check called `name`: rows for which it is false are refused.
    #[must_use]
    pub fn check(mut self, name: impl Into<String>, expr: Expr) -> Self {
        self.checks.push((Some(name.into()), expr));
        self
    }

    /// A foreign key.
    #[must_use]
    pub fn foreign_key(mut self, foreign_key: ForeignKeyDef) -> Self {
        self.foreign_keys.push(foreign_key);
        self
    }
}
