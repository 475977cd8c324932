//! A table's definition as the value of its catalog entry. See `docs/format/catalog.md`.

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u32, put_varint};

use crate::schema::define::{Action, DefaultValue, Deferral, Identity, OperatorClass};
use crate::schema::enums::EnumType;
use crate::schema::layout::LayoutColumn;
use crate::schema::{Check, Column, ForeignKey, Index, IndexColumn, Parts};
use crate::value::Value;
use crate::value::expr::Expr;
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::Type;

const FORMAT: u8 = 1;

fn put_list<T>(out: &mut Vec<u8>, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn take_list<'a, T>(
    decoder: &mut Decoder<'a>,
    mut take: impl FnMut(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = decoder.varint("count")?;
    (0..count).map(|_| take(decoder)).collect()
}

fn put_id(out: &mut Vec<u8>, id: u16) {
    out.extend_from_slice(&id.to_le_bytes());
}

fn take_id(decoder: &mut Decoder<'_>) -> Result<u16, DecodeError> {
    Ok(u16::from_le_bytes(decoder.array("column id")?))
}

fn put_option<T>(out: &mut Vec<u8>, item: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(item.is_some()));
    if let Some(item) = item {
        put(out, item);
    }
}

fn take_bool(decoder: &mut Decoder<'_>) -> Result<bool, DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError { what: "flag 0 or 1", offset }),
    }
}

fn take_option<'a, T>(
    decoder: &mut Decoder<'a>,
    take: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if take_bool(decoder)? { take(decoder).map(Some) } else { Ok(None) }
}

fn take_name(decoder: &mut Decoder<'_>) -> Result<String, DecodeError> {
    decoder.str("name").map(str::to_owned)
}

fn one_of<T: Copy>(decoder: &mut Decoder<'_>, all: &[T], what: &'static str) -> Result<T, DecodeError> {
    let offset = decoder.offset();
    let number = decoder.u8(what)?;
    all.get(usize::from(number)).copied().ok_or(DecodeError { what, offset })
}

// The order is part of the format.
const ACTIONS: [Action; 5] =
    [Action::NoAction, Action::Restrict, Action::Cascade, Action::SetNull, Action::SetDefault];
const IDENTITIES: [Identity; 2] = [Identity::ByDefault, Identity::Always];
const DEFERRALS: [Deferral; 3] =
    [Deferral::NotDeferrable, Deferral::InitiallyImmediate, Deferral::InitiallyDeferred];
const CLASSES: [OperatorClass; 4] = [
    OperatorClass::Default,
    OperatorClass::TextPattern,
    OperatorClass::VarcharPattern,
    OperatorClass::BpcharPattern,
];

/// Lowest bit of the operator class in the byte of a column's order.
const CLASS_BIT: u8 = 2;
/// Lowest bit of the deferral in the byte that it shares.
const DEFERRAL_BIT: u8 = 4;

/// Flags of an index: it has included columns, its NULLs are equal.
const INCLUDES: u8 = 8;
const NULLS_EQUAL: u8 = 64;

/// A byte whose lower half has a number or flags, and whose upper half has the deferral.
fn split_deferral(byte: u8, offset: usize) -> Result<(u8, Deferral), DecodeError> {
    let deferral = DEFERRALS.get(usize::from(byte >> DEFERRAL_BIT)).copied();
    Ok((byte & ((1 << DEFERRAL_BIT) - 1), deferral.ok_or(DecodeError { what: "known deferral", offset })?))
}

fn put_column(out: &mut Vec<u8>, column: &Column) {
    put_id(out, column.id);
    put_bytes(out, column.name.as_bytes());
    column.ty.encode(out);
    let options = [column.precision.is_some(), column.generated.is_some(), column.collation.is_some()];
    let flags = [column.nullable].into_iter().chain(options);
    out.push(flags.rev().fold(0, |byte, flag| byte << 1 | u8::from(flag)));
    match &column.default {
        DefaultValue::None => out.push(0),
        DefaultValue::Value(value) => {
            out.push(1);
            value.encode(out);
        }
        DefaultValue::Now => out.push(2),
        DefaultValue::NewUuid => out.push(3),
        DefaultValue::Next(sequence) => {
            out.push(4);
            put_u32(out, *sequence);
        }
    }
    put_option(out, column.identity, |out, (identity, sequence)| {
        out.push(identity as u8);
        put_u32(out, sequence);
    });
    column.missing.encode(out);
    if let Some(labels) = &column.labels {
        labels.encode(out);
    }
    if let Some(precision) = column.precision {
        precision.encode(out);
    }
    if let Some(expr) = &column.generated {
        expr.encode(out);
    }
    if let Some(name) = &column.collation {
        put_bytes(out, name.as_bytes());
    }
}

