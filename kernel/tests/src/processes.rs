//! Tests of the process table (`test=processes`): look-ups under RCU while processes end and their numbers are borne by others.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::linux::errno::Errno;
use ::linux::process::exercise::Maker;
use ::linux::process::process::Process;
use ::linux::process::table::{self, Pid, ReservedPid};
use ::machine::cpu;
use ::sync::SpinLock;

use super::percpu::on_each_cpu;
use super::{Failure, HANG_NS, Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "processes::look_up_while_it_ends_and_its_number_is_reused",
        run: number_is_reused_meanwhile,
    },
    Test { name: "processes::numbers_change_hands_under_look_ups", run: || numbers_change_hands(5_000) },
    Test { name: "processes::walk_meets_each_that_stays_once", run: || walks_meet_all(2_000, 20) },
    Test { name: "processes::numbers_are_unique_and_rise_on_each_cpu", run: numbers_rise },
    Test { name: "processes::leaves_go_with_their_last_number", run: leaves_come_and_go },
];

/// The numbers of the issue.
pub(crate) const LONG: &[Test] = &[
    Test {
        name: "processes_long::numbers_change_hands_under_look_ups",
        run: || numbers_change_hands(40_000),
    },
    Test { name: "processes_long::walk_meets_each_of_10000", run: || walks_meet_all(10_000, 100) },
];

static MAKER: ::sync::Once<Result<Maker, Errno>> = ::sync::Once::new();

fn enlist(reserved: ReservedPid) -> Result<Arc<Process>, Failure> {
    let Ok(maker) = MAKER.call_once(Maker::new) else { fail!("no memory to make processes with") };
    let Ok(process) = maker.make(reserved.number()) else { fail!("no memory for a process") };
    table::insert_process(&process);
    reserved.keep();
    Ok(process)
}

fn new_process() -> Result<Arc<Process>, Failure> {
    match ReservedPid::allocate() {
        Ok(reserved) => enlist(reserved),
        Err(errno) => fail!("no number: {errno:?}"),
    }
}

/// The same number again, for another process.
fn successor_of(pid: Pid) -> Result<Arc<Process>, Failure> {
    match ReservedPid::claim(pid) {
        Ok(Some(reserved)) => enlist(reserved),
        other => fail!("number {pid} is not free: {other:?}"),
    }
}

/// Where the two sides of the window are.
static STEP: AtomicU32 = AtomicU32::new(0);
const READY: u32 = 1;
const LOOKING: u32 = 2;
const REUSED: u32 = 3;

fn wait_for(step: u32) -> bool {
    let limit = ::machine::time::now_ns() + HANG_NS;
    while STEP.load(Ordering::SeqCst) != step && ::machine::time::now_ns() < limit {
        // Inside a look-up it stays where it is.
        match ::machine::preempt::count() {
            0 => ::sched::yield_now(),
            _ => cpu::relax(),
        }
    }
    STEP.load(Ordering::SeqCst) == step
}

/// One CPU is in the midst of a look-up, while another one has the process end and the number reused: the look-up goes on with the old one,
/// which lives until it is done and no longer; the next one finds the new one.
fn number_is_reused_meanwhile() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let old = new_process()?;
    let pid = old.pid();
    let (weak, start_ns) = (Arc::downgrade(&old), old.start_ns());
    drop(old);
    STEP.store(0, Ordering::SeqCst);
    let cpus: Vec<_> = cpu::online().iter().take(2).collect();
    let failure = Arc::new(SpinLock::new(None));
    let (noted, seen) = (failure.clone(), weak.clone());
    on_each_cpu(move || {
        let here = cpu::current();
        let outcome = if here == cpus[0] {
            look_in_window(pid, start_ns, &seen)
        } else if here == cpus[1] {
            reuse_in_window(pid)
        } else {
            Ok(())
        };
        if let Err(reason) = outcome {
            *noted.lock() = Some(reason);
        }
    })?;
    if let Some(reason) = failure.lock().take() {
        return Err(reason);
    }
    let Some(successor) = table::process(pid) else { fail!("the new one is not found") };
    check!(!Weak::ptr_eq(&weak, &Arc::downgrade(&successor)), "the old one is found again");
    table::remove_process(pid);
    ::sync::rcu::synchronize();
    ::sync::rcu::barrier();
    check!(weak.strong_count() == 0, "the old one outlives its grace period");
    check!(table::process(pid).is_none(), "number {pid} still means somebody");
    Ok(())
}

fn look_in_window(pid: Pid, start_ns: u64, weak: &Weak<Process>) -> Outcome {
    // The look-up keeps its CPU, which the other side may need to come to its own.
    check!(wait_for(READY), "the other side did not begin");
    let seen = table::look_at_process_of(pid, |process| {
        STEP.store(LOOKING, Ordering::SeqCst);
        let reused = wait_for(REUSED);
        (reused, process.pid(), process.start_ns(), weak.strong_count())
    });
    let Some((reused, number, start, references)) = seen else { fail!("the process is not found") };
    check!(reused, "the number was not reused in time");
    check!((number, start) == (pid, start_ns), "the look-up went on with {number} started at {start}");
    check!(references > 0, "the process went in the midst of the look-up");
    Ok(())
}

fn reuse_in_window(pid: Pid) -> Outcome {
    STEP.store(READY, Ordering::SeqCst);
    check!(wait_for(LOOKING), "the look-up did not begin");
    table::remove_process(pid);
    check!(table::process(pid).is_none(), "found after its removal");
    let successor = successor_of(pid);
    STEP.store(REUSED, Ordering::SeqCst);
    let found = table::process(pid);
    check!(
        found.is_some_and(|found| successor.is_ok_and(|new| Arc::ptr_eq(&found, &new))),
        "not the successor"
    );
    Ok(())
}

