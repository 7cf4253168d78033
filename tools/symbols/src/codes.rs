//! Codes for names: pairs that are often side by side get a code of their own, the most frequent first (Re-Pair; Larsson
//! and Moffat, "Offline dictionary-based compression", 1999).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Codes nest no deeper: the kernel keeps those that wait in an array of 32.
const DEPTH_MAX: u8 = 30;
/// A pair that is side by side less often is not worth the four bytes of its code.
const COUNT_MIN: usize = 4;
/// Codes at most: what two bytes can tell.
const CODES_MAX: usize = 0x4000;

/// What a code stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    Character(u8),
    Pair(u16, u16),
}

/// Names as rows of codes. The codes that occur most often have the lowest numbers.
pub(crate) struct Codes {
    pub(crate) meanings: Vec<Meaning>,
    pub(crate) rows: Vec<Vec<u16>>,
}

impl Codes {
    /// Codes for these names; a character that is not ASCII becomes a question mark.
    pub(crate) fn of(names: &[&str]) -> Self {
        let mut meanings: Vec<_> = (0..128).map(Meaning::Character).collect();
        let ascii =
            |character: char| u16::from(u8::try_from(character).ok().filter(u8::is_ascii).unwrap_or(b'?'));
        let mut rows: Vec<Vec<u16>> = names.iter().map(|name| name.chars().map(ascii).collect()).collect();
        join_pairs(&mut meanings, &mut rows);
        Self { meanings, rows }.renumbered()
    }

    /// The same with the unused codes left out and the others by falling frequency in the rows.
    fn renumbered(self) -> Self {
        let mut uses = vec![0_usize; self.meanings.len()];
        let mut used = vec![false; self.meanings.len()];
        self.rows.iter().flatten().for_each(|&code| uses[usize::from(code)] += 1);
        // Pairs are younger than what they consist of.
        for (code, meaning) in self.meanings.iter().enumerate().rev() {
            used[code] |= uses[code] > 0;
            if let (true, Meaning::Pair(first, second)) = (used[code], *meaning) {
                used[usize::from(first)] = true;
                used[usize::from(second)] = true;
            }
        }
        let mut order: Vec<usize> = (0..self.meanings.len()).filter(|&code| used[code]).collect();
        order.sort_by_key(|&code| Reverse(uses[code]));
        let mut numbers = vec![0_u16; self.meanings.len()];
        order.iter().enumerate().for_each(|(number, &code)| numbers[code] = number as u16);
        let renumber = |code: u16| numbers[usize::from(code)];
        let meanings = order.iter().map(|&code| match self.meanings[code] {
            Meaning::Pair(first, second) => Meaning::Pair(renumber(first), renumber(second)),
            character => character,
        });
        Self {
            meanings: meanings.collect(),
            rows: self.rows.iter().map(|row| row.iter().map(|&code| renumber(code)).collect()).collect(),
        }
    }
}

/// Where the pairs are.
#[derive(Default)]
struct Pairs {
    /// How often each pair is side by side, and the rows where it is or was.
    places: HashMap<(u16, u16), (usize, Vec<u32>)>,
    /// Pairs by a count that they had at some time; none has a larger one now.
    by_count: BinaryHeap<(usize, Reverse<(u16, u16)>)>,
}

impl Pairs {
    fn of(rows: &[Vec<u16>]) -> Self {
        let mut pairs = Self::default();
        for (number, row) in rows.iter().enumerate() {
            row.windows(2).for_each(|pair| pairs.add(number as u32, (pair[0], pair[1])));
        }
        let all: Vec<_> = pairs.places.keys().copied().collect();
        pairs.rank(&all);
        pairs
    }

    fn add(&mut self, row: u32, pair: (u16, u16)) {
        let (count, rows) = self.places.entry(pair).or_default();
        *count += 1;
        if rows.last() != Some(&row) {
            rows.push(row);
        }
    }

