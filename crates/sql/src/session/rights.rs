//! Rights that statements need, and rights that the caller of a session has.
//!
//! ```text
//! statement ─▶ kind ─▶ least rights, checked before name lookup ─▶ plan ─▶ all rights, checked at each run
//! ```
//! SQL reaches every store, so a right applies to all stores. Calls that change sequences or take advisory
//! locks are checked when they are bound, because constant calls may be evaluated during planning.

use ropewalk::documents::Caller;
use ropewalk::documents::lang::{Value, Writer};
use sqlparser::ast;

use crate::access::rights::Rights;
use crate::dml::append_event::Append;
use crate::error::Result;
use crate::expr::advisory::AdvisoryLimit;
use crate::limits::budget::MEMORY_BYTES_MAX;
use crate::session::Session;
use crate::session::explain;
use crate::session::notify::NotifyCall;
use crate::session::prepared::{has_writers, is_written_by};
use crate::syntax::copy_statement::Direction;
use crate::syntax::parse::Statement;
use crate::syntax::projections::ProjectionStatement;
use crate::syntax::statements::Utility;

macro_rules! kinds {
    ($($kind:ident: $about:literal,)*) => {
        /// Kinds of statements of the dialect that differ in their rights.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StatementKind {
            $(#[doc = $about] $kind,)*
        }

        impl StatementKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The SQL statements of this kind.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$kind => $about,)*
                }
            }
        }
    };
}

kinds! {
    Query: "SELECT, VALUES.",
    LockingQuery: "A query with FOR UPDATE or FOR SHARE.",
    WritingQuery: "A query whose WITH writes, or INSERT, UPDATE, DELETE after WITH.",
    AppendEvent: "SELECT append_event(...).",
    NotifyCall: "SELECT pg_notify(...).",
    Insert: "INSERT.",
    Update: "UPDATE.",
    Delete: "DELETE.",
    Merge: "MERGE.",
    CopyTo: "COPY ... TO.",
    CopyFrom: "COPY ... FROM.",
    Explain: "EXPLAIN.",
    ExplainAnalyze: "EXPLAIN ANALYZE.",
    Declare: "DECLARE CURSOR.",
    Fetch: "FETCH.",
    Move: "MOVE.",
    Close: "CLOSE.",
    Prepare: "PREPARE: its statement is checked.",
    Execute: "EXECUTE: its statement is checked.",
    Deallocate: "DEALLOCATE.",
    Discard: "DISCARD.",
    Begin: "BEGIN, START TRANSACTION.",
    Commit: "COMMIT.",
    Rollback: "ROLLBACK, with and without a savepoint.",
    Savepoint: "SAVEPOINT.",
    Release: "RELEASE SAVEPOINT.",
    Set: "SET.",
    SetConstraints: "SET CONSTRAINTS.",
    Reset: "RESET.",
    Show: "SHOW.",
    ShowAll: "SHOW ALL.",
    Listen: "LISTEN.",
    Unlisten: "UNLISTEN.",
    Notify: "NOTIFY.",
    Vacuum: "VACUUM, ANALYZE.",
    LockTable: "LOCK TABLE ... IN ACCESS SHARE MODE.",
    CreateTable: "CREATE TABLE.",
    CreateTableAs: "CREATE TABLE AS.",
    CreateView: "CREATE VIEW.",
    CreateIndex: "CREATE INDEX.",
    CreateExtension: "CREATE EXTENSION.",
    CreateSchema: "CREATE SCHEMA.",
    CreateSequence: "CREATE SEQUENCE.",
    CreateType: "CREATE TYPE.",
    CreateProjection: "CREATE PROJECTION.",
    AlterIndex: "ALTER INDEX.",
    AlterTable: "ALTER TABLE.",
    AlterSchema: "ALTER SCHEMA.",
    AlterSequence: "ALTER SEQUENCE.",
    AlterType: "ALTER TYPE.",
    AlterProjection: "ALTER PROJECTION.",
    SetSchema: "ALTER ... SET SCHEMA.",
    Comment: "COMMENT ON.",
    Drop: "DROP of any object.",
    Truncate: "TRUNCATE.",
}