/// One CPU has a few numbers change hands as fast as it can, and the others look them up in all ways: they find nobody, or somebody who
/// has this very number.
fn numbers_change_hands(rounds: u64) -> Outcome {
    const NUMBERS: usize = 4;
    let mut pids = [0; NUMBERS];
    for pid in &mut pids {
        *pid = new_process()?.pid();
    }
    let first = cpu::online().iter().next();
    let (wrong, found, done) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (errors, finds, made) = (wrong.clone(), found.clone(), done.clone());
    on_each_cpu(move || {
        if Some(cpu::current()) == first {
            for round in 0..rounds {
                let pid = pids[round as usize % NUMBERS];
                table::remove_process(pid);
                errors.fetch_add(u64::from(successor_of(pid).is_err()), Ordering::Relaxed);
                made.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let mut round = 0;
        while made.load(Ordering::Relaxed) < rounds {
            round += 1;
            let pid = pids[round % NUMBERS];
            let number = match round / NUMBERS % 3 {
                0 => table::process(pid).map(|process| process.pid()),
                1 => table::look_at_process_of(pid, Process::pid),
                // The lowest from there on may be another one, but never one below.
                _ => table::look_at_next_process(pid, Process::pid)
                    .map(|(at, number)| if at == number && at >= pid { pid } else { 0 }),
            };
            errors.fetch_add(u64::from(number.is_some_and(|number| number != pid)), Ordering::Relaxed);
            finds.fetch_add(u64::from(number.is_some()), Ordering::Relaxed);
            if round % 64 == 0 {
                ::sched::yield_now();
            }
        }
    })?;
    for pid in pids {
        table::remove_process(pid);
    }
    check!(wrong.load(Ordering::Relaxed) == 0, "{} look-ups were wrong", wrong.load(Ordering::Relaxed));
    log::info!("{rounds} numbers changed hands under {} look-ups", found.load(Ordering::Relaxed));
    Ok(())
}

/// One CPU walks while the others make processes and have them end: each walk meets each process that stays exactly once, in order.
fn walks_meet_all(stay: usize, walks: u64) -> Outcome {
    let mut staying = Vec::new();
    for _ in 0..stay {
        staying.push(new_process()?);
    }
    let mut numbers: Vec<Pid> = staying.iter().map(|process| process.pid()).collect();
    numbers.sort_unstable();
    let numbers = Arc::new(numbers);
    let first = cpu::online().iter().next();
    let (wrong, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (errors, walked, known) = (wrong.clone(), done.clone(), numbers.clone());
    on_each_cpu(move || {
        while walked.load(Ordering::Relaxed) < walks {
            if Some(cpu::current()) == first {
                let mut left = known.iter().copied().peekable();
                let mut last = 0;
                table::for_each_process(|process| {
                    let pid = process.pid();
                    errors.fetch_add(u64::from(pid <= last), Ordering::Relaxed);
                    last = pid;
                    left.next_if_eq(&pid);
                });
                errors.fetch_add(left.count() as u64, Ordering::Relaxed);
                walked.fetch_add(1, Ordering::Relaxed);
            } else if let Ok(process) = new_process() {
                table::remove_process(process.pid());
            }
        }
    })?;
    for pid in numbers.iter() {
        table::remove_process(*pid);
    }
    check!(wrong.load(Ordering::Relaxed) == 0, "{} were missed or met twice", wrong.load(Ordering::Relaxed));
    Ok(())
}

/// Numbers that all CPUs reserve at the same time.
fn numbers_rise() -> Outcome {
    const EACH: usize = 500;
    let all = Arc::new(SpinLock::new(Vec::new()));
    let wrong = Arc::new(AtomicU64::new(0));
    let (lists, errors) = (all.clone(), wrong.clone());
    on_each_cpu(move || {
        let own: Vec<_> = (0..EACH).filter_map(|_| ReservedPid::allocate().ok()).collect();
        let rises = own.is_sorted_by(|one, other| one.number() < other.number());
        errors.fetch_add(u64::from(!rises || own.len() != EACH), Ordering::Relaxed);
        lists.lock().push(own);
    })?;
    let lists = core::mem::take(&mut *all.lock());
    let mut numbers: Vec<Pid> = lists.iter().flatten().map(ReservedPid::number).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    check!(wrong.load(Ordering::Relaxed) == 0, "on {} CPUs they did not", wrong.load(Ordering::Relaxed));
    check!(numbers.len() == count, "{} numbers were given out twice", count - numbers.len());
    Ok(())
}

/// Leaves of the tree are made and unlinked on all CPUs at the same time.
fn leaves_come_and_go() -> Outcome {
    const FAR: Pid = table::PID_MAX - 4096;
    let wrong = Arc::new(AtomicU64::new(0));
    let errors = wrong.clone();
    on_each_cpu(move || {
        let own = cpu::current().index() as Pid;
        for round in 0..2_000 {
            // Neighbours in one leaf, so that the last one to go is now this CPU and now that.
            let pid = FAR + round % 8 * 64 + own;
            let Ok(Some(reserved)) = ReservedPid::claim(pid) else {
                errors.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let Ok(process) = enlist(reserved) else { continue };
            let is_found = table::process(pid).is_some_and(|found| Arc::ptr_eq(&found, &process));
            errors.fetch_add(u64::from(!is_found), Ordering::Relaxed);
            table::remove_process(pid);
            errors.fetch_add(u64::from(table::has_process(pid)), Ordering::Relaxed);
        }
    })?;
    check!(
        wrong.load(Ordering::Relaxed) == 0,
        "{} claims or look-ups were wrong",
        wrong.load(Ordering::Relaxed)
    );
    Ok(())
}
