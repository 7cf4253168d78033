//! What cache lines, interrupts and requests between two CPUs cost: the rows of specs/fiasco-mp.md item 48, printed.
//!
//! | row | what is measured, in cycles of the time-stamp counter |
//! |---|---|
//! | e2s … s2m | one access to a line in the given state: A has it exclusive (e), modified (m) or both share it (s); B reads (→ s) or writes (→ m) |
//! | ii | interrupt to the other CPU, and one back from its handler |
//! | if | interrupt to the other CPU, whose handler sets a flag |
//! | send | the sender's part of that |
//! | ff1, ff2 | a flag set there and back, in one line or in one line for each |
//! | msg | a request that does nothing |
//! | wake | waking a thread that sleeps on the other CPU, until the waker goes on |
//!
//! Under an emulator there are no caches, and the figures compare only with each other.

use alloc::sync::Arc;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use ::machine::cpu::{self, CpuId};
use ::machine::ipi;
use ::machine::{interrupt, time};
use ::sched::{RunState, WaitQueue};
use ::sync::CachePadded;
use ::sync::message_box::{self, Kind, Request, WORDS};

use super::kit::Team;
use super::{Failure, Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[Test { name: "message_box_costs::table", run: table }];

const A: CpuId = CpuId::from_index(0);
const B: CpuId = CpuId::from_index(1);
/// Measurements of each row.
const ROUNDS: usize = 2_000;
/// Lines that are measured at a time, so that reading the counter does not count.
const LINES: usize = 64;

type Lines = [CachePadded<AtomicU64>; LINES];

/// The rows, in the order in which they are printed.
const ROWS: [&str; 12] = ["e2s", "e2m", "m2s", "m2m", "s2m", "if", "send", "ii", "ff1", "ff2", "msg", "wake"];
/// Rows printed so far.
static PRINTED: AtomicUsize = AtomicUsize::new(0);

/// Prints one row.
fn print(name: &str, cycles: u64) {
    let row = PRINTED.fetch_add(1, Relaxed);
    assert!(ROWS.get(row) == Some(&name), "row {row} is not {name}");
    ::machine::console::print(format_args!("message_box_costs {name:<5} {cycles:>8} cycles\n"));
}

/// The median of what `measure` gives.
fn median(mut measure: impl FnMut() -> u64) -> u64 {
    let mut values: alloc::vec::Vec<u64> = (0..ROUNDS).map(|_| measure()).collect();
    values.sort_unstable();
    values[ROUNDS / 2]
}

/// What the other CPU does to the lines before they are measured.
#[derive(Clone, Copy)]
enum Before {
    Exclusive,
    Modified,
    Shared,
}

/// A partner on CPU B that does what it is told between rounds.
struct Partner {
    turn: Arc<CachePadded<AtomicU64>>,
    team: Team,
}

impl Partner {
    /// `act` runs on B each time it is the partner's turn.
    fn start(act: impl Fn() + Send + 'static) -> Result<Partner, Failure> {
        let turn = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let mut team = Team::new();
        let told = turn.clone();
        team.start(B, move || {
            loop {
                match told.load(Acquire) {
                    0 => cpu::relax(),
                    1 => {
                        act();
                        told.store(0, Release);
                    }
                    _ => return,
                }
            }
        })?;
        Ok(Partner { turn, team })
    }

    /// Has the partner act, and waits until it has.
    fn act(&self) {
        self.turn.store(1, Release);
        while self.turn.load(Acquire) != 0 {
            cpu::relax();
        }
    }

    fn end(self) -> Outcome {
        self.turn.store(2, Release);
        self.team.join()
    }
}

fn cache_row(name: &str, before: Before, writes: bool) -> Outcome {
    static SHARED: Lines = [const { CachePadded::new(AtomicU64::new(0)) }; LINES];
    let lines = &SHARED;
    let partner = Partner::start(move || {
        for line in lines {
            match before {
                Before::Modified => line.store(1, Relaxed),
                Before::Exclusive | Before::Shared => {
                    line.load(Relaxed);
                }
            }
        }
    })?;
    let cycles = median(|| {
        // Shared and exclusive differ in whether this CPU had the lines before.
        match before {
            Before::Shared => {
                lines.iter().for_each(|line| {
                    line.load(Relaxed);
                });
            }
            Before::Exclusive => lines.iter().for_each(|line| ::machine::cpu::flush_line(&**line)),
            Before::Modified => {}
        }
        partner.act();
        let start = time::cycles();
        for line in lines.iter() {
            if writes {
                line.store(2, Relaxed);
            } else {
                line.load(Relaxed);
            }
        }
        (time::cycles() - start) / LINES as u64
    });
    print(name, cycles);
    partner.end()
}

/// Set by the other CPU's handler, or thread.
static FLAGS: [CachePadded<AtomicU64>; 2] = [const { CachePadded::new(AtomicU64::new(0)) }; 2];

fn set_flag(_: usize) {
    FLAGS[0].store(1, Release);
}

fn await_flag(index: usize, value: u64) {
    while FLAGS[index].load(Acquire) != value {
        cpu::relax();
    }
}

/// By vectors that nobody else uses.
fn interrupt_rows() -> Outcome {
    let vector = interrupt::allocate_vector(set_flag, 0);
    let Some(vector) = vector else { super::fail!("no vector is free") };
    let back = interrupt::allocate_vector(|_| FLAGS[1].store(1, Release), 0);
    let Some(back) = back else { super::fail!("no vector is free") };
    print(
        "if",
        median(|| {
            FLAGS[0].store(0, Relaxed);
            let start = time::cycles();
            ipi::send_vector(B, vector);
            await_flag(0, 1);
            time::cycles() - start
        }),
    );
    print(
        "send",
        median(|| {
            FLAGS[0].store(0, Relaxed);
            let start = time::cycles();
            ipi::send_vector(B, vector);
            let cycles = time::cycles() - start;
            await_flag(0, 1);
            cycles
        }),
    );
    static BACK: ::sync::Once<interrupt::Vector> = ::sync::Once::new();
    BACK.call_once(|| back);
    let there =
        interrupt::allocate_vector(|_| BACK.get().iter().for_each(|back| ipi::send_vector(A, **back)), 0);
    let Some(there) = there else { super::fail!("no vector is free") };
    print(
        "ii",
        median(|| {
            FLAGS[1].store(0, Relaxed);
            let start = time::cycles();
            ipi::send_vector(B, there);
            await_flag(1, 1);
            time::cycles() - start
        }),
    );
    Ok(())
}

/// A flag there and back: in one line, or one line for each direction.
fn flag_row(name: &str, answer: usize) -> Outcome {
    FLAGS.iter().for_each(|flag| flag.store(0, SeqCst));
    let stop = Arc::new(AtomicBool::new(false));
    let mut team = Team::new();
    let end = stop.clone();
    team.start(B, move || {
        while !end.load(Relaxed) {
            if FLAGS[0].load(Acquire) == 1 {
                FLAGS[0].store(0, Relaxed);
                FLAGS[answer].store(2, Release);
            }
            cpu::relax();
        }
    })?;
    print(
        name,
        median(|| {
            let start = time::cycles();
            FLAGS[0].store(1, Release);
            await_flag(answer, 2);
            let cycles = time::cycles() - start;
            FLAGS[answer].store(0, Relaxed);
            cycles
        }),
    );
    stop.store(true, Relaxed);
    team.join()
}

fn message_row() {
    print(
        "msg",
        median(|| {
            let _interrupts = interrupt::disable();
            let start = time::cycles();
            message_box::request(B, Request { kind: Kind::Noop, words: [0; WORDS] });
            time::cycles() - start
        }),
    );
}

/// A thread on B sleeps; waking it takes B's run-queue lock, and interrupts B if the thread is to run at once.
fn wake_row() -> Outcome {
    static SLEEPERS: WaitQueue = WaitQueue::new();
    static TICKETS: AtomicU64 = AtomicU64::new(0);
    TICKETS.store(0, SeqCst);
    let mut team = Team::new();
    let sleeper = team.start(B, || {
        for ticket in 1..=ROUNDS as u64 {
            SLEEPERS.wait_until(|| TICKETS.load(Acquire) >= ticket);
        }
    })?;
    print(
        "wake",
        median(|| {
            while sleeper.state() == RunState::Running {
                cpu::relax();
            }
            TICKETS.fetch_add(1, Release);
            let start = time::cycles();
            SLEEPERS.wake_all();
            time::cycles() - start
        }),
    );
    team.join()
}

fn table() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let mut team = Team::new();
    PRINTED.store(0, Relaxed);
    let outcome = Arc::new(::sync::SpinLock::new(Ok(())));
    let report = outcome.clone();
    team.start(A, move || *report.lock() = rows())?;
    team.join()?;
    core::mem::replace(&mut *outcome.lock(), Ok(()))?;
    let printed = PRINTED.load(Relaxed);
    check!(printed == ROWS.len(), "{printed} rows of {} were printed", ROWS.len());
    Ok(())
}

fn rows() -> Outcome {
    cache_row("e2s", Before::Exclusive, false)?;
    cache_row("e2m", Before::Exclusive, true)?;
    cache_row("m2s", Before::Modified, false)?;
    cache_row("m2m", Before::Modified, true)?;
    cache_row("s2m", Before::Shared, true)?;
    interrupt_rows()?;
    flag_row("ff1", 0)?;
    flag_row("ff2", 1)?;
    message_row();
    wake_row()
}
