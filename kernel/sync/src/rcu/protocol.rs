//! The numbers of grace periods, and the protocol by which one starts and ends; for any number of CPUs.
//!
//! Numbers: grace period n is running while STARTED = n > COMPLETED = n − 1, and over when COMPLETED ≥ n. WANTED is the
//! highest number anybody waits for.
//!
//! Transitions (specs/scalability.md §L50):
//! - idle → running: [`Protocol::try_start`], when WANTED > COMPLETED: STARTED += 1, a full barrier, then each CPU is looked
//!   at, and those that are not seen quiescent owe a quiescent state in the [`Tree`].
//! - a CPU reports: [`Protocol::report`] clears its debt at its first quiescent state.
//! - running → idle: who clears the last debt calls [`Protocol::complete`], and starts the next grace period if one is wanted.
//!
//! Rules:
//! - Starts exclude each other (the caller holds a lock), so that one grace period runs at a time.
//! - A CPU may report for itself at any time, whichever grace period it thinks is running: it is quiescent at that moment.
//! - Who reports on behalf of another CPU holds the lock of starts from the look at that CPU to the report: without, the
//!   running grace period could end in between and the next one start, with that CPU in a read section by then.
//!
//! Why it is enough: a reader that a CPU was in when grace period n started ends before the CPU's report for n (program
//! order, then the SeqCst clear), which is before COMPLETED = n, which is before whoever waits for n goes on. A CPU that is
//! seen quiescent at the start has passed a full barrier before its next reader, so that reader sees what was unpublished
//! before the request.
//!
//! `tests/models.rs` compiles this file against loom's atomics.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use super::tree::Tree;

/// What became of an attempt to start a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// None is wanted, or one is running.
    Nothing,
    /// It runs: some CPUs owe a quiescent state.
    Running,
    /// It has begun, and no CPU owes anything: the caller completes it.
    Over,
}

/// Grace periods of one flavour.
pub(crate) struct Protocol<const WORDS: usize> {
    started: AtomicU64,
    completed: AtomicU64,
    wanted: AtomicU64,
    tree: Tree<WORDS>,
}

impl<const WORDS: usize> Protocol<WORDS> {
    /// For so many CPUs; nothing is running.
    #[cfg(not(all(loom, test)))]
    pub(crate) const fn new(cpus: usize) -> Self {
        Self {
            started: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            tree: Tree::new(cpus),
        }
    }

