//! The rights of statements, by kind, for the table of all protocols. `ropewalk_sql` checks them.

use ropewalk_auth::{Needs, Operation, Resource};
use ropewalk_sql::{Rights, StatementKind};

/// Every kind of statement with the rights that it needs. SQL reaches every store, so these are rights on all
/// stores.
pub fn operations() -> Vec<Operation> {
    let row = |kind: &StatementKind| Operation {
        name: kind.description().trim_end_matches('.').to_owned(),
        needs: needs(kind.needs()).later(later(*kind)),
    };
    StatementKind::ALL.iter().map(row).collect()
}

/// The routes for the HTTP port, see [`crate::Postgres::routes`].
pub fn http_operations() -> Vec<Operation> {
    crate::http::operations()
}

fn needs(rights: Rights) -> Needs {
    match rights {
        Rights { admin: true, .. } => Needs::admin(Resource::AllStores),
        Rights { read: true, append: true, .. } => Needs::read_and_append(Resource::AllStores),
        Rights { read: true, .. } => Needs::read(Resource::AllStores),
        Rights { append: true, .. } => Needs::append(Resource::AllStores),
        _ => Needs::LOGIN,
    }
}

/// The rights of a statement beyond those of its kind.
fn later(kind: StatementKind) -> &'static str {
    use StatementKind as K;
    match kind {
        K::Query | K::Declare => {
            "`nextval`, `setval` and advisory locks: `append`, which is enough without FROM; rules of collections"
        }
        K::CopyTo | K::Explain | K::ExplainAnalyze => "rights of the inner statement",
        K::Insert => "RETURNING, ON CONFLICT, subqueries and sources: `read`",
        K::Prepare | K::Execute => "rights of the prepared statement",
        _ => "",
    }
}
