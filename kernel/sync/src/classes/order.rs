//! Order checking: finds locks that could wait for each other for ever, before they do.
//!
//! What is reported, each kind once for a pair of classes, with the names of all classes held, the calls that led here and
//! the calls that led to the order seen before:
//! - a lock of class B is taken while one of A is held, and somewhere, perhaps over further classes, A while B is held;
//! - a lock is taken while another one of its class is held, and not by `lock_nested`;
//! - a class is taken in a hard interrupt and also with interrupts enabled: the interrupt may come while the lock is held;
//! - while a class that interrupts take is held, one is waited for that is elsewhere held with interrupts enabled: the
//!   same over two CPUs;
//! - a thread may sleep (a sleeping lock, a wait) while it holds a spin lock or has disabled preemption;
//! - other CPUs are called while a spin lock is held that somebody waits for: that may be one of them, with interrupts off;
//! - memory is allocated while a spin lock is held and interrupts are off: that may take long, and must not fail lightly.
//!
//! Locks taken by `try_lock` wait for nobody, so they are taken in any order; what is taken while they are held counts.
//!
//! A violation is logged and counted, and is a panic, so that no test passes over it; with `lock-order=log` on the kernel's command
//! line the kernel goes on.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use machine::{interrupt, preempt, symbols};

use super::Kind;
use super::context::Context;
use super::edges::{self, Way};
use super::held::HeldList;
use super::registry::{CLASSES_MAX, ClassId};
use super::thread;
use crate::{PerCpu, per_cpu};

/// Spin locks that each CPU holds.
pub(super) static SPINNING: PerCpu<HeldList> = per_cpu!(HeldList::new());

/// Taken in a hard interrupt.
const IN_INTERRUPT: u8 = 1;
/// Taken with interrupts enabled.
const INTERRUPTIBLE: u8 = 2;
/// Waited for: not only tried.
const WAITED_FOR: u8 = 4;
/// Held while other CPUs were waited for.
const CALLED_UNDER: u8 = 8;
/// Held while memory was allocated with interrupts off.
const ALLOCATED_UNDER: u8 = 16;

/// Bits of each class.
static USAGE: [AtomicU8; CLASSES_MAX] = [const { AtomicU8::new(0) }; CLASSES_MAX];
/// Waits reported: they have no class to tell them apart.
const SLEEPS_REPORTED: u32 = 5;
static SLEEPS: AtomicU32 = AtomicU32::new(0);
static VIOLATIONS: AtomicU32 = AtomicU32::new(0);
/// Whether this CPU is reporting, and takes locks for it.
static REPORTING: PerCpu<AtomicBool> = per_cpu!(AtomicBool::new(false));

/// How many violations were found.
pub(super) fn violations() -> u32 {
    VIOLATIONS.load(Ordering::Relaxed)
}

/// Writes all classes and the orders between them.
///
/// # Errors
/// The writer's.
pub(super) fn write(to: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(to, "violations: {}", violations())?;
    for class in ClassId::all().skip(1) {
        let usage = USAGE[class.index()].load(Ordering::Relaxed);
        let interrupt = if usage & IN_INTERRUPT != 0 { " in-interrupt" } else { "" };
        let interruptible = if usage & INTERRUPTIBLE != 0 { " interruptible" } else { "" };
        writeln!(to, "class {class}{interrupt}{interruptible}")?;
    }
    let mut result = Ok(());
    edges::for_each(|from, to_class| {
        if result.is_ok() {
            result = writeln!(to, "order {from} -> {to_class}");
        }
    });
    result
}

/// A lock of that class is about to be waited for. The caller cannot migrate if it is a spin lock.
pub(super) fn check(class: ClassId, kind: Kind, context: Context) {
    if class.0 == 0 || REPORTING.of(machine::cpu::current()).load(Ordering::Relaxed) {
        return;
    }
    if kind.sleeps() {
        may_sleep(Some(class));
    }
    for_each_held(context, |held| check_pair(held, class));
    if !kind.sleeps() {
        check_interrupts(class, context);
    }
}

fn for_each_held(context: Context, mut body: impl FnMut(ClassId)) {
    if context == Context::Thread {
        thread::with_current(|locks| locks.held.classes(context).for_each(&mut body));
    }
    let _preemption = preempt::disable();
    SPINNING.of(machine::cpu::current()).classes(context).for_each(&mut body);
}

fn check_pair(held: ClassId, wanted: ClassId) {
    if held.0 == 0 || edges::is_known(held, wanted) {
        return;
    }
    if held == wanted {
        if edges::note_reported(held, wanted) {
            report(format_args!("{wanted} is taken while another lock of its class is held"), None);
        }
    } else if let Some(way) = edges::add(held, wanted) {
        report(
            format_args!("{wanted} is taken while {held} is held, and elsewhere the other way round"),
            Some(&way),
        );
    }
}

/// The rules about classes that hard interrupts take.
fn check_interrupts(class: ClassId, context: Context) {
    note_usage(
        class,
        WAITED_FOR,
        CALLED_UNDER | WAITED_FOR,
        "it is waited for, and held while other CPUs are called",
    );
    let used = match (context, interrupt::are_enabled()) {
        (Context::Interrupt, _) => IN_INTERRUPT,
        // Before there are threads nothing interrupts.
        (_, true) if thread::are_there() => INTERRUPTIBLE,
        _ => 0,
    };
    if used != 0 {
        let what = "it is taken in interrupts, and also with interrupts enabled";
        note_usage(class, used, IN_INTERRUPT | INTERRUPTIBLE, what);
    }
    let usage = &USAGE[class.index()];
    if usage.load(Ordering::Relaxed) & INTERRUPTIBLE != 0 {
        let _preemption = preempt::disable();
        for held in SPINNING.of(machine::cpu::current()).classes(context) {
            let in_interrupt = USAGE[held.index()].load(Ordering::Relaxed) & IN_INTERRUPT != 0;
            // The pair itself is an order, so the opposite one marks it as reported.
            if in_interrupt && edges::note_reported(class, held) {
                report(
                    format_args!(
                        "{class}, which is held with interrupts enabled, is taken under {held} of interrupts"
                    ),
                    None,
                );
            }
        }
    }
}

