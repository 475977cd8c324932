//! DROP TABLE, DROP VIEW and TRUNCATE, including dependent objects.

use ropewalk::tables::{TablesError, Type, shown};
use sqlparser::ast;

use super::Ddl;
use super::dependent;
use super::unsupported;
use crate::access::standing::Standing;
use crate::catalog::all_views;
use crate::error::{Result, SqlError, state};
use crate::exec::catalog_relations::view_columns;

impl Ddl<'_> {
    /// The views that depend on these relations, directly or through other views. Excludes `going` itself.
    pub(super) fn views_over(&mut self, going: &[String]) -> Result<Vec<String>> {
        let views = all_views(&mut self.access())?;
        let reads: Vec<Vec<String>> = views.iter().map(crate::catalog::ViewOf::reads).collect();
        let mut found: Vec<String> = Vec::new();
        loop {
            let before = found.len();
            for (view, reads) in views.iter().zip(&reads) {
                let is_new = !going.contains(&view.name) && !found.contains(&view.name);
                if is_new && reads.iter().any(|read| going.contains(read) || found.contains(read)) {
                    found.push(view.name.clone());
                }
            }
            if found.len() == before {
                return Ok(found);
            }
        }
    }

    /// Drops the views that depend on dropped relations; without CASCADE such a view is an error.
    pub(super) fn part_from_views(&mut self, what: &str, going: &[String], cascades: bool) -> Result<()> {
        let mut there = Vec::with_capacity(going.len());
        for name in going {
            if self.exists(name)?
                || crate::access::views::find(&mut self.access(), name)?.is_some()
                || self.sequence_named(name)?.is_some()
            {
                there.push(name.clone());
            }
        }
        let over = self.views_over(&there)?;
        if !over.is_empty() && !cascades {
            let message = match going {
                [one] => format!("cannot drop {what} {} because other objects depend on it", shown(one)),
                _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
            };
            return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .hint("use DROP ... CASCADE to drop the dependent objects too"));
        }
        for view in &over {
            crate::ddl::views::drop(self, view, false)?;
        }
        Ok(())
    }

    /// Runs `change` on a column. Views whose columns differ afterwards are dropped with CASCADE, else an
    /// error.
    pub(super) fn part_from_column(
        &mut self,
        table: &str,
        cascades: bool,
        refused: &dyn Fn(&str) -> SqlError,
        change: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let over = self.views_over(&[table.to_owned()])?;
        if over.is_empty() {
            return change(self);
        }
        let before = self.meanings(&over)?;
        change(self)?;
        let behind = self.meanings(&over)?;
        let changed = before.into_iter().zip(behind).filter(|(before, behind)| before != behind);
        let changed: Vec<String> = changed.map(|((name, _), _)| name).collect();
        let Some(first) = changed.first() else { return Ok(()) };
        if !cascades {
            return Err(refused(first));
        }
        let others = self.views_over(&changed)?;
        for view in changed.iter().chain(&others) {
            crate::ddl::views::drop(self, view, true)?;
        }
        Ok(())
    }

    /// The views with their current columns; empty for a view whose query is no longer valid.
    fn meanings(&mut self, views: &[String]) -> Result<Vec<(String, Vec<(String, Type)>)>> {
        let standing = Standing {
            settings: self.settings.clone(),
            created: self.created.clone(),
            ..Standing::default()
        };
        let all = all_views(&mut self.access())?;
        let asked = all.into_iter().filter(|view| views.contains(&view.name));
        Ok(asked
            .map(|view| (view.name.clone(), view_columns(&view, self.access(), standing.clone())))
            .collect())
    }

    /// The views whose queries are valid now.
    pub(crate) fn meaningful_views(&mut self) -> Result<Vec<String>> {
        let standing = Standing {
            settings: self.settings.clone(),
            created: self.created.clone(),
            ..Standing::default()
        };
        let mut views = all_views(&mut self.access())?;
        views.retain(|view| !view_columns(view, self.access(), standing.clone()).is_empty());
        Ok(views.into_iter().map(|view| view.name).collect())
    }

    /// Drops those of `views` that are no longer valid, because a type or column was dropped.
    pub(crate) fn drop_meaningless(&mut self, views: &[String]) -> Result<()> {
        let left = self.meaningful_views()?;
        for view in views.iter().filter(|view| !left.contains(view)) {
            crate::ddl::views::drop(self, view, true)?;
        }
        Ok(())
    }

    /// Drops the foreign keys that prevent dropping tables: those among them, and with CASCADE those of
    /// others.
    pub(super) fn part(&mut self, names: &[String], cascades: bool) -> Result<()> {
        if names.len() < 2 && !cascades {
            return Ok(());
        }
        let mut going = Vec::new();
        for name in names {
            if self.exists(name)? {
                going.push(self.schema(name)?.id());
            }
        }
        for table in self.tables()? {
            let schema = self.schema(&table)?;
            if !cascades && !going.contains(&schema.id()) {
                continue;
            }
            let others = schema.foreign_keys().iter().filter(|key| key.parent() != schema.id());
            for key in others.filter(|key| going.contains(&key.parent())) {
                self.uncomment(Some("constraint"), i64::from(schema.id()), Some(key.name()))?;
                self.transaction.tables().drop_constraint(schema.name(), key.name())?;
            }
        }
        Ok(())
    }

    pub(super) fn drop_table(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if if_exists && !self.exists(name)? {
            return Ok(());
        }
        let id = if self.exists(name)? { Some(self.schema(name)?.id()) } else { None };
        self.transaction.tables().drop_table(name).map_err(dependent)?;
        if let Some(id) = id {
            self.uncomment(None, i64::from(id), None)?;
            self.drop_owned(id, None)?;
        }
        self.created.retain(|created| created != name);
        Ok(())
    }

    pub(super) fn truncate(&mut self, truncate: &ast::Truncate) -> Result<()> {
        let ast::Truncate {
            table_names,
            partitions: None,
            table: _,
            if_exists: false,
            identity,
            cascade,
            on_cluster: None,
        } = truncate
        else {
            return Err(unsupported(truncate));
        };
        let restart = *identity == Some(ast::TruncateIdentityOption::Restart);
        let names: Vec<String> =
            table_names.iter().map(|target| self.relation(&target.name)).collect::<Result<_>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let cascades = *cascade == Some(ast::CascadeOption::Cascade);
        let truncated = self.transaction.tables().truncate_all(&names, restart, cascades);
        let truncated = truncated.map_err(|error| match error {
            TablesError::Dependent { .. } => {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(
                    "truncate the table that refers to it at the same time, or use TRUNCATE ... CASCADE",
                )
            }
            other => other.into(),
        })?;
        for schema in truncated.iter().filter(|_| restart) {
            self.restart_owned(schema.id())?;
        }
        Ok(())
    }
}
