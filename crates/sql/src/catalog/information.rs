//! The relations of `information_schema` (ISO 9075-11) that tools read.

use ropewalk::tables::{Deferral, NumericLimits, Precision, SECOND_DIGITS_MAX, Scalar, Type, Value};

use super::Catalog;
use super::ConstraintOf;
use super::IndexOf;
use super::Relation;
use super::SequenceOf;
use super::ViewOf;
use super::relations::{row, space};
use super::show;
use crate::expr::Record;
use crate::syntax::names::own;
use crate::types::names::{shown_fields, type_name};

macro_rules! relations {
    ($($name:literal $oid:literal $columns:literal => $rows:expr;)*) => {
        pub(crate) const RELATIONS: &[Relation] = &[$(Relation {
            schema: "information_schema", name: $name, oid: $oid, columns: $columns, rows: $rows,
        }),*];
    };
}

relations! {
    "schemata" 13001 "catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema \
        default_character_set_name sql_path" => |catalog| {
        let row = |(_, name): (i64, &str)| {
            row![catalog.database.clone(), name.to_owned(), catalog.user.clone(), Value::Null, Value::Null, Value::Null,
                Value::Null]
        };
        catalog.schemas().map(row).collect()
    };
    "tables" 13002 "table_catalog table_schema table_name table_type self_referencing_column_name reference_generation \
        user_defined_type_catalog user_defined_type_schema user_defined_type_name is_insertable_into is_typed \
        commit_action" => |catalog| {
        let row = |schema: &std::sync::Arc<ropewalk::tables::Schema>| {
            row![catalog.database.clone(), space(schema.name()), schema.unqualified_name().to_owned(), "BASE TABLE", Value::Null, Value::Null, Value::Null,
                Value::Null, Value::Null, "YES", "NO", Value::Null]
        };
        let view = |view: &ViewOf| {
            row![catalog.database.clone(), space(&view.name), own(&view.name).to_owned(), "VIEW", Value::Null, Value::Null, Value::Null,
                Value::Null, Value::Null, "NO", "NO", Value::Null]
        };
        catalog.tables.iter().map(row).chain(catalog.views.iter().map(view)).collect()
    };
    "columns" 13003 "table_catalog table_schema table_name column_name ordinal_position:i column_default is_nullable data_type \
        character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i \
        datetime_precision:i interval_type collation_name udt_catalog udt_schema udt_name is_identity identity_generation \
        identity_start identity_increment identity_maximum identity_minimum identity_cycle is_generated \
        generation_expression is_updatable" => columns;
    "views" 13004 "table_catalog table_schema table_name view_definition check_option is_updatable is_insertable_into" => |catalog| {
        let row = |view: &ViewOf| {
            row![catalog.database.clone(), space(&view.name), own(&view.name).to_owned(), format!(" {};", catalog.view_text(view).0), "NONE",
                "NO", "NO"]
        };
        catalog.views.iter().map(row).collect()
    };
    "table_constraints" 13005 "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name \
        constraint_type is_deferrable initially_deferred enforced nulls_distinct" => constraints;
    "key_column_usage" 13006 "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name \
        column_name ordinal_position:i position_in_unique_constraint:i" => keys;
    "constraint_column_usage" 13007 "table_catalog table_schema table_name column_name constraint_catalog constraint_schema \
        constraint_name" => usage;
    "referential_constraints" 13008 "constraint_catalog constraint_schema constraint_name unique_constraint_catalog \
        unique_constraint_schema unique_constraint_name match_option update_rule delete_rule" => references;
    "check_constraints" 13009 "constraint_catalog constraint_schema constraint_name check_clause" => |catalog| {
        let row = |constraint: ConstraintOf<'_>| match &constraint {
            ConstraintOf::Check(schema, _, check) => Some(row![catalog.database.clone(), space(schema.name()),
                constraint.name().to_owned(), catalog.expr(schema, check.expr())]),
            _ => None,
        };
        catalog.constraints().filter_map(row).collect()
    };
    "sequences" 13010 "sequence_catalog sequence_schema sequence_name data_type numeric_precision:i numeric_precision_radix:i \
        numeric_scale:i start_value minimum_value maximum_value increment cycle_option" => |catalog| {
        let row = |sequence: &SequenceOf| {
            let (ty, steps) = (sequence.type_oid(), sequence.steps);
            let cycles = if steps.cycles { "YES" } else { "NO" };
            let bits = match ty { 21 => 16_i64, 23 => 32, _ => 64 };
            row![catalog.database.clone(), space(sequence.name()), own(sequence.name()).to_owned(), show::format_type(ty, None), bits, 2_i64, 0_i64,
                steps.start.to_string(), steps.least.to_string(), steps.greatest.to_string(), steps.increment.to_string(), cycles]
        };
        catalog.sequences().map(row).collect()
    };
    "routines" 13011 "specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name routine_type \
        data_type" => none;
    "triggers" 13012 "trigger_catalog trigger_schema trigger_name event_manipulation event_object_table" => none;
    "information_schema_catalog_name" 13013 "catalog_name" => |catalog| vec![row![catalog.database.clone()]];
    "enabled_roles" 13014 "role_name" => |catalog| vec![row![catalog.user.clone()]];
    "applicable_roles" 13015 "grantee role_name is_grantable" => none;
    "table_privileges" 13016 "grantor grantee table_catalog table_schema table_name privilege_type is_grantable \
        with_hierarchy" => none;
    "column_privileges" 13017 "grantor grantee table_catalog table_schema table_name column_name privilege_type \
        is_grantable" => none;
    "domains" 13018 "domain_catalog domain_schema domain_name data_type" => none;
    "element_types" 13019 "object_catalog object_schema object_name object_type collection_type_identifier data_type" => none;
}

