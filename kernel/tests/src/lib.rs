//! In-kernel tests, selected by `test=` on the command line: `all`, or names of modules and tests, with commas between.
//!
//! Each prints one line, `test NAME ... ok` or `test NAME ... FAILED: why`; the last line is
//! `tests: N passed, N failed`, then the machine turns itself off.
//!
//! They are a crate of their own so that they can be built for size: what is tested is built for speed. On the host there is nothing of them.
#![cfg(target_os = "none")]
#![no_std]
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a failed test carries its message by value: early tests run before there is a heap"
)]

extern crate alloc;

mod address_space;
mod address_space_costs;
mod clustered;
mod debugger;
mod disks;
mod host_link;
mod ipc;
mod ipc_costs;
mod ipc_loads;
mod ipc_moments;
mod ipc_races;
mod ipc_states;
mod ipc_stress;
mod kit;
mod kstack;
mod kstack_costs;
mod kstack_races;
mod kstack_slots;
mod lock_stat;
mod locks;
mod machine;
mod machine_disk;
mod memory;
mod message_box;
mod message_box_costs;
mod mounts;
mod outcome;
mod percpu;
mod processes;
mod rcu;
mod rcu_flood;
mod sched;
mod softirq_flood;
mod starvation;
mod timing;

pub use machine::application_processor;

use core::sync::atomic::{AtomicU32, Ordering};
pub(crate) use outcome::{Failure, Outcome, check, fail};

/// Who waits for something longer than this reports a hang. No limit on how long anything may take: that depends on the host.
pub(crate) const HANG_NS: u64 = 300_000_000_000;

/// Whether instructions are the clock, as `test.clock=instructions` says: what a test measures then does not depend on the host.
pub(crate) fn counts_instructions() -> bool {
    ::machine::boot::info().option("test.clock") == Some("instructions")
}

/// A test.
pub(crate) struct Test {
    /// `module::behaviour`.
    pub(crate) name: &'static str,
    /// Its body.
    pub(crate) run: fn() -> Outcome,
}

/// Tests that need the machine to themselves, before the scheduler runs.
const EARLY: &[&[Test]] = &[machine::TESTS];
/// Tests that run in a thread.
const LATE: &[&[Test]] = &[
    memory::TESTS,
    percpu::TESTS,
    mounts::TESTS,
    disks::TESTS,
    processes::TESTS,
    clustered::TESTS,
    kit::TESTS,
    message_box::TESTS,
    debugger::TESTS,
    ipc::TESTS,
    ipc_races::TESTS,
    ipc_states::TESTS,
    ipc_moments::TESTS,
    ipc_stress::TESTS,
    kstack::TESTS,
    kstack_races::TESTS,
    kstack_slots::TESTS,
    sched::TESTS,
    locks::TESTS,
    lock_stat::TESTS,
    rcu::TESTS,
    softirq_flood::TESTS,
    starvation::TESTS,
    timing::TESTS,
    address_space::TESTS,
];

/// Tests that run only when they are named, because they need somebody outside.
const ON_REQUEST: &[&[Test]] = &[
    percpu::LONG,
    clustered::LONG,
    processes::LONG,
    host_link::TESTS,
    machine_disk::TESTS,
    address_space_costs::TESTS,
    message_box_costs::TESTS,
    ipc_costs::TESTS,
    ipc_loads::TESTS,
    kstack_costs::TESTS,
    rcu_flood::TESTS,
];

static PASSED: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Runs the tests of the machine that the selection names, then lets the processors go. The others are well into the scheduler when the
/// boot processor starts it, as on a busy host: what they need, they must not need from it.
pub fn run_early(selection: &str) {
    /// Longer than the turn of a thread: the deadline of its end passes.
    const HEAD_START_NS: u64 = 20_000_000;
    assert!(selection != "panic", "asked for on the command line");
    run_modules(EARLY, selection);
    machine::finish();
    // An idle processor has let its first threads run, each with a turn whose end was to interrupt it.
    for cpu in ::machine::cpu::online().iter().filter(|&cpu| cpu != ::machine::cpu::CpuId::BOOT) {
        while !::sched::inspection::is_idle(cpu) {
            ::machine::cpu::relax();
        }
    }
    let begin_ns = ::machine::time::now_ns();
    while ::machine::time::now_ns() < begin_ns + HEAD_START_NS {
        ::machine::cpu::relax();
    }
}

/// Runs the other tests that the selection names and turns the machine off.
pub fn run(selection: &str) -> ! {
    assert!(selection != "late_panic", "asked for on the command line");
    run_modules(LATE, selection);
    if selection != "all" {
        run_modules(ON_REQUEST, selection);
    }
    let (passed, mut failed) = (PASSED.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed));
    if passed + failed == 0 {
        print(format_args!("no test is called {selection}\n"));
        failed = 1;
    }
    print(format_args!("tests: {passed} passed, {failed} failed\n"));
    if let Some(link) = hostlink::Link::get() {
        link.exit(hostlink::ExitKind::Exited(u8::from(failed > 0)));
    }
    ::machine::power::power_off()
}

fn run_modules(modules: &[&[Test]], selection: &str) {
    for test in modules.iter().copied().flatten().filter(|test| is_selected(test.name, selection)) {
        match (test.run)() {
            Ok(()) => {
                PASSED.fetch_add(1, Ordering::Relaxed);
                print(format_args!("test {} ... ok\n", test.name));
            }
            Err(failure) => {
                FAILED.fetch_add(1, Ordering::Relaxed);
                print(format_args!("test {} ... FAILED: {failure}\n", test.name));
            }
        }
    }
}

fn is_selected(name: &str, selection: &str) -> bool {
    selection == "all"
        || selection.split(',').any(|item| name == item || name.split("::").any(|part| part == item))
}

fn print(arguments: core::fmt::Arguments<'_>) {
    ::machine::console::print(arguments);
}