fn take_column(decoder: &mut Decoder<'_>) -> Result<Column, DecodeError> {
    let (id, name, ty) = (take_id(decoder)?, take_name(decoder)?, Type::decode(decoder)?);
    let offset = decoder.offset();
    let flags = decoder.u8("flags of a column")?;
    if flags > 15 {
        return Err(DecodeError { what: "known flags of a column", offset });
    }
    let mut column = Column {
        id,
        name,
        ty,
        nullable: flags & 1 != 0,
        default: {
            let offset = decoder.offset();
            match decoder.u8("default")? {
                0 => DefaultValue::None,
                1 => DefaultValue::Value(Value::decode(decoder)?.into_owned()),
                2 => DefaultValue::Now,
                3 => DefaultValue::NewUuid,
                4 => DefaultValue::Next(decoder.u32("sequence")?),
                _ => return Err(DecodeError { what: "known default", offset }),
            }
        },
        identity: take_option(decoder, |d| Ok((one_of(d, &IDENTITIES, "identity")?, d.u32("sequence")?)))?,
        missing: Value::decode(decoder)?.into_owned(),
        labels: None,
        precision: None,
        generated: None,
        collation: None,
    };
    if column.ty.enum_number().is_some() {
        column.labels = Some(Arc::new(EnumType::decode(decoder)?));
    }
    if flags & 2 != 0 {
        column.precision = Some(Precision::decode(decoder)?);
    }
    if flags & 4 != 0 {
        column.generated = Some(Expr::decode(decoder)?);
    }
    if flags & 8 != 0 {
        column.collation = Some(take_name(decoder)?);
    }
    Ok(column)
}

fn put_index(out: &mut Vec<u8>, index: &Index) {
    put_u32(out, index.object);
    put_bytes(out, index.name.as_bytes());
    put_list(out, &index.columns, |out, column| {
        column.expr.encode(out);
        let order = u8::from(column.order.descending) | u8::from(column.order.nulls_first) << 1;
        out.push(order | (column.class as u8) << CLASS_BIT);
        column.ty.encode(out);
    });
    let flags = [index.unique, index.stands_alone, index.of_key, !index.include.is_empty()];
    let flags = flags.into_iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(flag));
    let equal = if index.nulls_equal { NULLS_EQUAL } else { 0 };
    out.push(flags | equal | (index.deferral as u8) << DEFERRAL_BIT);
    put_option(out, index.filter.as_ref(), |out, filter| filter.encode(out));
    out.push(u8::from(index.ready));
    if !index.include.is_empty() {
        put_list(out, &index.include, |out, id| put_id(out, *id));
    }
}

fn take_index(decoder: &mut Decoder<'_>) -> Result<Index, DecodeError> {
    let (object, name) = (decoder.u32("object")?, take_name(decoder)?);
    let columns = take_list(decoder, |d| {
        let expr = Expr::decode(d)?;
        let offset = d.offset();
        let flags = d.u8("order")?;
        let class = CLASSES.get(usize::from(flags >> CLASS_BIT)).copied();
        let class = class.ok_or(DecodeError { what: "known order", offset })?;
        let order = KeyOrder { descending: flags & 1 != 0, nulls_first: flags & 2 != 0 };
        Ok(IndexColumn { expr, order, ty: Type::decode(d)?, class })
    })?;
    let offset = decoder.offset();
    let byte = decoder.u8("flags of an index")?;
    let (nulls_equal, includes) = (byte & NULLS_EQUAL != 0, byte & INCLUDES != 0);
    let (flags, deferral) = split_deferral(byte & !NULLS_EQUAL, offset)?;
    let (unique, stands_alone, of_key) = match flags & !INCLUDES {
        0 => (false, false, false),
        1 => (true, false, false),
        3 => (true, true, false),
        4 => (false, false, true),
        _ => return Err(DecodeError { what: "known flags of an index", offset }),
    };
    let filter = take_option(decoder, Expr::decode)?;
    let ready = take_bool(decoder)?;
    let include = if includes { take_list(decoder, take_id)? } else { Vec::new() };
    Ok(Index {
        object,
        name,
        columns,
        unique,
        stands_alone,
        of_key,
        filter,
        include,
        nulls_equal,
        deferral,
        ready,
    })
}

