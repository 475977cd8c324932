//! The store's files: the manifest, and runs of several forms, damaged under valid checksums.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ropewalk_base::{Seq, crc32c};
use ropewalk_store::{
    Compression, Edit, FilterPolicy, Keyspace, KeyspaceOptions, ReadMode, Store, StoreError, StoreOptions,
};
use ropewalk_vfs::{Env, ManualClock, MemoryVfs, OpenMode, SeededRandom};

use crate::script::Script;

const BLOCK_BYTES: u32 = 512;
const TRAILER_BYTES: usize = 36;
/// End of a footer: length and checksum of the index and of the filter.
const SECTIONS_BYTES: usize = 24;
/// More steps than any store here has entries: a cursor that exceeds it is in an endless loop.
const STEPS_MAX: usize = 100_000;

type Files = BTreeMap<String, Vec<u8>>;

/// The payload of a manifest, under a right header. The store opens, or returns a typed error.
pub(crate) fn manifest(data: &[u8]) {
    let mut files = base_number(0);
    files.insert("MANIFEST".to_owned(), manifest_of(data));
    use_all(&files);
}

fn manifest_of(payload: &[u8]) -> Vec<u8> {
    let mut out = b"ROPEMANI".to_vec();
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(&crc32c(payload).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    bases().iter().filter_map(|files| files.get("MANIFEST")?.get(24..).map(<[u8]>::to_vec)).collect()
}

/// Edits to the run of one of the bases, as a script: which base, which checksums to set right, then place and byte.
pub(crate) fn run(data: &[u8]) {
    let mut script = Script(data);
    let mut files = base_number(script.u8());
    let checksums = script.u8();
    let Some(bytes) = files.iter_mut().find(|(name, _)| name.ends_with(".run")).map(|(_, bytes)| bytes)
    else {
        return;
    };
    while !script.is_empty() {
        let (from_end, at, value) = (script.u8() % 2 == 1, usize::from(script.u16()), script.u8());
        let at = if from_end { bytes.len().checked_sub(at + 1) } else { Some(at) };
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
            *byte ^= value;
        }
    }
    if checksums & 1 != 0 {
        set_right(bytes);
    }
    use_all(&files);
}

pub(crate) fn run_seeds() -> Vec<Vec<u8>> {
    let edits: [&[u8]; 4] = [&[], &[0, 4, 0, 1], &[1, 40, 0, 0xff], &[0, 12, 0, 9, 1, 60, 0, 3]];
    (0..bases().len() as u8).flat_map(|base| edits.map(|edit| [&[base, 1], edit].concat())).collect()
}

/// Sets the checksums of index, filter, footer, trailer and all blocks of fixed size right.
fn set_right(bytes: &mut [u8]) {
    let Some((body, trailer)) = bytes.split_last_chunk_mut::<TRAILER_BYTES>() else { return };
    let number =
        |at: usize| trailer.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let footer_at = usize::try_from(number(0)).unwrap_or(usize::MAX);
    let Some((parts, footer)) = body.split_at_mut_checked(footer_at) else { return };
    if let Some(sections) = footer.last_chunk_mut() {
        set_parts_right(parts, sections);
    }
    let (fields, _) = trailer.split_at_mut(24);
    let (fields, crc) = fields.split_at_mut(20);
    let (_, footer_crc) = fields.split_at_mut(16);
    footer_crc.copy_from_slice(&crc32c(footer).to_le_bytes());
    crc.copy_from_slice(&crc32c(fields).to_le_bytes());
}

/// `parts`: blocks, index and filter.
fn set_parts_right(parts: &mut [u8], sections: &mut [u8; SECTIONS_BYTES]) {
    let mut blocks_end = parts.len();
    for section in sections.as_chunks_mut::<{ SECTIONS_BYTES / 2 }>().0.iter_mut().rev() {
        let len = section.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let end = blocks_end;
        blocks_end = end.saturating_sub(usize::try_from(len).unwrap_or(usize::MAX));
        let crc = crc32c(parts.get(blocks_end..end).unwrap_or_default());
        section
            .last_chunk_mut::<4>()
            .expect("a section ends with a checksum")
            .copy_from_slice(&crc.to_le_bytes());
    }
    for block in parts.get_mut(..blocks_end).unwrap_or_default().chunks_mut(BLOCK_BYTES as usize) {
        if let Some((crc, rest)) = block.split_first_chunk_mut::<4>() {
            *crc = crc32c(rest).to_le_bytes();
        }
    }
}

/// Opens the store and calls every read function. Errors are fine; a panic or an endless scan is not.
fn use_all(files: &Files) {
    for read_mode in [ReadMode::Map, ReadMode::Pread] {
        let env = memory();
        write(&env, files);
        if let Ok(store) = open(&env, read_mode) {
            let _ = ask(&store);
            let _ = store.verify();
            let _ = store.compact_all(&[Seq(5), Seq(40)]);
            let _ = ask(&store);
        }
    }
}

