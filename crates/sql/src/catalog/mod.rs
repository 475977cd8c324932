//! `pg_catalog` and `information_schema` for PostgreSQL clients, computed from the definitions.
//!
//! ```text
//! definitions, settings ─▶ Catalog, one per plan ─▶ rows of pg_class, pg_attribute, ... ─▶ nested loops
//!                                                └▶ functions: format_type, pg_get_constraintdef, ...
//! ```
//! A plan over a catalog is created for each run, so it never shows an outdated state.
//!
//! Numbers (oids): a table's is [`FIRST_OID`] plus its number in the tables model. Indexes and sequences draw
//! from the same numbers. All are permanent, except those of indexes when a table is truncated. A view's
//! number is a hash of its name. All fit the 32 bits of clients. Oids are returned as bigint, names and
//! "char" as text, vectors as arrays.

pub(crate) mod collations;
pub(crate) mod extensions;
mod functions;
mod information;
pub(crate) mod operator_classes;
mod procs;
mod projections;
mod relations;
mod show;
mod view_columns;
mod views;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use ropewalk::tables::{
    Deferral, EnumType, OperatorClass, Schema, SequenceParams, Type, Value, qualify, schema_and_name,
};
use ropewalk::{Database, Snapshot};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::access::comments::{COMMENTS, Comment};
use crate::access::cursors::CursorShape;
use crate::access::peers::Known;
use crate::access::projections::{DEFINITIONS, PARKED, hide_rebuilds};
use crate::access::row_source::Access;
use crate::access::schemas::{self, Namespace, SCHEMAS as SCHEMA_TABLE};
use crate::access::sequences::{self, SEQUENCES, Sequence};
use crate::access::standing::Standing;
use crate::error::Result;
use crate::expr::Record;
use crate::syntax::names::{ident, literal, name_parts, own, reference, whole_name};
use crate::types::names::FIRST_OID;
use crate::types::settings::Settings;

pub(crate) use functions::{BoundCall, CatalogFunction};
use relations::SCHEMAS;
pub(crate) use show::{length_bound, place_of};
pub(crate) use views::{ViewOf, Written, all as all_views, with_relations};

/// Base of the numbers of user-created schemas.
const NAMESPACE_OID: i64 = 0x1000_0000;
/// Added to an index's number for the constraint that it implements.
const INDEX_CONSTRAINT_OID: i64 = 0x2000_0000;
/// Base of the numbers of constraints without an index: foreign keys, then checks.
const CONSTRAINT_OID: i64 = 0x4000_0000;
/// Base of the numbers of column defaults.
const DEFAULT_OID: i64 = 0x6000_0000;
/// Base of the numbers of views; those of their rules follow.
const VIEW_OID: i64 = 0x8000_0000;
pub(crate) const PUBLIC: i64 = 2200;
pub(crate) const PG_CATALOG: i64 = 11;
pub(crate) const INFORMATION_SCHEMA: i64 = 13_000;
/// The single owner of all objects.
pub(crate) const OWNER: i64 = 10;
/// Owner of `public`: the role of the database owner, as in PostgreSQL 15 and later.
pub(crate) const DATABASE_OWNER: i64 = 6171;
pub(crate) const DATABASE: i64 = 5;
/// Columns of a sequence read as a relation.
pub(crate) const SEQUENCE_COLUMNS: [(&str, Type); 3] =
    [("last_value", Type::INT8), ("log_cnt", Type::INT8), ("is_called", Type::BOOL)];
/// Access methods: rows are stored in the order of their keys, as are index entries.
pub(crate) const HEAP: i64 = 2;
pub(crate) const BTREE: i64 = 403;

/// A relation of a catalog.
pub(crate) struct Relation {
    schema: &'static str,
    name: &'static str,
    /// PostgreSQL's number of the relation; 0 if no other relation refers to it.
    oid: i64,
    /// Names and types, `name:letter`, see [`columns_of`].
    columns: &'static str,
    rows: fn(&Catalog) -> Vec<Record>,
}