impl StatementKind {
    /// The kind of a statement; `None` when it is not part of the dialect.
    pub(crate) fn of(statement: &Statement) -> Option<Self> {
        match statement {
            Statement::Sql(statement) => Self::of_sql(statement),
            Statement::Utility(utility) => Some(match utility {
                Utility::Copy(copy) if copy.direction == Direction::To => Self::CopyTo,
                Utility::Copy(_) => Self::CopyFrom,
                Utility::Vacuum { .. } => Self::Vacuum,
                Utility::LockForReading(_) => Self::LockTable,
                Utility::ShowAll => Self::ShowAll,
                Utility::SetConstraints(_) => Self::SetConstraints,
                Utility::Sequence(sequence) if sequence.alters => Self::AlterSequence,
                Utility::Sequence(_) => Self::CreateSequence,
                Utility::TypeOwner(_) => Self::AlterType,
                Utility::Move(_) => Self::SetSchema,
                Utility::Identity(_) | Utility::Generation(_) => Self::AlterTable,
                Utility::RenameIndex { .. } => Self::AlterIndex,
                Utility::CreateExtension(_) => Self::CreateExtension,
                Utility::DropExtension { .. } => Self::Drop,
                Utility::Merge(_) => Self::Merge,
                Utility::Declare(_) => Self::Declare,
                Utility::Fetch(fetch) if fetch.moves => Self::Move,
                Utility::Fetch(_) => Self::Fetch,
                Utility::Comment { .. } => Self::Comment,
                Utility::Projection(statement) => match **statement {
                    ProjectionStatement::Create { .. } => Self::CreateProjection,
                    ProjectionStatement::Alter { .. } => Self::AlterProjection,
                    ProjectionStatement::Drop { .. } => Self::Drop,
                },
            }),
        }
    }

    /// The rights that every statement of the kind needs. Exception: for a query without FROM the right to
    /// append may be enough.
    pub fn needs(self) -> Rights {
        use StatementKind as K;
        match self {
            K::Query | K::Declare | K::CopyTo | K::Explain | K::ExplainAnalyze => Rights::READ,
            K::Fetch | K::Move | K::ShowAll | K::Vacuum | K::LockTable | K::Listen | K::Unlisten => {
                Rights::READ
            }
            K::Insert | K::CopyFrom | K::AppendEvent | K::Notify | K::NotifyCall => Rights::APPEND,
            // Only writers have checks that wait; others would learn names of constraints.
            K::SetConstraints => Rights::APPEND,
            K::LockingQuery | K::WritingQuery | K::Update | K::Delete | K::Merge => Rights::READ_APPEND,
            K::Begin | K::Commit | K::Rollback | K::Savepoint | K::Release => Rights::NONE,
            K::Set | K::Reset | K::Show | K::Discard | K::Deallocate | K::Close => Rights::NONE,
            K::Prepare | K::Execute => Rights::NONE,
            K::CreateTable | K::CreateTableAs | K::CreateView | K::CreateIndex => Rights::ADMIN,
            K::CreateExtension | K::CreateSchema | K::CreateSequence | K::CreateType => Rights::ADMIN,
            K::AlterIndex | K::AlterTable | K::AlterSchema | K::AlterSequence | K::AlterType => Rights::ADMIN,
            K::CreateProjection | K::AlterProjection => Rights::ADMIN,
            K::SetSchema | K::Comment | K::Drop | K::Truncate => Rights::ADMIN,
        }
    }

    /// False for statements that would end the transaction around them, or whose effect is that of a
    /// connection.
    pub fn can_join_transaction(self) -> bool {
        use StatementKind as K;
        !matches!(
            self,
            K::Begin
                | K::Commit
                | K::Rollback
                | K::Savepoint
                | K::Release
                // They could run one of the others.
                | K::Prepare
                | K::Execute
                | K::Deallocate
                | K::Discard
                | K::CopyTo
                | K::CopyFrom
                | K::Listen
                | K::Unlisten
                | K::Vacuum
        )
    }

