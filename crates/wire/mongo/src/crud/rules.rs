//! Rules of collections that bind the caller of a command.

use ropewalk::documents::Collection;

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::guard::has_rules;

/// Whether the collection has rules that bind the caller.
pub(crate) fn rules_bind(call: &Call<'_>, collection: &Collection) -> Outcome<bool> {
    Ok(call.asked().is_some() && has_rules(collection)?)
}

/// Refuses to count the documents of a collection whose rules bind the caller.
///
/// # Errors
/// `Unauthorized`.
pub(crate) fn may_count(call: &Call<'_>, collection: &Collection) -> Outcome<()> {
    if rules_bind(call, collection)? {
        let message = format!(
            "collection {} has rules; {} of it takes the right to administer the database",
            collection.name(),
            call.args.name
        );
        return Err(Failure::new(Code::Unauthorized, message));
    }
    Ok(())
}
