//! `$indexStats`: how often each index of a collection was used.

use ropewalk::documents::lang::{Doc, DocBuf, Value, Writer};
use ropewalk::documents::{ID_INDEX, Index};

use crate::call::Call;
use crate::crud::definitions::{existing, put_index};
use crate::protocol::failure::{Code, Failure, Outcome};

/// Replaces the stage `$indexStats` by its documents, one for each index.
pub(crate) fn stages(call: &Call<'_>, spec: Value<'_>, stages: Doc<'_>) -> Outcome<DocBuf> {
    if spec.as_document().is_none_or(|spec| !spec.is_empty()) {
        let message = "The $indexStats stage specification must be an empty object";
        return Err(Failure::new(Code::NotEmptyIndexStats, message));
    }
    let collection = call.collection()?;
    let definition = existing(&collection)?;
    let since = call.now_ms() - call.shared.uptime().as_millis() as i64;
    let mut out = Writer::array();
    out.open_document("");
    out.open_array("$documents");
    let ready = definition.indexes().iter().filter(|index| index.is_ready());
    for index in std::iter::once(None).chain(ready.map(|index| Some(index.as_ref()))) {
        let shown = put_index(index);
        out.open_document("");
        out.put("name", Value::String(index.map_or(ID_INDEX, Index::name)));
        out.put("key", shown.doc().get("key").unwrap_or(Value::Null));
        out.put("host", Value::String(call.client.local.as_deref().unwrap_or("local")));
        out.open_document("accesses");
        out.put("ops", Value::Int64(call.documents().index_uses(&definition, index) as i64));
        out.put("since", Value::DateTime(since));
        out.close();
        out.put("spec", Value::Document(shown.doc()));
        out.close();
    }
    out.close();
    out.close();
    for stage in stages.values().skip(1) {
        out.put("", stage);
    }
    Ok(out.finish())
}
