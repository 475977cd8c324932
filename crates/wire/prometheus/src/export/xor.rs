//! Float chunks as Prometheus exchanges them (encoding `XOR`): times as deltas of deltas, values as XOR with
//! the previous one, both bit-packed.
//!
//! ```text
//! u16 count │ varint time │ 64 bits value │ uvarint difference │ value │ (difference of differences │ value) …
//! dod    0 │ 10 + 14 bits │ 110 + 17 │ 1110 + 20 │ 1111 + 64
//! value  0: as before │ 10 + bits within the window before │ 11 + 5 bits zeros in front + 6 bits length + bits
//! ```
//! Source: the chunk format page of the Prometheus documentation; Pelkonen et al., "Gorilla", VLDB 2015.

use ropewalk::hooks::{put_varint, zigzag};

/// A bit buffer, most significant bit first.
#[derive(Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Bits of the last byte that are still free.
    free: u32,
}

impl Bits {
    fn put(&mut self, value: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let take = left.min(self.free);
            let part = (value >> (left - take)) & ((1 << take) - 1);
            if let Some(last) = self.bytes.last_mut() {
                *last |= (part << (self.free - take)) as u8;
            }
            self.free -= take;
            left -= take;
        }
    }

    /// Writes complete bytes at any bit offset.
    fn put_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(u64::from(*byte), 8));
    }
}

/// Significant bits of the previous XOR: leading and trailing zeros.
#[derive(Clone, Copy)]
struct Window(u32, u32);

fn put_value(bits: &mut Bits, xor: u64, window: &mut Option<Window>) {
    if xor == 0 {
        return bits.put(0, 1);
    }
    bits.put(1, 1);
    let leading = xor.leading_zeros().min(31);
    let trailing = xor.trailing_zeros();
    if let Some(Window(front, behind)) = *window
        && leading >= front
        && trailing >= behind
    {
        bits.put(0, 1);
        return bits.put(xor >> behind, 64 - front - behind);
    }
    *window = Some(Window(leading, trailing));
    let length = 64 - leading - trailing;
    bits.put(1, 1);
    bits.put(u64::from(leading), 5);
    // A length of 64 is written as 0; a length of 0 never occurs.
    bits.put(u64::from(length & 63), 6);
    bits.put(xor >> trailing, length);
}

fn put_difference(bits: &mut Bits, dod: i64) {
    let fits = |count: u32| dod > -(1 << (count - 1)) && dod <= 1 << (count - 1);
    match dod {
        0 => bits.put(0, 1),
        _ if fits(14) => {
            bits.put(0b10, 2);
            bits.put(dod as u64, 14);
        }
        _ if fits(17) => {
            bits.put(0b110, 3);
            bits.put(dod as u64, 17);
        }
        _ if fits(20) => {
            bits.put(0b1110, 4);
            bits.put(dod as u64, 20);
        }
        _ => {
            bits.put(0b1111, 4);
            bits.put(dod as u64, 64);
        }
    }
}