/// All data of the catalogs at one snapshot.
pub(crate) struct Catalog {
    /// For data that is not a definition, such as lock holders.
    db: Database,
    pub(crate) user: String,
    pub(crate) database: String,
    /// User-created schemas.
    namespaces: Vec<Namespace>,
    /// The effective search path.
    path: Vec<String>,
    settings: Settings,
    tables: Vec<Arc<Schema>>,
    by_oid: HashMap<i64, usize>,
    views: Vec<ViewOf>,
    sequences: Vec<SequenceOf>,
    comments: Vec<Comment>,
    enums: Vec<EnumType>,
    cursors: Arc<BTreeMap<String, CursorShape>>,
    peers: Known,
    /// The snapshot of the statement, for state that is read on use.
    snapshot: Snapshot,
    /// The names and types of each view's columns, computed on first use because that takes planning.
    view_columns: OnceLock<Vec<Vec<(String, Type)>>>,
}

/// The number in catalogs of the column at this place.
fn number_of(place: usize) -> i16 {
    i16::try_from(place + 1).unwrap_or(i16::MAX)
}

/// An index in the catalogs, which include the primary key.
#[derive(Clone, Copy)]
pub(crate) enum IndexOf<'c> {
    Key(&'c Schema),
    Secondary(&'c Schema, &'c ropewalk::tables::Index),
}

impl IndexOf<'_> {
    fn oid(&self) -> i64 {
        FIRST_OID
            + match self {
                Self::Key(schema) => i64::from(schema.rows_object()),
                Self::Secondary(_, index) => i64::from(index.object()),
            }
    }

    fn name(&self) -> &str {
        match self {
            Self::Key(schema) => schema.key_name(),
            Self::Secondary(_, index) => index.name(),
        }
    }

    fn table(&self) -> &Schema {
        match self {
            Self::Key(schema) | Self::Secondary(schema, _) => schema,
        }
    }

    fn kept_name(&self) -> String {
        qualify(schema_and_name(self.table().name()).0, self.name())
    }

    fn is_kept_as(&self, kept: &str) -> bool {
        schema_and_name(kept) == (schema_and_name(self.table().name()).0, self.name())
    }

    fn is_unique(&self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(_, index) => index.is_unique(),
        }
    }

    /// The numbers in the table of the columns that its entries hold in addition.
    fn included(&self) -> Vec<i16> {
        let Self::Secondary(schema, index) = self else { return Vec::new() };
        let place = |id: &u16| schema.columns().iter().position(|column| column.id() == *id);
        index.included().iter().filter_map(place).map(number_of).collect()
    }

    /// True for a unique index in which NULLs are equal.
    fn has_equal_nulls(&self) -> bool {
        matches!(self, Self::Secondary(_, index) if index.has_equal_nulls())
    }

    /// The numbers of its columns in the table; 0 for an expression.
    fn columns(&self) -> Vec<i16> {
        let number = number_of;
        match self {
            Self::Key(schema) => schema.key_columns().iter().map(|place| number(*place)).collect(),
            Self::Secondary(schema, index) => {
                let places = index.columns().iter().map(|column| show::place_of(schema, &column.expr));
                places.map(|place| place.map_or(0, number)).collect()
            }
        }
    }

    /// The type of the index column with this number, from 1.
    fn column_type(&self, number: usize) -> Type {
        let place = number.saturating_sub(1);
        let found = match self {
            Self::Key(schema) => {
                let column = schema.key_columns().get(place).and_then(|place| schema.columns().get(*place));
                column.map(|column| column.column_type())
            }
            Self::Secondary(_, index) => index.columns().get(place).map(|column| column.ty),
        };
        found.unwrap_or(Type::TEXT)
    }

    /// The operator class of the index column with this number, from 1.
    fn class(&self, number: usize) -> OperatorClass {
        match self {
            Self::Key(_) => OperatorClass::Default,
            Self::Secondary(_, index) => {
                let column = number.checked_sub(1).and_then(|place| index.columns().get(place));
                column.map_or(OperatorClass::Default, |column| column.class)
            }
        }
    }

    /// When its uniqueness is checked.
    fn deferral(&self) -> Deferral {
        match self {
            Self::Key(_) => Deferral::NotDeferrable,
            Self::Secondary(_, index) => index.deferral(),
        }
    }

    /// True if it implements a primary key or UNIQUE constraint.
    fn is_constraint(&self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(_, index) => {
                index.is_constraint() && self.columns().iter().all(|column| *column > 0)
            }
        }
    }
}

