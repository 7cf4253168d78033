//! A map of ids: which ids of a name space stand for which below it.

use alloc::vec::Vec;

use crate::{Error, Result, allocation};

/// Most lines of a map.
const LINES_MAX: usize = 340;

/// One line: `count` ids from `first` on stand for those from `lower` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named above")]
pub struct Extent {
    pub first: u32,
    pub lower: u32,
    pub count: u32,
}

impl Extent {
    fn overlaps(&self, other: &Extent) -> bool {
        let meet = |one: u32, other_one: u32| {
            u64::from(one) < u64::from(other_one) + u64::from(other.count)
                && u64::from(other_one) < u64::from(one) + u64::from(self.count)
        };
        meet(self.first, other.first) || meet(self.lower, other.lower)
    }
}

/// A map.
#[derive(Debug)]
pub struct IdMap {
    /// As they were written.
    lines: Vec<Extent>,
    /// Places of lines by their first id, where there are more than a few.
    by_first: Vec<u16>,
    /// The same by the lower id.
    by_lower: Vec<u16>,
}

/// All ids as they are.
pub(super) static FIRST: IdMap = IdMap { lines: Vec::new(), by_first: Vec::new(), by_lower: Vec::new() };
static IDENTITY: [Extent; 1] = [Extent { first: 0, lower: 0, count: u32::MAX }];

/// The id that `at` is beyond `from`, if it is within `count`.
fn within(at: u32, from: u32, count: u32, to: u32) -> Option<u32> {
    at.checked_sub(from).filter(|&offset| offset < count).map(|offset| to + offset)
}

impl IdMap {
    /// Reads what is written to `uid_map`.
    ///
    /// # Errors
    /// `EINVAL` for what is no map: other than three numbers in a line, none or too many of them, ranges that overlap or go beyond all ids.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut lines: Vec<Extent> = Vec::new();
        let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
        for line in text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n') {
            let line = core::str::from_utf8(line).map_err(|_| Error::Invalid)?;
            let mut numbers =
                line.split_ascii_whitespace().map(|word| word.parse::<u32>().map_err(|_| Error::Invalid));
            let mut next = || numbers.next().unwrap_or(Err(Error::Invalid));
            let extent = Extent { first: next()?, lower: next()?, count: next()? };
            let fits = |from: u32| from.checked_add(extent.count).is_some() && from != u32::MAX;
            let is_good =
                extent.count > 0 && fits(extent.first) && fits(extent.lower) && numbers.next().is_none();
            if !is_good || lines.len() == LINES_MAX || lines.iter().any(|line| line.overlaps(&extent)) {
                return Err(Error::Invalid);
            }
            allocation::push(&mut lines, extent)?;
        }
        Ok(Self { lines, by_first: Vec::new(), by_lower: Vec::new() })
    }

    /// The same with other lower ids: what `lower` says of the first one and the number of each line.
    ///
    /// # Errors
    /// `EPERM` where it says nothing, `ENOMEM`.
    pub fn lowered(mut self, lower: impl Fn(u32, u32) -> Option<u32>) -> Result<Self> {
        for line in &mut self.lines {
            line.lower = lower(line.lower, line.count).ok_or(Error::NotPermitted)?;
        }
        for index in 0..self.lines.len() as u16 {
            allocation::push(&mut self.by_first, index)?;
            allocation::push(&mut self.by_lower, index)?;
        }
        let lines = &self.lines;
        sorting::sort_by_key(&mut self.by_first, |&index| lines[usize::from(index)].first);
        sorting::sort_by_key(&mut self.by_lower, |&index| lines[usize::from(index)].lower);
        Ok(self)
    }

    /// Its lines.
    pub fn extents(&self) -> &[Extent] {
        if self.lines.is_empty() { &IDENTITY } else { &self.lines }
    }

    /// What an id stands for.
    pub(super) fn down(&self, id: u32) -> Option<u32> {
        self.range_down(id, 1)
    }

    /// What the first one of some ids stands for, if all of them are in one line.
    pub(super) fn range_down(&self, first: u32, count: u32) -> Option<u32> {
        let line = self.nearest(&self.by_first, |line| line.first <= first)?;
        within(first + (count - 1), line.first, line.count, 0)?;
        within(first, line.first, line.count, line.lower)
    }

    /// Which id stands for `id`.
    pub(super) fn up(&self, id: u32) -> Option<u32> {
        let line = self.nearest(&self.by_lower, |line| line.lower <= id)?;
        within(id, line.lower, line.count, line.first)
    }

    /// The last line of an order that is not beyond.
    fn nearest(&self, order: &[u16], is_before: impl Fn(&Extent) -> bool) -> Option<&Extent> {
        if self.lines.is_empty() {
            return Some(&IDENTITY[0]);
        }
        let behind = order.partition_point(|&index| is_before(&self.lines[usize::from(index)]));
        order.get(behind.checked_sub(1)?).map(|&index| &self.lines[usize::from(index)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_three_numbers_that_do_not_overlap() {
        for wrong in [
            &b""[..],
            b"\n",
            b"0 0",
            b"0 0 0",
            b"0 0 1 1",
            b"-1 0 1",
            b"x 0 1",
            b"4294967295 0 1",
            b"0 4294967295 1",
            b"1 0 4294967295",
            b"0 0 2\n1 5 1",
            b"0 0 2\n5 1 1",
            b"0 0 1\n\n1 1 1",
        ] {
            assert_eq!(
                IdMap::parse(wrong).err(),
                Some(Error::Invalid),
                "{}",
                alloc::string::String::from_utf8_lossy(wrong)
            );
        }
        assert!(IdMap::parse(b"0 0 4294967295\n").is_ok());
        assert!(IdMap::parse(b" 0\t1000  1 \n1 5 7").is_ok());
        let many = |lines: u32| {
            (0..lines).map(|line| alloc::format!("{line} {line} 1\n")).collect::<alloc::string::String>()
        };
        assert!(IdMap::parse(many(340).as_bytes()).is_ok());
        assert_eq!(IdMap::parse(many(341).as_bytes()).err(), Some(Error::Invalid));
    }

    #[test]
    fn ids_go_down_and_come_up_again() {
        let map = IdMap::parse(b"10 100 5\n0 1000 1\n1 2000 9")
            .expect("a map")
            .lowered(|id, _| Some(id))
            .expect("mapped");
        for (above, below) in [(0, 1000), (1, 2000), (9, 2008), (10, 100), (14, 104)] {
            assert_eq!(map.down(above), Some(below));
            assert_eq!(map.up(below), Some(above));
        }
        assert_eq!(map.down(15), None);
        assert_eq!(map.up(105), None);
        assert_eq!(map.up(0), None);
    }

    #[test]
    fn what_the_parent_does_not_know_can_t_be_mapped() {
        let parent =
            IdMap::parse(b"0 100 2\n2 102 5").expect("a map").lowered(|id, _| Some(id)).expect("mapped");
        let lowered = |text: &[u8]| {
            IdMap::parse(text).expect("a map").lowered(|id, count| parent.range_down(id, count))
        };
        assert_eq!(lowered(b"0 0 3").err(), Some(Error::NotPermitted), "not in one line");
        assert_eq!(lowered(b"0 6 2").err(), Some(Error::NotPermitted));
        assert_eq!(lowered(b"7 3 2").expect("mapped").extents()[0].lower, 103);
    }
}
