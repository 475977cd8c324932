//! `$group`: combines documents with equal keys.

use std::collections::HashMap;

use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::accumulate::{Accumulator, State};
use crate::lang::expression::{Expression, Scope};
use crate::lang::memory::{Holder, Memory};
use crate::lang::value::key::key_of;
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// A parsed `$group`.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    id: Expression,
    fields: Vec<(String, Accumulator)>,
}

/// Memory of a group in the list and in the map, whose capacity may be twice their length.
const GROUP_BYTES: usize = 2 * (size_of::<(Owned, Vec<State>)>() + size_of::<(Vec<u8>, usize)>());

/// Groups being collected.
pub(crate) struct Groups<'g> {
    group: &'g Group,
    hold: Holder,
    places: HashMap<Vec<u8>, usize>,
    /// In the order of their first documents.
    groups: Vec<(Owned, Vec<State>)>,
}

impl Group {
    pub(crate) fn parse(spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        let Some(id) = spec.get("_id") else {
            refuse!(15955, "a group specification must include an _id");
        };
        Ok(Self { id: Expression::parse(id, scope)?, fields: fields(spec, scope)? })
    }

    /// `$sortByCount`
    pub(crate) fn counting(by: Value<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        let mut writer = Writer::new();
        writer.put("_id", by);
        writer.open_document("count");
        writer.put("$sum", Value::Int32(1));
        Self::parse(writer.finish().doc(), scope)
    }

    pub(crate) fn new(id: Expression, fields: Vec<(String, Accumulator)>) -> Self {
        Self { id, fields }
    }

    pub(crate) fn start(&self, memory: &Memory) -> Groups<'_> {
        Groups { group: self, hold: memory.holder("$group"), places: HashMap::new(), groups: Vec::new() }
    }

    pub(crate) fn fields(&self) -> &[(String, Accumulator)] {
        &self.fields
    }
}

/// The accumulators of a group, by name.
pub(crate) fn fields(spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Vec<(String, Accumulator)>> {
    let mut fields = Vec::new();
    for (name, value) in spec.iter().filter(|(name, _)| *name != "_id") {
        if name.contains('.') {
            refuse!(40235, "The field name '{name}' cannot contain '.'");
        }
        if name.starts_with('$') {
            refuse!(40236, "The field name '{name}' cannot be an operator name");
        }
        fields.push((name.to_owned(), Accumulator::parse(value, scope)?));
    }
    Ok(fields)
}

impl<'g> Groups<'g> {
    pub(crate) fn add(&mut self, doc: Doc<'_>) -> LangResult<()> {
        let id = self.group.id.evaluate_root(doc)?;
        let key = key_of(id.or_null());
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None => {
                let id = Owned::from(id.or_null());
                let fields = self.group.fields.len() * size_of::<State>();
                self.hold.take(GROUP_BYTES + key.capacity() + id.bytes() + fields)?;
                let states = self.group.fields.iter().map(|(_, field)| field.start()).collect();
                self.groups.push((id, states));
                self.places.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        if let Some((_, states)) = self.groups.get_mut(at) {
            for ((_, field), state) in self.group.fields.iter().zip(states) {
                self.hold.change(field.add(state, doc)?)?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> impl Iterator<Item = LangResult<DocBuf>> + 'g {
        let (group, hold) = (self.group, self.hold);
        self.groups.into_iter().map(move |(id, states)| {
            // Held until the last group was returned.
            let _ = &hold;
            finish(id.value(), &group.fields, &states)
        })
    }
}

/// One group as a document.
pub(crate) fn finish(
    id: Value<'_>,
    fields: &[(String, Accumulator)],
    states: &[State],
) -> LangResult<DocBuf> {
    let mut writer = Writer::new().bounded();
    writer.put("_id", id);
    for ((name, field), state) in fields.iter().zip(states) {
        crate::lang::pipeline::put(&mut writer, name, &field.finish(state)?);
    }
    Ok(writer.within("a document that $group makes")?.finish())
}
