//! `sharing`: pairs of calls that commute, on two processors, for the checker that looks at which cache lines they touch.
//!
//! By the scalable commutativity rule, calls whose results don't tell in which order they ran can be implemented without a shared
//! written cache line. So each pair here is made by two processes, or by two threads of one process, on objects of their own, or on
//! one object that neither changes. The two sides take turns, each on a processor of its own, and each call stands between two
//! markers, which a plugin of the emulator reads (`tools/qemu-plugin`); without it they are instructions that do nothing. That the
//! calls don't run at the same time makes what they touch the same in every run; a line that both write is shared all the same.
//!
//! `probes sharing[=WORD,...]` prints for each pair how often it was made between markers, in the order of the markers.
//!
//! * [`turns`]: who runs when, and the markers
//! * [`files`], [`memory`], [`processes`], [`events`]: the pairs

mod events;
mod files;
mod memory;
mod processes;
mod turns;

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

use bench::measure::Suite;
use bench::process::{fork, wait};
use turns::Turns;

const SUITE: Suite = Suite::new("sharing");

/// What a side does in its turn; only the call stands between the markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Before,
    Call,
    After,
}

/// One side's part of a pair.
type Operation = Box<dyn FnMut(Step)>;

/// An operation without preparations of its own.
fn call(mut body: impl FnMut() + 'static) -> Operation {
    Box::new(move |step| {
        if step == Step::Call {
            body();
        }
    })
}

/// Who makes the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sides {
    /// Two processes that share nothing.
    Processes,
    /// Two threads of a process.
    Threads,
}

/// Two calls that commute.
struct Pair {
    name: &'static str,
    sides: Sides,
    /// Makes what a side, 0 or 1, calls.
    prepare: fn(usize) -> io::Result<Operation>,
}

impl Pair {
    const fn processes(name: &'static str, prepare: fn(usize) -> io::Result<Operation>) -> Self {
        Self { name, sides: Sides::Processes, prepare }
    }

    const fn threads(name: &'static str, prepare: fn(usize) -> io::Result<Operation>) -> Self {
        Self { name, sides: Sides::Threads, prepare }
    }
}

/// Where the pairs have their files; each pair makes names of its own in it.
const DIRECTORY: &str = "/tmp/sharing";

/// Runs all pairs, or those whose names contain one of the words between commas.
///
/// # Errors
/// When there are no two processors.
pub(crate) fn run(words: &str) -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
    let (Some(first), Some(second)) = (processors.next(), processors.next()) else {
        return Err(io::Error::other("it takes two processors"));
    };
    std::fs::create_dir_all(DIRECTORY)?;
    let pairs = [&files::PAIRS[..], &memory::PAIRS, &processes::PAIRS, &events::PAIRS];
    let chosen = |pair: &&Pair| words.split(',').any(|word| pair.name.contains(word));
    for pair in pairs.into_iter().flatten().filter(chosen) {
        SUITE.single(pair.name, || {
            let rounds = make(pair, [first, second])?;
            SUITE.report(pair.name, "rounds", rounds.into());
            Ok(())
        });
    }
    Ok(())
}

/// Makes the calls of a pair, and says how often between markers.
fn make(pair: &Pair, processors: [usize; 2]) -> io::Result<u32> {
    let turns = Turns::new()?;
    let take = |side: usize| turns.take(side, processors[side], || (pair.prepare)(side));
    match pair.sides {
        Sides::Processes => {
            let first = fork(|| take(0))?;
            let second = fork(|| take(1))?;
            wait(first).and(wait(second))?;
        }
        Sides::Threads => {
            let both = fork(|| {
                std::thread::scope(|scope| {
                    scope.spawn(|| take(1));
                    take(0);
                });
            })?;
            wait(both)?;
        }
    }
    turns.finished()
}