fn none(_: &Catalog) -> Vec<Record> {
    Vec::new()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn columns(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        for (place, column) in schema.columns().iter().enumerate() {
            let identity = show::identity(column);
            let described = Described {
                relation: schema.name(),
                name: column.name(),
                number: place + 1,
                ty: column.column_type(),
                oid: show::type_of(schema, place, column).0,
                // An array column has no limit itself, only its elements do.
                characters_max: show::characters_max(schema, place)
                    .filter(|_| column.column_type() == Type::TEXT),
                times: column.precision().unwrap_or_default(),
                default: catalog.default(column),
                generated: column.generated().map(|expr| catalog.expr(schema, expr)),
                collation: column.collation(),
                is_nullable: column.is_nullable(),
                identity,
                is_updatable: true,
            };
            rows.push(described.row(catalog));
        }
    }
    for (view, columns) in catalog.views() {
        let declared = catalog.declared(view);
        for (((name, ty), number), declared) in columns.iter().zip(1..).zip(declared) {
            let described = Described {
                relation: &view.name,
                name,
                number,
                ty: *ty,
                oid: declared.map_or_else(|| show::type_and_modifier(*ty).0, |declared| declared.oid),
                characters_max: declared.and_then(|declared| declared.characters_max()),
                times: declared.map(|declared| declared.times).unwrap_or_default(),
                default: None,
                generated: None,
                collation: None,
                is_nullable: true,
                identity: "",
                is_updatable: false,
            };
            rows.push(described.row(catalog));
        }
    }
    rows
}

/// A row of `columns`.
struct Described<'c> {
    relation: &'c str,
    name: &'c str,
    number: usize,
    ty: Type,
    oid: i64,
    characters_max: Option<i64>,
    times: Precision,
    default: Option<String>,
    generated: Option<String>,
    /// The collation, if it is not the default.
    collation: Option<&'c str>,
    is_nullable: bool,
    identity: &'static str,
    is_updatable: bool,
}

impl Described<'_> {
    /// Precision, radix and scale.
    fn precision(&self) -> (Option<i64>, Option<i64>, Option<i64>) {
        match self.ty {
            Type::INT2 => (Some(16), Some(2), Some(0)),
            Type::INT4 => (Some(32), Some(2), Some(0)),
            Type::INT8 => (Some(64), Some(2), Some(0)),
            Type::FLOAT4 => (Some(24), Some(2), None),
            Type::FLOAT8 => (Some(53), Some(2), None),
            Type::Scalar(Scalar::Numeric(Some(NumericLimits { precision, scale }))) => {
                (Some(precision.into()), Some(10), Some(scale.into()))
            }
            Type::Scalar(Scalar::Numeric(None)) => (None, Some(10), None),
            _ => (None, None, None),
        }
    }

    fn row(self, catalog: &Catalog) -> Record {
        let precision = self.precision();
        let Self { oid, ty, identity, characters_max, times, .. } = self;
        let digits = match ty {
            Type::DATE => Some(0_i64),
            Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL => {
                Some(times.digits.unwrap_or(SECOND_DIGITS_MAX).into())
            }
            _ => None,
        };
        let fields = times.fields.map(|fields| {
            let digits = times.digits.map_or_else(String::new, |digits| format!("({digits})"));
            shown_fields(fields).to_uppercase() + &digits
        });
        let known = show::TYPES.iter().find(|(one, _, _, many)| *one == oid || *many == oid);
        let short =
            known.map(|(one, name, _, _)| if *one == oid { (*name).to_owned() } else { format!("_{name}") });
        let labels = catalog.enum_type(oid);
        let short = short.or_else(|| {
            let (known, is_array) = labels?;
            Some(format!("{}{}", if is_array { "_" } else { "" }, known.unqualified_name()))
        });
        let shown = match ty {
            Type::Array(_) => "ARRAY".to_owned(),
            Type::TEXT if characters_max.is_some() => "character varying".into(),
            Type::Scalar(Scalar::Numeric(_)) => "numeric".into(),
            Type::Scalar(Scalar::Enum(_)) => "USER-DEFINED".into(),
            ty => type_name(ty),
        };
        let numbered = |text: &str| (!identity.is_empty()).then(|| text.to_owned());
        let yes = |truth: bool| if truth { "YES" } else { "NO" };
        row![
            catalog.database.clone(),
            space(self.relation),
            own(self.relation).to_owned(),
            self.name.to_owned(),
            number(self.number),
            self.default,
            yes(self.is_nullable),
            shown,
            characters_max,
            characters_max.map(|max| max * 4),
            precision.0,
            precision.1,
            precision.2,
            digits,
            fields,
            self.collation.map(str::to_owned),
            catalog.database.clone(),
            labels.map_or_else(|| "pg_catalog".to_owned(), |(known, _)| space(known.name())),
            short,
            yes(!identity.is_empty()),
            numbered(if identity == "a" { "ALWAYS" } else { "BY DEFAULT" }),
            numbered("1"),
            numbered("1"),
            numbered("9223372036854775807"),
            numbered("1"),
            "NO",
            if self.generated.is_some() { "ALWAYS" } else { "NEVER" },
            self.generated,
            yes(self.is_updatable),
        ]
    }
}

