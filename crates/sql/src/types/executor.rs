//! The executors of a query: values of the setting `ropewalk.executor`.

/// The executor that queries are planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Executor {
    /// The planner chooses.
    #[default]
    Auto,
    /// Row by row, by keys and indexes. Never the query engine, whatever the size of the tables.
    Rows,
    /// The query engine.
    Engine,
    /// Nested loops over tables in memory.
    Nested,
}

impl Executor {
    /// All executors, by name.
    pub const ALL: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("rows", Self::Rows), ("engine", Self::Engine), ("nested", Self::Nested)];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, executor)| *executor)
    }

    /// The name of the executor, as SHOW returns it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, executor)| *executor == self).map_or("auto", |(name, _)| name)
    }

    /// True for executors that a query by keys reaches only through the setting.
    pub(crate) fn is_not_by_keys(self) -> bool {
        matches!(self, Self::Engine | Self::Nested)
    }
}
