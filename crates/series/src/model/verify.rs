//! Checks every stored chunk: its key, its samples, that its series is known, and that it lies within its partition's bounds.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_base::hex;
use ropewalk_engine::{Keyspace, ReadView};

use crate::chunk::ChunkHead;
use crate::chunk::payload_chunk::each_rich;
use crate::error::Result;
use crate::model::StoreState;
use crate::sample::batch::take_payload;
use crate::storage::chunk_keys::{ChunkKey, partition_of};
use crate::storage::partition_bounds::Bounds;

const VIOLATIONS_MAX: usize = 100;

pub(crate) fn verify(
    read: ReadView<'_>,
    chunks: Keyspace,
    stores: &[Arc<StoreState>],
) -> Result<Vec<String>> {
    let stores: HashMap<u32, &Arc<StoreState>> = stores.iter().map(|s| (s.id, s)).collect();
    let mut out = Vec::new();
    let mut cursor = read.cursor(chunks);
    cursor.first()?;
    let mut bounds = None;
    while cursor.valid() && out.len() < VIOLATIONS_MAX {
        let key = hex(cursor.key());
        match ChunkKey::decode(cursor.key()) {
            Err(error) => out.push(format!("chunk {key}: {error}")),
            Ok((store, found)) if found.is_of_bounds() => {
                match Bounds::decode(found.partition, cursor.value()) {
                    Ok(of) => bounds = Some((store, found.partition, of)),
                    Err(error) => out.push(format!("bounds {key}: {error}")),
                }
            }
            Ok((store, found)) => {
                let known = stores.get(&store).is_some_and(|s| s.index.read().labels(found.id).is_some());
                if !known {
                    out.push(format!("chunk {key}: series {} of store {store} is unknown", found.id));
                }
                let within =
                    bounds.filter(|(of, partition, _)| (*of, *partition) == (store, found.partition));
                if let Some(what) = fault(&found, cursor.value(), within.map(|(.., bounds)| bounds)) {
                    out.push(format!("chunk {key}: {what}"));
                }
            }
        }
        cursor.next()?;
    }
    Ok(out)
}

fn fault(key: &ChunkKey, value: &[u8], within: Option<Bounds>) -> Option<String> {
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
    } else if let (Some(within), Some(last)) = (within, times.last())
        && within.and(Bounds::of(key.first(), *last)) != within
    {
        what = Some("it leaves the bounds of its partition".into());
    }
    what
}

#[cfg(test)]
mod tests {
    use ropewalk_base::Seq;

    use super::*;
    use crate::chunk::ChunkEncoder;

    #[test]
    fn a_chunk_beyond_its_partition_s_bounds_is_found() {
        let key = ChunkKey::at(100, 1, false, Seq(1));
        let mut chunk = Vec::new();
        ChunkEncoder::default().encode(key.base(), &[100, 150, 200], &[0, 0, 0], &mut chunk);
        let fault = |first, last| fault(&key, &chunk, Some(Bounds::of(first, last)));
        assert_eq!((fault(100, 200), fault(0, 300)), (None, None));
        let beyond = Some("it leaves the bounds of its partition".to_owned());
        assert_eq!((fault(99, 199), fault(201, 300)), (beyond.clone(), beyond));
    }
}
