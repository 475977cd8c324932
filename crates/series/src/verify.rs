//! Checks every stored chunk: its key, its samples, and that its series is known.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_engine::{Keyspace, ReadView};

use crate::batch::take_payload;
use crate::chunk::ChunkHead;
use crate::error::SeriesError;
use crate::model::StoreState;
use crate::rich::each_rich;
use crate::stored::{ChunkKey, partition_of};

const VIOLATIONS_MAX: usize = 100;

pub(crate) fn verify(
    read: ReadView<'_>,
    chunks: Keyspace,
    stores: &[Arc<StoreState>],
) -> Result<Vec<String>, SeriesError> {
    let stores: HashMap<u32, &Arc<StoreState>> = stores.iter().map(|s| (s.id, s)).collect();
    let mut out = Vec::new();
    let mut cursor = read.cursor(chunks);
    cursor.first()?;
    while cursor.valid() && out.len() < VIOLATIONS_MAX {
        let key: String = cursor.key().iter().map(|b| format!("{b:02x}")).collect();
        match ChunkKey::decode(cursor.key()) {
            Err(error) => out.push(format!("chunk {key}: {error}")),
            Ok((store, found)) => {
                let known = stores.get(&store).is_some_and(|s| s.index.read().labels(found.id).is_some());
                if !known {
                    out.push(format!("chunk {key}: series {} of store {store} is unknown", found.id));
                }
                if let Some(what) = fault(&found, cursor.value()) {
                    out.push(format!("chunk {key}: {what}"));
                }
            }
        }
        cursor.next()?;
    }
    Ok(out)
}

fn fault(key: &ChunkKey, value: &[u8]) -> Option<String> {
    let (mut times, mut bits) = (Vec::new(), Vec::new());
    let mut what = None;
    let read = if key.rich {
        each_rich(value, key.base(), |time, payload| {
            times.push(time);
            what = what.take().or(take_payload(payload).err().map(|e| e.to_string()));
        })
    } else {
        ChunkHead::decode(value, key.base()).and_then(|head| head.samples(&mut times, &mut bits))
    };
    if let Err(error) = read {
        return Some(error.to_string());
    }
    if times.first() != Some(&key.first()) || !times.is_sorted_by(|a, b| a < b) {
        what = Some("its times do not rise from the key's".into());
    } else if times.last().map(|t| partition_of(*t)) != Some(key.partition) {
        what = Some("it leaves its partition".into());
    }
    what
}