fn constraints(catalog: &Catalog) -> Vec<Record> {
    let yes = |truth: bool| if truth { "YES" } else { "NO" };
    let row = |table: &str, name: &str, kind: &str, deferral: Deferral| {
        row![
            catalog.database.clone(),
            space(table),
            name.to_owned(),
            catalog.database.clone(),
            space(table),
            own(table).to_owned(),
            kind.to_owned(),
            yes(deferral.is_deferrable()),
            yes(deferral == Deferral::InitiallyDeferred),
            "YES",
            if kind == "UNIQUE" { Some("YES".to_owned()) } else { None }
        ]
    };
    let shown = |constraint: ConstraintOf<'_>| {
        let kind = match &constraint {
            ConstraintOf::Index(IndexOf::Key(_)) => "PRIMARY KEY",
            ConstraintOf::Index(_) => "UNIQUE",
            ConstraintOf::Foreign(..) => "FOREIGN KEY",
            ConstraintOf::Check(..) => "CHECK",
        };
        row(constraint.table().name(), constraint.name(), kind, constraint.deferral())
    };
    catalog.constraints().map(shown).collect()
}

/// The name of the column with this number.
fn column(schema: &ropewalk::tables::Schema, number: i16) -> String {
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    place
        .and_then(|place| schema.columns().get(place))
        .map_or_else(String::new, |column| column.name().to_owned())
}

fn keys(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for constraint in catalog.constraints() {
        let (numbers, refers) = match &constraint {
            ConstraintOf::Index(index) => (index.columns(), false),
            ConstraintOf::Foreign(schema, _, key) => (show::numbers(schema, key.columns()), true),
            ConstraintOf::Check(..) => continue,
        };
        for (place, number_of) in numbers.into_iter().enumerate() {
            let table = constraint.table();
            let position = number(place + 1);
            rows.push(row![
                catalog.database.clone(),
                space(table.name()),
                constraint.name().to_owned(),
                catalog.database.clone(),
                space(table.name()),
                table.unqualified_name().to_owned(),
                column(table, number_of),
                position,
                refers.then_some(position),
            ]);
        }
    }
    rows
}

fn usage(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for constraint in catalog.constraints() {
        let (table, numbers) = match &constraint {
            ConstraintOf::Index(index) => (index.table(), index.columns()),
            ConstraintOf::Foreign(_, _, key) => {
                let Some(parent) = catalog.tables.iter().find(|table| table.id() == key.parent()) else {
                    continue;
                };
                (&**parent, show::numbers(parent, key.parent_columns()))
            }
            ConstraintOf::Check(..) => continue,
        };
        for number in numbers {
            rows.push(row![
                catalog.database.clone(),
                space(table.name()),
                table.unqualified_name().to_owned(),
                column(table, number),
                catalog.database.clone(),
                space(constraint.table().name()),
                constraint.name().to_owned(),
            ]);
        }
    }
    rows
}

fn references(catalog: &Catalog) -> Vec<Record> {
    let rule = |action: ropewalk::tables::Action| match show::action_letter(action) {
        "r" => "RESTRICT",
        "c" => "CASCADE",
        "n" => "SET NULL",
        "d" => "SET DEFAULT",
        _ => "NO ACTION",
    };
    let row = |constraint: ConstraintOf<'_>| {
        let ConstraintOf::Foreign(_, _, key) = &constraint else { return None };
        let parent = catalog.tables.iter().find(|table| table.id() == key.parent())?;
        let wanted = show::numbers(parent, key.parent_columns());
        let mut indexes = catalog.indexes_of(parent);
        let unique = indexes.find(|index| index.is_unique() && index.columns() == wanted)?;
        Some(row![
            catalog.database.clone(),
            space(constraint.table().name()),
            constraint.name().to_owned(),
            catalog.database.clone(),
            space(parent.name()),
            unique.name().to_owned(),
            "NONE",
            rule(key.on_update()).to_owned(),
            rule(key.on_delete()).to_owned(),
        ])
    };
    catalog.constraints().filter_map(row).collect()
}
