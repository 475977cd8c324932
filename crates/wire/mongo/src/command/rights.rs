//! Every command with the rights that it needs, checked before the command is run.
//!
//! Rights that depend on fields are checked where the fields are parsed.

use ropewalk_auth::{Needs, Operation, Resource};

use crate::call::{Call, RESERVED};
use crate::command::table::COMMANDS;
use crate::protocol::failure::{Code, Failure, Outcome, not_on_reserved};

const READ: Needs = Needs::read(Resource::Database);
const APPEND: Needs = Needs::append(Resource::Database);
const READ_AND_APPEND: Needs = Needs::read_and_append(Resource::Database);
const ADMIN: Needs = Needs::admin(Resource::Database);
const READ_EVERYWHERE: Needs = Needs::read(Resource::AllStores);
const ADMIN_EVERYWHERE: Needs = Needs::admin(Resource::AllStores);

/// The row of a command. A command without one is not run, and fails the test below.
fn needs(command: &str) -> Option<Needs> {
    Some(match command {
        "hello" | "isMaster" | "ismaster" | "ping" | "buildInfo" | "buildinfo" => Needs::PUBLIC,
        "saslStart" | "saslContinue" | "logout" | "whatsmyuri" | "connectionStatus" => Needs::PUBLIC,
        "getParameter" | "listCommands" | "startSession" | "refreshSessions" => Needs::LOGIN,
        "endSessions" | "killSessions" | "commitTransaction" | "abortTransaction" => Needs::LOGIN,
        "createSearchIndexes" | "updateSearchIndex" | "dropSearchIndex" => Needs::LOGIN,
        "configureFailPoint" => Needs::LOGIN.later("with the setting `mongo.test_commands`: `admin` on all stores"),
        "currentOp" => Needs::LOGIN.later("without `$ownOps`: `admin` on all stores"),
        "killOp" => Needs::LOGIN.later("operations of other users: `admin` on all stores"),
        "getMore" => Needs::LOGIN.later("the rights of the command that opened the cursor, at each batch"),
        "killCursors" => Needs::LOGIN.later("cursors of the caller"),
        "listDatabases" => Needs::LOGIN.later("databases that the caller may not read are left out"),
        "aggregate" => Needs::LOGIN.later(
            "`read`; `$currentOp`: none for own operations, else `admin` on all stores; on the database \
             that is written: `append` for `$out`, `read` and `append` for `$merge`; change streams over all databases: `read` on all stores",
        ),
        "find" | "count" | "distinct" | "explain" | "listIndexes" | "listCollections" => READ,
        "validate" | "collStats" | "dbStats" | "dbstats" => READ,
        "insert" | "create" | "createIndexes" | "dropIndexes" | "deleteIndexes" => APPEND,
        "ropewalkAppend" | "ropewalkSamples" => Needs::append(Resource::Message),
        "ropewalkSql" => Needs::LOGIN.later("rights of each statement, see PostgreSQL"),
        "update" | "delete" | "findAndModify" | "findandmodify" => READ_AND_APPEND,
        "drop" | "dropDatabase" | "convertToCapped" | "collMod" => ADMIN,
        "renameCollection" => Needs::admin(Resource::Message).later("`admin` on both databases"),
        "hostInfo" | "serverStatus" | "top" => READ_EVERYWHERE,
        "profile" => ADMIN,
        "rolesInfo" => Needs::LOGIN,
        "getCmdLineOpts" | "getLog" | "killAllSessions" => ADMIN_EVERYWHERE,
        "updateUser" => Needs::LOGIN.later("other than the own password: `admin` on all stores"),
        "usersInfo" | "createUser" | "dropUser" => ADMIN_EVERYWHERE,
        "grantRolesToUser" | "revokeRolesFromUser" => ADMIN_EVERYWHERE,
        _ => return None,
    })
}

/// Commands on the database of events and tables.
const ON_RESERVED: &[&str] = &["find", "insert", "listCollections"];

/// The row of a command on the database of events and tables. The others are not supported there.
fn needs_on_reserved(command: &str) -> Option<Needs> {
    Some(match command {
        "find" => Needs::read(Resource::Message).later("tables: `read` on all stores"),
        "insert" => Needs::append(Resource::Message).later("tables: `append` on all stores"),
        "listCollections" => Needs::LOGIN.later("collections that the caller may not read are left out"),
        _ => return None,
    })
}

/// Rejects a caller without the rights that the command's row names.
///
/// # Errors
/// `Unauthorized`.
pub(crate) fn check(call: &Call<'_>, command: &str) -> Outcome<()> {
    let Some(needs) = needs(command) else {
        return Err(refusal(command, "has no row in the table of rights"));
    };
    check_row(call, command, needs)
}

/// The same for a command on the database of events and tables.
///
/// # Errors
/// `Unauthorized`; `CommandNotSupported`.
pub(crate) fn check_reserved(call: &Call<'_>, command: &str) -> Outcome<()> {
    let needs = needs_on_reserved(command).ok_or_else(|| not_on_reserved(command))?;
    check_row(call, command, needs)
}

fn check_row(call: &Call<'_>, command: &str, needs: Needs) -> Outcome<()> {
    if needs.resource == Resource::Public {
        return Ok(());
    }
    match &call.caller {
        Some(caller) => Ok(call.shared.service.authorize(caller, needs, Some(call.database))?),
        None => Err(refusal(command, "requires authentication")),
    }
}

fn refusal(command: &str, why: &str) -> Failure {
    Failure::new(Code::Unauthorized, format!("Command {command} {why}"))
}

/// Every command with the rights that it needs.
pub fn operations() -> Vec<Operation> {
    let row = |name: &str| Some(Operation { name: name.to_owned(), needs: needs(name)? });
    let on_reserved = |name: &&str| {
        Some(Operation { name: format!("{name} ($db: {RESERVED})"), needs: needs_on_reserved(name)? })
    };
    let commands = COMMANDS.iter().filter_map(|command| row(command.name));
    commands.chain(ON_RESERVED.iter().filter_map(on_reserved)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::OF_DATABASES;

    #[test]
    fn rows_on_the_reserved_database_are_of_commands_on_databases() {
        for command in COMMANDS {
            let is_row = needs_on_reserved(command.name).is_some();
            assert_eq!(is_row, ON_RESERVED.contains(&command.name), "{}", command.name);
            assert!(!is_row || OF_DATABASES.contains(&command.name), "{}", command.name);
        }
    }

    #[test]
    fn every_command_has_a_row_that_is_public_exactly_before_login() {
        for command in COMMANDS {
            let needs = needs(command.name).expect(command.name);
            assert_eq!(needs.resource == Resource::Public, command.before_login, "{}", command.name);
        }
    }
}
