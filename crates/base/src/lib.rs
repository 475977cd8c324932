//! The types and bytes that all crates share: ids, the codec, checksums, order-preserving keys, dates, and
//! append-only memory that readers use concurrently with a writer. Nothing here does I/O.

mod arena;
pub mod civil;
mod codec;
mod content_hash;
mod hasher;
mod hexadecimal;
mod ids;
pub mod keys;
mod rebuild_names;
pub mod sync;
pub mod threads;

pub use arena::{AppendList, Arena, ArenaOffset};
pub use codec::{
    DecodeError, Decoder, put_bytes, put_u32, put_u64, put_varint, split_varint, unzigzag, varint_len, zigzag,
};
pub use content_hash::{ContentHash, SetHasher};
pub use hasher::{HashedMap, IdentityHasher};
pub use hexadecimal::{from_hex, hex};
pub use ids::{Lsn, Position, Seq};
pub use rebuild_names::{is_rebuild_name, rebuild_name};

/// CRC-32C (Castagnoli) of `bytes`, as used by every file format of Ropewalk.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues a CRC-32C over further bytes: `crc32c_append(crc32c(a), b) == crc32c(a ++ b)`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// XXH3-64 with seed 0: the hash that filters and posting keys are built from. Part of the file formats, so it never changes.
pub fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// XXH3-128 with seed 0, big-endian as its authors print it: the hash that chains the entries of a shared log. Part of the
/// formats, so it never changes.
pub fn hash128(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes()
}