    fn remove(&mut self, pair: (u16, u16)) {
        if let Some((count, _)) = self.places.get_mut(&pair) {
            *count -= 1;
        }
    }

    /// Puts pairs among the others whose counts have grown.
    fn rank(&mut self, pairs: &[(u16, u16)]) {
        let counts = pairs.iter().filter_map(|pair| Some((self.places.get(pair)?.0, Reverse(*pair))));
        self.by_count.extend(counts.filter(|(count, _)| *count >= COUNT_MIN));
    }

    /// The most frequent pair, and the rows where it may be.
    fn take_most_frequent(&mut self) -> Option<((u16, u16), Vec<u32>)> {
        while let Some((count, Reverse(pair))) = self.by_count.pop() {
            let now = self.places.get(&pair).map_or(0, |(count, _)| *count);
            if now == count {
                return self.places.remove(&pair).map(|(_, rows)| (pair, rows));
            }
            self.rank(&[pair]);
        }
        None
    }
}

fn join_pairs(meanings: &mut Vec<Meaning>, rows: &mut [Vec<u16>]) {
    let mut pairs = Pairs::of(rows);
    let mut depths = vec![0_u8; meanings.len()];
    while let Some(((first, second), places)) = pairs.take_most_frequent() {
        let depth = depths[usize::from(first)].max(depths[usize::from(second)]) + 1;
        if depth > DEPTH_MAX || meanings.len() == CODES_MAX {
            continue;
        }
        let code = meanings.len() as u16;
        meanings.push(Meaning::Pair(first, second));
        depths.push(depth);
        let mut grown = Vec::new();
        for row in places {
            let codes = &mut rows[row as usize];
            let joined = join(codes, (first, second), code, &mut |pair| pairs.remove(pair));
            for pair in joined.windows(2).filter(|pair| pair.contains(&code)).map(|pair| (pair[0], pair[1])) {
                pairs.add(row, pair);
                grown.push(pair);
            }
            *codes = joined;
        }
        grown.sort_unstable();
        grown.dedup();
        pairs.rank(&grown);
    }
}

/// The row with the code for each such pair, from the left; and the pairs that are no longer there.
fn join(row: &[u16], pair: (u16, u16), code: u16, gone: &mut dyn FnMut((u16, u16))) -> Vec<u16> {
    let mut joined = Vec::with_capacity(row.len());
    let mut position = 0;
    // Up to where pairs are told that are gone.
    let mut told = 0;
    while let Some(&first) = row.get(position) {
        let next = row.get(position + 1).copied();
        if (first, next) != (pair.0, Some(pair.1)) {
            joined.push(first);
            position += 1;
            continue;
        }
        joined.push(code);
        let touched = position.saturating_sub(1).max(told)..(position + 2).min(row.len() - 1);
        told = touched.end;
        touched.for_each(|at| gone((row[at], row[at + 1])));
        position += 2;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_becomes_one_code() {
        let codes = Codes::of(&["sync::a", "sync::b", "sync::c", "sync::d", "sync::"]);
        assert!(codes.rows.iter().take(4).all(|row| row.len() == 2 && row[0] == 0));
        assert_eq!(codes.rows[4], [0]);
        // Five characters, five pairs and the letters that differ; one of them is in the path, too.
        assert_eq!(codes.meanings.len(), 5 + 5 + 3);
    }

    #[test]
    fn overlapping_pairs_are_joined_from_the_left() {
        let mut gone = Vec::new();
        assert_eq!(join(&[5, 1, 1, 1, 2, 3], (1, 1), 9, &mut |pair| gone.push(pair)), [5, 9, 1, 2, 3]);
        assert_eq!(gone, [(5, 1), (1, 1), (1, 1)]);
        gone.clear();
        assert_eq!(join(&[1, 1, 1, 1], (1, 1), 9, &mut |pair| gone.push(pair)), [9, 9]);
        assert_eq!(gone, [(1, 1); 3]);
    }
}
