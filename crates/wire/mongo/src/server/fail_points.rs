//! `configureFailPoint`, which only servers for tests offer.

use ropewalk::documents::lang::Writer;
use ropewalk_auth::Right;

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};

/// `configureFailPoint`
pub(crate) fn configure(call: &mut Call<'_>) -> Outcome<Writer> {
    let points = &call.shared.fail_points;
    if !points.offered {
        let message = "configureFailPoint is for tests: the server was started without test commands";
        return Err(Failure::new(Code::CommandNotFound, message));
    }
    call.args.only(&["configureFailPoint", "mode", "data"])?;
    call.may(Right::Admin, None)?;
    points.configure(&call.args)
}
