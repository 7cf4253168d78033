//! Growth of kernel stacks raced against everything that can come between: interrupts, timers, non-maskable interrupts,
//! preemption, migration, trims.
//!
//! Two methods. *Storm*: on each processor a real-time thread wakes up by a timer after modulated times and sends all kinds
//! of interrupts around, while threads go down to every depth. *Modulated delay* (the loop of Fiasco's test framework): two
//! sides meet at a synchronisation point; one waits a fixed time and grows its stack, the other interferes after a delay
//! that is swept from nothing to twice the fixed one, so that the critical paths are shifted against each other. Nothing
//! here judges by time: a slow host makes the tests slow, not wrong.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use ::machine::cpu::{self, CpuId, CpuSet};
use ::machine::ipi::{self, Ipi};
use ::machine::{interrupt, time};
use ::memory::kstack::{self, Exercise, Mode};
use ::sched::{Builder, Completion, Policy, RunState, ThreadRef, WaitQueue};

use super::kit;
use super::kstack::{
    NAME, await_that, check_report, join, no_fault_without_frame, on_all_processors, spawn, usable_bytes,
};
use super::{Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "kstack::every_depth_passes_in_a_storm_of_interrupts", run: every_depth_in_a_storm },
    Test { name: "kstack::one_page_beyond_ends_only_its_thread_in_a_storm", run: one_page_beyond_in_a_storm },
    Test { name: "kstack::interrupts_at_every_level_pass", run: interrupts_at_every_level },
    Test { name: "kstack::modulated_delays_against_another_processor", run: modulated_from_elsewhere },
    Test { name: "kstack::modulated_delays_against_timers", run: modulated_by_timers },
];

/// The vector of non-maskable interrupts.
const NON_MASKABLE: u8 = 2;

/// Interrupts of all kinds on all processors until it is dropped.
struct Storm {
    stop: Arc<AtomicBool>,
    threads: Vec<(ThreadRef, Arc<Completion>)>,
    non_maskable_before: u64,
}

fn non_maskable_count() -> u64 {
    cpu::online().iter().map(|cpu| interrupt::vector_count(cpu, NON_MASKABLE)).sum()
}

impl Storm {
    fn start() -> Result<Storm, super::Failure> {
        let non_maskable_before = non_maskable_count();
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for cpu in cpu::online().iter() {
            let stop = stop.clone();
            let affinity = CpuSet::only(cpu);
            let builder = Builder { affinity, policy: Policy::Fifo(30), ..Builder::new("storm") };
            threads.push(kit::spawn(builder, move || blow(&stop))?);
        }
        // What is raced against is there before the race begins.
        await_that(|| non_maskable_count() > non_maskable_before);
        Ok(Storm { stop, threads, non_maskable_before })
    }

    /// Ends it; returns how many non-maskable interrupts there were.
    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.threads.iter().for_each(|(_, done)| join(done));
        non_maskable_count() - self.non_maskable_before
    }
}

/// One processor's part in the storm. It sleeps most of the time, so that emulated processors get on with their work.
fn blow(stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Relaxed) {
        for target in cpu::online().iter() {
            ipi::send(target, if round % 2 == 0 { Ipi::Call } else { Ipi::Reschedule });
            ipi::send_non_maskable(target);
        }
        round += 1;
        let modulated_ns = 200_000 + round * 7_919 % 300_000;
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + modulated_ns);
    }
}

/// The window's default size.
fn window_bytes() -> usize {
    usable_bytes(kstack::parameters().pages as usize)
}

fn every_depth_in_a_storm() -> Outcome {
    const STEP_BYTES: usize = 128;
    let storm = Storm::start()?;
    let wrong = Arc::new(AtomicU64::new(0));
    let count = wrong.clone();
    let outcome = on_all_processors(move |cpu| {
        let here = CpuSet::only(CpuId::from_index(cpu));
        for depth in (0..=window_bytes()).step_by(STEP_BYTES) {
            // In a thread of its own each, because a stack that has grown does not fault again.
            let count = count.clone();
            let descent = spawn(0, here, move || {
                if !kstack::exercise(depth, Exercise::Recurse, &mut || {}) {
                    count.fetch_add(1, Relaxed);
                }
            });
            let Ok((_thread, done)) = descent else { return };
            join(&done);
        }
    });
    let non_maskable = storm.end();
    outcome?;
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} descents found a frame changed");
    check!(non_maskable > 0, "no non-maskable interrupt arrived");
    no_fault_without_frame()
}

