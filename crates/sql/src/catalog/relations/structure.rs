//! Rows about relations: columns, indexes, constraints, defaults and dependencies.

use std::collections::HashSet;

use ropewalk::tables::{DefaultValue, Deferral, Scalar, Schema, Type, Value};

use super::{length, oids, row, vector};
use crate::catalog::collations;
use crate::catalog::operator_classes::class_of;
use crate::catalog::{
    BTREE, Catalog, ConstraintOf, DEFAULT_OID, HEAP, IndexOf, OWNER, SEQUENCE_COLUMNS, show, table_oid,
};
use crate::expr::Record;
use crate::syntax::names::own;

/// A row of `pg_class`.
struct Class<'c> {
    oid: i64,
    name: &'c str,
    schema: i64,
    kind: &'static str,
    method: i64,
    width: usize,
    checks: usize,
    is_indexed: bool,
    refers: bool,
}

impl<'c> Class<'c> {
    fn plain(
        oid: i64,
        (schema, name): (i64, &'c str),
        kind: &'static str,
        method: i64,
        width: usize,
    ) -> Self {
        Self { oid, name, schema, kind, method, width, checks: 0, is_indexed: false, refers: false }
    }

    fn row(&self) -> Record {
        let Self { oid, name, schema, kind, method, width, checks, is_indexed, refers } = *self;
        let (has_rule, replica) = (kind == "v", if kind == "r" { "d" } else { "n" });
        let file = if kind == "v" { 0 } else { oid };
        // There are no row types, but some tools recognize tables and views by a nonzero one.
        let of_rows = if matches!(kind, "r" | "v") { oid } else { 0 };
        row![
            oid,
            name.to_owned(),
            schema,
            of_rows,
            0_i64,
            OWNER,
            method,
            file,
            0_i64,
            0_i64,
            Value::Float4(-1.0),
            0_i64,
            0_i64,
            is_indexed,
            false,
            "p",
            kind,
            length(width),
            length(checks),
            has_rule,
            refers,
            false,
            false,
            false,
            true,
            replica,
            false,
            0_i64,
            0_i64,
            0_i64,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

pub(super) fn classes(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    let keys = || catalog.tables.iter().flat_map(|schema| schema.foreign_keys());
    let referred: HashSet<u32> = keys().map(|key| key.parent()).collect();
    // In PostgreSQL a foreign key has triggers on both tables.
    let refers = |schema: &Schema| !schema.foreign_keys().is_empty() || referred.contains(&schema.id());
    for schema in &catalog.tables {
        let space = catalog.schema_of(schema.name());
        let checks =
            schema.checks().iter().filter(|check| show::length_bound(schema, check).is_none()).count();
        let table = Class::plain(
            table_oid(schema),
            (space, schema.unqualified_name()),
            "r",
            HEAP,
            schema.columns().len(),
        );
        let is_indexed = catalog.indexes_of(schema).next().is_some();
        rows.push(Class { checks, is_indexed, refers: refers(schema), ..table }.row());
        for index in catalog.indexes_of(schema) {
            rows.push(
                Class::plain(
                    index.oid(),
                    (space, index.name()),
                    "i",
                    BTREE,
                    index.columns().len() + index.included().len(),
                )
                .row(),
            );
        }
    }
    for sequence in catalog.sequences() {
        let name = (catalog.schema_of(sequence.name()), own(sequence.name()));
        rows.push(Class::plain(sequence.oid(), name, "S", 0, 3).row());
    }
    for view in &catalog.views {
        let name = (catalog.schema_of(&view.name), own(&view.name));
        rows.push(Class::plain(view.oid(), name, "v", 0, view.columns.len()).row());
    }
    rows
}

/// Identity columns own their sequences; the rules of views depend on the relations that they read.
pub(super) fn dependencies(catalog: &Catalog) -> Vec<Record> {
    const CLASS: i64 = 1259;
    const RULE: i64 = 2618;
    const DEFAULT: i64 = 2604;
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        for (place, column) in schema.columns().iter().enumerate() {
            let DefaultValue::Next(number) = column.default_value() else { continue };
            if let Some(sequence) = catalog.sequences().find(|known| known.sequence.number == *number) {
                rows.push(row![
                    DEFAULT,
                    default_oid(schema, place),
                    0_i64,
                    CLASS,
                    sequence.oid(),
                    0_i64,
                    "n"
                ]);
            }
        }
    }
    for sequence in catalog.sequences() {
        let Some((table, place)) = &sequence.owner else { continue };
        let kind = if sequence.sequence.is_identity { "i" } else { "a" };
        rows.push(row![CLASS, sequence.oid(), 0_i64, CLASS, table_oid(table), length(place + 1), kind]);
    }
    for view in &catalog.views {
        rows.push(row![RULE, view.rule_oid(), 0_i64, CLASS, view.oid(), 0_i64, "i"]);
        let (_, mut read) = catalog.view_text(view);
        read.sort();
        read.dedup();
        for name in read {
            if let Some(oid) = catalog.kept_oid(&name) {
                rows.push(row![RULE, view.rule_oid(), 0_i64, CLASS, oid, 0_i64, "n"]);
            }
        }
    }
    rows
}

fn is_collated(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::Array(Scalar::Text))
}

/// PostgreSQL's size of a type in bytes; -1 when it varies.
fn width(ty: Type) -> i64 {
    match ty {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::Scalar(Scalar::Enum(_)) => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::UUID | Type::INTERVAL => 16,
        _ => -1,
    }
}

/// A row of `pg_attribute`.
struct Attribute<'c> {
    relation: i64,
    name: &'c str,
    ty: Type,
    oid: i64,
    modifier: i64,
    number: usize,
    is_required: bool,
    has_default: bool,
    identity: &'static str,
    /// `s` for a generated column.
    generated: &'static str,
    collation: i64,
}

impl<'c> Attribute<'c> {
    fn of(relation: i64, name: &'c str, ty: Type, number: usize) -> Self {
        let (oid, modifier) = show::type_and_modifier(ty);
        Self {
            relation,
            name,
            ty,
            oid,
            modifier,
            number,
            is_required: false,
            has_default: false,
            identity: "",
            generated: "",
            collation: if is_collated(ty) { collations::oid(None) } else { 0 },
        }
    }

