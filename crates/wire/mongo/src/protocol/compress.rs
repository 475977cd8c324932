//! Compression of messages: snappy, zlib, zstd. The output must have exactly the announced size; no larger
//! buffer is ever allocated.

use std::io::Read as _;

/// Compression method of a message. Number 0, no compression, is rejected: no client sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    /// Fastest.
    Snappy,
    /// Supported by all drivers.
    Zlib,
    /// Best ratio.
    Zstd,
}

impl Compressor {
    /// All of them, in our order of preference.
    pub const ALL: [Self; 3] = [Self::Snappy, Self::Zstd, Self::Zlib];

    /// Its number in a message.
    pub fn number(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// Its name in `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Finds a compressor by its number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.number() == number)
    }

    /// Compresses; `None` if it fails.
    pub fn compress(self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Snappy => snap::raw::Encoder::new().compress_vec(bytes).ok(),
            Self::Zlib => {
                let mut small = Vec::new();
                flate2::read::ZlibEncoder::new(bytes, flate2::Compression::fast())
                    .read_to_end(&mut small)
                    .ok()?;
                Some(small)
            }
            Self::Zstd => zstd::bulk::compress(bytes, 1).ok(),
        }
    }
}

/// Decompresses `bytes` to exactly `size` bytes.
pub(crate) fn decompress(compressor: Compressor, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let plain = match compressor {
        Compressor::Snappy => {
            // Snappy allocates its output at once; one input byte yields at most 32.
            if snap::raw::decompress_len(bytes).ok()? != size || size / 32 > bytes.len() {
                return None;
            }
            snap::raw::Decoder::new().decompress_vec(bytes).ok()?
        }
        Compressor::Zlib => bounded(flate2::read::ZlibDecoder::new(bytes), size)?,
        Compressor::Zstd => bounded(zstd::stream::read::Decoder::with_buffer(bytes).ok()?, size)?,
    };
    (plain.len() == size).then_some(plain)
}

/// Reads at most `size` + 1 bytes; the buffer grows with the data, not by the announced size.
fn bounded(reader: impl std::io::Read, size: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    reader.take(size as u64 + 1).read_to_end(&mut plain).ok()?;
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_decompress_to_the_original() {
        let plain: Vec<u8> = (0..100_000_u32).map(|n| (n / 7) as u8).collect();
        for compressor in Compressor::ALL {
            let small = compressor.compress(&plain).unwrap();
            assert!(small.len() < plain.len() / 2, "{compressor:?}");
            assert_eq!(decompress(compressor, &small, plain.len()).unwrap(), plain);
            assert_eq!(Compressor::numbered(compressor.number()), Some(compressor));
        }
        assert_eq!(Compressor::numbered(0), None);
    }

    #[test]
    fn decompression_bomb_is_rejected_by_announced_size() {
        let plain = vec![0; 40 << 20];
        for compressor in Compressor::ALL {
            let small = compressor.compress(&plain).unwrap();
            assert_eq!(decompress(compressor, &small, 1000), None);
            assert_eq!(decompress(compressor, &small, plain.len() + 1), None);
        }
    }

    #[test]
    fn invalid_compressed_bytes_are_rejected() {
        for compressor in Compressor::ALL {
            let small = compressor.compress(b"something to say, something to say").unwrap();
            for end in 0..small.len() {
                assert_eq!(decompress(compressor, small.get(..end).unwrap(), 34), None);
            }
            assert_eq!(decompress(compressor, b"\xff\xff\xff\xff\xff\xff", 6), None);
        }
    }
}