/// Runs `body` without checks.
pub(super) fn without<R>(body: impl FnOnce() -> R) -> R {
    let reporting = REPORTING.of(machine::cpu::current());
    let before = reporting.swap(true, Ordering::Relaxed);
    let result = body();
    reporting.store(before, Ordering::Relaxed);
    result
}

/// The nesting at which a lock of a class that is taken in a tree's order is taken now: how many of its class are held.
pub(super) fn nesting_of(name: &'static str, kind: Kind) -> u8 {
    let context = if kind.sleeps() { Context::Thread } else { Context::current() };
    let mut nesting = 0;
    for_each_held(context, |held| {
        if held == ClassId::of(name, kind, nesting) && nesting + 1 < super::IN_TREE {
            nesting += 1;
        }
    });
    nesting
}

/// The caller may sleep, for that class or for something else.
pub(super) fn may_sleep(wanted: Option<ClassId>) {
    if !thread::are_there() || machine::cpu::thread_word() == 0 {
        return;
    }
    if preempt::count() == 0 && !interrupt::in_interrupt() {
        return;
    }
    let _preemption = preempt::disable();
    if REPORTING.of(machine::cpu::current()).load(Ordering::Relaxed) {
        return;
    }
    match wanted {
        Some(class) if edges::note_reported(class, ClassId(0)) => {
            report(format_args!("{class} sleeps where sleeping is forbidden"), None);
        }
        Some(_) => {}
        None if SLEEPS.fetch_add(1, Ordering::Relaxed) < SLEEPS_REPORTED => {
            report(format_args!("a thread sleeps where that is forbidden"), None);
        }
        None => {}
    }
}

/// The caller waits for other CPUs.
pub(super) fn may_call_remotely() {
    let _preemption = preempt::disable();
    if REPORTING.of(machine::cpu::current()).load(Ordering::Relaxed) {
        return;
    }
    for held in SPINNING.of(machine::cpu::current()).classes(Context::current()) {
        note_usage(held, CALLED_UNDER, CALLED_UNDER | WAITED_FOR, "other CPUs are called while it is held");
    }
}

/// The caller allocates.
pub(super) fn may_allocate() {
    if interrupt::are_enabled() || !thread::are_there() {
        return;
    }
    let _preemption = preempt::disable();
    if REPORTING.of(machine::cpu::current()).load(Ordering::Relaxed) {
        return;
    }
    for held in SPINNING.of(machine::cpu::current()).classes(Context::current()) {
        note_usage(
            held,
            ALLOCATED_UNDER,
            ALLOCATED_UNDER,
            "memory is allocated while it is held, with interrupts off",
        );
    }
}

/// Notes how a class is used; reports it when it is used in both ways for the first time.
fn note_usage(class: ClassId, how: u8, conflict: u8, what: &str) {
    let usage = &USAGE[class.index()];
    let before = usage.load(Ordering::Relaxed);
    if before & how == how {
        return;
    }
    let after = usage.fetch_or(how, Ordering::Relaxed) | how;
    if after & conflict == conflict && before & conflict != conflict {
        report(format_args!("{class}: {what}"), None);
    }
}

/// Whether the thread holds no lock of any kind; reports them if it does.
pub(super) fn nothing_held() -> bool {
    let mut some = false;
    let _preemption = preempt::disable();
    for_each_held(Context::Thread, |_| some = true);
    if some {
        report(format_args!("a system call ends and leaves locks behind"), None);
    }
    !some
}

/// Return addresses as lines.
struct Calls<'a>(&'a [usize]);

impl fmt::Display for Calls<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for address in self.0.iter().copied().filter(|address| *address != 0) {
            match symbols::resolve(address - 1) {
                Some(symbol) => write!(formatter, " < {symbol}")?,
                None => write!(formatter, " < {address:#x}")?,
            }
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn report(what: fmt::Arguments<'_>, way: Option<&Way>) {
    let _preemption = preempt::disable();
    let cpu = machine::cpu::current();
    if REPORTING.of(cpu).swap(true, Ordering::Relaxed) {
        return;
    }
    VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    say(format_args!("lock order violation: {what}"));
    for_each_held(Context::current(), |class| say(format_args!("  held: {class}")));
    say(format_args!("  now{}", Calls(&edges::calls_here())));
    for (from, to, calls) in way.into_iter().flat_map(|way| &way.steps[..way.length]) {
        say(format_args!("  before, {to} while {from} was held:{}", Calls(calls)));
    }
    REPORTING.of(cpu).store(false, Ordering::Relaxed);
    let logs_only = cfg!(target_os = "none") && machine::boot::info().option("lock-order") == Some("log");
    assert!(logs_only, "lock order violation: {what}");
}

#[cfg(target_os = "none")]
fn say(line: fmt::Arguments<'_>) {
    log::error!("{line}");
}

#[cfg(not(target_os = "none"))]
fn say(line: fmt::Arguments<'_>) {
    std::eprintln!("{line}");
}