fn put_foreign_key(out: &mut Vec<u8>, key: &ForeignKey) {
    put_bytes(out, key.name.as_bytes());
    put_list(out, &key.columns, |out, id| put_id(out, *id));
    put_u32(out, key.parent);
    put_list(out, &key.parent_columns, |out, id| put_id(out, *id));
    let on_update = key.on_update as u8 | (key.deferral as u8) << DEFERRAL_BIT;
    out.extend_from_slice(&[key.on_delete as u8, on_update]);
    put_u32(out, key.index);
}

fn take_foreign_key(decoder: &mut Decoder<'_>) -> Result<ForeignKey, DecodeError> {
    let name = take_name(decoder)?;
    let columns = take_list(decoder, take_id)?;
    let parent = decoder.u32("parent")?;
    let parent_columns = take_list(decoder, take_id)?;
    let on_delete = one_of(decoder, &ACTIONS, "known action")?;
    let offset = decoder.offset();
    let (on_update, deferral) = split_deferral(decoder.u8("known action")?, offset)?;
    let on_update = ACTIONS.get(usize::from(on_update)).copied();
    let on_update = on_update.ok_or(DecodeError { what: "known action", offset })?;
    let index = decoder.u32("index")?;
    Ok(ForeignKey { name, columns, parent, parent_columns, on_delete, on_update, deferral, index })
}

impl Parts {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        let out = &mut bytes;
        put_u32(out, self.id);
        put_u32(out, self.version);
        put_bytes(out, self.name.as_bytes());
        put_u32(out, self.rows);
        put_option(out, self.rowid, put_u32);
        put_list(out, &self.key, |out, id| put_id(out, *id));
        put_bytes(out, self.key_name.as_bytes());
        put_id(out, self.next_column);
        put_list(out, &self.columns, put_column);
        put_list(out, &self.layouts, |out, layout| {
            put_list(out, layout, |out, column| {
                put_id(out, column.id);
                column.ty.encode(out);
                out.push(u8::from(column.nullable));
            });
        });
        put_list(out, &self.indexes, put_index);
        put_list(out, &self.checks, |out, check| {
            put_bytes(out, check.name.as_bytes());
            check.expr.encode(out);
        });
        put_list(out, &self.foreign_keys, put_foreign_key);
        put_list(out, &self.referenced_by, |out, id| put_u32(out, *id));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let decoder = &mut Decoder::new(bytes);
        if decoder.u8("format")? != FORMAT {
            return Err(DecodeError { what: "definition of format 1", offset: 0 });
        }
        let parts = Self {
            id: decoder.u32("table")?,
            version: decoder.u32("version")?,
            name: take_name(decoder)?,
            rows: decoder.u32("rows")?,
            rowid: take_option(decoder, |d| d.u32("sequence"))?,
            key: take_list(decoder, take_id)?,
            key_name: take_name(decoder)?,
            next_column: take_id(decoder)?,
            columns: take_list(decoder, take_column)?,
            layouts: take_list(decoder, |d| {
                take_list(d, |d| {
                    Ok(LayoutColumn { id: take_id(d)?, ty: Type::decode(d)?, nullable: take_bool(d)? })
                })
            })?,
            indexes: take_list(decoder, take_index)?,
            checks: take_list(decoder, |d| Ok(Check { name: take_name(d)?, expr: Expr::decode(d)? }))?,
            foreign_keys: take_list(decoder, take_foreign_key)?,
            referenced_by: take_list(decoder, |d| d.u32("table"))?,
        };
        if !decoder.is_empty() {
            return Err(DecodeError { what: "end of the definition", offset: decoder.offset() });
        }
        Ok(parts)
    }
}
