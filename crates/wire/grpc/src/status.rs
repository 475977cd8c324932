//! Status of a failed call. Each protocol has a table from [`Code`] to gRPC's codes, and specific details.
//!
//! ```text
//! umadb.v1            details = ErrorResponse{message, error_type}, not wrapped; without them (stopping, timeout)
//!                       the clients use gRPC's code
//! ropewalk.events.v1  details = google.rpc.Status{code, message, [Error]}; Error.code is the stable name
//! ropewalk.v1         the same, and a TransactionError after the Error
//! ```
//! A pause before a retry is sent as `grpc-retry-pushback-ms`, which gRPC's retry policies honour. A node that does not
//! lead sends the addresses of the leader as `ropewalk-leader`.

use bytes::Bytes;
use prost::Message;
use ropewalk_wire::{Code, WireError};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code as Grpc, Status};

use crate::proto::ropewalk::events::v1::{Conflict, Error};
use crate::proto::umadb::v1::ErrorResponse;
use crate::proto::umadb::v1::error_response::ErrorType;

/// Metadata of an error of a node that does not lead: the addresses that the leader advertises.
const LEADER: &str = "ropewalk-leader";

/// Converts an error to a protocol's status.
pub(crate) type ToStatus = fn(&WireError) -> Status;

pub(crate) fn grpc(code: Code) -> Grpc {
    match code {
        Code::InvalidArgument | Code::TooLarge => Grpc::InvalidArgument,
        Code::Unauthenticated => Grpc::Unauthenticated,
        Code::PermissionDenied => Grpc::PermissionDenied,
        Code::NotFound | Code::NoSuchLease => Grpc::NotFound,
        Code::AlreadyExists => Grpc::AlreadyExists,
        Code::ConditionFailed | Code::TrackingConflict | Code::IdempotencyMismatch => {
            Grpc::FailedPrecondition
        }
        Code::KeyConflict => Grpc::Aborted,
        Code::ResourceExhausted => Grpc::ResourceExhausted,
        Code::Stopping | Code::NotLeader => Grpc::Unavailable,
        Code::OutcomeUnknown => Grpc::Unknown,
        Code::Corrupt => Grpc::DataLoss,
        Code::Io | Code::Internal => Grpc::Internal,
        Code::Timeout => Grpc::DeadlineExceeded,
    }
}

/// Adds the pause before a retry, and the addresses of the leader.
fn with_metadata(error: &WireError, mut status: Status) -> Status {
    let mut metadata = MetadataMap::new();
    if let Some(pause) = error.retry_after {
        metadata.insert("grpc-retry-pushback-ms", (pause.as_millis() as u64).into());
    }
    if let Some(leader) =
        error.leader.as_deref().and_then(|leader| MetadataValue::<Ascii>::try_from(leader).ok())
    {
        metadata.insert(LEADER, leader);
    }
    if !metadata.is_empty() {
        *status.metadata_mut() = metadata;
    }
    status
}

/// Without details, for protocols that define none.
pub(crate) fn plain(error: &WireError) -> Status {
    with_metadata(error, Status::new(grpc(error.code), error.message.clone()))
}

/// For `umadb.v1`. The messages begin with the texts of UmaDB, which its clients and users know.
pub(crate) fn umadb(error: &WireError) -> Status {
    let (kind, words) = match error.code {
        Code::ConditionFailed | Code::IdempotencyMismatch | Code::KeyConflict => {
            (ErrorType::Integrity, "integrity error: condition failed: ")
        }
        Code::TrackingConflict => (
            ErrorType::Integrity,
            "integrity error: condition failed: non-increasing tracking position for source: ",
        ),
        Code::Unauthenticated | Code::PermissionDenied => {
            (ErrorType::Authentication, "authentication error: ")
        }
        Code::InvalidArgument | Code::TooLarge | Code::NotFound | Code::NoSuchLease | Code::AlreadyExists => {
            (ErrorType::InvalidArgument, "invalid argument: ")
        }
        Code::Corrupt => (ErrorType::Corruption, "corruption detected: "),
        Code::Internal => (ErrorType::Internal, "internal error: "),
        Code::Io | Code::ResourceExhausted => (ErrorType::Io, "io error: "),
        Code::Stopping | Code::Timeout | Code::NotLeader | Code::OutcomeUnknown => {
            return with_metadata(error, Status::new(grpc(error.code), &*error.message));
        }
    };
    // The k6 adapter of dcb.events detects a conflict by this word, with a capital.
    let mark = if kind == ErrorType::Integrity { " [IntegrityError]" } else { "" };
    with_metadata(error, umadb_status(grpc(error.code), kind, format!("{words}{}{mark}", error.message)))
}

fn umadb_status(code: Grpc, kind: ErrorType, message: String) -> Status {
    // UmaDB has no separate code for a conflict between transactions.
    let code = if code == Grpc::Aborted { Grpc::FailedPrecondition } else { code };
    let details = ErrorResponse { message: message.clone(), error_type: kind.into() };
    Status::with_details(code, message, details.encode_to_vec().into())
}

