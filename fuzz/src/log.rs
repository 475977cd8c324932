//! The log: one record, and a whole segment that recovery reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq, crc32c_append};
use ropewalk_log::format::{
    Kind, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, checksum_matches, checksum_seed, encode_record,
    record_bytes,
};
use ropewalk_log::{CommitLog, LocalLog, LogError, LogId, LogOptions, Record};
use ropewalk_vfs::{Env, ManualClock, MemoryVfs, OpenMode, SeededRandom};

use crate::script::Script;

const OPTIONS: LogOptions =
    LogOptions { segment_bytes_first: 4096, segment_bytes_max: 8192, spare_segments_max: 1 };
const ID: LogId = LogId(*b"fuzz the log id!");

/// Headers of segments and records, from unmodified bytes. A decoded header encodes to the same bytes.
pub(crate) fn record(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<64>()
        && let Ok(header) = SegmentHeader::decode(bytes)
    {
        assert_eq!(header.encode(), *bytes, "a segment header has one form");
    }
    let lsn =
        data.get(8..16).and_then(|b| b.try_into().ok()).map_or(Lsn::ZERO, |b| Lsn(u64::from_le_bytes(b)));
    let Some(bytes) = data.first_chunk::<32>() else { return };
    let Ok(header) = RecordHeader::decode(bytes, lsn) else { return };
    let len = record_bytes(u64::from(header.len)) as usize;
    let Some(whole) = data.get(..len).filter(|whole| checksum_matches(checksum_seed(ID), whole)) else {
        return;
    };
    let payload = whole.get(32..32 + header.len as usize).expect("a record holds its payload");
    let mut again = Vec::new();
    encode_record(
        &mut again,
        checksum_seed(ID),
        header.kind,
        header.lsn,
        header.seq,
        header.durable,
        payload,
    );
    assert_eq!(again.len(), whole.len());
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let segment = SegmentHeader { id: ID, start: Lsn(4096), seq: Seq(3), bytes: 4096 }.encode().to_vec();
    let mut commit = Vec::new();
    encode_record(&mut commit, checksum_seed(ID), Kind::Commit, Lsn(64), Seq(2), Lsn(32), b"payload");
    let mut seal = Vec::new();
    encode_record(&mut seal, checksum_seed(ID), Kind::Seal, Lsn(128), Seq(2), Lsn(128), b"");
    vec![segment, commit, seal]
}

/// A segment written by a script, opened by recovery. If it opens, it can be read, appended to, and opened
/// again with all its records; otherwise it returns a typed error.
pub(crate) fn segment(data: &[u8]) {
    let (env, dir) = (memory(), Path::new("/log"));
    let Ok((log, before)) = written_and_opened(&env, dir, data) else { return };
    let last = before.last().map_or(Seq::ZERO, |(seq, _)| *seq);
    let appended = log.append(&[Record { seq: last.next(), payload: b"after" }], log.tail());
    if matches!(appended, Err(LogError::Sealed)) {
        return;
    }
    appended.expect("a recovered log takes appends");
    log.barrier().expect("memory does not fail");
    drop(log);
    let (_, after) = open(&env, dir).expect("a recovered log opens again");
    assert_eq!(
        after.split_last().map(|(last, rest)| (last.1.as_slice(), rest)),
        Some((b"after".as_slice(), &*before))
    );
}

pub(crate) fn memory() -> Env {
    let vfs = Arc::new(MemoryVfs::default());
    Env { vfs, clock: Arc::new(ManualClock::default()), random: Arc::new(SeededRandom::new(1)) }
}

fn written_and_opened(env: &Env, dir: &Path, data: &[u8]) -> Result<(LocalLog, Replayed), LogError> {
    drop(open(env, dir).expect("an empty directory is a new log"));
    overwrite(env, &only_segment(env, dir).expect("a new log has a segment"), data);
    open(env, dir)
}

pub(crate) type Replayed = Vec<(Seq, Vec<u8>)>;

pub(crate) fn open(env: &Env, dir: &Path) -> Result<(LocalLog, Replayed), LogError> {
    let mut replayed = Vec::new();
    let (log, _) = LocalLog::open(env, dir, OPTIONS, Lsn::ZERO, Seq::ZERO, &mut |found| {
        replayed.push((found.seq, found.payload.to_vec()));
        Ok(())
    })?;
    Ok((log, replayed))
}