/// True for the tables in which this crate stores its metadata, by their stored names.
pub fn is_system_table(table: &str) -> bool {
    [crate::access::views::VIEWS, SEQUENCES, COMMENTS, SCHEMA_TABLE, DEFINITIONS, PARKED].contains(&table)
}

pub(crate) fn table_oid(schema: &Schema) -> i64 {
    FIRST_OID + i64::from(schema.id())
}

/// A sequence with its options and last value.
#[derive(Debug)]
pub(crate) struct SequenceOf {
    pub(crate) sequence: Sequence,
    pub(crate) steps: SequenceParams,
    /// The last number that was drawn, if any.
    pub(crate) last: Option<i64>,
    /// The owning table, and the place of the column.
    pub(crate) owner: Option<(Arc<Schema>, usize)>,
}

impl SequenceOf {
    fn read(sequence: Sequence, tables: &[Arc<Schema>], access: &Access<'_>) -> Result<Self> {
        let (steps, last, is_called) = access.database().tables().sequence(sequence.number)?;
        let owner = sequence.owner.and_then(|(table, column)| {
            let table = tables.iter().find(|schema| schema.id() == table)?;
            let place = table.columns().iter().position(|known| known.id() == column)?;
            Some((table.clone(), place))
        });
        // The sequence of an identity column ends where the type of the column does.
        let most = match sequence.ty {
            Type::INT2 => i16::MAX.into(),
            Type::INT4 => i32::MAX.into(),
            _ => i64::MAX,
        };
        let steps = SequenceParams { greatest: steps.greatest.min(most), ..steps };
        Ok(Self { sequence, steps, last: is_called.then_some(last), owner })
    }

    pub(crate) fn oid(&self) -> i64 {
        FIRST_OID + i64::from(self.sequence.number)
    }

    pub(crate) fn name(&self) -> &str {
        &self.sequence.name
    }

    /// The number of its type.
    pub(crate) fn type_oid(&self) -> i64 {
        match self.sequence.ty {
            Type::INT2 => 21,
            Type::INT4 => 23,
            _ => 20,
        }
    }
}

/// A constraint of a table.
pub(crate) enum ConstraintOf<'c> {
    Index(IndexOf<'c>),
    Foreign(&'c Schema, usize, &'c ropewalk::tables::ForeignKey),
    Check(&'c Schema, usize, &'c ropewalk::tables::Check),
}

impl ConstraintOf<'_> {
    fn oid(&self) -> i64 {
        let numbered = |schema: &Schema, number: usize| {
            CONSTRAINT_OID + i64::from(schema.id()) * 1024 + i64::try_from(number).unwrap_or_default()
        };
        match self {
            Self::Index(index) => INDEX_CONSTRAINT_OID + index.oid(),
            Self::Foreign(schema, number, _) => numbered(schema, *number),
            Self::Check(schema, number, _) => numbered(schema, 512 + number),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Index(index) => index.name(),
            Self::Foreign(_, _, foreign) => foreign.name(),
            Self::Check(_, _, check) => check.name(),
        }
    }

    /// When it is checked.
    fn deferral(&self) -> Deferral {
        match self {
            Self::Index(index) => index.deferral(),
            Self::Foreign(_, _, key) => key.deferral(),
            Self::Check(..) => Deferral::NotDeferrable,
        }
    }

    fn table(&self) -> &Schema {
        match self {
            Self::Index(index) => index.table(),
            Self::Foreign(schema, ..) | Self::Check(schema, ..) => schema,
        }
    }
}

