//! What `/proc/lock_stat` shows: for each class how often its locks were taken, how long they were waited for and held.
//!
//! Each CPU writes cells of its own, with interrupts off; a reader adds them up. A bounce is an acquisition by another
//! CPU than the one that had the lock last.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use machine::{cpu, interrupt, preempt, time};

use super::Kind;
use super::registry::{CLASSES_MAX, ClassId};
use crate::{PerCpu, per_cpu};

/// Numbers of a class on one CPU. Times in nanoseconds; a minimum is kept as its complement, so that 0 is "none".
#[derive(Default)]
struct Cell {
    contention_bounces: AtomicU64,
    acquisition_bounces: AtomicU64,
    wait: Times,
    hold: Times,
    acquisitions: AtomicU64,
}

#[derive(Default)]
struct Times {
    count: AtomicU64,
    complement_of_least: AtomicU64,
    most: AtomicU64,
    total: AtomicU64,
}

const NO_TIMES: Times = Times {
    count: AtomicU64::new(0),
    complement_of_least: AtomicU64::new(0),
    most: AtomicU64::new(0),
    total: AtomicU64::new(0),
};

static CELLS: PerCpu<[Cell; CLASSES_MAX]> = per_cpu!(
    [const {
        Cell {
            contention_bounces: AtomicU64::new(0),
            acquisition_bounces: AtomicU64::new(0),
            wait: NO_TIMES,
            hold: NO_TIMES,
            acquisitions: AtomicU64::new(0),
        }
    }; CLASSES_MAX]
);

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Whether numbers are taken.
pub(super) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Has numbers taken, or not.
pub(super) fn enable(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

fn add(to: &AtomicU64, value: u64) {
    to.store(to.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

impl Times {
    fn note(&self, time_ns: u64) {
        add(&self.count, 1);
        add(&self.total, time_ns);
        let raise =
            |to: &AtomicU64, value: u64| to.store(to.load(Ordering::Relaxed).max(value), Ordering::Relaxed);
        raise(&self.most, time_ns);
        raise(&self.complement_of_least, !time_ns);
    }

    fn merge(&mut self, other: &Self) {
        *self.count.get_mut() += other.count.load(Ordering::Relaxed);
        *self.total.get_mut() += other.total.load(Ordering::Relaxed);
        let most = (*self.most.get_mut()).max(other.most.load(Ordering::Relaxed));
        *self.most.get_mut() = most;
        let least = *self.complement_of_least.get_mut();
        *self.complement_of_least.get_mut() = least.max(other.complement_of_least.load(Ordering::Relaxed));
    }

    fn reset(&self) {
        for number in [&self.count, &self.complement_of_least, &self.most, &self.total] {
            number.store(0, Ordering::Relaxed);
        }
    }

    /// Least, greatest, sum, mean, in microseconds.
    fn write(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let count = self.count.load(Ordering::Relaxed);
        let least = if count == 0 { 0 } else { !self.complement_of_least.load(Ordering::Relaxed) };
        let total = self.total.load(Ordering::Relaxed);
        for time_ns in
            [least, self.most.load(Ordering::Relaxed), total, total.checked_div(count).unwrap_or(0)]
        {
            write!(to, " {:>11}.{:02}", time_ns / 1000, time_ns % 1000 / 10)?;
        }
        Ok(())
    }
}

fn with_cell(class: ClassId, body: impl FnOnce(&Cell)) {
    let _preemption = preempt::disable();
    let _interrupts = interrupt::disable();
    body(&CELLS.of(cpu::current())[class.index()]);
}

/// A lock was taken; waited for since that time, if that is not 0. The time is returned.
pub(super) fn taken(class: ClassId, last_cpu: &AtomicU8, waits_since_ns: u64) -> u64 {
    if !is_enabled() {
        return 0;
    }
    let now_ns = time::now_ns();
    with_cell(class, |cell| {
        let this = cpu::current().index() as u8 + 1;
        let bounced = ![0, this].contains(&last_cpu.load(Ordering::Relaxed));
        if bounced {
            add(&cell.acquisition_bounces, 1);
        }
        last_cpu.store(this, Ordering::Relaxed);
        add(&cell.acquisitions, 1);
        if waits_since_ns != 0 {
            cell.wait.note(now_ns.saturating_sub(waits_since_ns));
            add(&cell.contention_bounces, u64::from(bounced));
        }
    });
    now_ns
}

/// It was released.
pub(super) fn released(class: ClassId, _kind: Kind, since_ns: u64) {
    if since_ns != 0 {
        let held_ns = time::now_ns().saturating_sub(since_ns);
        with_cell(class, |cell| cell.hold.note(held_ns));
    }
}

/// Forgets all numbers.
pub(super) fn reset() {
    for cell in CELLS.iter().flatten() {
        for number in [&cell.contention_bounces, &cell.acquisition_bounces, &cell.acquisitions] {
            number.store(0, Ordering::Relaxed);
        }
        cell.wait.reset();
        cell.hold.reset();
    }
}

/// Writes all classes that were taken, in the format of Linux' `/proc/lock_stat`.
///
/// # Errors
/// The writer's.
pub(super) fn write(to: &mut dyn fmt::Write) -> fmt::Result {
    const COLUMNS: [&str; 12] = [
        "con-bounces",
        "contentions",
        "waittime-min",
        "waittime-max",
        "waittime-total",
        "waittime-avg",
        "acq-bounces",
        "acquisitions",
        "holdtime-min",
        "holdtime-max",
        "holdtime-total",
        "holdtime-avg",
    ];
    const NAME: usize = 60;
    let rule =
        |to: &mut dyn fmt::Write| writeln!(to, "{:-<width$}", "", width = NAME + 1 + COLUMNS.len() * 15);
    writeln!(to, "lock_stat version 0.4")?;
    rule(to)?;
    write!(to, "{:>NAME$} ", "class name")?;
    for column in COLUMNS {
        write!(to, " {column:>14}")?;
    }
    writeln!(to)?;
    rule(to)?;
    writeln!(to)?;
    for class in ClassId::all() {
        let mut sum = Cell::default();
        for cell in CELLS.iter().map(|cells| &cells[class.index()]) {
            for (total, part) in [
                (&sum.contention_bounces, &cell.contention_bounces),
                (&sum.acquisition_bounces, &cell.acquisition_bounces),
                (&sum.acquisitions, &cell.acquisitions),
            ] {
                add(total, part.load(Ordering::Relaxed));
            }
            sum.wait.merge(&cell.wait);
            sum.hold.merge(&cell.hold);
        }
        if sum.acquisitions.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // The name may be long, and holds spaces; the colon ends it.
        write!(to, "{:>NAME$}", Name(class))?;
        let number = |value: &AtomicU64| value.load(Ordering::Relaxed);
        write!(to, ": {:>14} {:>14}", number(&sum.contention_bounces), number(&sum.wait.count))?;
        sum.wait.write(to)?;
        write!(to, " {:>14} {:>14}", number(&sum.acquisition_bounces), number(&sum.acquisitions))?;
        sum.hold.write(to)?;
        writeln!(to)?;
    }
    Ok(())
}

/// A class's name without spaces and at a width.
struct Name(ClassId);

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        struct Count(usize);
        impl fmt::Write for Count {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 += text.len();
                Ok(())
            }
        }
        let mut count = Count(0);
        write!(count, "{}", self.0)?;
        for _ in count.0..formatter.width().unwrap_or(0) {
            formatter.write_char(' ')?;
        }
        write!(formatter, "{}", self.0)
    }
}
