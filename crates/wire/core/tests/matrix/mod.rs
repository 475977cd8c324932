//! The authorization matrix: every operation of a protocol is tried by each of these callers. Shared by the
//! tests of the protocols.
#![allow(dead_code, clippy::print_stdout, clippy::unwrap_used)] // each protocol uses a part

use std::collections::BTreeSet;

use ropewalk_auth::{Access, Caller, Credentials, Needs, Resource, Right, Roles};

/// The store that every request names.
pub(crate) const STORE: &str = "default";
/// A store on which no operation is tried.
const OTHER: &str = "other";
/// The caller with every right on that one.
pub(crate) const OTHER_STORE: &str = "all-on-another-store";
pub(crate) const PASSWORD: &str = "correct horse";

/// A caller of the matrix.
#[derive(Debug)]
pub(crate) struct MatrixCaller {
    /// Its name as a user, too.
    pub(crate) name: &'static str,
    /// `None`: no credentials.
    pub(crate) roles: Option<Roles>,
}

/// Every caller.
pub(crate) fn callers() -> Vec<MatrixCaller> {
    use Right::{Admin, Append, Read};
    let of = |name, store: &str, rights: &[Right]| {
        let roles = Roles::from([(store.to_owned(), BTreeSet::from_iter(rights.iter().copied()))]);
        MatrixCaller { name, roles: Some(roles) }
    };
    vec![
        MatrixCaller { name: "no-credentials", roles: None },
        MatrixCaller { name: "no-right", roles: Some(Roles::new()) },
        of("read", STORE, &[Read]),
        of("append", STORE, &[Append]),
        of("read-and-append", STORE, &[Read, Append]),
        of("admin", STORE, &[Admin]),
        of(OTHER_STORE, OTHER, &[Read, Append, Admin]),
        of("all-on-this-store", STORE, &[Read, Append, Admin]),
        of("read-everywhere", "*", &[Read]),
        of("append-everywhere", "*", &[Append]),
        of("admin-everywhere", "*", &[Admin]),
    ]
}

/// Creates a user for each caller.
pub(crate) async fn create_users(access: &Access) {
    for MatrixCaller { name, roles } in callers() {
        if let Some(roles) = roles {
            access.create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
        }
    }
}

impl MatrixCaller {
    /// The caller after its login; `None` without credentials.
    pub(crate) async fn login(&self, access: &Access) -> Option<Caller> {
        self.roles.as_ref()?;
        let credentials = Credentials::Password { user: self.name, password: PASSWORD };
        Some(access.authenticate(credentials, None).await.unwrap())
    }

    /// Whether the table allows this caller an operation on [`STORE`].
    pub(crate) fn is_allowed(&self, needs: Needs) -> bool {
        let Some(roles) = &self.roles else { return needs.resource == Resource::Public };
        let places: &[&str] = if needs.resource == Resource::AllStores { &["*"] } else { &["*", STORE] };
        needs.rights.iter().all(|right| {
            let held = places.iter().filter_map(|place| roles.get(*place));
            held.flatten().any(|held| held == right || *held == Right::Admin)
        })
    }
}

/// Outcomes of the cells of one protocol.
pub(crate) struct Matrix {
    protocol: &'static str,
    operations: BTreeSet<String>,
    cells: usize,
    wrong: Vec<String>,
}

impl Matrix {
    pub(crate) fn new(protocol: &'static str) -> Self {
        Self { protocol, operations: BTreeSet::new(), cells: 0, wrong: Vec::new() }
    }

    /// Records whether an operation was rejected for lack of a permission, and its outcome.
    pub(crate) fn note(
        &mut self,
        operation: &str,
        caller: &MatrixCaller,
        is_allowed: bool,
        (is_refused, outcome): (bool, impl std::fmt::Debug),
    ) {
        self.operations.insert(operation.to_owned());
        self.cells += 1;
        if is_refused == is_allowed {
            let expected = if is_allowed { "allowed" } else { "refused" };
            self.wrong.push(format!("{operation} by {}: {outcome:?}, expected {expected}", caller.name));
        }
    }

    /// Prints the size, and fails if a cell was wrong.
    pub(crate) fn finish(self, operations: usize) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        assert_eq!(self.operations.len(), operations, "operations that were tried");
        println!("matrix {}: {operations} operations, {} cells", self.protocol, self.cells);
    }
}
