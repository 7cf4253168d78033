//! Other ways to look pages up, chosen at boot to measure what they cost (specs/page-cache.md 10 and 11), and what is counted.
//!
//! | `pagecache.lock=` | a look-up |
//! |---|---|
//! | `rcu` | takes no lock; pages are copied without a reference |
//! | `spin` | takes the index's lock, which editors take |
//! | `rw` | takes a reader-writer lock for reading; editors take it for writing, too |
//!
//! With `pagecache.gang=1` one walk, under one hold of the lock, finds up to [`GANG_PAGES`] pages. Where a lock is taken, and with
//! `gang=1`, each page found is given a reference, which stands for the lock of a page in the sheet. So *n* pages cost, in atomic
//! read-modify-writes:
//!
//! | | one by one | gang |
//! |---|---|---|
//! | `spin`: one to acquire, a plain store to release | 2n | n + 1 |
//! | `rw`: one each way | 3n | n + 2 |
//! | `rcu` | 0 | n |
//!
//! These are for reading; faults look up under RCU. The default way pays one load for the choice. Look-ups, pages and atomic operations are
//! counted by kernels that count locks, each CPU for itself.

use super::cache::{CacheError, FileCache, borrow_frame, page_of, within_page};
use super::transfer::Piece;
use crate::buffer::Sink;
use crate::frame::Frame;
use crate::page_index::{self, Edit, Place, SHIFT};
use arrayvec::ArrayVec;
use core::fmt::{self, Write};
use core::ops::{ControlFlow, Deref, DerefMut};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use machine::address::PAGE_SIZE;
use sync::classes::COUNTING;
use sync::{PerCpu, RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard, SpinLockGuard, per_cpu, rcu};

/// Pages found by one walk.
const GANG_PAGES: usize = 16;

const SPIN: u8 = 1;
const READ_WRITE: u8 = 2;
const GANG: u8 = 4;

/// 0: the default. Written at start-up.
static CHOICE: AtomicU8 = AtomicU8::new(0);

/// The locks of readers where those take one: files share them, so that no file has room for what is only measured.
static READERS: [RwSpinLock<()>; READER_LOCKS] =
    [const { RwSpinLock::named("readers of a file's pages", ()) }; READER_LOCKS];

/// So many that few files that are read at a time share one.
const READER_LOCKS: usize = 64;

/// The options on the kernel's command line.
const OPTIONS: [&str; 2] = ["pagecache.lock", "pagecache.gang"];

/// Reads the command line.
pub(crate) fn initialize() {
    for name in OPTIONS {
        if let Some(value) = machine::boot::info().option(name)
            && !set_option(name, value)
        {
            log::warn!("{name}={value} on the command line makes no sense");
        }
    }
}

/// Chooses; false when there is no such choice.
fn set_option(name: &str, value: &str) -> bool {
    let (bits, choice) = match (name, value) {
        ("pagecache.lock", "rcu") => (SPIN | READ_WRITE, 0),
        ("pagecache.lock", "spin") => (SPIN | READ_WRITE, SPIN),
        ("pagecache.lock", "rw") => (SPIN | READ_WRITE, READ_WRITE),
        ("pagecache.gang", "0") => (GANG, 0),
        ("pagecache.gang", "1") => (GANG, GANG),
        _ => return false,
    };
    let other = CHOICE.load(Ordering::Relaxed) & !bits;
    CHOICE.store(other | choice, Ordering::Relaxed);
    true
}

/// What was chosen; None is the default.
#[inline(always)]
pub(super) fn chosen() -> Option<u8> {
    Some(CHOICE.load(Ordering::Relaxed)).filter(|&choice| choice != 0)
}

/// Whether look-ups are counted.
const COUNTED: bool = COUNTING || cfg!(test);

/// What a CPU has counted.
struct Counts {
    look_ups: AtomicU64,
    pages: AtomicU64,
    atomics: AtomicU64,
    spins: AtomicU64,
}

static COUNTS: PerCpu<Counts> = per_cpu!(Counts {
    look_ups: AtomicU64::new(0),
    pages: AtomicU64::new(0),
    atomics: AtomicU64::new(0),
    spins: AtomicU64::new(0),
});

