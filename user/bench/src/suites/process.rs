//! `process`: making, replacing and switching processes and threads.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Instant;

use bench::measure::Suite;
use bench::process::{self, NOTHING_PATH, fork, wait};

const SUITE: Suite = Suite::new("process");
/// Processes in the ring of the context switch tests.
const RING: [usize; 3] = [2, 8, 64];
/// Bytes that each process of the ring touches in its turn.
const FOOTPRINT: [usize; 2] = [0, 64 << 10];

/// Runs the suite.
///
/// # Errors
/// When the link to this program cannot be made.
pub(crate) fn run() -> io::Result<()> {
    link_nothing()?;
    repeat("fork_exit", || fork(|| ()).and_then(wait));
    repeat("fork_exec", || {
        fork(|| {
            process::execute_nothing();
            panic!("the program was not executed");
        })
        .and_then(wait)
    });
    repeat("vfork_exec", || process::vfork_and_execute_nothing().and_then(wait));
    repeat("sh_c_true", || {
        let status = Command::new("/bin/sh").args(["-c", "true"]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    });
    repeat("thread_create_join", || {
        std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::Error::other("the thread panicked"))
    });
    for processes in RING {
        for footprint in FOOTPRINT {
            let test = format!("context_switch_{processes}_{}k", footprint >> 10);
            SUITE.single(&test, || context_switch(&test, processes, footprint));
        }
    }
    Ok(())
}

/// Times something that may fail; then it is reported as such.
fn repeat(test: &str, mut body: impl FnMut() -> io::Result<()>) {
    SUITE.single(test, || {
        SUITE.time(test, |count| (0..count).for_each(|_| body().expect("a child")));
        Ok(())
    });
}

/// Makes the program that does nothing.
pub(crate) fn link_nothing() -> io::Result<()> {
    match symlink("/bench", NOTHING_PATH) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// lmbench's `lat_ctx`: a byte goes round a ring of processes, each of which reads its memory before it passes it on. The time is
/// that of one hop: a switch, a pipe's read and write, and the reading of the memory.
fn context_switch(test: &str, processes: usize, footprint: usize) -> io::Result<()> {
    let pipes: Vec<_> = (0..processes).map(|_| rustix::pipe::pipe()).collect::<Result<_, _>>()?;
    let mut children = Vec::new();
    for number in 1..processes {
        let (input, output) = (&pipes[number - 1].0, &pipes[number].1);
        children.push(fork(|| hop(input, output, footprint))?);
    }
    let memory = vec![1_u64; footprint / 8];
    let (input, output) = (&pipes[processes - 1].0, &pipes[0].1);
    let mut byte = [0];
    SUITE.time_inside(test, |count| {
        // A round has as many hops as there are processes.
        let rounds = count.div_ceil(processes as u64);
        let start = Instant::now();
        for _ in 0..rounds {
            assert_eq!(rustix::io::write(output, b"x"), Ok(1));
            assert_eq!(rustix::io::read(input, &mut byte), Ok(1));
            std::hint::black_box(memory.iter().sum::<u64>());
        }
        start.elapsed().mul_f64(count as f64 / (rounds * processes as u64) as f64)
    });
    rustix::io::write(output, &[0])?;
    rustix::io::read(input, &mut byte)?;
    children.into_iter().try_for_each(wait)
}

/// One process of the ring: passes bytes on until a zero byte has come.
fn hop(input: &OwnedFd, output: &OwnedFd, footprint: usize) {
    let memory = vec![1_u64; footprint / 8];
    let mut byte = [1];
    while byte != [0] {
        assert_eq!(rustix::io::read(input, &mut byte), Ok(1));
        std::hint::black_box(memory.iter().sum::<u64>());
        assert_eq!(rustix::io::write(output, &byte), Ok(1));
    }
}
