//! The words of a command line.

/// Most words of a line.
pub(crate) const WORDS_MAX: usize = 8;

/// A line in words. Further words are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    words: [&'a str; WORDS_MAX],
    count: usize,
}

impl<'a> Words<'a> {
    /// The words of a line.
    pub(crate) fn of(line: &'a str) -> Words<'a> {
        let mut words = [""; WORDS_MAX];
        let mut count = 0;
        for (place, word) in words.iter_mut().zip(line.split_ascii_whitespace()) {
            *place = word;
            count += 1;
        }
        Words { words, count }
    }

    /// The n-th word.
    pub(crate) fn get(&self, index: usize) -> Option<&'a str> {
        self.words[..self.count].get(index).copied()
    }

    /// The n-th word as a number: hexadecimal with 0x in front, or with a letter in it, else decimal.
    pub(crate) fn number(&self, index: usize) -> Option<u64> {
        parse_number(self.get(index)?)
    }

    /// The n-th word as an address: hexadecimal, with or without 0x.
    pub(crate) fn address(&self, index: usize) -> Option<u64> {
        let word = self.get(index)?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    }
}

fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The only candidate that begins with the word, or is it.
pub(crate) fn complete<'a>(word: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if let Some(exact) = candidates.clone().find(|candidate| *candidate == word) {
        return Some(exact);
    }
    let mut matching = candidates.filter(|candidate| candidate.starts_with(word));
    let first = matching.next()?;
    matching.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_addresses_hexadecimal() {
        let words = Words::of("  memory 0x10 10 zz ffffffff80200000 ");
        assert_eq!(words.get(0), Some("memory"));
        assert_eq!((words.number(1), words.number(2), words.number(3)), (Some(16), Some(10), None));
        assert_eq!((words.address(2), words.address(4)), (Some(16), Some(0xffff_ffff_8020_0000)));
        assert_eq!(words.get(5), None);
    }

    #[test]
    fn a_beginning_is_enough_if_it_is_the_only_one() {
        let names = ["cpu", "cpus", "continue", "memory"];
        assert_eq!(complete("cpu", names.into_iter()), Some("cpu"));
        assert_eq!(complete("m", names.into_iter()), Some("memory"));
        assert_eq!(complete("c", names.into_iter()), None);
        assert_eq!(complete("co", names.into_iter()), Some("continue"));
        assert_eq!(complete("x", names.into_iter()), None);
    }

    #[test]
    fn a_line_of_many_words_is_cut() {
        let line = "a ".repeat(100);
        assert_eq!(Words::of(&line).get(WORDS_MAX), None);
    }
}