/// Counts a look-up that found so many pages and did so many atomic operations.
#[inline(always)]
pub(super) fn count(pages: u64, atomics: u64) {
    if COUNTED {
        let counts = COUNTS.of(machine::cpu::current());
        counts.look_ups.fetch_add(1, Ordering::Relaxed);
        counts.pages.fetch_add(pages, Ordering::Relaxed);
        counts.atomics.fetch_add(atomics, Ordering::Relaxed);
    }
}

/// The right to change the index of a cache.
pub(super) struct CacheEdit<'a> {
    edit: Edit<'a, SHIFT>,
    /// Where readers lock, too.
    _readers: Option<RwSpinWriteGuard<'a, ()>>,
}

impl<'a> Deref for CacheEdit<'a> {
    type Target = Edit<'a, SHIFT>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.edit
    }
}

impl DerefMut for CacheEdit<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.edit
    }
}

/// What a reader holds.
enum Held<'a> {
    Nothing,
    Spin { _lock: SpinLockGuard<'a, ()> },
    Read { _lock: RwSpinReadGuard<'a, ()> },
}

impl FileCache {
    /// Begins to change the index.
    #[inline]
    pub(super) fn edit(&self) -> CacheEdit<'_> {
        let edit = self.index.edit();
        let locked_by_readers = chosen().is_some_and(|choice| choice & READ_WRITE != 0);
        CacheEdit { edit, _readers: locked_by_readers.then(|| self.readers().write()) }
    }

    /// The lock of this file's readers.
    fn readers(&self) -> &'static RwSpinLock<()> {
        &READERS[core::ptr::from_ref(self).addr() / size_of::<FileCache>() % READER_LOCKS]
    }

    fn hold(&self, choice: u8) -> Held<'_> {
        let contended = match choice & (SPIN | READ_WRITE) {
            SPIN => self.index.is_being_edited(),
            READ_WRITE => self.readers().is_kept_from_readers(),
            _ => false,
        };
        if COUNTED && contended {
            COUNTS.of(machine::cpu::current()).spins.fetch_add(1, Ordering::Relaxed);
        }
        match choice & (SPIN | READ_WRITE) {
            SPIN => Held::Spin { _lock: self.index.lock_against_edits() },
            READ_WRITE => Held::Read { _lock: self.readers().read() },
            _ => Held::Nothing,
        }
    }

    /// Pages from `first` up to `end`, those that are in memory with a reference, as one look-up finds them.
    fn look_up_gang(&self, choice: u8, first: u64, end: u64) -> ArrayVec<Option<Frame>, GANG_PAGES> {
        let mut frames = ArrayVec::new();
        let mut found = 0;
        let held = self.hold(choice);
        let guard = rcu::read();
        let _ = self.index.gang(first, end, None, &guard, |page, place: Place<'_>| {
            while frames.len() < (page - first) as usize {
                frames.push(None);
            }
            let frame = borrow_frame(place.word()).map(|frame| Frame::clone(&frame));
            found += u64::from(frame.is_some());
            frames.push(frame);
            ControlFlow::<()>::Continue(())
        });
        let of_lock = match held {
            Held::Nothing => 0,
            Held::Spin { .. } => 1,
            Held::Read { .. } => 2,
        };
        count(found, of_lock + found);
        frames
    }

    /// [`FileCache::read_at`] in the chosen way.
    #[cold]
    #[inline(never)]
    pub(super) fn read_as_chosen(
        &self,
        choice: u8,
        offset: u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, CacheError> {
        let most = if choice & GANG != 0 { GANG_PAGES as u64 } else { 1 };
        let mut done = 0;
        loop {
            let position = offset.saturating_add(done as u64);
            let left = self.size().saturating_sub(position).min(sink.remaining() as u64);
            if left == 0 {
                return Ok(done);
            }
            let first = page_of(position);
            let end = page_of(position + left - 1).min(first + most - 1) + 1;
            let mut frames = self.look_up_gang(choice, first, end);
            for page in first..end {
                let start = within_page(offset + done as u64);
                let count = (PAGE_SIZE - start).min((position + left - (offset + done as u64)) as usize);
                let frame = frames.get_mut((page - first) as usize).and_then(Option::take);
                let copied = match frame {
                    Some(frame) => sink.write_frame(&frame, start, count).map_err(CacheError::from),
                    None => self.read_rest(Piece { page, start, count }, sink),
                };
                match copied {
                    Ok(bytes) if bytes == count => done += bytes,
                    Ok(bytes) => return Ok(done + bytes),
                    Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
                }
            }
        }
    }
}