fn one_page_beyond_in_a_storm() -> Outcome {
    /// From where no stack has room, whatever the compiler makes of the frames, to one page more.
    const STEP_BYTES: usize = 512;
    const PAGE_BYTES: usize = 4096;
    let storm = Storm::start()?;
    let before = kstack::statistics().overflows;
    let window = kstack::parameters().pages as usize * PAGE_BYTES;
    let mut offenders = Vec::new();
    for depth in (window..=window + PAGE_BYTES).step_by(STEP_BYTES) {
        offenders.push(spawn(0, CpuSet::ALL, move || {
            kstack::expect_overflow(true);
            kstack::exercise(depth, Exercise::Recurse, &mut || {});
            unreachable!("the stack is smaller");
        })?);
    }
    await_that(|| offenders.iter().all(|(offender, _)| offender.state() == RunState::Dead));
    let outcome =
        on_all_processors(|_| assert!(kstack::exercise(window_bytes(), Exercise::Recurse, &mut || {})));
    storm.end();
    outcome?;
    let overflows = kstack::statistics().overflows - before;
    check!(overflows == offenders.len() as u64, "{overflows} overflows of {} threads", offenders.len());
    check!(offenders.iter().all(|(_, done)| !done.is_complete()), "a thread survived its overflow");
    check_report(kstack::parameters().pages)?;
    no_fault_without_frame()
}

/// Interrupts of both kinds arrive on each level of the way down, so also where the next push needs a page.
fn interrupts_at_every_level() -> Outcome {
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        on_all_processors(|_| {
            let mut level = 0;
            let whole = kstack::exercise_poked(window_bytes(), &mut || {
                level += 1;
                let _preemption_off = ::machine::preempt::disable();
                let here = cpu::current();
                if level % 2 == 0 {
                    ipi::send(here, Ipi::Call);
                } else {
                    ipi::send_non_maskable(here);
                }
            });
            assert!(whole, "a frame changed");
        })?;
    }
    no_fault_without_frame()
}

/// Passes `count` rounds of a loop that nothing can shorten.
fn delay(count: u32) {
    for round in 0..count {
        black_box(round);
    }
}

/// The fixed delay before growing, in rounds of [`delay`]; the other side's is swept up to twice that.
const FIXED_DELAY: u32 = 20_000;
const SWEEP_STEPS: u32 = 24;

/// What happens to the growing thread.
#[derive(Clone, Copy, Debug)]
enum Interference {
    Interrupt,
    NonMaskable,
    Migration,
    Trim,
    Preemption,
}

const INTERFERENCES: [Interference; 5] = [
    Interference::Interrupt,
    Interference::NonMaskable,
    Interference::Migration,
    Interference::Trim,
    Interference::Preemption,
];

/// What both sides of the race share.
struct Race {
    /// The round that the growing side may begin; u32::MAX ends it.
    round: AtomicU32,
    turn: WaitQueue,
    /// Twice the number of rounds whose synchronisation point both have passed.
    met: AtomicU32,
    /// Rounds that the growing side has ended.
    grown: AtomicU32,
    /// The processor that the growing side began the round on.
    place: AtomicU32,
    /// Wakes the thread that preempts.
    preemption: WaitQueue,
    preemptions_wanted: AtomicU32,
    preemptions_seen: AtomicU32,
}

impl Race {
    fn new() -> Arc<Race> {
        Arc::new(Race {
            round: AtomicU32::new(0),
            turn: WaitQueue::new(),
            met: AtomicU32::new(0),
            grown: AtomicU32::new(0),
            place: AtomicU32::new(0),
            preemption: WaitQueue::new(),
            preemptions_wanted: AtomicU32::new(0),
            preemptions_seen: AtomicU32::new(0),
        })
    }

    /// The synchronisation point of a round.
    fn meet(&self, round: u32) {
        self.met.fetch_add(1, SeqCst);
        while self.met.load(SeqCst) < 2 * round {
            cpu::relax();
        }
    }

    /// The growing side: each round from a stack of one page.
    fn grow(&self, waits: bool) {
        let most = window_bytes() - 1500;
        let mut last = 0;
        loop {
            self.turn.wait_until(|| self.round.load(SeqCst) != last);
            let round = self.round.load(SeqCst);
            if round == u32::MAX {
                return;
            }
            last = round;
            self.place.store(cpu::current().index() as u32, SeqCst);
            if waits {
                self.meet(round);
            }
            delay(FIXED_DELAY);
            let depth = 3000 + round as usize * 1009 % (most - 3000);
            let kind = if round.is_multiple_of(5) { Exercise::Atomic } else { Exercise::Recurse };
            assert!(kstack::exercise(depth, kind, &mut || {}), "round {round} found a frame changed");
            self.grown.store(round, SeqCst);
        }
    }

