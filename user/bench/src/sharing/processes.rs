//! Pairs of calls about processes, threads and signals.

use std::fs::File;
use std::hint::black_box;
use std::io;

use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::time::ClockId;

use super::{Operation, Pair, Step, call};
use bench::process::{execute_nothing, fork, fork_sleeper, kill, wait};

/// The pairs.
pub(super) const PAIRS: [Pair; 15] = [
    Pair::processes("getppid", |_| Ok(call(|| _ = black_box(rustix::process::getppid())))),
    Pair::threads("getuid_threads", |_| Ok(call(|| _ = black_box(rustix::process::getuid())))),
    Pair::processes("sched_yield", |_| Ok(call(rustix::thread::sched_yield))),
    Pair::threads("sched_yield_threads", |_| Ok(call(rustix::thread::sched_yield))),
    Pair::processes("clock_process_time", |_| clock()),
    Pair::processes("getcwd", |_| {
        Ok(call(|| _ = rustix::process::getcwd(Vec::new()).expect("there is one")))
    }),
    Pair::processes("sigaction", |_| Ok(call(|| bench::signal::install().expect("a handler")))),
    Pair::processes("kill_itself", |_| kill_itself()),
    Pair::processes("kill_child", |_| kill_child()),
    Pair::processes("fork_exit_wait", |_| {
        Ok(call(|| fork(|| {}).and_then(wait).expect("a process is left")))
    }),
    Pair::processes("fork_exec_wait", |_| {
        Ok(call(|| fork(execute_nothing).and_then(fail).expect("a process")))
    }),
    Pair::processes("kill_wait_child", |_| kill_wait()),
    Pair::processes("thread_create_join", |_| {
        Ok(call(|| std::thread::spawn(|| {}).join().expect("it ends")))
    }),
    Pair::processes("read_proc_stat", |_| proc("/proc/self/stat")),
    Pair::processes("read_proc_status", |_| proc("/proc/self/status")),
];

/// Waits for a child whatever its status is.
fn fail(child: Pid) -> io::Result<()> {
    let _ = wait(child);
    Ok(())
}

fn clock() -> io::Result<Operation> {
    Ok(call(|| _ = black_box(rustix::time::clock_gettime(ClockId::ProcessCPUTime))))
}

fn kill_itself() -> io::Result<Operation> {
    bench::signal::install()?;
    let own = getpid();
    Ok(call(move || kill_process(own, Signal::USR1).expect("it is our own process")))
}

/// A child that sleeps until this goes.
struct Sleeper(Pid);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It goes with the machine in any case.
        let _ = kill(self.0);
    }
}

/// A signal that a child ignores.
fn kill_child() -> io::Result<Operation> {
    let child = Sleeper(fork_sleeper()?);
    Ok(call(move || {
        // All of it, so that it goes with this operation.
        let Sleeper(child) = &child;
        kill_process(*child, Signal::WINCH).expect("it lives");
    }))
}

fn kill_wait() -> io::Result<Operation> {
    let mut child = None;
    Ok(Box::new(move |step| match step {
        Step::Before => child = Some(fork_sleeper().expect("a process is left")),
        Step::Call => kill(child.take().expect("it was made")).expect("it lives"),
        Step::After => {}
    }))
}

fn proc(path: &'static str) -> io::Result<Operation> {
    let mut buffer = vec![0; 4096];
    Ok(call(move || {
        let file = File::open(path).expect("it is there");
        assert!(rustix::io::read(&file, &mut buffer[..]).is_ok_and(|count| count > 0));
    }))
}
