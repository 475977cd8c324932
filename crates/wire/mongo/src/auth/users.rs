//! The server's users by MongoDB's commands: createUser, updateUser, dropUser, grantRolesToUser,
//! revokeRolesFromUser, usersInfo.
//!
//! | MongoDB's role | on | the server's rights |
//! |---|---|---|
//! | `read` | a database | read |
//! | `readWrite` | a database | read, append |
//! | `dbOwner` | a database | admin |
//! | `readAnyDatabase`, `readWriteAnyDatabase`, `root` | `admin` | the same on every database |
//!
//! The names of the rights are roles, too. Other roles of MongoDB are rejected, so that a user gets exactly
//! the rights that a role's name says. Users belong to the entire server, so the database of a command does
//! not qualify them; it is only the one that a role without a database is for.

use std::collections::BTreeSet;

use ropewalk::documents::lang::{Value, Writer};
use ropewalk_auth::{AuthError, Right, Roles};

use crate::auth::login::MECHANISMS;
use crate::call::Call;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::reply::check_list;

/// Represents every database.
pub(crate) const EVERY: &str = "*";
/// Sets of rights; the first that fits names them: role on a database, role on all, rights.
pub(crate) const ROLES: &[(&str, &str, &[Right])] = &[
    ("dbOwner", "root", &[Right::Admin]),
    ("readWrite", "readWriteAnyDatabase", &[Right::Read, Right::Append]),
    ("read", "readAnyDatabase", &[Right::Read]),
];

const USER_FIELDS: &[&str] =
    &["pwd", "roles", "customData", "digestPassword", "mechanisms", "authenticationRestrictions"];

/// The database, or [`EVERY`], and the rights of a role.
fn rights_of(role: &str, database: &str) -> Outcome<(String, BTreeSet<Right>)> {
    let unknown = || Failure::new(Code::RoleNotFound, format!("Could not find role: {role}@{database}"));
    let on_all = ROLES.iter().find(|(_, all, _)| *all == role);
    if let Some((_, _, rights)) = on_all.filter(|_| database == "admin") {
        return Ok((EVERY.to_owned(), rights.iter().copied().collect()));
    }
    let rights = match ROLES.iter().find(|(one, ..)| *one == role) {
        Some((_, _, rights)) => rights.iter().copied().collect(),
        None => BTreeSet::from([role.parse::<Right>().map_err(|_| unknown())?]),
    };
    Ok((database.to_owned(), rights))
}

/// The list of roles in `field`: each a name, for the database of the command, or a name and a database.
fn roles(call: &Call<'_>, field: &str) -> Outcome<Option<Roles>> {
    let Some(list) = call.args.array(field)? else { return Ok(None) };
    let mut roles = Roles::new();
    for value in list.values() {
        let (role, database) = match value {
            Value::String(role) => (role, call.database),
            Value::Document(role) => {
                let role = Args::statement("role", role, &["role", "db"])?;
                (role.needed("role", role.text("role")?)?, role.needed("db", role.text("db")?)?)
            }
            _ => {
                let message = "Role names must be either strings or objects";
                return Err(Failure::new(Code::BadValue, message));
            }
        };
        let (database, rights) = rights_of(role, database)?;
        roles.entry(database).or_default().extend(rights);
    }
    Ok(Some(roles))
}

/// Rejects options that cannot be stored: every user has verifiers for both mechanisms, and nothing else.
fn check_kept(args: &Args<'_>) -> Outcome<()> {
    args.not_offered(&["customData"])?;
    let refuse = |message: &str| Err(Failure::new(Code::NotImplemented, message));
    if args.array("authenticationRestrictions")?.is_some_and(|list| !list.is_empty()) {
        return refuse("authenticationRestrictions are not offered");
    }
    if args.flag("digestPassword")? == Some(false) {
        return refuse("the server makes the verifiers itself: digestPassword is true");
    }
    if let Some(mechanisms) = args.array("mechanisms")? {
        let given: BTreeSet<_> = mechanisms.values().filter_map(Value::as_str).collect();
        if given != MECHANISMS.iter().copied().collect() {
            return refuse("a user logs in by SCRAM-SHA-256 and SCRAM-SHA-1 both; mechanisms names the two");
        }
    }
    Ok(())
}

/// An error about `user` in MongoDB's terms.
fn told(call: &Call<'_>, user: &str, error: AuthError) -> Failure {
    let named = format!("{user}@{}", call.database);
    match error {
        AuthError::AlreadyExists(_) => {
            Failure::new(Code::UserExists, format!("User \"{named}\" already exists"))
        }
        AuthError::NotFound(_) => Failure::new(Code::UserNotFound, format!("User '{named}' not found")),
        other => other.into(),
    }
}

