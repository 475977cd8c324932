//! Bits, highest first, and the numbers of variable length that Prometheus writes with them.

use ropewalk_base::unzigzag;

/// Reads bits from the front of bytes. Every call returns `None` when the bytes are used up.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits of the first byte that were read.
    used: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    pub(super) fn bit(&mut self) -> Option<bool> {
        self.bits(1).map(|bit| bit == 1)
    }

    /// The next `count` bits, at most 64, as a number.
    pub(super) fn bits(&mut self, count: u32) -> Option<u64> {
        let (mut left, mut value) = (count, 0_u64);
        while left > 0 {
            let (first, rest) = self.bytes.split_first()?;
            let here = (8 - self.used).min(left);
            let shown = u64::from(*first) >> (8 - self.used - here) & ((1 << here) - 1);
            value = value << here | shown;
            left -= here;
            self.used += here;
            if self.used == 8 {
                (self.bytes, self.used) = (rest, 0);
            }
        }
        Some(value)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bits(8).map(|byte| byte as u8)
    }

    pub(super) fn float(&mut self) -> Option<f64> {
        self.bits(64).map(f64::from_bits)
    }

    /// A LEB128 number of whole bytes, wherever they begin.
    pub(super) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.byte()?);
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn varint(&mut self) -> Option<i64> {
        self.uvarint().map(unzigzag)
    }

    /// The number of ones before a zero, at most `most`, which need no zero.
    pub(super) fn ones(&mut self, most: u32) -> Option<u32> {
        let mut ones = 0;
        while ones < most && self.bit()? {
            ones += 1;
        }
        Some(ones)
    }

    /// A signed number of `width` bits, where the greatest of them is positive: −2^(w−1)+1 to 2^(w−1).
    pub(super) fn signed(&mut self, width: u32) -> Option<i64> {
        let bits = self.bits(width)?;
        if width < 64 && bits > 1 << (width - 1) {
            return Some((bits as i64).wrapping_sub(1 << width));
        }
        Some(bits as i64)
    }

    /// The widths of histogram numbers, by the ones before them.
    fn width(&mut self) -> Option<u32> {
        const WIDTHS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];
        WIDTHS.get(self.ones(8)? as usize).copied()
    }

    pub(super) fn varbit_int(&mut self) -> Option<i64> {
        let width = self.width()?;
        if width == 0 { Some(0) } else { self.signed(width) }
    }

    pub(super) fn varbit_uint(&mut self) -> Option<u64> {
        let width = self.width()?;
        self.bits(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_width() {
        let mut bits = Bits::new(&[0b1011_0011, 0b1000_0001, 0xff]);
        assert_eq!((bits.bit(), bits.bits(3), bits.bits(6)), (Some(true), Some(0b011), Some(0b001110)));
        assert_eq!((bits.signed(6), bits.bits(8), bits.bit()), (Some(1), Some(0xff), None));
        assert_eq!(Bits::new(&[0b1110_1000]).ones(3), Some(3));
        assert_eq!(Bits::new(&[0b1010_0000]).varbit_int(), Some(4));
        assert_eq!(Bits::new(&[0b1010_1000]).varbit_int(), Some(-3));
        assert_eq!(Bits::new(&[0b1010_1000]).varbit_uint(), Some(5));
        assert_eq!(Bits::new(&[0]).varbit_int(), Some(0));
        assert_eq!(Bits::new(&[0xff, 1, 2, 3, 4, 5, 6, 7]).varbit_int(), None);
    }
}
