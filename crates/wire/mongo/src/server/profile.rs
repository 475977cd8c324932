//! `top` and `profile`: what the server knows of the time that commands take.

use ropewalk::documents::lang::{Value, Writer};

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};

/// `top`
pub(crate) fn top(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["top"])?;
    if call.database != "admin" {
        return Err(Failure::new(Code::Unauthorized, "top may only be run against the admin database."));
    }
    let mut out = Writer::new();
    out.open_document("totals");
    out.put("note", Value::String("all times in microseconds"));
    call.shared.usage.put(&mut out);
    out.close();
    Ok(out)
}

/// `profile`: no operations are recorded, so level 0 is the only one.
pub(crate) fn profile(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["profile", "slowms", "sampleRate", "filter"])?;
    let level = call.args.needed("profile", call.args.integer("profile")?)?;
    let is_changed = ["slowms", "sampleRate", "filter"].iter().any(|field| call.args.get(field).is_some());
    match level {
        -1 | 0 if !is_changed => {}
        -1..=2 => {
            let message = "operations are not recorded: the profiling level is 0, without options";
            return Err(Failure::new(Code::NotImplemented, message));
        }
        _ => return Err(Failure::new(Code::BadValue, "profiling level must be between -1 and 2")),
    }
    let mut out = Writer::new();
    out.put("was", Value::Int32(0));
    out.put("slowms", Value::Int32(100));
    out.put("sampleRate", Value::Double(1.0));
    Ok(out)
}