impl Catalog {
    /// Reads the catalog at the snapshot of a statement.
    pub(crate) fn read(access: &mut Access<'_>, standing: &Standing) -> Result<Self> {
        let Standing { settings, created, cursors, peers, .. } = standing;
        let mut names = sequences::tables_of(access, created)?;
        hide_rebuilds(access.database(), &access.snapshot(), &mut names, None)?;
        let mut tables = Vec::with_capacity(names.len());
        for name in names.into_iter().filter(|name| !is_system_table(name)) {
            match access.table(&name) {
                Ok((_, schema)) if schema.name() == name => tables.push(schema),
                // Renamed or dropped, by this transaction or concurrently.
                Ok(_) => {}
                Err(error) if error.state == crate::error::state::UNDEFINED_TABLE => {}
                Err(error) => return Err(error),
            }
        }
        let by_oid = tables.iter().enumerate().map(|(place, schema)| (table_oid(schema), place)).collect();
        let (namespaces, path) = (schemas::all(access)?, schemas::path(access, settings)?);
        let (user, database) = (settings.user.clone(), settings.database.clone());
        let views = views::all(access)?;
        let own = tables.iter().flat_map(|schema| sequences::of_table(schema)).collect::<Vec<_>>();
        let all = own.into_iter().chain(sequences::all(access)?);
        let sequences =
            all.map(|sequence| SequenceOf::read(sequence, &tables, access)).collect::<Result<_>>()?;
        let comments = crate::access::comments::all(access)?;
        let enums = access.enums()?;
        let (settings, view_columns) = (Settings::clone(settings), OnceLock::new());
        Ok(Self {
            db: access.database().clone(),
            user,
            database,
            namespaces,
            path,
            settings,
            tables,
            by_oid,
            views,
            sequences,
            comments,
            enums,
            cursors: cursors.clone(),
            peers: peers.clone(),
            snapshot: access.snapshot(),
            view_columns,
        })
    }

    /// Sets the names and types of each view's columns on first use.
    pub(crate) fn settle_view_columns(&self, columns: impl FnMut(&ViewOf) -> Vec<(String, Type)>) {
        if self.view_columns.get().is_none() {
            let all = self.views.iter().map(columns).collect();
            self.view_columns.get_or_init(|| all);
        }
    }

    /// The views with their columns.
    fn views(&self) -> impl Iterator<Item = (&ViewOf, &[(String, Type)])> {
        let columns = self.view_columns.get().map(Vec::as_slice).unwrap_or_default();
        let columns = columns.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
        self.views.iter().zip(columns)
    }

    /// True for the name of a table or view.
    fn is_relation(&self, name: &str) -> bool {
        self.table_named(name).is_some() || self.views.iter().any(|view| view.name == name)
    }

    /// Numbers and names of the schemas.
    fn schemas(&self) -> impl Iterator<Item = (i64, &str)> {
        let made = self.namespaces.iter().map(|known| (NAMESPACE_OID + known.number, known.name.as_str()));
        SCHEMAS.into_iter().chain(made)
    }

    fn schema_oid(&self, name: &str) -> Option<i64> {
        self.schemas().find(|(_, known)| *known == name).map(|(oid, _)| oid)
    }

    /// The number of the schema of a stored name.
    fn schema_of(&self, kept: &str) -> i64 {
        self.schema_oid(schema_and_name(kept).0).unwrap_or(PUBLIC)
    }

    /// True if no earlier schema of the path has an object with the same name.
    fn is_visible(&self, kept: &str, is_there: &dyn Fn(&str) -> bool) -> bool {
        let (schema, name) = schema_and_name(kept);
        let Some(place) = self.path.iter().position(|known| known == schema) else { return false };
        !self.path.iter().take(place).any(|before| is_there(&qualify(before, name)))
    }

    fn is_visible_relation(&self, kept: &str) -> bool {
        self.is_visible(kept, &|kept| self.kept_oid(kept).is_some())
    }

    fn is_visible_type(&self, kept: &str) -> bool {
        self.is_visible(kept, &|kept| self.enums.iter().any(|known| known.name() == kept))
    }

    /// True when the relation or type with this number is visible without its schema.
    pub(crate) fn sees(&self, oid: i64) -> bool {
        match (self.kept_name(oid), self.enum_type(oid)) {
            (Some(kept), _) => self.is_visible_relation(&kept),
            (None, Some((known, _))) => self.is_visible_type(known.name()),
            (None, None) => {
                !relations::all().any(|known| known.oid == oid && known.schema == "information_schema")
            }
        }
    }

    /// The stored name of a relation; indexes belong to the schemas of their tables.
    fn kept_name(&self, oid: i64) -> Option<String> {
        if let Some(schema) = self.table(oid) {
            return Some(schema.name().to_owned());
        }
        let index = self.indexes().find(|index| index.oid() == oid).map(|index| index.kept_name());
        let view = || self.views.iter().find(|view| view.oid() == oid).map(|view| view.name.clone());
        let sequence =
            || self.sequences().find(|known| known.oid() == oid).map(|known| known.name().to_owned());
        index.or_else(view).or_else(sequence)
    }