    /// For so many CPUs; nothing is running.
    #[cfg(all(loom, test))]
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            started: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            tree: Tree::new(cpus),
        }
    }

    /// Number of the last grace period that started.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Acquire)
    }

    /// Number of the last grace period that ended.
    pub(crate) fn completed(&self) -> u64 {
        // Acquire: pairs with the store in `complete`.
        self.completed.load(Ordering::Acquire)
    }

    /// Highest number anybody waits for.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether a CPU owes a quiescent state.
    #[inline(always)]
    pub(crate) fn owes(&self, cpu: usize) -> bool {
        self.tree.owes(cpu)
    }

    /// The CPUs of a leaf of 64 that owe a quiescent state, as bits.
    pub(crate) fn owing(&self, leaf: usize) -> u64 {
        self.tree.owing(leaf)
    }

    /// Asks for a grace period that starts from now on; returns its number. The caller then tries to start it.
    pub(crate) fn request(&self) -> u64 {
        // What the caller unpublished is unpublished before the number is taken.
        fence(Ordering::SeqCst);
        let number = self.started.load(Ordering::SeqCst) + 1;
        self.wanted.fetch_max(number, Ordering::SeqCst);
        number
    }

    /// Whether it might make sense to call [`Self::try_start`]; without the lock.
    pub(crate) fn should_start(&self) -> bool {
        let started = self.started.load(Ordering::SeqCst);
        self.completed.load(Ordering::SeqCst) == started && self.wanted.load(Ordering::SeqCst) > started
    }

    /// Starts the next grace period if one is wanted and none is running. `is_quiescent` tells whether a CPU can be seen from
    /// here to be outside of any read section. The caller excludes other starts.
    pub(crate) fn try_start(&self, is_quiescent: impl Fn(usize) -> bool) -> Start {
        if !self.should_start() {
            return Start::Nothing;
        }
        let started = self.started.load(Ordering::SeqCst);
        self.started.store(started + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        match self.tree.begin(|cpu| !is_quiescent(cpu)) {
            true => Start::Over,
            false => Start::Running,
        }
    }

    /// Reports a quiescent state of a CPU; returns whether nobody owes one any more: then the caller completes the grace period.
    pub(crate) fn report(&self, cpu: usize) -> bool {
        // Reads of the section before happen before the grace period's end.
        fence(Ordering::SeqCst);
        self.tree.clear(cpu)
    }

    /// Ends the running grace period. Called once for each, by the one who was told so.
    pub(crate) fn complete(&self) {
        let started = self.started.load(Ordering::SeqCst);
        debug_assert_eq!(self.completed.load(Ordering::SeqCst) + 1, started, "one grace period at a time");
        self.completed.store(started, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use crate::rcu::tree::words_for;

    const NOBODY: fn(usize) -> bool = |_| false;

    #[test]
    fn a_request_while_one_runs_is_for_the_next() {
        let protocol = Protocol::<1>::new(2);
        assert_eq!(protocol.try_start(NOBODY), Start::Nothing, "nobody wants one");
        assert_eq!(protocol.request(), 1);
        assert_eq!(protocol.try_start(NOBODY), Start::Running);
        assert_eq!(protocol.request(), 2);
        assert_eq!(protocol.try_start(NOBODY), Start::Nothing, "one at a time");
        assert!(!protocol.report(0));
        assert!(protocol.report(1));
        protocol.complete();
        assert_eq!(protocol.completed(), 1);
        assert_eq!(protocol.try_start(|_| true), Start::Over);
        protocol.complete();
        assert_eq!(protocol.completed(), 2);
    }

    /// Simulated CPUs read an object, replace it and wait, in a random order that the seed decides; an object is freed when
    /// the grace period asked for after its replacement is over. No reader may hold a freed object.
    fn simulate<const WORDS: usize>(cpus: usize, steps: usize, mut seed: u64) {
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        let protocol = Protocol::<WORDS>::new(cpus);
        let mut current = 0_u64;
        let mut reading: Vec<Option<u64>> = vec![None; cpus];
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        let (mut ended, mut seen) = (0, 0);
        for _ in 0..steps {
            let cpu = random(cpus);
            match random(64) {
                0..24 => reading[cpu] = Some(current),
                24..48 => {
                    reading[cpu] = None;
                    if protocol.owes(cpu) && protocol.report(cpu) {
                        protocol.complete();
                        ended += 1;
                    }
                }
                48..56 => {
                    waiting.push((current, protocol.request()));
                    current += 1;
                }
                56 => {
                    // On behalf of those that are seen outside.
                    let outside = reading.iter().enumerate().filter(|(_, object)| object.is_none());
                    for (other, _) in outside {
                        if protocol.owes(other) && protocol.report(other) {
                            protocol.complete();
                            ended += 1;
                        }
                    }
                }
                _ => {}
            }
            if protocol.try_start(|cpu| reading[cpu].is_none()) == Start::Over {
                protocol.complete();
                ended += 1;
            }
            if protocol.completed() == seen {
                continue;
            }
            seen = protocol.completed();
            let over = |&(_, number): &(u64, u64)| protocol.completed() >= number;
            for &(object, _) in waiting.iter().filter(|waiter| over(waiter)) {
                assert!(!reading.contains(&Some(object)), "{object} is freed under a reader");
            }
            waiting.retain(|waiter| !over(waiter));
        }
        assert!(ended > 0, "no grace period ended among {cpus} CPUs");
    }

    #[test]
    fn nothing_is_freed_under_a_reader_with_65_to_4096_simulated_cpus() {
        for seed in 1..5 {
            simulate::<1>(8, 5_000, seed);
            simulate::<3>(65, 10_000, seed);
        }
        simulate::<{ words_for(128) }>(128, 20_000, 7);
        simulate::<{ words_for(1000) }>(1000, 40_000, 8);
        simulate::<{ words_for(4096) }>(4096, 160_000, 9);
    }

    /// The same with real threads: each plays some of the CPUs.
    #[test]
    fn threads_that_play_130_cpus_free_nothing_under_a_reader() {
        const CPUS: usize = 130;
        const ROUNDS: usize = 40;
        let protocol = Protocol::<{ words_for(CPUS) }>::new(CPUS);
        let start = Mutex::new(());
        let current = AtomicU64::new(0);
        let freed: Vec<AtomicBool> = (0..=ROUNDS).map(|_| AtomicBool::new(false)).collect();
        let stop = AtomicBool::new(false);
        let advance = || {
            let _starting = start.lock().unwrap();
            while protocol.try_start(NOBODY) == Start::Over {
                protocol.complete();
            }
        };
        std::thread::scope(|scope| {
            for part in 0..4 {
                let (protocol, current, freed, stop, advance) =
                    (&protocol, &current, &freed, &stop, &advance);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        for cpu in (0..CPUS).filter(|cpu| cpu % 4 == part) {
                            let seen = current.load(Ordering::Acquire) as usize;
                            std::hint::spin_loop();
                            assert!(!freed[seen].load(Ordering::Relaxed), "freed under a reader");
                            if protocol.owes(cpu) && protocol.report(cpu) {
                                protocol.complete();
                                advance();
                            }
                        }
                    }
                });
            }
            for (old, freed) in freed.iter().enumerate().take(ROUNDS) {
                current.store(old as u64 + 1, Ordering::Release);
                let number = protocol.request();
                advance();
                while protocol.completed() < number {
                    std::thread::yield_now();
                }
                freed.store(true, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
