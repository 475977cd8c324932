//! Definitions of new tables, columns and indexes, as given by the caller.

use crate::value::Value;
use crate::value::expr::Expr;
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::Type;

/// Value of a column for which an insert gives none.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DefaultValue {
    /// NULL.
    #[default]
    None,
    /// A constant.
    Value(Value<'static>),
    /// The time of the statement: timestamp, timestamptz, date and time columns.
    Now,
    /// A new random UUID (version 4).
    NewUuid,
    /// The next number of a sequence of [`crate::catalog::tables::Tables::new_sequence`]: integer columns.
    Next(u32),
}

/// How the rows of an identity column are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// By the database, unless a value is given.
    ByDefault,
    /// By the database; a given value is rejected.
    Always,
}

/// Definition of a new column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDef {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
    pub(crate) default: DefaultValue,
    pub(crate) identity: Option<Identity>,
    pub(crate) precision: Option<Precision>,
    pub(crate) generated: Option<Expr>,
    pub(crate) collation: Option<String>,
}

impl ColumnDef {
    /// A column that may be NULL and has no default.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Self {
            name: name.into(),
            ty,
            nullable: true,
            default: DefaultValue::None,
            identity: None,
            precision: None,
            generated: None,
            collation: None,
        }
    }

    /// Rejects NULL.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }

    /// Sets the default value.
    #[must_use]
    pub fn default(mut self, default: DefaultValue) -> Self {
        self.default = default;
        self
    }

    /// Sets the precision of stored times.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = Some(precision);
        self
    }

    /// Computes the value of each row from its other columns, whenever the row is written.
    #[must_use]
    pub fn generated(mut self, expr: Expr) -> Self {
        self.generated = Some(expr);
        self
    }

    /// Names the collation for catalogs. Text is ordered by its bytes, so the caller accepts only names of that order.
    #[must_use]
    pub fn collation(mut self, name: impl Into<String>) -> Self {
        self.collation = Some(name.into());
        self
    }

    /// Numbers rows from 1; NOT NULL. Numbers of transactions that did not commit are lost.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self.nullable = false;
        self
    }
}

/// When a constraint is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deferral {
    /// When the statement ends, in every transaction.
    #[default]
    NotDeferrable,
    /// When the statement ends, unless the transaction defers it.
    InitiallyImmediate,
    /// When the transaction commits, unless the transaction makes it immediate.
    InitiallyDeferred,
}

impl Deferral {
    /// True for a constraint that a transaction may defer.
    pub fn is_deferrable(self) -> bool {
        self != Self::NotDeferrable
    }
}

/// The operator class that an index column was declared with.
///
/// Text is ordered by its bytes in every class, so all of them find prefixes; catalogs distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OperatorClass {
    /// That of the column's type.
    #[default]
    Default,
    /// `text_pattern_ops`.
    TextPattern,
    /// `varchar_pattern_ops`.
    VarcharPattern,
    /// `bpchar_pattern_ops`.
    BpcharPattern,
}

/// Definition of a new secondary index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<(Expr, KeyOrder, OperatorClass)>,
    pub(crate) unique: bool,
    pub(crate) stands_alone: bool,
    pub(crate) of_key: bool,
    pub(crate) filter: Option<Expr>,
    pub(crate) deferral: Deferral,
    pub(crate) include: Vec<String>,
    pub(crate) nulls_equal: bool,
}