    /// The number of the relation with this stored name.
    fn kept_oid(&self, kept: &str) -> Option<i64> {
        self.table_named(kept)
            .map(table_oid)
            .or_else(|| self.indexes().find(|index| index.is_kept_as(kept)).map(|index| index.oid()))
            .or_else(|| self.views.iter().find(|view| view.name == kept).map(ViewOf::oid))
            .or_else(|| self.sequences().find(|known| known.name() == kept).map(SequenceOf::oid))
    }

    /// The text of a view's query, and the relations that it reads.
    fn view_text(&self, view: &ViewOf) -> (String, Vec<String>) {
        view.text(&|kept| self.is_relation(kept), &|kept| self.is_visible_relation(kept))
    }

    pub(crate) fn table(&self, oid: i64) -> Option<&Schema> {
        self.by_oid.get(&oid).and_then(|place| self.tables.get(*place)).map(|schema| &**schema)
    }

    fn table_named(&self, name: &str) -> Option<&Schema> {
        self.tables.iter().find(|schema| schema.name() == name).map(|schema| &**schema)
    }

    fn indexes_of<'s>(&self, schema: &'s Schema) -> impl Iterator<Item = IndexOf<'s>> + use<'s> {
        let key = (!schema.key_columns().is_empty()).then_some(IndexOf::Key(schema));
        // The index of a foreign key is internal and not listed.
        let listed = schema.indexes().iter().filter(|index| !index.is_of_foreign_key());
        key.into_iter().chain(listed.map(move |index| IndexOf::Secondary(schema, index)))
    }

    fn indexes(&self) -> impl Iterator<Item = IndexOf<'_>> {
        self.tables.iter().flat_map(|schema| self.indexes_of(schema))
    }

    fn sequences(&self) -> impl Iterator<Item = &SequenceOf> {
        self.sequences.iter()
    }

    /// The default of a column as SQL text.
    fn default(&self, column: &ropewalk::tables::Column) -> Option<String> {
        if let ropewalk::tables::DefaultValue::Next(number) = column.default_value() {
            let sequence = self.sequences().find(|known| known.sequence.number == *number)?;
            let name = self.qualified(sequence.name());
            return Some(format!("nextval({}::regclass)", literal(&name)));
        }
        show::default(column, &|kept| self.qualified_type(kept))
    }

    /// Comments: number of the object's catalog, number of the object, number of the column, text.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = (i64, i64, i64, &str)> {
        const CLASS: i64 = 1259;
        const CONSTRAINT: i64 = 2606;
        self.comments.iter().filter_map(|comment| {
            let schema = || self.table(FIRST_OID + comment.table);
            let (class, object, column) = match comment.kind.as_str() {
                "table" => (CLASS, table_oid(schema()?), 0),
                "column" => {
                    let schema = schema()?;
                    let id: u16 = comment.name.parse().ok()?;
                    let place = schema.columns().iter().position(|column| column.id() == id)?;
                    (CLASS, table_oid(schema), i64::try_from(place + 1).ok()?)
                }
                "index" => {
                    let index = self.indexes_of(schema()?).find(|index| index.name() == comment.name)?;
                    (CLASS, index.oid(), 0)
                }
                "constraint" => {
                    let fits = |known: &ConstraintOf<'_>| {
                        known.name() == comment.name && i64::from(known.table().id()) == comment.table
                    };
                    (CONSTRAINT, self.constraints().find(fits)?.oid(), 0)
                }
                "sequence" => (CLASS, self.sequences().find(|known| known.name() == comment.name)?.oid(), 0),
                "view" => (CLASS, self.views.iter().find(|view| view.name == comment.name)?.oid(), 0),
                "type" => {
                    let known = self.enums.iter().find(|known| i64::from(known.number()) == comment.table)?;
                    (1247, i64::from(crate::types::names::oid(known.column_type())), 0)
                }
                "schema" => (2615, self.schema_oid(&comment.name)?, 0),
                _ => return None,
            };
            Some((class, object, column, comment.text.as_str()))
        })
    }

    /// The comment on the database.
    pub(crate) fn database_comment(&self) -> Option<&str> {
        self.comments.iter().find(|comment| comment.kind == "database").map(|comment| comment.text.as_str())
    }

    fn constraints(&self) -> impl Iterator<Item = ConstraintOf<'_>> {
        self.tables.iter().flat_map(|schema| {
            let schema: &Schema = schema;
            let indexes = self.indexes_of(schema).filter(IndexOf::is_constraint).map(ConstraintOf::Index);
            let foreign = schema.foreign_keys().iter().enumerate();
            let checks = schema.checks().iter().enumerate();
            indexes.chain(foreign.map(move |(number, key)| ConstraintOf::Foreign(schema, number, key))).chain(
                checks
                    // The check that implements the length of a varchar is shown as part of the type.
                    .filter(move |(_, check)| show::length_bound(schema, check).is_none())
                    .map(move |(number, check)| ConstraintOf::Check(schema, number, check)),
            )
        })
    }

    /// The name of a relation, qualified and quoted where necessary.
    pub(crate) fn relation_name(&self, oid: i64) -> Option<String> {
        if let Some(kept) = self.kept_name(oid) {
            return Some(self.qualified(&kept));
        }
        let known = relations::all().find(|relation| relation.oid == oid && oid != 0)?;
        Some(if known.schema == "pg_catalog" {
            known.name.to_owned()
        } else {
            format!("{}.{}", known.schema, known.name)
        })
    }

    fn qualified(&self, kept: &str) -> String {
        if self.is_visible_relation(kept) { ident(own(kept)) } else { whole_name(kept) }
    }

    fn qualified_type(&self, kept: &str) -> String {
        if self.is_visible_type(kept) { ident(own(kept)) } else { whole_name(kept) }
    }

    /// The enum type of this number, and whether the number is that of its arrays.
    fn enum_type(&self, oid: i64) -> Option<(&EnumType, bool)> {
        let is_of =
            |known: &EnumType, ty: Type| known.column_type() == ty || known.column_type().array() == ty;
        let ty = crate::types::names::enum_of_oid(u32::try_from(oid).ok()?)?;
        let known = self.enums.iter().find(|known| is_of(known, ty))?;
        Some((known, matches!(ty, Type::Array(_))))
    }

    /// `format_type(oid, typmod)`.
    pub(crate) fn format_type(&self, oid: i64, modifier: Option<i64>) -> String {
        match self.enum_type(oid) {
            None => show::format_type(oid, modifier),
            Some((known, false)) => self.qualified_type(known.name()),
            Some((known, true)) => format!("{}[]", self.qualified_type(known.name())),
        }
    }

    /// The number of a type by any of its names.
    pub(crate) fn type_oid(&self, text: &str) -> Option<i64> {
        let (name, is_array) = text.trim().strip_suffix("[]").map_or((text, false), |name| (name, true));
        let parts = name_parts(name);
        let candidates: Vec<String> = match parts.as_slice() {
            [name] => self.path.iter().map(|schema| qualify(schema, name)).collect(),
            [schema, name] => vec![qualify(schema, name)],
            _ => return functions::type_oid(text),
        };
        let named = |kept: &String| self.enums.iter().find(|known| known.name() == kept);
        let known = candidates.iter().find_map(named).map(EnumType::column_type);
        let ty = known.map(|ty| if is_array { ty.array() } else { ty });
        let own = || match parts.as_slice() {
            [schema, name] if schema == "pg_catalog" => {
                functions::type_oid(&format!("{name}{}", if is_array { "[]" } else { "" }))
            }
            _ => functions::type_oid(text),
        };
        ty.map(|ty| i64::from(crate::types::names::oid(ty))).or_else(own)
    }

    /// Parses a relation name or number, as regclass does.
    pub(crate) fn relation_oid(&self, text: &str) -> Option<i64> {
        if let Ok(oid) = text.parse() {
            return Some(oid);
        }
        let parts = name_parts(text);
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            [database, schema, name] if *database == self.database => (Some(schema.as_str()), name),
            _ => return None,
        };
        let catalog = || {
            let mut all = relations::all();
            let fits = |relation: &&Relation| match schema {
                None => relation.schema == "pg_catalog",
                Some(schema) => relation.schema == schema,
            };
            all.find(|relation| relation.name == name && fits(relation)).map(|relation| relation.oid)
        };
        match schema {
            // PostgreSQL searches pg_catalog first.
            None => catalog()
                .or_else(|| self.path.iter().find_map(|schema| self.kept_oid(&qualify(schema, name)))),
            Some(schema) => self.kept_oid(&qualify(schema, name)).or_else(catalog),
        }
    }
}