/// Writes what was chosen, how many nodes all indices have, and what was counted.
///
/// # Errors
/// Those of `out`.
pub fn write_report(out: &mut dyn Write) -> fmt::Result {
    let choice = CHOICE.load(Ordering::Relaxed);
    let lock = match choice & (SPIN | READ_WRITE) {
        SPIN => "spin",
        READ_WRITE => "rw",
        _ => "rcu",
    };
    writeln!(out, "lock {lock}")?;
    writeln!(out, "gang {}", u8::from(choice & GANG != 0))?;
    let levels = page_index::levels();
    writeln!(out, "nodes {}", levels.iter().sum::<u64>())?;
    let height = levels.iter().rposition(|&nodes| nodes > 0).map_or(0, |level| level + 1);
    writeln!(out, "height {height}")?;
    for (level, nodes) in levels.iter().enumerate().take(height) {
        writeln!(out, "nodes_at_height_{} {nodes}", level + 1)?;
    }
    if COUNTED {
        let sum = |count: fn(&Counts) -> &AtomicU64| {
            COUNTS.iter().map(|counts| count(counts).load(Ordering::Relaxed)).sum::<u64>()
        };
        writeln!(out, "look_ups {}", sum(|counts| &counts.look_ups))?;
        writeln!(out, "pages_found {}", sum(|counts| &counts.pages))?;
        writeln!(out, "atomics {}", sum(|counts| &counts.atomics))?;
        writeln!(out, "lock_spins {}", sum(|counts| &counts.spins))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Source;
    use crate::file_cache::CacheKind;

    /// What a read of so many pages costs: look-ups, and atomic operations.
    fn cost(cache: &FileCache, choice: u8, pages: usize) -> (u64, u64) {
        let _no_migration = machine::preempt::disable();
        let counts = COUNTS.of(machine::cpu::current());
        let now = || [&counts.look_ups, &counts.atomics].map(|count| count.load(Ordering::Relaxed));
        let before = now();
        let mut buffer = vec![0; pages * PAGE_SIZE];
        let mut sink = Sink::kernel(&mut buffer);
        let read = if choice == 0 {
            cache.read_at(0, &mut sink)
        } else {
            cache.read_as_chosen(choice, 0, &mut sink)
        };
        assert_eq!(read, Ok(pages * PAGE_SIZE));
        let after = now();
        (after[0] - before[0], after[1] - before[1])
    }

    #[test]
    fn reads_cost_the_atomic_operations_of_the_papers_fifth_table() {
        let cache = FileCache::new(CacheKind::SharedMemory);
        cache.write_at(0, &mut Source::kernel(&[1; GANG_PAGES * PAGE_SIZE])).unwrap();
        for pages in [1, 2, 7, GANG_PAGES] {
            let n = pages as u64;
            assert_eq!(cost(&cache, SPIN, pages), (n, 2 * n));
            assert_eq!(cost(&cache, READ_WRITE, pages), (n, 3 * n));
            assert_eq!(cost(&cache, SPIN | GANG, pages), (1, n + 1));
            assert_eq!(cost(&cache, READ_WRITE | GANG, pages), (1, n + 2));
            assert_eq!(cost(&cache, GANG, pages), (1, n));
            assert_eq!(cost(&cache, 0, pages), (n, 0));
        }
    }

    #[test]
    fn all_ways_read_the_same() {
        let cache = FileCache::new(CacheKind::SharedMemory);
        let bytes: Vec<u8> = (0..20 * PAGE_SIZE).map(|at| (at / 61) as u8).collect();
        cache.write_at(3 * PAGE_SIZE as u64, &mut Source::kernel(&bytes)).unwrap();
        let end = 3 * PAGE_SIZE + bytes.len();
        for choice in [GANG, SPIN, SPIN | GANG, READ_WRITE, READ_WRITE | GANG] {
            for offset in [0, 17, 5 * PAGE_SIZE - 1, end - 5, end] {
                let mut buffer = vec![0xaa; 30 * PAGE_SIZE];
                let read = cache.read_as_chosen(choice, offset as u64, &mut Sink::kernel(&mut buffer));
                let mut expected = vec![0xaa; 30 * PAGE_SIZE];
                let count = cache.read_at(offset as u64, &mut Sink::kernel(&mut expected));
                assert_eq!((read, &buffer), (count, &expected));
                assert_eq!(count, Ok(end - offset));
            }
        }
    }
}
