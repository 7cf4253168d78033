//! Lists of user ranges and how far a transfer has got in one.

use machine::address::UserAddr;

/// A range of user memory, as a program claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UserRange {
    /// First byte.
    pub address: UserAddr,
    /// Bytes.
    pub length: usize,
}

/// The rest of a list of ranges.
pub(super) struct Ranges<'a> {
    /// The range under way.
    first: UserRange,
    /// Those after it.
    rest: &'a [UserRange],
}

impl<'a> Ranges<'a> {
    pub(super) fn one(address: UserAddr, length: usize) -> Ranges<'a> {
        Ranges { first: UserRange { address, length }, rest: &[] }
    }

    pub(super) fn list(list: &'a [UserRange]) -> Ranges<'a> {
        match list.split_first() {
            Some((&first, rest)) => Ranges { first, rest },
            None => Ranges { first: UserRange::default(), rest: &[] },
        }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.iter().fold(self.first.length, |sum, range| sum.saturating_add(range.length))
    }

    /// Whether all ranges begin and end at multiples of a power of two.
    pub(super) fn are_aligned(&self, to: usize) -> bool {
        let aligned = |range: &UserRange| (range.address.as_u64() as usize | range.length) & (to - 1) == 0;
        aligned(&self.first) && self.rest.iter().all(aligned)
    }

    /// The next piece, at most `limit` bytes; its length is 0 only at the end.
    pub(super) fn piece(&mut self, limit: usize) -> UserRange {
        while self.first.length == 0
            && let Some((&next, rest)) = self.rest.split_first()
        {
            self.first = next;
            self.rest = rest;
        }
        UserRange { length: self.first.length.min(limit), ..self.first }
    }

    /// Steps over bytes of the last piece.
    pub(super) fn advance(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.first.length);
        self.first.length -= bytes;
        self.first.address = UserAddr::new(self.first.address.as_u64().wrapping_add(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, length: usize) -> UserRange {
        UserRange { address: UserAddr::new(address), length }
    }

    #[test]
    fn pieces_follow_the_list_and_skip_empty_ranges() {
        let list = [range(100, 3), range(0, 0), range(200, 5)];
        let mut ranges = Ranges::list(&list);
        assert_eq!(ranges.remaining(), 8);
        assert_eq!(ranges.piece(2), range(100, 2));
        ranges.advance(2);
        assert_eq!(ranges.piece(10), range(102, 1));
        ranges.advance(1);
        assert_eq!(ranges.piece(10), range(200, 5));
        ranges.advance(5);
        assert_eq!((ranges.piece(10).length, ranges.remaining()), (0, 0));
    }
}