    /// Lets the growing side begin a round, when it sleeps on one page.
    fn begin(&self, round: u32, grower: &ThreadRef) {
        /// The thread may be on its way to sleep; and in some modes there is nothing to take.
        const TRIMS_MAX: u32 = 50;
        await_that(|| grower.state() != RunState::Running);
        for _ in 0..TRIMS_MAX {
            if kstack::mode() != Mode::Fault || kstack::trim() > 0 || round == 1 {
                break;
            }
            ::sched::yield_now();
        }
        self.round.store(round, SeqCst);
        self.turn.wake_all();
    }

    fn interfere(&self, how: Interference, grower: &ThreadRef) {
        let target = CpuId::from_index(self.place.load(SeqCst) as usize);
        match how {
            Interference::Interrupt => ipi::send(target, Ipi::Call),
            Interference::NonMaskable => ipi::send_non_maskable(target),
            Interference::Migration => {
                grower.set_affinity(CpuSet::only(cpu::current()));
                grower.set_affinity(CpuSet::ALL);
            }
            Interference::Trim => {
                kstack::trim();
            }
            Interference::Preemption => {
                self.preemptions_wanted.fetch_add(1, SeqCst);
                self.preemption.wake_all();
            }
        }
    }

    /// A real-time thread that does nothing but preempt.
    fn preempt(&self) {
        loop {
            let seen = self.preemptions_seen.load(SeqCst);
            self.preemption.wait_until(|| self.preemptions_wanted.load(SeqCst) != seen);
            let wanted = self.preemptions_wanted.load(SeqCst);
            self.preemptions_seen.store(wanted, SeqCst);
            if wanted == u32::MAX {
                return;
            }
        }
    }

    fn end(&self) {
        self.round.store(u32::MAX, SeqCst);
        self.turn.wake_all();
        self.preemptions_wanted.store(u32::MAX, SeqCst);
        self.preemption.wake_all();
    }
}

/// Each kind of interference from the second processor, with each delay.
fn modulated_from_elsewhere() -> Outcome {
    let mut online = cpu::online().iter();
    let (Some(first), Some(second)) = (online.next(), online.next()) else { return Ok(()) };
    let before = kstack::statistics().faults;
    let race = Race::new();
    let (side, preempting) = (race.clone(), race.clone());
    let (grower, grower_done) = spawn(0, CpuSet::ALL, move || side.grow(true))?;
    let builder = Builder { affinity: CpuSet::only(first), policy: Policy::Fifo(40), ..Builder::new(NAME) };
    let (_preempter, preempter_done) = kit::spawn(builder, move || preempting.preempt())?;
    let other = race.clone();
    let (_interferer, interferer_done) = spawn(0, CpuSet::only(second), move || {
        let mut round = 0;
        for how in INTERFERENCES {
            for step in 0..SWEEP_STEPS {
                round += 1;
                grower.set_affinity(CpuSet::only(first));
                other.begin(round, &grower);
                other.meet(round);
                delay(2 * FIXED_DELAY / SWEEP_STEPS * step);
                other.interfere(how, &grower);
                await_that(|| other.grown.load(SeqCst) == round);
            }
        }
        other.end();
    })?;
    [&interferer_done, &grower_done, &preempter_done].into_iter().for_each(|done| join(done));
    let rounds = INTERFERENCES.len() as u64 * u64::from(SWEEP_STEPS);
    let faults = kstack::statistics().faults - before;
    check!(kstack::mode() != Mode::Fault || faults >= rounds / 2, "{faults} faults in {rounds} rounds");
    no_fault_without_frame()
}

/// The same on one processor: the delay is a timer's, whose thread preempts the growing one and interferes then.
fn modulated_by_timers() -> Outcome {
    const STEP_NS: u64 = 5_000;
    let here = CpuSet::only(cpu::online().iter().next().expect("a processor runs this"));
    let race = Race::new();
    let side = race.clone();
    let (grower, grower_done) = spawn(0, here, move || side.grow(false))?;
    let other = race.clone();
    let builder = Builder { affinity: here, policy: Policy::Fifo(40), ..Builder::new(NAME) };
    let (_interferer, interferer_done) = kit::spawn(builder, move || {
        let mut round = 0;
        for how in [Interference::Interrupt, Interference::NonMaskable, Interference::Trim] {
            for step in 0..u64::from(SWEEP_STEPS) {
                round += 1;
                other.begin(round, &grower);
                ::sched::timer::sleep_until_uninterruptible(time::now_ns() + step * STEP_NS);
                other.interfere(how, &grower);
                await_that(|| other.grown.load(SeqCst) == round);
            }
        }
        other.end();
    })?;
    [&interferer_done, &grower_done].into_iter().for_each(|done| join(done));
    no_fault_without_frame()
}
