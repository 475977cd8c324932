//! Relations about declared projections.

use ropewalk::projections::ProjectionStatus;
use ropewalk::tables::Value;

use super::Catalog;
use super::Relation;
use super::relations::row;
use crate::access::projections::{DamagedProjection, ProjectionInfo, parked_at, projections_at};
use crate::error::Result;
use crate::expr::Record;

pub(crate) const RELATIONS: &[Relation] = &[
    Relation {
        schema: "pg_catalog",
        name: "ropewalk_projections",
        oid: 0,
        columns: "name version:o store state checkpoint:o head:o lag:o parked:o error definition",
        rows: |catalog| shown(projections(catalog), 10),
    },
    Relation {
        schema: "pg_catalog",
        name: "ropewalk_parked_events",
        oid: 0,
        columns: "projection position:o type statement sqlstate message parked_at:z retry:b",
        rows: |catalog| shown(parked(catalog), 8),
    },
];

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The rows, or one row of `width` columns with the error of reading them.
fn shown(rows: Result<Vec<Record>>, width: usize) -> Vec<Record> {
    rows.unwrap_or_else(|error| {
        let mut row = vec![Value::Null; width];
        if let Some(first) = row.first_mut() {
            *first = Value::text(format!("error: {error}"));
        }
        vec![row]
    })
}

fn projections(catalog: &Catalog) -> Result<Vec<Record>> {
    let row = |info: ProjectionInfo| {
        let state = info.state();
        let error = info.error().map(str::to_owned);
        let ProjectionInfo { stored, def, status, parked } = info;
        let ProjectionStatus { checkpoint, head, lag, .. } = status;
        let checkpoint = checkpoint.map(|checkpoint| number(checkpoint.0));
        row![
            stored.name,
            number(def.version),
            stored.store,
            state,
            checkpoint,
            number(head.0),
            number(lag),
            number(parked),
            error,
            stored.text
        ]
    };
    let listed = projections_at(&catalog.db, &catalog.snapshot)?;
    Ok(listed.readable.into_iter().map(row).chain(listed.damaged.into_iter().map(damaged)).collect())
}

fn damaged(projection: DamagedProjection) -> Record {
    let DamagedProjection { name, store, error } = projection;
    let (unknown, definition) = (None::<i64>, None::<String>);
    let error = format!("{}: {error}", error.state);
    row![name, unknown, store, "damaged", unknown, unknown, unknown, unknown, error, definition]
}

fn parked(catalog: &Catalog) -> Result<Vec<Record>> {
    let mut rows = Vec::new();
    for info in projections_at(&catalog.db, &catalog.snapshot)?.readable {
        let generation = info.status.generation;
        let all = (None, usize::MAX);
        for parked in parked_at(&catalog.db, &catalog.snapshot, &info.stored.name, generation, all)? {
            rows.push(row![
                parked.projection,
                number(parked.position),
                parked.event_type,
                parked.statement,
                parked.sqlstate,
                parked.message,
                Value::Timestamptz(parked.parked_at),
                parked.wants_retry
            ]);
        }
    }
    Ok(rows)
}