/// Parses column names and types from their short form: o oid, l bigint, i integer, s smallint, b bool, t
/// text, f real, v interval, z timestamptz; a capital letter is an array.
fn columns_of(short: &str) -> Vec<(String, Type)> {
    let column = |part: &str| {
        let (name, letter) = part.split_once(':').unwrap_or((part, "t"));
        let ty = match letter.to_ascii_lowercase().as_str() {
            "o" | "l" => Type::INT8,
            "i" => Type::INT4,
            "s" => Type::INT2,
            "b" => Type::BOOL,
            "f" => Type::FLOAT4,
            "v" => Type::INTERVAL,
            "z" => Type::TIMESTAMPTZ,
            _ => Type::TEXT,
        };
        (name.to_owned(), if letter.chars().all(char::is_uppercase) { ty.array() } else { ty })
    };
    short.split_whitespace().map(column).collect()
}

/// A text value of a row.
pub(crate) fn text(text: impl Into<String>) -> Value<'static> {
    Value::text(text.into())
}

/// A generated relation: name, columns, rows.
pub(crate) type Made = (String, Vec<(String, Type)>, Arc<Vec<Record>>);

/// True for the name of a catalog relation.
pub(crate) fn is_relation(name: &[String]) -> bool {
    let (schema, name) = match name {
        [name] => ("pg_catalog", name),
        [schema, name] => (schema.as_str(), name),
        _ => return false,
    };
    relations::all().any(|relation| relation.schema == schema && relation.name == name)
}

