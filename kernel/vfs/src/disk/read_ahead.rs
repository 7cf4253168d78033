//! How far an open file is read ahead.
//!
//! Each open file keeps the *window* that was read ahead last, and in it a *mark*: who reads over the mark starts the next window, so that it is on its way while the rest of the present
//! one is read. A read that is not in memory begins a window if it continues the read before it or begins the file; windows start at four times the
//! read (twice, if it is large) and double up to the device's limit. Any other read is taken for a random one, and brings in what it needs and no more.
//!
//! `POSIX_FADV_RANDOM` turns windows off, `POSIX_FADV_SEQUENTIAL` doubles the limit.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use memory::file_cache::FileCache;
use sync::SpinLock;

/// What is known of how a file is read. See the theory of this file.
pub(super) struct ReadAhead {
    window: SpinLock<Window>,
    pattern: AtomicU8,
}

/// How a file is said to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Pattern {
    Normal = 0,
    Sequential = 1,
    Random = 2,
}

/// Pages `start..start + size`; who reads over `mark` wants the next window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    start: u64,
    size: u64,
    mark: u64,
    /// Where the read before this one ended.
    expected: u64,
}

impl Window {
    /// What is to be brought in when `pages` are read; `absent` says whether the first of them is not in memory.
    fn next(&mut self, pages: &Range<u64>, absent: bool, most: u64) -> Option<Range<u64>> {
        let wanted = (pages.end - pages.start).max(1);
        let continues = pages.start == self.expected || pages.start + 1 == self.expected;
        self.expected = pages.end;
        let end = self.start + self.size;
        if self.size > 0 && (pages.contains(&self.mark) || absent && continues && pages.start == end) {
            let size = if self.size < most / 16 { self.size * 4 } else { self.size * 2 };
            *self = Window { start: end, size: size.min(most), mark: end, ..*self };
            return Some(self.start..(self.start + self.size).max(pages.end));
        }
        if !absent {
            return None;
        }
        if pages.start != 0 && !continues && wanted <= most {
            // A random read; it says nothing about the next one.
            self.size = 0;
            return Some(pages.clone());
        }
        let size = match wanted {
            small if small <= most / 32 => small * 4,
            medium if medium <= most / 4 => medium * 2,
            medium if medium < most => most,
            large => large + most,
        };
        *self = Window { start: pages.start, size, mark: pages.start + wanted, ..*self };
        Some(self.start..self.start + self.size)
    }
}

impl ReadAhead {
    pub(super) const fn new() -> Self {
        Self {
            window: SpinLock::named(
                "read-ahead of an open file",
                Window { start: 0, size: 0, mark: 0, expected: 0 },
            ),
            pattern: AtomicU8::new(Pattern::Normal as u8),
        }
    }

    pub(super) fn set_pattern(&self, pattern: Pattern) {
        self.pattern.store(pattern as u8, Relaxed);
    }

    /// The pages that one read may ask for at a time.
    pub(super) fn step_pages(&self, cache: &FileCache) -> u64 {
        self.limit(cache).max(1)
    }

    fn limit(&self, cache: &FileCache) -> u64 {
        let limit = cache.device().map_or(0, |device| u64::from(device.read_ahead_pages()));
        if self.pattern.load(Relaxed) == Pattern::Sequential as u8 { limit * 2 } else { limit }
    }

    /// Pages are about to be read: begins to bring in what is worth it.
    pub(super) fn before_read(&self, cache: &FileCache, pages: Range<u64>) {
        let absent = !cache.is_known(pages.start);
        let wanted = if self.pattern.load(Relaxed) == Pattern::Random as u8 {
            absent.then(|| pages.clone())
        } else {
            self.window.lock().next(&pages, absent, self.limit(cache))
        };
        if let Some(wanted) = wanted {
            cache.read_ahead(wanted.start, wanted.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_reads_get_windows_that_double_up_to_the_limit() {
        let mut window = Window::default();
        assert_eq!(window.next(&(0..1), true, 32), Some(0..4));
        let mut brought = vec![];
        for page in 1..100 {
            if let Some(next) = window.next(&(page..page + 1), false, 32) {
                brought.push((page, next));
            }
        }
        assert_eq!(
            brought,
            [(1, 4..12), (4, 12..28), (12, 28..60), (28, 60..92), (60, 92..124), (92, 124..156)]
        );
    }

    #[test]
    fn random_reads_bring_what_they_need() {
        let mut window = Window::default();
        assert_eq!(window.next(&(50..51), true, 32), Some(50..51));
        assert_eq!(window.next(&(7..9), true, 32), Some(7..9));
        assert_eq!(window.next(&(90..91), false, 32), None);
        assert_eq!(
            window.next(&(91..92), true, 32),
            Some(91..95),
            "two in a row are the beginning of a stream"
        );
    }

    #[test]
    fn large_reads_bring_all_they_need_and_the_next_window() {
        let mut window = Window::default();
        assert_eq!(window.next(&(0..32), true, 32), Some(0..64));
        assert_eq!(window.next(&(32..64), false, 32), Some(64..96));
        assert_eq!(window.next(&(64..200), false, 32), Some(96..200));
    }

    #[test]
    fn no_limit_no_window() {
        let mut window = Window::default();
        assert_eq!(window.next(&(0..1), true, 0), Some(0..1));
        assert_eq!(window.next(&(1..2), true, 0), Some(1..2));
    }
}
