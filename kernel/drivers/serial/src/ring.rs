//! A ring of bytes of fixed capacity.

use alloc::boxed::Box;
use memory::OutOfMemory;

/// Bytes in the order they came. Never grows.
pub(crate) struct Ring {
    bytes: Box<[u8]>,
    /// Index of the oldest byte.
    first: usize,
    length: usize,
}

impl Ring {
    /// An empty ring; the capacity is at least 1.
    pub(crate) fn new(capacity: usize) -> Result<Ring, OutOfMemory> {
        let bytes = memory::fallible::try_vec_of(0, capacity)?;
        Ok(Ring { bytes: bytes.into_boxed_slice(), first: 0, length: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.length
    }

    /// Appends as many bytes as there is room for and returns their number.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        let start = (self.first + self.length) % self.bytes.len();
        let straight = taken.min(self.bytes.len() - start);
        self.bytes[start..start + straight].copy_from_slice(&bytes[..straight]);
        self.bytes[..taken - straight].copy_from_slice(&bytes[straight..taken]);
        self.length += taken;
        taken
    }

    /// Takes the oldest bytes out, as many as there are and fit, and returns their number.
    pub(crate) fn pop(&mut self, target: &mut [u8]) -> usize {
        let mut moved = 0;
        while moved < target.len() && self.length > 0 {
            let straight = self.length.min(self.bytes.len() - self.first).min(target.len() - moved);
            target[moved..moved + straight].copy_from_slice(&self.bytes[self.first..self.first + straight]);
            self.first = (self.first + straight) % self.bytes.len();
            self.length -= straight;
            moved += straight;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_across_the_wrap() {
        let mut ring = Ring::new(5).expect("memory");
        let mut out = [0; 4];
        for round in 0..20_u8 {
            assert_eq!(ring.push(&[round, round + 100, round + 200]), 3);
            assert_eq!(ring.pop(&mut out), 3);
            assert_eq!(out[..3], [round, round + 100, round + 200]);
        }
    }

    #[test]
    fn full_ring_takes_no_more() {
        let mut ring = Ring::new(3).expect("memory");
        assert_eq!(ring.push(b"abcd"), 3);
        assert_eq!((ring.room(), ring.push(b"e")), (0, 0));
        let mut out = [0; 8];
        assert_eq!(ring.pop(&mut out), 3);
        assert_eq!(&out[..3], b"abc");
        assert_eq!(ring.pop(&mut out), 0);
    }
}