fn only_segment(env: &Env, dir: &Path) -> Option<PathBuf> {
    let names = env.vfs.list(dir).expect("the directory is there");
    names
        .into_iter()
        .find(|name| name.ends_with(".seg") && name.starts_with("log-"))
        .map(|name| dir.join(name))
}

fn overwrite(env: &Env, path: &Path, data: &[u8]) {
    let file = env.vfs.open(path, OpenMode::ReadWrite).expect("the segment is there");
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).expect("a segment has a header");
    let header = SegmentHeader::decode(&header).expect("the log wrote it");
    let mut records = records(data, checksum_seed(header.id), header.start);
    records.truncate((header.bytes - SEGMENT_HEADER_BYTES) as usize);
    file.write_all_at(&records, SEGMENT_HEADER_BYTES).expect("memory does not fail");
}

/// Records as the script wants them: right ones, right ones with wrong fields and a right checksum, and plain noise.
fn records(data: &[u8], seed: u32, start: Lsn) -> Vec<u8> {
    let mut script = Script(data);
    let mut out = Vec::new();
    let mut seq = Seq::ZERO;
    while !script.is_empty() && out.len() < 4096 {
        let lsn = Lsn(start.0 + out.len() as u64);
        match script.u8() % 4 {
            0 => {
                seq = seq.next();
                let durable = Lsn(lsn.0.saturating_sub(u64::from(script.u16()) * 8));
                let len = usize::from(script.u8());
                encode_record(&mut out, seed, Kind::Commit, lsn, seq, durable, script.bytes(len));
            }
            1 => odd_record(&mut script, seed, lsn, &mut out),
            2 => {
                let len = usize::from(script.u8());
                out.extend_from_slice(script.bytes(len));
                out.resize(out.len().next_multiple_of(8), 0);
            }
            _ => out.resize(out.len() + usize::from(script.u8()) * 8, 0),
        }
    }
    out
}

/// Any field may be wrong, the checksum over them is right.
fn odd_record(script: &mut Script<'_>, seed: u32, lsn: Lsn, out: &mut Vec<u8>) {
    let which = script.u8();
    let odd = |bit: u8, right: u64, value: u64| if which & bit == 0 { right } else { value };
    let length = odd(1, 0, u64::from(script.u32())) as u32;
    let address = odd(2, lsn.0, script.u64());
    let seq = odd(4, 1, script.u64());
    let back = odd(8, 0, u64::from(script.u32())) as u32;
    let kind = odd(16, 1, u64::from(script.u8())) as u8;
    let payload = script.bytes(usize::from(which >> 5) * 8);
    let mut rest = length.to_le_bytes().to_vec();
    rest.extend_from_slice(&address.to_le_bytes());
    rest.extend_from_slice(&seq.to_le_bytes());
    rest.extend_from_slice(&back.to_le_bytes());
    rest.extend_from_slice(&[kind, 0, 0, 0]);
    rest.extend_from_slice(payload);
    rest.resize((rest.len() + 4).next_multiple_of(8) - 4, 0);
    out.extend_from_slice(&crc32c_append(seed, &rest).to_le_bytes());
    out.extend_from_slice(&rest);
}

pub(crate) fn segment_seeds() -> Vec<Vec<u8>> {
    let three = [&[0, 0, 0, 3][..], b"one", &[0, 5, 0, 3], b"two", &[0, 10, 0, 5], b"three"].concat();
    let torn = [&three[..], &[2, 40], &[0x5a; 40], &[0, 255, 255, 1], b"x"].concat();
    let rot = [&[0, 0, 0, 3][..], b"one", &[2, 40], &[0; 40], &[0, 0, 0, 1], b"x"].concat();
    let odd = [&three[..], &[1, 0x3f], &[0xff; 33], &[1, 4], &[9; 30]].concat();
    vec![three, torn, rot, odd, vec![3, 200, 0, 0, 0, 255]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_match_their_names() {
        let opened = |data: &[u8]| {
            written_and_opened(&memory(), Path::new("/log"), data).map(|(_, replayed)| replayed.len())
        };
        let [three, torn, rot, ..] = &segment_seeds()[..] else { panic!("fewer seeds") };
        assert_eq!(opened(three).unwrap(), 3);
        assert_eq!(opened(torn).unwrap(), 3);
        assert!(matches!(opened(rot), Err(LogError::Corrupt { .. })));
    }
}
