//! `scale`: the same work on 1, 2, … processors at the same time. The time of one operation on each of N processors stays what
//! it is on one if nothing stands in the way; a test's name ends with `@N`.
//!
//! Where the clock counts instructions, an emulator runs the processors one after the other, and its clock goes on with the
//! instructions of each. There a processor gives its turn away after each operation, or it would keep it until the next timer, and one process would
//! find in its time what others did in theirs. A value is what all processors together execute for one operation: the same on
//! any number of them, unless they wait for each other, send each other interrupts, or search what the others have made.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};

use super::memory::Mapping;
use bench::measure::{Suite, counts_instructions, undisturbed};
use bench::process::{fork, wait};

const SUITE: Suite = Suite::new("scale");
/// How long each process works.
const TIME: Duration = Duration::from_millis(40);
/// Rounds; the best two of seven say what the work costs.
const ROUNDS: usize = 7;
/// Rounds where the clock counts instructions: the best.
const COUNTED_ROUNDS: usize = 3;
/// Operations between two looks at the clock.
const STRIDE: u64 = 16;

/// One kind of work: what a process does, told its number.
type Work = fn(usize, &mut dyn FnMut(&mut dyn FnMut()));

/// The kinds of work by name.
const WORK: [(&str, Work); 6] = [
    ("page_fault", page_fault),
    ("open_close_distinct", open_close_distinct),
    ("open_close_same", open_close_same),
    ("futex_wake", futex_wake),
    ("pipe", pipe),
    ("signal", signal),
];

/// Runs the suite.
///
/// # Errors
/// When the processors of this program cannot be told.
pub(crate) fn run() -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number)).collect();
    let rounds = if counts_instructions() { COUNTED_ROUNDS } else { ROUNDS };
    for (name, work) in WORK {
        let mut count = 1;
        while count <= processors.len() {
            let test = format!("{name}@{count}");
            SUITE.single(&test, || {
                let values = (0..rounds).map(|_| at_once(&processors[..count], work));
                SUITE.report(&test, "ns", undisturbed(values.collect::<io::Result<_>>()?));
                Ok(())
            });
            count = if count == processors.len() { count + 1 } else { (count * 2).min(processors.len()) };
        }
    }
    Ok(())
}

/// Has a process on each of the processors do the work, and returns the nanoseconds of one operation: on average, or what of
/// all processors' instructions each operation has taken.
fn at_once(processors: &[usize], work: Work) -> io::Result<f64> {
    let (output, input) = rustix::pipe::pipe()?;
    let (go_out, go_in) = rustix::pipe::pipe()?;
    let mut children = Vec::new();
    for (number, processor) in processors.iter().enumerate() {
        let mut set = CpuSet::new();
        set.set(*processor);
        let (input, go_out) = (&input, &go_out);
        children.push(fork(move || {
            sched_setaffinity(None, &set).expect("the processor is ours");
            let mut byte = [0];
            assert_eq!(rustix::io::read(go_out, &mut byte), Ok(1));
            work(number, &mut |operation| measure(input, operation));
        })?);
    }
    // So that the end of all children is the end of what can be read.
    drop((input, go_out));
    rustix::io::write(&go_in, &vec![1; processors.len()])?;
    let mut values = Vec::new();
    for _ in processors {
        let mut bytes = [0; 8];
        if rustix::io::read(&output, &mut bytes)? < bytes.len() {
            return Err(io::Error::other("a child has failed"));
        }
        values.push(f64::from_ne_bytes(bytes));
    }
    children.into_iter().try_for_each(wait)?;
    Ok(if counts_instructions() { shared(&values) } else { values.iter().sum::<f64>() / values.len() as f64 })
}

/// What one operation takes of a clock that all share, from what it took each of those who worked in the same time.
fn shared(values: &[f64]) -> f64 {
    values.iter().map(|value| value.recip()).sum::<f64>().recip()
}

/// Repeats an operation for some time and sends the nanoseconds of one to the parent.
fn measure(parent: &OwnedFd, operation: &mut dyn FnMut()) {
    let takes_turns = counts_instructions();
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < TIME {
        for _ in 0..STRIDE {
            operation();
            if takes_turns {
                // An emulator takes it as: let another processor run.
                std::hint::spin_loop();
            }
        }
        count += STRIDE;
    }
    let each = start.elapsed().as_secs_f64() * 1e9 / count as f64;
    assert_eq!(rustix::io::write(parent, &each.to_ne_bytes()), Ok(8));
}

fn page_fault(_: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    // Sixteen pages and their mapping: one operation.
    measure(&mut || {
        Mapping::anonymous(16 * 4096).expect("memory").touch();
    });
}

fn open_close(path: &str, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    measure(&mut || drop(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it is there")));
}

fn open_close_distinct(number: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    let path = format!("/tmp/bench-scale-{number}");
    fs::write(&path, b"").expect("room");
    open_close(&path, measure);
}

fn open_close_same(_: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    let path = "/tmp/bench-scale";
    fs::write(path, b"").expect("room");
    open_close(path, measure);
}

fn futex_wake(_: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    let word = AtomicU32::new(0);
    measure(&mut || {
        word.fetch_add(1, Ordering::Relaxed);
        assert_eq!(futex::wake(&word, futex::Flags::PRIVATE, 1), Ok(0));
    });
}

fn pipe(_: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    let (output, input) = rustix::pipe::pipe().expect("descriptors are left");
    let mut byte = [0];
    measure(&mut || {
        assert_eq!(rustix::io::write(&input, b"x"), Ok(1));
        assert_eq!(rustix::io::read(&output, &mut byte), Ok(1));
    });
}

fn signal(_: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
    bench::signal::install().expect("a handler");
    let own = rustix::process::getpid();
    measure(&mut || {
        rustix::process::kill_process(own, rustix::process::Signal::USR1).expect("it is our own process");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_takes_its_share_of_a_clock_that_all_use() {
        // Of 12 instructions at a time, one process did 3 operations and the other one 1.
        assert!((shared(&[4.0, 12.0]) - 3.0).abs() < 1e-9);
        assert!((shared(&[5.0]) - 5.0).abs() < 1e-9);
    }
}
