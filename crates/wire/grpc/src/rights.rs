//! Every call with the rights it needs. They are checked by the headers alone, before a message is read.
//!
//! A call without a row is not served. Calls of `ropewalk.events.v1` name their store in the message, so the
//! right on that store is checked again when the message has arrived. Those of `ropewalk.v1.Transactions`
//! need the rights of each operation in the message.

use ropewalk_auth::{Needs, Operation, Resource, Right};

use crate::alias;
use crate::decoded::{self, Shape};

/// One row.
pub(crate) struct Call {
    /// Path of the HTTP/2 request.
    path: &'static str,
    /// Name in the metrics.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
}

impl Call {
    /// True if only the leader of a cluster can carry it out. Transactions that only read are among them: open ones are
    /// in the memory of the leader.
    pub(crate) fn is_for_the_leader(&self) -> bool {
        self.path.starts_with("/ropewalk.v1.Transactions/")
            || self.needs.rights.iter().any(|right| matches!(right, Right::Append | Right::Admin))
    }

    /// True if its message has no field for the store.
    pub(crate) fn takes_store_of_header(&self) -> bool {
        self.path.starts_with(alias::NEW)
    }

    /// The shape of its message; absent for health and reflection.
    pub(crate) fn shape(&self) -> Option<&'static Shape> {
        decoded::shape(self.path)
    }
}

const fn call(path: &'static str, name: &'static str, needs: Needs) -> Call {
    Call { path, name, needs }
}

const READ: Needs = Needs::read(Resource::Header);
const READ_NAMED: Needs = Needs::read(Resource::Message);

const OPERATIONS: Needs = Needs::LOGIN.later("rights of each operation, as if it came alone");
const OWN: Needs = Needs::LOGIN.later("transactions of other callers are not found");

static CALLS: &[Call] = &[
    call("/umadb.v1.DCB/Read", "read", READ),
    call("/umadb.v1.DCB/Subscribe", "subscribe", READ),
    call(
        "/umadb.v1.DCB/Append",
        "append",
        Needs::append(Resource::Header).later("a condition without events: `read`"),
    ),
    call("/umadb.v1.DCB/Head", "head", READ),
    call("/umadb.v1.DCB/GetTrackingInfo", "tracking", READ),
    call("/ropewalk.events.v1.Events/Append", "append", Needs::append(Resource::Message)),
    call("/ropewalk.events.v1.Events/Read", "read", READ_NAMED),
    call("/ropewalk.events.v1.Events/Last", "last", READ_NAMED),
    call("/ropewalk.events.v1.Events/Count", "count", READ_NAMED),
    call("/ropewalk.events.v1.Events/Exists", "exists", READ_NAMED),
    call("/ropewalk.events.v1.Events/Head", "head", READ_NAMED),
    call("/ropewalk.events.v1.Events/Tracking", "tracking", READ_NAMED),
    call("/ropewalk.events.v1.Events/Subscribe", "subscribe", READ_NAMED),
    call(
        "/ropewalk.events.v1.Events/ListStores",
        "stores",
        Needs::LOGIN.later("stores that the caller may not read are left out"),
    ),
    call("/ropewalk.events.v1.Events/CreateStore", "create_store", Needs::admin(Resource::Message)),
    call("/ropewalk.events.v1.Events/DeleteStore", "delete_store", Needs::admin(Resource::Message)),
    call("/ropewalk.v1.Transactions/Commit", "transact", OPERATIONS),
    call("/ropewalk.v1.Transactions/Begin", "begin", OPERATIONS),
    call("/ropewalk.v1.Transactions/Execute", "execute", OPERATIONS),
    call("/ropewalk.v1.Transactions/CommitOpen", "commit", OWN),
    call("/ropewalk.v1.Transactions/Rollback", "rollback", OWN),
    call("/grpc.health.v1.Health/Check", "health", Needs::PUBLIC),
    call("/grpc.health.v1.Health/Watch", "health", Needs::PUBLIC),
    call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "reflection", Needs::PUBLIC),
    call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "reflection", Needs::PUBLIC),
];

/// The row of a path; UmaDB's older service shares that of the newer.
pub(crate) fn find(path: &str) -> Option<&'static Call> {
    let method = path.strip_prefix(alias::OLD);
    let is_it = |call: &&Call| match method {
        Some(method) => call.path.strip_prefix(alias::NEW) == Some(method),
        None => call.path == path,
    };
    CALLS.iter().find(is_it)
}

/// Every call with the rights it needs, named by its path.
pub fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for call in CALLS {
        operations.push(Operation { name: call.path.to_owned(), needs: call.needs });
        if let Some(method) = call.path.strip_prefix(alias::NEW) {
            operations.push(Operation { name: format!("{}{method}", alias::OLD), needs: call.needs });
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::routes::DESCRIPTORS;

    #[test]
    fn every_method_of_the_served_descriptors_has_a_row() {
        let reflection = [
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let mut served = BTreeSet::new();
        for set in [DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET].into_iter().chain(reflection) {
            for file in FileDescriptorSet::decode(set).unwrap().file {
                for service in &file.service {
                    let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
                    served.extend(service.method.iter().map(|method| path(method.name())));
                }
            }
        }
        let rows: BTreeSet<String> = CALLS.iter().map(|call| call.path.to_owned()).collect();
        assert_eq!(rows, served);
        assert!(operations().iter().all(|operation| find(&operation.name).is_some()));
        assert!(find("/umadb.UmaDBService/Other").is_none() && find("/umadb.v1.DCB/").is_none());
    }
}
