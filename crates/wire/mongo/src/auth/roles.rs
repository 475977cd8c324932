//! Roles and privileges in MongoDB's terms: `rolesInfo`, and what `connectionStatus` says about the caller.
//!
//! Every role is built in: each represents rights of the server on one database or on all.

use ropewalk::documents::lang::{Value, Writer};
use ropewalk_auth::{Right, Roles};

use crate::auth::users::{EVERY, ROLES, put_roles};
use crate::call::Call;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};

/// MongoDB's names of the actions that a right allows on the collections of a database.
const ACTIONS: &[(Right, &[&str])] = &[
    (
        Right::Read,
        &["find", "changeStream", "collStats", "dbStats", "listCollections", "listIndexes", "validate"],
    ),
    (Right::Append, &["insert", "createCollection", "createIndex", "dropIndex"]),
    (
        Right::Admin,
        &[
            "update",
            "remove",
            "collMod",
            "convertToCapped",
            "dropCollection",
            "dropDatabase",
            "renameCollectionSameDB",
            "bypassDocumentValidation",
        ],
    ),
];

fn put_privilege(database: &str, rights: &[Right], out: &mut Writer) {
    let may = |right: Right| rights.contains(&right) || rights.contains(&Right::Admin);
    out.open_document("");
    out.open_document("resource");
    // The empty name is every database.
    out.put("db", Value::String(if database == EVERY { "" } else { database }));
    out.put("collection", Value::String(""));
    out.close();
    out.open_array("actions");
    for (right, actions) in ACTIONS {
        if may(*right) {
            actions.iter().for_each(|action| out.put("", Value::String(action)));
        }
    }
    if may(Right::Read) && may(Right::Append) && !may(Right::Admin) {
        ["update", "remove"].iter().for_each(|action| out.put("", Value::String(action)));
    }
    out.close();
    out.close();
}

/// Puts the roles of a caller, and with `privileges` what they allow.
pub(crate) fn put_authenticated(roles: &Roles, privileges: bool, out: &mut Writer) {
    out.open_array("authenticatedUserRoles");
    roles.iter().for_each(|(database, rights)| put_roles(database, rights, out));
    out.close();
    if privileges {
        out.open_array("authenticatedUserPrivileges");
        for (database, rights) in roles {
            let rights: Vec<Right> = rights.iter().copied().collect();
            put_privilege(database, &rights, out);
        }
        out.close();
    }
}

/// A role on a database, with its rights.
struct Role<'a> {
    name: &'a str,
    database: &'a str,
    rights: &'static [Right],
}

impl Role<'_> {
    fn put(&self, privileges: bool, out: &mut Writer) {
        out.open_document("");
        out.put("_id", Value::String(&format!("{}.{}", self.database, self.name)));
        out.put("role", Value::String(self.name));
        out.put("db", Value::String(self.database));
        out.put("isBuiltin", Value::Bool(true));
        for field in ["roles", "inheritedRoles"] {
            out.open_array(field);
            out.close();
        }
        if privileges {
            let is_on_all = ROLES.iter().any(|(_, all, _)| *all == self.name);
            for field in ["privileges", "inheritedPrivileges"] {
                out.open_array(field);
                put_privilege(if is_on_all { EVERY } else { self.database }, self.rights, out);
                out.close();
            }
        }
        out.close();
    }
}

/// The role of that name; `None` if the database has no such role.
fn role<'a>(name: &'a str, database: &'a str) -> Option<Role<'a>> {
    let found = ROLES.iter().find_map(|(one, all, rights)| {
        (*one == name || *all == name && database == "admin").then_some(*rights)
    });
    found.map(|rights| Role { name, database, rights })
}

/// All roles on a database.
fn roles_of(database: &str) -> impl Iterator<Item = Role<'_>> {
    let names = ROLES.iter().flat_map(move |(one, all, _)| {
        [Some(*one), (database == "admin").then_some(*all)].into_iter().flatten()
    });
    names.filter_map(move |name| role(name, database))
}

/// The roles that a value of `rolesInfo` names.
fn named<'a>(value: Value<'a>, database: &'a str, found: &mut Vec<Role<'a>>) -> Outcome<()> {
    match value {
        Value::String(name) => found.extend(role(name, database)),
        Value::Document(doc) => {
            let args = Args::statement("rolesInfo", doc, &["role", "db"])?;
            let (name, database) = (args.text("role")?, args.text("db")?);
            found.extend(role(args.needed("role", name)?, args.needed("db", database)?));
        }
        _ => {
            let message = "rolesInfo takes 1, a name, { role, db }, or a list of these";
            return Err(Failure::new(Code::BadValue, message));
        }
    }
    Ok(())
}

/// `rolesInfo`
pub(crate) fn info(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["showPrivileges", "showBuiltinRoles", "showAuthenticationRestrictions"])?;
    call.args.not_offered(&["showAuthenticationRestrictions"])?;
    let privileges = call.args.flag("showPrivileges")?.unwrap_or(false);
    let mut found = Vec::new();
    match call.args.needed("rolesInfo", call.args.get("rolesInfo"))? {
        Value::Array(list) => list.values().try_for_each(|value| named(value, call.database, &mut found))?,
        // Without the built-in roles the list is empty: users cannot make roles.
        one if one.as_integer() == Some(1) => {
            if call.args.flag("showBuiltinRoles")?.unwrap_or(false) {
                found.extend(roles_of(call.database));
            }
        }
        value => named(value, call.database, &mut found)?,
    }
    let mut out = Writer::new();
    out.open_array("roles");
    found.iter().for_each(|role| role.put(privileges, &mut out));
    out.close();
    Ok(out)
}