/// An event's id that is not a UUID: UmaDB and its clients treat it as corruption.
pub(crate) fn umadb_bad_uuid(ordinal: usize) -> Status {
    let message = format!("deserialization error: event {ordinal}: the uuid does not parse");
    umadb_status(Grpc::DataLoss, ErrorType::Corruption, message)
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<prost_types::Any>,
}

/// For `ropewalk.events.v1`.
pub(crate) fn events(error: &WireError) -> Status {
    detailed(grpc(error.code), error.code.as_str(), error, None)
}

/// A status with an `Error` of `ropewalk.events.v1` in its details: `name` is its code. `further`: the next
/// detail.
pub(crate) fn detailed(
    code: Grpc,
    name: &str,
    error: &WireError,
    further: Option<prost_types::Any>,
) -> Status {
    let conflict = error.conflict.map(|conflict| Conflict {
        condition: number(conflict.condition),
        position: conflict.position.0,
        item: conflict.item.map(number),
    });
    let detail = Error {
        code: name.to_owned(),
        message: error.message.clone(),
        conflict,
        retry_after_millis: error.retry_after.map(|pause| pause.as_millis() as u64),
    };
    let first = any("ropewalk.events.v1.Error", &detail);
    let details = [first].into_iter().chain(further).collect();
    let details = RpcStatus { code: code as i32, message: error.message.clone(), details };
    let details = Bytes::from(details.encode_to_vec());
    with_metadata(error, Status::with_details(code, &*error.message, details))
}

/// A message as a detail of a status.
pub(crate) fn any(name: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

pub(crate) fn number(ordinal: usize) -> u32 {
    u32::try_from(ordinal).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk::Position;

    #[test]
    fn every_code_has_its_row() {
        let expected = [
            (Code::InvalidArgument, Grpc::InvalidArgument, Some(ErrorType::InvalidArgument)),
            (Code::Unauthenticated, Grpc::Unauthenticated, Some(ErrorType::Authentication)),
            (Code::PermissionDenied, Grpc::PermissionDenied, Some(ErrorType::Authentication)),
            (Code::NotFound, Grpc::NotFound, Some(ErrorType::InvalidArgument)),
            (Code::NoSuchLease, Grpc::NotFound, Some(ErrorType::InvalidArgument)),
            (Code::AlreadyExists, Grpc::AlreadyExists, Some(ErrorType::InvalidArgument)),
            (Code::ConditionFailed, Grpc::FailedPrecondition, Some(ErrorType::Integrity)),
            (Code::TrackingConflict, Grpc::FailedPrecondition, Some(ErrorType::Integrity)),
            (Code::IdempotencyMismatch, Grpc::FailedPrecondition, Some(ErrorType::Integrity)),
            (Code::KeyConflict, Grpc::FailedPrecondition, Some(ErrorType::Integrity)),
            (Code::TooLarge, Grpc::InvalidArgument, Some(ErrorType::InvalidArgument)),
            (Code::ResourceExhausted, Grpc::ResourceExhausted, Some(ErrorType::Io)),
            (Code::Stopping, Grpc::Unavailable, None),
            (Code::Corrupt, Grpc::DataLoss, Some(ErrorType::Corruption)),
            (Code::Io, Grpc::Internal, Some(ErrorType::Io)),
            (Code::Internal, Grpc::Internal, Some(ErrorType::Internal)),
            (Code::Timeout, Grpc::DeadlineExceeded, None),
            (Code::NotLeader, Grpc::Unavailable, None),
            (Code::OutcomeUnknown, Grpc::Unknown, None),
        ];
        assert_eq!(expected.len(), Code::ALL.len());
        for (code, grpc, kind) in expected {
            let status = umadb(&WireError::new(code, "why"));
            assert_eq!(status.code(), grpc, "{code}");
            assert!(status.message().contains("why"));
            assert_eq!(status.message().contains("Integrity"), kind == Some(ErrorType::Integrity));
            let found = (!status.details().is_empty()).then(|| {
                let details = ErrorResponse::decode(status.details()).unwrap();
                assert_eq!(details.message, status.message());
                details.error_type()
            });
            assert_eq!(found, kind, "{code}");
        }
    }

    #[test]
    fn node_that_does_not_lead_names_the_leader() {
        let status = events(&WireError::not_leader(Some("grpc://b:50051")));
        assert_eq!(status.code(), Grpc::Unavailable);
        assert_eq!(status.metadata().get("ropewalk-leader").unwrap(), "grpc://b:50051");
        assert!(umadb(&WireError::not_leader(None)).metadata().get("ropewalk-leader").is_none());
    }

    #[test]
    fn our_details_say_where_and_when() {
        let mut error = WireError::exhausted("full");
        error.conflict = Some(ropewalk_wire::Conflict { condition: 2, position: Position(9), item: Some(1) });
        let status = events(&error);
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
        let rpc = RpcStatus::decode(status.details()).unwrap();
        assert_eq!((rpc.code, rpc.message.as_str()), (Grpc::ResourceExhausted as i32, "full"));
        let detail = Error::decode(&*rpc.details[0].value).unwrap();
        assert_eq!((detail.code.as_str(), detail.retry_after_millis), ("resource_exhausted", Some(1000)));
        assert_eq!(detail.conflict, Some(Conflict { condition: 2, position: 9, item: Some(1) }));
    }
}