/// Creates and changes users; durable when it returns.
pub(crate) async fn change(call: &mut Call<'_>) -> Outcome<Writer> {
    let args = &call.args;
    let lists = matches!(args.name, "grantRolesToUser" | "revokeRolesFromUser");
    args.only(match args.name {
        "dropUser" => &[],
        _ if lists => &["roles"],
        _ => USER_FIELDS,
    })?;
    check_kept(args)?;
    let name = args.needed(args.name, args.text(args.name)?)?;
    let roles = roles(call, "roles")?;
    let password = args.text("pwd")?;
    let caller = call.caller.clone().ok_or_else(|| {
        Failure::new(Code::Unauthorized, format!("Command {} requires authentication", args.name))
    })?;
    let access = call.shared.service.access();
    let changed = match args.name {
        "createUser" => {
            let (password, roles) = (args.needed("pwd", password)?, args.needed("roles", roles)?);
            access.create_user(&caller, name, password, roles).await
        }
        "dropUser" => access.drop_user(&caller, name).await,
        "updateUser" if password.is_none() && roles.is_none() => {
            return Err(Failure::new(
                Code::BadValue,
                "Must specify at least one field to update in updateUser",
            ));
        }
        "updateUser" => match roles {
            Some(new) => access.update_user(&caller, name, password, move |roles| *roles = new).await,
            None => access.set_password(&caller, name, password.unwrap_or_default()).await,
        },
        grant => {
            let (given, grant) = (args.needed("roles", roles)?, grant == "grantRolesToUser");
            let change = move |roles: &mut Roles| {
                for (database, rights) in given {
                    let held = roles.entry(database).or_default();
                    match grant {
                        true => held.extend(rights),
                        false => held.retain(|right| !rights.contains(right)),
                    }
                }
            };
            access.update_user(&caller, name, None, change).await
        }
    };
    changed.map_err(|error| told(call, name, error))?;
    Ok(Writer::new())
}

/// Puts the roles of a user on one database, by MongoDB's names where one fits.
pub(crate) fn put_roles(database: &str, rights: &BTreeSet<Right>, out: &mut Writer) {
    let named = ROLES.iter().find(|(_, _, whole)| whole.iter().all(|right| rights.contains(right)));
    let named_rights = named.map_or(&[][..], |(_, _, whole)| whole);
    let rest = rights.iter().filter(|right| !named_rights.contains(right)).map(|right| right.as_str());
    let (named, place) = match database {
        EVERY => (named.map(|(_, all, _)| *all), "admin"),
        one => (named.map(|(role, ..)| *role), one),
    };
    for (role, database) in
        named.map(|role| (role, place)).into_iter().chain(rest.map(|right| (right, database)))
    {
        out.open_document("");
        out.put("role", Value::String(role));
        out.put("db", Value::String(database));
        out.close();
    }
}

/// The names that `usersInfo` selects; `None`: all.
fn asked_for(value: Value<'_>) -> Outcome<Option<BTreeSet<&str>>> {
    let bad = || Failure::new(Code::BadValue, "usersInfo takes 1, a name, { user, db }, or a list of these");
    Ok(match value {
        Value::String(name) => Some(BTreeSet::from([name])),
        Value::Document(doc) => {
            let args = Args::statement("usersInfo", doc, &["user", "db", "forAllDBs"])?;
            match (args.text("user")?, args.flag("forAllDBs")?) {
                (Some(name), None) => Some(BTreeSet::from([name])),
                (None, Some(true)) if doc.get("db").is_none() => None,
                _ => return Err(bad()),
            }
        }
        Value::Array(list) => {
            let mut names = BTreeSet::new();
            for value in list.values() {
                names.extend(asked_for(value)?.ok_or_else(bad)?);
            }
            Some(names)
        }
        one if one.as_integer() == Some(1) => None,
        _ => return Err(bad()),
    })
}

/// `usersInfo`: the users of the server, who belong to no database.
pub(crate) fn info(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["showPrivileges", "showCredentials", "showAuthenticationRestrictions"])?;
    call.args.not_offered(&["showPrivileges", "showCredentials", "showAuthenticationRestrictions"])?;
    let caller =
        call.caller.clone().ok_or_else(|| Failure::new(Code::Unauthorized, "authentication is needed"))?;
    let wanted = asked_for(call.args.needed("usersInfo", call.args.get("usersInfo"))?)?;
    let mut out = Writer::new();
    out.open_array("users");
    for user in call.shared.service.access().users_after(&caller, None)? {
        call.may_go_on()?;
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(user.name.as_str())) {
            continue;
        }
        out.open_document("");
        out.put("_id", Value::String(&format!("admin.{}", user.name)));
        out.put("user", Value::String(&user.name));
        out.put("db", Value::String("admin"));
        out.open_array("roles");
        user.roles.iter().for_each(|(database, rights)| put_roles(database, rights, &mut out));
        out.close();
        out.open_array("mechanisms");
        MECHANISMS.iter().for_each(|name| out.put("", Value::String(name)));
        out.close();
        out.close();
        check_list(&out, "users", "name the users")?;
    }
    out.close();
    Ok(out)
}
