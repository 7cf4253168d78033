//! `unixbench`: the five tests with which the thesis on demand-paged kernel stacks compares kernels (sheet kernel-stacks, 54). Its
//! figures are loops per second; here they are nanoseconds per loop, so that smaller is better as everywhere.

use std::fs::File;
use std::hint::black_box;
use std::io;

use rustix::fs::Mode;

use bench::measure::Suite;
use bench::process::{self, fork, wait};

const SUITE: Suite = Suite::new("unixbench");
/// Bytes of one transfer in the test of pipe throughput.
const BLOCK: usize = 512;

/// Runs the suite.
pub(crate) fn run() {
    SUITE.single("system_call_overhead", system_calls);
    SUITE.single("pipe_throughput", pipe_throughput);
    SUITE.single("pipe_context_switching", pipe_switching);
    SUITE.single("process_creation", || {
        SUITE.time("process_creation", |count| {
            (0..count).for_each(|_| fork(|| ()).and_then(wait).expect("a child"));
        });
        Ok(())
    });
    SUITE.single("execl_throughput", || {
        // A process that executes itself again and again, as in the original.
        SUITE.time("execl_throughput", |count| {
            let executing = fork(|| {
                process::execute_times(count);
                panic!("the program was not executed");
            });
            executing.and_then(wait).expect("a child");
        });
        Ok(())
    });
}

/// `dup`, `close`, `getpid`, `getuid` and `umask`.
fn system_calls() -> io::Result<()> {
    let file = File::open("/dev/null")?;
    SUITE.time("system_call_overhead", |count| {
        for _ in 0..count {
            drop(rustix::io::dup(&file).expect("descriptors are left"));
            black_box(rustix::process::getpid());
            black_box(rustix::process::getuid());
            black_box(rustix::process::umask(Mode::from_raw_mode(0o22)));
        }
    });
    Ok(())
}

/// One process writes 512 bytes into a pipe and reads them.
fn pipe_throughput() -> io::Result<()> {
    let (output, input) = rustix::pipe::pipe()?;
    let mut block = [0; BLOCK];
    SUITE.time("pipe_throughput", |count| {
        for _ in 0..count {
            assert_eq!(rustix::io::write(&input, &block), Ok(BLOCK));
            assert_eq!(rustix::io::read(&output, &mut block), Ok(BLOCK));
        }
    });
    Ok(())
}

/// Two processes pass a number back and forth.
fn pipe_switching() -> io::Result<()> {
    let (there_out, there_in) = rustix::pipe::pipe()?;
    let (back_out, back_in) = rustix::pipe::pipe()?;
    let child = fork(|| {
        let mut number = [0; 8];
        while rustix::io::read(&there_out, &mut number) == Ok(8) && number != [0; 8] {
            assert_eq!(rustix::io::write(&back_in, &number), Ok(8));
        }
    })?;
    // Without these, a child that ends too soon is an error here, instead of a wait without end.
    drop((there_out, back_in));
    let mut number = [1; 8];
    SUITE.time("pipe_context_switching", |count| {
        for _ in 0..count {
            assert_eq!(rustix::io::write(&there_in, &number), Ok(8));
            assert_eq!(rustix::io::read(&back_out, &mut number), Ok(8));
        }
    });
    rustix::io::write(&there_in, &[0; 8])?;
    wait(child)
}