/// Encodes a chunk of samples with rising times; at most the first 65,535.
pub(crate) fn encode(times_ms: &[i64], values: &[f64]) -> Vec<u8> {
    let count = times_ms.len().min(values.len()).min(usize::from(u16::MAX));
    let mut bits = Bits { bytes: (count as u16).to_be_bytes().to_vec(), free: 0 };
    let (mut time, mut difference, mut value) = (0_i64, 0_i64, 0_u64);
    let mut window = None;
    for (index, (time_ms, number)) in times_ms.iter().zip(values).take(count).enumerate() {
        let number = number.to_bits();
        let step = time_ms.wrapping_sub(time);
        let mut varint = Vec::new();
        match index {
            0 => {
                put_varint(&mut varint, zigzag(*time_ms));
                bits.put_bytes(&varint);
                bits.put(number, 64);
            }
            1 => {
                put_varint(&mut varint, step as u64);
                bits.put_bytes(&varint);
                put_value(&mut bits, number ^ value, &mut window);
            }
            _ => {
                put_difference(&mut bits, step.wrapping_sub(difference));
                put_value(&mut bits, number ^ value, &mut window);
            }
        }
        (time, difference, value) = (*time_ms, if index == 0 { 0 } else { step }, number);
    }
    bits.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk::hooks::{hex, split_varint, unzigzag};

    struct Reader<'a>(&'a [u8], usize);

    impl Reader<'_> {
        fn take(&mut self, count: u32) -> u64 {
            let mut value = 0;
            for _ in 0..count {
                value = value << 1 | u64::from(self.0[self.1 / 8] >> (7 - self.1 % 8) & 1);
                self.1 += 1;
            }
            value
        }

        fn varint(&mut self) -> u64 {
            let mut bytes = Vec::new();
            loop {
                bytes.push(self.take(8) as u8);
                if bytes.last().unwrap() < &0x80 {
                    return split_varint(&bytes).unwrap().0;
                }
            }
        }

        fn value(&mut self, before: u64, window: &mut (u32, u32)) -> u64 {
            if self.take(1) == 0 {
                return before;
            }
            if self.take(1) == 1 {
                let leading = self.take(5) as u32;
                let length = match self.take(6) as u32 {
                    0 => 64,
                    length => length,
                };
                *window = (leading, 64 - leading - length);
            }
            before ^ self.take(64 - window.0 - window.1) << window.1
        }
    }

    /// Written from the description of the format, not from the encoder.
    fn decode(bytes: &[u8]) -> Vec<(i64, u64)> {
        let mut reader = Reader(bytes, 0);
        let count = reader.take(16);
        let mut rows: Vec<(i64, u64)> = Vec::new();
        let (mut difference, mut window) = (0_i64, (0, 0));
        for index in 0..count {
            let row = match (index, rows.last().copied()) {
                (0, _) => (unzigzag(reader.varint()), reader.take(64)),
                (1, Some((time, value))) => {
                    difference = reader.varint() as i64;
                    (time.wrapping_add(difference), reader.value(value, &mut window))
                }
                (_, Some((time, value))) => {
                    let signed = |raw: u64, count: u32| {
                        let raw = raw as i64;
                        if raw > 1 << (count - 1) { raw - (1 << count) } else { raw }
                    };
                    let dod = match () {
                        () if reader.take(1) == 0 => 0,
                        () if reader.take(1) == 0 => signed(reader.take(14), 14),
                        () if reader.take(1) == 0 => signed(reader.take(17), 17),
                        () if reader.take(1) == 0 => signed(reader.take(20), 20),
                        () => reader.take(64) as i64,
                    };
                    difference = difference.wrapping_add(dod);
                    (time.wrapping_add(difference), reader.value(value, &mut window))
                }
                _ => unreachable!(),
            };
            rows.push(row);
        }
        rows
    }

    #[test]
    fn golden_bytes() {
        // Count 3; zigzag varint of 1000; 1.0; step 15; 1.0 again (one bit); no change of the step (0), 2.0.
        let chunk = encode(&[1000, 1015, 1030], &[1.0, 1.0, 2.0]);
        assert_eq!(hex(&chunk), "0003d00f3ff00000000000000f3097ffc0");
        assert_eq!(decode(&chunk).len(), 3);
    }

    proptest! {
        #[test]
        fn chunks_round_trip(
            mut times in proptest::collection::vec(prop_oneof![any::<i64>(), 0..1_000_000_i64], 0..200),
            values in proptest::collection::vec(prop_oneof![any::<u64>(), (0..20_u64).prop_map(|v| (v as f64).to_bits())], 200),
        ) {
            times.sort();
            times.dedup();
            let floats: Vec<f64> = values.iter().copied().map(f64::from_bits).collect();
            let rows = decode(&encode(&times, &floats));
            let expected: Vec<_> = times.into_iter().zip(values).collect();
            prop_assert_eq!(rows, expected);
        }
    }
}