impl IndexDef {
    /// An index on columns, ascending.
    pub fn on<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        let plain = |name: S| (Expr::column(name), KeyOrder::ASC, OperatorClass::Default);
        let columns = columns.into_iter().map(plain).collect();
        Self {
            name: None,
            columns,
            unique: false,
            stands_alone: false,
            of_key: false,
            filter: None,
            deferral: Deferral::NotDeferrable,
            include: Vec::new(),
            nulls_equal: false,
        }
    }

    /// Adds a column or expression.
    #[must_use]
    pub fn then_by(mut self, expr: Expr, order: KeyOrder) -> Self {
        self.columns.push((expr, order, OperatorClass::Default));
        self
    }

    /// Sets the operator class of the last column or expression, which is a text.
    #[must_use]
    pub fn operator_class(mut self, class: OperatorClass) -> Self {
        if let Some((_, _, last)) = self.columns.last_mut() {
            *last = class;
        }
        self
    }

    /// Sets the name; the default derives from table and columns.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Stores columns in the entries, so that queries of these and the indexed columns read no rows.
    #[must_use]
    pub fn include<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.include.extend(columns.into_iter().map(Into::into));
        self
    }

    /// Makes NULLs equal in a unique index.
    #[must_use]
    pub fn nulls_equal(mut self) -> Self {
        self.nulls_equal = true;
        self
    }

    /// Rejects rows with equal values; NULLs are not equal, unless [`IndexDef::nulls_equal`] says so.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Makes a unique index without a constraint, as CREATE UNIQUE INDEX does. It behaves the same; catalogs
    /// distinguish the two.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.stands_alone = true;
        self
    }

    /// Sets when a unique index is checked. One that is deferrable serves neither as the target of a foreign
    /// key nor of ON CONFLICT.
    #[must_use]
    pub fn deferral(mut self, deferral: Deferral) -> Self {
        self.deferral = deferral;
        self
    }

    /// Restricts the index to the rows for which `filter` is true.
    #[must_use]
    pub fn filter(mut self, filter: Expr) -> Self {
        self.filter = Some(filter);
        self
    }
}

/// Action on the referring rows when a row is deleted or changes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Rejected if rows still refer to it at the end of the statement.
    #[default]
    NoAction,
    /// Rejected at once.
    Restrict,
    /// They are deleted, or updated, with it.
    Cascade,
    /// Their reference becomes NULL.
    SetNull,
    /// They get their defaults.
    SetDefault,
}

/// Definition of a new foreign key.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignKeyDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) parent: String,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) on_delete: Action,
    pub(crate) on_update: Action,
    pub(crate) deferral: Deferral,
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
            deferral: Deferral::NotDeferrable,
        }
    }

    /// Sets the name; the default derives from table and columns.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the action when a parent is deleted.
    #[must_use]
    pub fn on_delete(mut self, action: Action) -> Self {
        self.on_delete = action;
        self
    }

    /// Sets the action when the key of a parent changes.
    #[must_use]
    pub fn on_update(mut self, action: Action) -> Self {
        self.on_update = action;
        self
    }

    /// Sets when the references are checked. Actions other than [`Action::NoAction`] are never deferred.
    #[must_use]
    pub fn deferral(mut self, deferral: Deferral) -> Self {
        self.deferral = deferral;
        self
    }
}

/// Definition of a new table.
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
    /// A table without columns yet. Without a primary key its rows have hidden numbers.
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

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: ColumnDef) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the primary key; its columns become NOT NULL.
    #[must_use]
    pub fn primary_key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the name of the primary key's constraint; the default is `table_pkey`.
    #[must_use]
    pub fn key_named(mut self, name: impl Into<String>) -> Self {
        self.key_name = Some(name.into());
        self
    }

    /// Adds a secondary index.
    #[must_use]
    pub fn index(mut self, index: IndexDef) -> Self {
        self.indexes.push(index);
        self
    }

    /// Rejects rows with equal values in these columns.
    #[must_use]
    pub fn unique<S: Into<String>>(self, columns: impl IntoIterator<Item = S>) -> Self {
        self.index(IndexDef::on(columns).unique())
    }

    /// Adds a check called `name`: rows for which it is false are rejected.
    #[must_use]
    pub fn check(mut self, name: impl Into<String>, expr: Expr) -> Self {
        self.checks.push((Some(name.into()), expr));
        self
    }

    /// Adds a foreign key.
    #[must_use]
    pub fn foreign_key(mut self, foreign_key: ForeignKeyDef) -> Self {
        self.foreign_keys.push(foreign_key);
        self
    }
}
