//! Catalog relations and sequences as relations of a query, and the columns of views.

use std::sync::Arc;

use ropewalk::tables::{PUBLIC, Type, Value};

use crate::access::row_source::Access;
use crate::access::sequences;
use crate::access::standing::Standing;
use crate::catalog::{Made, Relation, SEQUENCE_COLUMNS, ViewOf};
use crate::error::Result;
use crate::exec::analytic::prepare;
use crate::plan::Planner;
use crate::plan::bind::scope::Params;
use crate::syntax::names::in_full;
use crate::types::settings::Settings;

/// The current names and types of a view's columns; empty if a relation that it reads does not exist.
pub(crate) fn view_columns(view: &ViewOf, access: Access<'_>, standing: Standing) -> Vec<(String, Type)> {
    // Unqualified names in the stored text are in public.
    let mut settings = Settings::clone(&standing.settings);
    settings.others.insert("search_path".into(), PUBLIC.into());
    let standing = Standing { settings: settings.into(), ..standing };
    let mut planner = Planner::beside(access, Params::default(), standing);
    let Ok(planned) = prepare(&view.query, &mut planner) else {
        return Vec::new();
    };
    // `*` may have fewer columns than when the view was created.
    if planned.columns.len() < view.columns.len() {
        return Vec::new();
    }
    let named = planned.columns.into_iter().zip(&view.columns);
    named.map(|(column, name)| (name.clone(), column.ty)).collect()
}

impl Planner<'_> {
    /// The catalog relation that a name denotes.
    pub(crate) fn catalog_relation(&mut self, name: &[String]) -> Result<Option<Made>> {
        let Some(relation) = Relation::find(name) else { return Ok(None) };
        let catalog = self.catalog()?;
        if relation.shows_view_columns() {
            catalog
                .settle_view_columns(|view| view_columns(view, self.access.again(), self.standing.clone()));
        }
        Ok(Some(relation.make(&catalog)))
    }

    /// A sequence as a relation of one row with its current state, as pg_dump reads it.
    pub(crate) fn sequence_relation(&mut self, name: &str) -> Result<Option<Made>> {
        let found = sequences::find(&mut self.access, &self.standing.created, name)?;
        let Some(sequence) = found else { return Ok(None) };
        let (_, last, is_called) = self.access.database().tables().sequence(sequence.number)?;
        // The state can differ at the next run.
        self.is_fleeting = true;
        let columns = SEQUENCE_COLUMNS.map(|(name, ty)| (name.to_owned(), ty)).to_vec();
        let row = vec![Value::Int8(last), Value::Int8(0), Value::Bool(is_called)];
        Ok(Some((in_full(&sequence.name), columns, Arc::new(vec![row]))))
    }
}
