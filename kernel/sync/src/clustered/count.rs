//! A count that many CPUs change: the smallest clustered object.
//!
//! It begins as one word. When additions keep coming from another CPU than the one before, an adaptive clustered object takes
//! over, so that each CPU counts in its own representative. The value is always the word and all representatives together.
//!
//! For counts of which nobody needs the value often: files open for writing through a mount, openers of a file. A value that
//! decides something is read after a fence or a grace period, see [`Count::value`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use machine::cpu;

use super::adapt::{Shape, enabled};
use super::object::Clustered;
use super::root::{Distributed, Format, Make, Root, Single, State};
use crate::{CachePadded, Once};

/// Additions from another CPU than the one before, after which the word counts as contended.
const FOREIGN_MAX: u32 = 8;

/// Counts for some CPUs.
pub(super) struct Representative {
    value: CachePadded<AtomicI64>,
    /// Whether one CPU alone calls it.
    alone: bool,
}

impl Representative {
    #[inline(always)]
    fn add(&self, amount: i64) {
        if self.alone {
            cpu::add_to_own(&self.value, amount);
        } else {
            self.value.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

/// Makes representatives; their state is a number.
struct Cells;

impl Make<Representative> for Cells {
    fn make(&self, alone: bool) -> Option<Arc<Representative>> {
        Some(Arc::new(Representative { value: CachePadded::new(AtomicI64::new(0)), alone }))
    }

    fn take(&self, from: &Representative, state: &mut Option<State>) {
        let value = from.value.swap(0, Ordering::Relaxed);
        let sum = state.take().and_then(|state| state.downcast::<i64>().ok()).map_or(0, |sum| *sum);
        *state = Some(alloc::boxed::Box::new(sum + value));
    }

    fn put(&self, into: &Representative, state: State) {
        if let Ok(value) = state.downcast::<i64>() {
            into.value.fetch_add(*value, Ordering::Relaxed);
        }
    }

    fn format(&self) -> Option<Format> {
        Some(Format::of::<i64>())
    }
}

fn make(shape: Shape) -> Option<Arc<dyn Root<Representative>>> {
    Some(match shape {
        Shape::Single => Arc::new(Single::try_new(Cells)?),
        Shape::Distributed => Arc::new(Distributed::try_new(1, Cells)?),
    })
}

/// See the theory of this file.
pub struct Count {
    word: AtomicI64,
    /// The CPU of the last addition to the word, in the low half, and how many came from another than the one before.
    /// A hint: lost updates do no harm.
    history: AtomicU32,
    /// A thin pointer: there are many counts, and few that need it.
    name: &'static &'static str,
    object: Once<Clustered<Representative>>,
}

impl Count {
    /// Zero; the name is what the report calls it.
    pub const fn new(name: &'static &'static str) -> Self {
        Self { word: AtomicI64::new(0), history: AtomicU32::new(0), name, object: Once::new() }
    }

    /// Adds `amount`, which may be negative.
    #[inline(always)]
    pub fn add(&self, amount: i64) {
        match self.object.get() {
            Some(object) => object.call(|representative| representative.add(amount)),
            None => self.add_to_word(amount),
        }
    }

    #[inline(always)]
    fn add_to_word(&self, amount: i64) {
        self.word.fetch_add(amount, Ordering::Relaxed);
        let history = self.history.load(Ordering::Relaxed);
        let cpu = cpu::current().index() as u32;
        if history & 0xffff != cpu {
            self.note_foreign(history >> 16, cpu);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_foreign(&self, before: u32, cpu: u32) {
        self.history.store((before + 1).min(FOREIGN_MAX) << 16 | cpu, Ordering::Relaxed);
        if before + 1 >= FOREIGN_MAX
            && enabled()
            && let Some(object) = Clustered::try_adaptive(self.name, make)
        {
            let mut object = Some(object);
            self.object.call_once(|| object.take().expect("called once"));
        }
    }

    /// The value: exact if nobody adds meanwhile. Additions before a fence or a grace period of both sides are seen.
    pub fn value(&self) -> i64 {
        let mut sum = self.word.load(Ordering::Relaxed);
        if let Some(object) = self.object.get() {
            object.for_each_representative(|cell| sum += cell.value.load(Ordering::Relaxed));
        }
        sum
    }

    /// Whether a clustered object counts.
    pub fn is_clustered(&self) -> bool {
        self.object.get().is_some()
    }
}

impl core::fmt::Debug for Count {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Count").field(&self.value()).finish()
    }
}