    fn row(&self) -> Record {
        let width = width(self.ty);
        let varies = width < 0;
        let statistics = -1_i64;
        row![
            self.relation,
            self.name.to_owned(),
            self.oid,
            statistics,
            width,
            length(self.number),
            i64::from(matches!(self.ty, Type::Array(_))),
            -1_i64,
            self.modifier,
            !varies,
            if width == 8 { "d" } else { "i" },
            if varies { "x" } else { "p" },
            "",
            self.is_required,
            self.has_default,
            false,
            self.identity,
            self.generated,
            false,
            true,
            0_i64,
            self.collation,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

pub(super) fn attributes(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        let relation = table_oid(schema);
        for (place, column) in schema.columns().iter().enumerate() {
            let attribute = Attribute::of(relation, column.name(), column.column_type(), place + 1);
            let (oid, modifier) = show::type_of(schema, place, column);
            let (is_required, has_default) = (!column.is_nullable(), catalog.default(column).is_some());
            let identity = show::identity(column);
            let has_default = has_default || column.generated().is_some();
            let generated = if column.generated().is_some() { "s" } else { "" };
            let collation =
                column.collation().map_or(attribute.collation, |name| collations::oid(Some(name)));
            let options = Attribute { has_default, identity, generated, collation, ..attribute };
            rows.push(Attribute { oid, modifier, is_required, ..options }.row());
        }
        for index in catalog.indexes_of(schema) {
            for number in 1..=index.columns().len() {
                let name = catalog.index_column(index, number).unwrap_or_default();
                rows.push(Attribute::of(index.oid(), &name, index.column_type(number), number).row());
            }
            let columns = index
                .included()
                .into_iter()
                .filter_map(|number| schema.columns().get(usize::try_from(number).ok()?.checked_sub(1)?));
            for (column, number) in columns.zip(index.columns().len() + 1..) {
                rows.push(Attribute::of(index.oid(), column.name(), column.column_type(), number).row());
            }
        }
    }
    for (view, columns) in catalog.views() {
        for (((name, ty), number), declared) in columns.iter().zip(1..).zip(catalog.declared(view)) {
            let mut attribute = Attribute::of(view.oid(), name, *ty, number);
            if let Some(declared) = declared {
                (attribute.oid, attribute.modifier) = (declared.oid, declared.modifier);
            }
            rows.push(attribute.row());
        }
    }
    for sequence in catalog.sequences() {
        for ((name, ty), number) in SEQUENCE_COLUMNS.into_iter().zip(1..) {
            rows.push(Attribute::of(sequence.oid(), name, ty, number).row());
        }
    }
    rows
}

pub(super) fn indexes(catalog: &Catalog) -> Vec<Record> {
    let row = |index: IndexOf<'_>| {
        let (numbers, included) = (index.columns(), index.included());
        let width = numbers.len();
        let (valid, orders, filter) = match index {
            IndexOf::Key(_) => (true, vec![0; width], None),
            IndexOf::Secondary(schema, index) => {
                let order = |column: &ropewalk::tables::IndexColumn| {
                    i16::from(column.order.descending) | i16::from(column.order.nulls_first) << 1
                };
                let orders = index.columns().iter().map(order).collect();
                (index.is_ready(), orders, index.filter().map(|filter| catalog.expr(schema, filter)))
            }
        };
        let expressions: Vec<String> = numbers
            .iter()
            .zip(1..)
            .filter(|(column, _)| **column == 0)
            .filter_map(|(_, number)| catalog.index_column(index, number))
            .collect();
        let expressions = (!expressions.is_empty()).then(|| expressions.join(", "));
        let (collations, classes) = (1..=width)
            .map(|number| {
                let ty = index.column_type(number);
                let class = class_of(ty, index.class(number)).map_or(0, |class| class.oid);
                (if is_collated(ty) { 100 } else { 0 }, class)
            })
            .unzip::<i64, i64, Vec<_>, Vec<_>>();
        row![
            index.oid(),
            table_oid(index.table()),
            length(numbers.len() + included.len()),
            length(width),
            index.is_unique(),
            index.has_equal_nulls(),
            matches!(index, IndexOf::Key(_)),
            false,
            !index.deferral().is_deferrable(),
            false,
            valid,
            false,
            valid,
            true,
            false,
            vector([numbers, included].concat()),
            oids(collations),
            oids(classes),
            vector(orders),
            expressions,
            filter,
        ]
    };
    catalog.indexes().map(row).collect()
}

pub(super) fn constraints(catalog: &Catalog) -> Vec<Record> {
    let row = |constraint: ConstraintOf<'_>| {
        let table = constraint.table();
        let mut index_oid = 0;
        let (mut parent, mut referred, mut actions) = (0, Value::Null, (" ", " ", " "));
        let mut bound: Option<String> = None;
        let numbers;
        let kind = match &constraint {
            ConstraintOf::Index(index) => {
                index_oid = index.oid();
                numbers = index.columns();
                if matches!(index, IndexOf::Key(_)) { "p" } else { "u" }
            }
            ConstraintOf::Foreign(schema, _, key) => {
                numbers = show::numbers(schema, key.columns());
                if let Some(other) = catalog.tables.iter().find(|table| table.id() == key.parent()) {
                    parent = table_oid(other);
                    let wanted = show::numbers(other, key.parent_columns());
                    let serves = |index: &IndexOf<'_>| index.is_unique() && index.columns() == wanted;
                    index_oid = catalog.indexes_of(other).find(serves).map_or(0, |index| index.oid());
                    referred = vector(wanted);
                }
                actions = (show::action_letter(key.on_update()), show::action_letter(key.on_delete()), "s");
                "f"
            }
            ConstraintOf::Check(schema, _, check) => {
                let mut read = Vec::new();
                for (place, column) in schema.columns().iter().enumerate() {
                    if check.expr().reads(column.id()) {
                        read.push(i16::try_from(place + 1).unwrap_or(i16::MAX));
                    }
                }
                numbers = read;
                bound = Some(catalog.expr(schema, check.expr()));
                "c"
            }
        };
        row![
            constraint.oid(),
            constraint.name().to_owned(),
            catalog.schema_of(table.name()),
            kind,
            constraint.deferral().is_deferrable(),
            constraint.deferral() == Deferral::InitiallyDeferred,
            true,
            table_oid(table),
            0_i64,
            index_oid,
            0_i64,
            parent,
            actions.0,
            actions.1,
            actions.2,
            true,
            0_i64,
            kind != "c",
            vector(numbers),
            referred,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            bound,
        ]
    };
    catalog.constraints().map(row).collect()
}

fn default_oid(schema: &Schema, place: usize) -> i64 {
    DEFAULT_OID + i64::from(schema.id()) * 2048 + length(place)
}

pub(super) fn defaults(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        for (place, column) in schema.columns().iter().enumerate() {
            let generated = || column.generated().map(|expr| catalog.expr(schema, expr));
            if let Some(default) = catalog.default(column).or_else(generated) {
                rows.push(row![default_oid(schema, place), table_oid(schema), length(place + 1), default]);
            }
        }
    }
    rows
}
