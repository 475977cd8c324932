//! The status of a failed transaction.

use ropewalk_transactions::{Failure, Report, ReportKind};
use ropewalk_wire::{Code, Service, WireError};
use tonic::{Code as Grpc, Status};

use crate::proto::ropewalk::v1::TransactionError;
use crate::proto::ropewalk::v1::transaction_error::Place;
use crate::status;

/// A failed call: its code for the metrics, and its status for the client.
pub(crate) struct Failed {
    pub(crate) code: Code,
    pub(crate) status: Status,
}

impl Failed {
    /// The failure of a transaction whose first operations are so many preconditions.
    pub(crate) fn new(service: &Service, failure: Failure, preconditions: usize) -> Self {
        let place = failure.operation.map(|at| match at.checked_sub(preconditions) {
            None => Place::Precondition(status::number(at)),
            Some(at) => Place::Operation(status::number(at)),
        });
        Self::of_report(Report::new(failure.cause, service), place)
    }

    /// An error in a part of the request.
    pub(crate) fn at(place: Place, error: WireError) -> Self {
        Self::of_report(error.into(), Some(place))
    }

    fn of_report(report: Report, place: Option<Place>) -> Self {
        let name = report.name();
        let Report { mut error, kind, statement, oldest_readable } = report;
        let code = match kind {
            ReportKind::Code => status::grpc(error.code),
            ReportKind::PreconditionFailed | ReportKind::ValidationFailed => Grpc::FailedPrecondition,
            ReportKind::QuotaExceeded => Grpc::ResourceExhausted,
            ReportKind::CommitUnreadable => Grpc::OutOfRange,
        };
        match &place {
            None => {}
            Some(Place::Operation(at)) => error.message.insert_str(0, &format!("operations[{at}]: ")),
            Some(Place::Precondition(at)) => error.message.insert_str(0, &format!("preconditions[{at}]: ")),
        }
        let oldest_readable = oldest_readable.map(|seq| seq.0);
        let mut detail = TransactionError { place, oldest_readable, ..TransactionError::default() };
        if let Some(statement) = statement {
            detail.sqlstate = Some(statement.sqlstate.to_owned());
            detail.constraint = statement.constraint;
            detail.hint = statement.hint;
        }
        let detail = (detail != TransactionError::default())
            .then(|| status::any("ropewalk.v1.TransactionError", &detail));
        Self { code: error.code, status: status::detailed(code, name, &error, detail) }
    }
}

impl From<WireError> for Failed {
    fn from(error: WireError) -> Self {
        Self::of_report(error.into(), None)
    }
}