/// True for names that catalog relations without a schema have.
fn has_prefix(name: &str) -> bool {
    name.starts_with("pg_") || name.starts_with("ropewalk_")
}

/// True when a query names a catalog relation anywhere.
pub(crate) fn is_asked(query: &sqlparser::ast::Query) -> bool {
    let text = query.to_string();
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize() else { return false };
    let mut words = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).peekable();
    while let Some(token) = words.next() {
        let Token::Word(word) = token else { continue };
        let name = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
        let (is_call, is_schema) = match words.peek() {
            Some(Token::LParen) => (true, false),
            Some(Token::Period) => (false, true),
            _ => (false, false),
        };
        let is_relation = || has_prefix(&name) && relations::all().any(|relation| relation.name == name);
        if is_schema && name == "information_schema" || !is_call && is_relation() {
            return true;
        }
    }
    false
}

impl Relation {
    /// The catalog relation that a name denotes.
    pub(crate) fn find(name: &[String]) -> Option<&'static Self> {
        let (schema, name) = match name {
            [name] if has_prefix(name) => ("pg_catalog", name),
            [schema, name] => (schema.as_str(), name),
            _ => return None,
        };
        relations::all().find(|relation| relation.schema == schema && relation.name == name)
    }

    /// True if its rows include the columns of views.
    pub(crate) fn shows_view_columns(&self) -> bool {
        matches!(self.name, "pg_attribute" | "columns")
    }

    /// Its name, columns and rows.
    pub(crate) fn make(&self, catalog: &Catalog) -> Made {
        let mut columns = columns_of(self.columns);
        let mut rows = (self.rows)(catalog);
        if self.schema == "pg_catalog" {
            columns.push(("tableoid".into(), Type::INT8));
            rows.iter_mut().for_each(|row| row.push(Value::Int8(self.oid)));
        }
        // Rows have integers of any width; convert them to the width of the column.
        for row in &mut rows {
            for (value, (_, ty)) in row.iter_mut().zip(&columns) {
                if value.as_integer().is_some() {
                    *value = std::mem::replace(value, Value::Null).assign(*ty).unwrap_or(Value::Null);
                }
            }
        }
        (reference(Some(self.schema), self.name), columns, Arc::new(rows))
    }
}