    fn of_sql(statement: &ast::Statement) -> Option<Self> {
        use ast::Statement as S;
        Some(match statement {
            S::Query(query) if has_writers(query) || is_written_by(&query.body) => Self::WritingQuery,
            S::Query(query) if !query.locks.is_empty() => Self::LockingQuery,
            S::Query(query) if Append::of(query).is_some() => Self::AppendEvent,
            S::Query(query) if NotifyCall::of(query).is_some() => Self::NotifyCall,
            S::Query(_) => Self::Query,
            S::Insert(_) => Self::Insert,
            S::Update(_) => Self::Update,
            S::Delete(_) => Self::Delete,
            S::Explain { analyze, options, .. }
                if matches!(
                    explain::analyzes(*analyze, options.as_deref().unwrap_or_default()),
                    Ok(true)
                ) =>
            {
                Self::ExplainAnalyze
            }
            S::Explain { .. } => Self::Explain,
            S::StartTransaction { .. } => Self::Begin,
            S::Commit { .. } => Self::Commit,
            S::Rollback { .. } => Self::Rollback,
            S::Savepoint { .. } => Self::Savepoint,
            S::ReleaseSavepoint { .. } => Self::Release,
            S::Set(_) => Self::Set,
            S::Reset(_) => Self::Reset,
            S::ShowVariable { .. } => Self::Show,
            S::Prepare { .. } => Self::Prepare,
            S::Execute { .. } => Self::Execute,
            S::Deallocate { .. } => Self::Deallocate,
            S::Close { .. } => Self::Close,
            S::Discard { .. } => Self::Discard,
            S::LISTEN { .. } => Self::Listen,
            S::UNLISTEN { .. } => Self::Unlisten,
            S::NOTIFY { .. } => Self::Notify,
            S::CreateTable(create) if create.query.is_some() => Self::CreateTableAs,
            S::CreateTable(_) => Self::CreateTable,
            S::CreateView(_) => Self::CreateView,
            S::CreateIndex(_) => Self::CreateIndex,
            S::CreateSchema { .. } => Self::CreateSchema,
            S::CreateType { .. } => Self::CreateType,
            S::AlterTable(_) => Self::AlterTable,
            S::AlterSchema(_) => Self::AlterSchema,
            S::AlterType(_) => Self::AlterType,
            S::Drop { .. } => Self::Drop,
            S::Truncate(_) => Self::Truncate,
            _ => return None,
        })
    }
}

/// True for a query that may return a result without reading: one without FROM, WITH and set operations.
fn is_without_from(query: &ast::Query) -> bool {
    let is_bare =
        |body: &ast::SetExpr| matches!(body, ast::SetExpr::Select(select) if select.from.is_empty());
    query.with.is_none() && is_bare(&query.body)
}

/// The rights that are known to be needed before planning. A query without FROM may only draw from a
/// sequence, for which the right to append is enough.
pub(crate) fn least(statement: &Statement, held: Rights) -> Rights {
    use StatementKind as K;
    // A statement outside of the dialect needs every right here, and is rejected later.
    let Some(kind) = K::of(statement) else { return Rights::ADMIN };
    let bare = match statement {
        Statement::Sql(ast::Statement::Query(query)) => is_without_from(query),
        Statement::Utility(Utility::Declare(declare)) => is_without_from(&declare.query),
        _ => false,
    };
    match kind {
        K::Query | K::Declare if bare && held.append => Rights::NONE,
        kind => kind.needs(),
    }
}

impl Session {
    /// Rejects a statement that the caller has no right to run.
    ///
    /// # Errors
    /// 42501.
    pub fn check_rights(&self, needed: Rights) -> Result<()> {
        self.acting.check(needed)
    }

    /// Limits the advisory locks of this session together with those of all sessions of the same limit.
    pub fn limit_advisory_locks(&self, limit: AdvisoryLimit) {
        self.advisory.limit(limit);
    }

    /// Runs further statements for the user `name` with these rights. A new session has every right. Unless
    /// the user has the right `admin`, the rules of collections apply to what the session reads
    /// and writes.
    pub fn act_for(&mut self, rights: Rights, name: &str) {
        let caller = (!rights.admin).then(|| {
            let mut auth = Writer::new();
            auth.put("uid", Value::String(name));
            Caller { auth: Some(auth.finish()) }
        });
        if !rights.admin && self.settings.memory_bytes_max > MEMORY_BYTES_MAX {
            self.settings_mut().memory_bytes_max = MEMORY_BYTES_MAX;
        }
        self.acting.set(rights, caller);
    }
}
