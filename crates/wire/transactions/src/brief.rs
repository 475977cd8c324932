//! Brief transactions: they touch few keys, so they run on the thread that received them.
//!
//! Blocking work hands the thread's other tasks to another thread, which takes longer than a brief transaction.
//! A statement is known to be brief after its text was planned once; each later plan is checked before it runs.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use ropewalk::{Database, EventStore};
use ropewalk_wire::{Service, WireError};

use crate::operation::{Documents, DocumentsWork, Operation, Parameter};

/// Most operations.
const OPERATIONS_MAX: usize = 16;
/// Most events or samples of one operation.
const ITEMS_MAX: usize = 256;
/// Most approximate bytes of the operations.
const BYTES_MAX: usize = 64 << 10;
/// Most texts that are remembered; at the maximum all are forgotten.
const TEXTS_MAX: usize = 512;
/// Longest text that is remembered.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Texts of statements whose last plan was brief.
#[derive(Default)]
struct BriefTexts(RwLock<HashSet<String>>);

/// Remembers whether the plan of a text is brief.
pub(crate) fn note(db: &Database, text: &str, is_brief: bool) {
    if text.len() > TEXT_BYTES_MAX || is_known(db, text) == is_brief {
        return;
    }
    let texts = db.extension::<BriefTexts>();
    let mut texts = texts.0.write().unwrap_or_else(PoisonError::into_inner);
    if !is_brief {
        texts.remove(text);
        return;
    }
    if texts.len() >= TEXTS_MAX {
        texts.clear();
    }
    texts.insert(text.to_owned());
}

fn is_known(db: &Database, text: &str) -> bool {
    db.extension::<BriefTexts>().0.read().unwrap_or_else(PoisonError::into_inner).contains(text)
}

/// True if all operations are brief, as far as is known. Conditions that cannot be checked count as long.
pub(crate) fn are_brief(service: &Service, operations: &[Operation]) -> bool {
    let bytes: usize =
        operations.iter().map(|operation| operation.bytes() + parameter_bytes(operation)).sum();
    operations.len() <= OPERATIONS_MAX
        && bytes <= BYTES_MAX
        && operations.iter().all(|operation| is_brief(service, operation))
}

/// Bytes of the parameters of a statement: large ones take long to parse.
fn parameter_bytes(operation: &Operation) -> usize {
    let Operation::Sql(statement) = operation else { return 0 };
    let bytes = |parameter: &Parameter| match parameter {
        Parameter::Text(text) => text.len(),
        Parameter::Bytes(bytes) => bytes.len(),
        Parameter::Null | Parameter::Bool(_) | Parameter::Integer(_) | Parameter::Float(_) => 8,
    };
    statement.parameters.iter().map(bytes).sum()
}

fn is_brief(service: &Service, operation: &Operation) -> bool {
    let db = service.database();
    match operation {
        Operation::Append { store, events, options } => {
            let may_be_long = |store: EventStore| service.may_be_long(&store, &options.conditions);
            let is_long = || db.events(store).map_err(WireError::from).and_then(may_be_long);
            let is_quick = options.conditions.is_empty() || is_long().is_ok_and(|is_long| !is_long);
            events.len() <= ITEMS_MAX && is_quick
        }
        Operation::Documents(Documents { work, .. }) => match work {
            DocumentsWork::Insert(_) => true,
            DocumentsWork::Update { spec, many: false } => {
                spec.filter.only_id().is_some() && !spec.update.is_pipeline()
            }
            DocumentsWork::Update { .. } | DocumentsWork::Delete(_) => false,
            DocumentsWork::Get(_) | DocumentsWork::Find(_) | DocumentsWork::Count(_) => false,
        },
        Operation::Sql(statement) => is_known(db, &statement.text),
        Operation::Samples(samples) => samples.batch.len() <= ITEMS_MAX,
        Operation::Checkpoint { .. } | Operation::Newest(_) => true,
        Operation::ReadEvents { .. } | Operation::EventsUnchanged(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::Seq;
    use ropewalk_wire::ServiceSettings;

    use super::*;
    use crate::operation::Statement;

    #[test]
    fn transaction_with_large_parameters_is_not_brief() {
        let service = Service::new(Database::in_memory().unwrap(), ServiceSettings::default()).unwrap();
        note(service.database(), "INSERT INTO t VALUES ($1)", true);
        let insert = |bytes: usize| {
            let parameters = vec![Parameter::Text("a".repeat(bytes))];
            let text = "INSERT INTO t VALUES ($1)".to_owned();
            [
                Operation::Newest(Seq(1)),
                Operation::Sql(Statement { text, parameters, expected: None, is_check: false }),
            ]
        };
        assert!(are_brief(&service, &insert(BYTES_MAX)));
        assert!(!are_brief(&service, &insert(BYTES_MAX + 1)));
    }

    #[test]
    fn texts_are_remembered_by_their_last_plan_and_bounded() {
        let db = Database::in_memory().unwrap();
        assert!(!is_known(&db, "a"));
        note(&db, "a", true);
        assert!(is_known(&db, "a"));
        note(&db, "a", false);
        assert!(!is_known(&db, "a"));
        let long = "a".repeat(TEXT_BYTES_MAX + 1);
        note(&db, &long, true);
        assert!(!is_known(&db, &long));
        for number in 0..2 * TEXTS_MAX {
            note(&db, &number.to_string(), true);
        }
        let count = db.extension::<BriefTexts>().0.read().unwrap().len();
        assert!((1..=TEXTS_MAX).contains(&count), "{count}");
    }
}
