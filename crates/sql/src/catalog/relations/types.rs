//! Rows about types and functions.

use ropewalk::tables::Value;

use super::{INTERNAL, length, oids, row};
use crate::catalog::procs::{PROCS, Proc};
use crate::catalog::{Catalog, OWNER, PG_CATALOG, show};
use crate::expr::Record;
use crate::types::names::oid as oid_of;

/// Base of the numbers of enum labels.
const LABEL_OID: i64 = 0x4000_0000;

/// The labels of enum types. A label's number is derived from its type's number and its place.
pub(super) fn labels(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for known in &catalog.enums {
        for (place, label) in known.labels().enumerate() {
            let oid = LABEL_OID + i64::from(known.number()) * 1024 + length(place);
            let order = Value::Float4(place as f32 + 1.0);
            rows.push(row![
                oid & 0xffff_ffff,
                i64::from(oid_of(known.column_type())),
                order,
                label.to_owned()
            ]);
        }
    }
    rows
}

/// A row of `pg_type`.
struct Shown<'c> {
    oid: i64,
    name: String,
    schema: i64,
    width: i64,
    kind: &'static str,
    category: &'c str,
    element: i64,
    array: i64,
    /// Prefix of the names of its input and output functions.
    functions: String,
    collation: i64,
}

impl Shown<'_> {
    fn row(self) -> Record {
        let varies = self.width < 0;
        let function = |suffix: &str| format!("{}{suffix}", self.functions);
        row![
            self.oid,
            self.name,
            self.schema,
            OWNER,
            self.width,
            !varies,
            self.kind,
            self.category.to_owned(),
            false,
            true,
            ",",
            0_i64,
            "-",
            self.element,
            self.array,
            function("in"),
            function("out"),
            function("recv"),
            function("send"),
            "-",
            "-",
            "-",
            if self.width == 8 { "d" } else { "i" },
            if varies { "x" } else { "p" },
            false,
            0_i64,
            -1_i64,
            0_i64,
            self.collation,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

pub(super) fn types(catalog: &Catalog) -> Vec<Record> {
    let category = |name: &str| match name {
        "bool" => "B",
        "int2" | "int4" | "int8" | "float4" | "float8" | "numeric" | "oid" => "N",
        "date" | "time" | "timestamp" | "timestamptz" => "D",
        "interval" => "T",
        "text" | "varchar" | "bpchar" | "name" => "S",
        _ => "U",
    };
    let mut rows = Vec::new();
    for (one, name, _, many) in show::TYPES {
        let width = match name {
            "bool" | "char" => 1_i64,
            "int2" => 2,
            "int4" | "float4" | "date" | "oid" => 4,
            "int8" | "float8" | "time" | "timestamp" | "timestamptz" => 8,
            "uuid" | "interval" => 16,
            "name" => 64,
            _ => -1,
        };
        let collation = if category(name) == "S" { 100 } else { 0_i64 };
        let plain = Shown {
            oid: one,
            name: name.to_owned(),
            schema: PG_CATALOG,
            width,
            kind: "b",
            category: category(name),
            element: 0,
            array: many,
            functions: name.to_owned(),
            collation,
        };
        let (name, functions) = (format!("_{name}"), format!("_{name}"));
        let array =
            Shown { oid: many, name, width: -1, category: "A", element: one, array: 0, functions, ..plain };
        rows.extend([plain.row(), array.row()]);
    }
    for known in &catalog.enums {
        let ty = known.column_type();
        let (one, many) = (i64::from(oid_of(ty)), i64::from(oid_of(ty.array())));
        let plain = Shown {
            oid: one,
            name: known.unqualified_name().to_owned(),
            schema: catalog.schema_of(known.name()),
            width: 4,
            kind: "e",
            category: "E",
            element: 0,
            array: many,
            functions: "enum_".into(),
            collation: 0,
        };
        let array = Shown {
            oid: many,
            name: format!("_{}", known.unqualified_name()),
            width: -1,
            kind: "b",
            category: "A",
            element: one,
            array: 0,
            functions: "array_".into(),
            ..plain
        };
        rows.extend([plain.row(), array.row()]);
    }
    rows
}

pub(super) fn functions(_: &Catalog) -> Vec<Record> {
    let row = |proc: &Proc| {
        let variadic = proc.arguments.last().copied().filter(|_| proc.is_variadic).unwrap_or(0);
        row![
            proc.oid,
            proc.name,
            PG_CATALOG,
            OWNER,
            INTERNAL,
            Value::Float4(1.0),
            Value::Float4(if proc.answers_rows { 1000.0 } else { 0.0 }),
            variadic,
            proc.kind,
            false,
            false,
            false,
            proc.answers_rows,
            "v",
            "u",
            length(proc.arguments.len()),
            0_i64,
            proc.result,
            oids(proc.arguments.iter().copied()),
            Value::Null,
            Value::Null,
            Value::Null,
            proc.name,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    };
    PROCS.iter().map(row).collect()
}
