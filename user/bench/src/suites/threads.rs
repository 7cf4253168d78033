//! `threads`: what a sleeping thread and a sleeping process cost in memory, and how long many of them take to start.

use std::fs;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::memory::field;
use bench::measure::Suite;
use bench::process::{fork_sleeper, kill};

const SUITE: Suite = Suite::new("threads");
const THREADS: u32 = 10_000;
const PROCESSES: u32 = 500;
/// Bytes of a thread's stack; only what is touched counts.
const STACK: usize = 32 << 10;

/// Runs the suite.
pub(crate) fn run() {
    // First, while this process is small: its children get copies of its page tables.
    SUITE.single("memory_per_process", sleeping_processes);
    SUITE.group(["start_10000", "kernel_memory_per_thread"], sleeping_threads);
}

/// Bytes that the kernel has given away, without those that this process has in its own pages.
fn kernel_bytes() -> io::Result<f64> {
    let kib = field("/proc/self/status", "VmRSS:")? + field("/proc/meminfo", "MemFree:")?;
    Ok(-1024.0 * kib)
}

/// Lets the machine have so many threads: Linux sets its limit by the memory, below ours for a gibibyte. Where there is no such setting, there is no
/// such limit.
fn allow_threads() {
    for setting in ["/proc/sys/kernel/threads-max", "/proc/sys/vm/max_map_count"] {
        let _ = fs::write(setting, "100000");
    }
}

fn sleeping_threads() -> io::Result<()> {
    allow_threads();
    let before = kernel_bytes()?;
    // How many threads run, and whether they may end.
    let state = Mutex::new((0, false));
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        let start = Instant::now();
        for _ in 0..THREADS {
            let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || {
                let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
                now.0 += 1;
                if now.0 == THREADS {
                    changed.notify_all();
                }
                while !now.1 {
                    now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                }
            });
            if let Err(error) = spawned {
                // The scope waits for those that are there.
                state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
                changed.notify_all();
                return Err(error);
            }
        }
        let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
        while now.0 < THREADS {
            now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        SUITE.report("start_10000", "ns", start.elapsed().as_secs_f64() * 1e9);
        let bytes = (kernel_bytes()? - before) / f64::from(THREADS);
        SUITE.report("kernel_memory_per_thread", "bytes", bytes);
        now.1 = true;
        drop(now);
        changed.notify_all();
        Ok(())
    })
}

fn sleeping_processes() -> io::Result<()> {
    let before = field("/proc/meminfo", "MemFree:")?;
    let children = (0..PROCESSES).map(|_| fork_sleeper()).collect::<io::Result<Vec<_>>>()?;
    let bytes = (before - field("/proc/meminfo", "MemFree:")?) * 1024.0 / f64::from(PROCESSES);
    SUITE.report("memory_per_process", "bytes", bytes);
    children.into_iter().try_for_each(kill)
}