fn ask(store: &Store) -> Result<(), StoreError> {
    let view = store.view();
    store.stats();
    let keyspace = Keyspace(0);
    for at in [Seq(5), Seq::MAX] {
        for key in keys() {
            let _ = view.get(keyspace, &key, at);
        }
        let mut cursor = view.cursor(keyspace, at);
        cursor.first()?;
        let mut steps = 0;
        while cursor.valid() {
            let _ = (cursor.key().len(), cursor.value().len(), cursor.seq());
            cursor.next()?;
            steps += 1;
            assert!(steps < STEPS_MAX, "a walk forwards does not end");
        }
        cursor.last()?;
        while cursor.valid() {
            cursor.prev()?;
            steps += 1;
            assert!(steps < STEPS_MAX, "a walk backwards does not end");
        }
        cursor.seek(b"key-0010")?;
        cursor.seek_for_prev(b"key-0010")?;
    }
    Ok(())
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..40_u64).flat_map(|n| [n.to_be_bytes().to_vec(), format!("key-{n:04}-with-a-tail").into_bytes()])
}

fn memory() -> Env {
    let vfs = Arc::new(MemoryVfs::default());
    Env { vfs, clock: Arc::new(ManualClock::default()), random: Arc::new(SeededRandom::new(1)) }
}

fn open(env: &Env, read_mode: ReadMode) -> Result<Store, StoreError> {
    let options =
        StoreOptions { run_bytes: 1 << 16, cache_bytes: 1 << 16, read_mode, ..StoreOptions::default() };
    Store::open(env, Path::new("/store"), options)
}

fn write(env: &Env, files: &Files) {
    let dir = Path::new("/store");
    env.vfs.create_dir_all(dir).expect("memory does not fail");
    for (name, bytes) in files {
        let file = env.vfs.open(&dir.join(name), OpenMode::CreateNew).expect("the directory is empty");
        file.write_all_at(bytes, 0).expect("memory does not fail");
    }
}

/// Stores with one run each, as the writer makes them: fixed keys, tails, versions, tombstones, ranges, compression.
fn bases() -> &'static [Files] {
    static BASES: OnceLock<Vec<Files>> = OnceLock::new();
    BASES.get_or_init(|| {
        let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
        let plain =
            base(Compression::None, |n| (n.to_be_bytes().to_vec(), 1, Some(vec![n as u8; 30])), false);
        let mixed = compressions.map(|compression| {
            let entry = |n: u64| {
                let value = (!n.is_multiple_of(5)).then(|| vec![b'v'; 20 + n as usize]);
                (format!("key-{:04}-with-a-tail", n / 2).into_bytes(), 40 - n, value)
            };
            base(compression, entry, true)
        });
        [vec![plain], mixed.into()].concat()
    })
}

fn base_number(number: u8) -> Files {
    bases().iter().cycle().nth(usize::from(number)).expect("there are bases").clone()
}

fn base(
    compression: Compression,
    entry: impl Fn(u64) -> (Vec<u8>, u64, Option<Vec<u8>>),
    range: bool,
) -> Files {
    let env = memory();
    let store = open(&env, ReadMode::Pread).expect("an empty directory is a new store");
    let options = KeyspaceOptions {
        compression,
        filter: FilterPolicy::All,
        block_bytes: BLOCK_BYTES,
        ..Default::default()
    };
    let keyspace = store.keyspace("base", options).expect("options are in range");
    let mut writer = store.writer(keyspace).expect("memory does not fail");
    if range {
        writer.add_range_tombstone(b"key-0004", b"key-0006", Seq(30)).expect("the range is not empty");
    }
    for n in 0..40 {
        let (key, seq, value) = entry(n);
        writer.add(&key, Seq(seq), value.as_deref()).expect("keys ascend, versions descend");
    }
    let new_l0 = writer.finish().expect("memory does not fail");
    store.install(Edit { new_l0, ..Edit::default() }).expect("memory does not fail");
    let dir = Path::new("/store");
    let mut files = Files::new();
    for name in env.vfs.list(dir).expect("the directory is there") {
        let file = env.vfs.open(&dir.join(&name), OpenMode::Read).expect("the file is there");
        let mut bytes = vec![0; file.len().expect("memory does not fail") as usize];
        file.read_exact_at(&mut bytes, 0).expect("memory does not fail");
        files.insert(name, bytes);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_bases_are_whole() {
        for files in bases() {
            let mut right = files.clone();
            set_right(right.iter_mut().find(|(name, _)| name.ends_with(".run")).unwrap().1);
            let compressed = files != &right;
            let env = memory();
            write(&env, files);
            let store = open(&env, ReadMode::Pread).unwrap();
            ask(&store).unwrap();
            let report = store.verify().unwrap();
            assert!(report.damage.is_empty() && report.entries >= 40, "{report:?}");
            assert!(report.blocks > 2 || compressed, "{report:?}");
        }
        assert_eq!(manifest_seeds().len(), bases().len());
    }
}
