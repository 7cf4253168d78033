//! What `/proc/lock_stat` shows: for each class how often its locks were taken, how long they were waited for and held, and where
//! they were waited for.
//!
//! Each CPU writes cells of its own, with interrupts off; a reader adds them up. A bounce is an acquisition by another
//! CPU than the one that had the lock last. Locks with readers have two cells, one for those and one for writers.
//!
//! Places are few for each class, and common to all CPUs: they are written by those only that will wait anyway. Linux also shows
//! where the lock had been taken that was waited for; that would take a walk up the stack at each acquisition.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use machine::backtrace::Backtrace;
use machine::{cpu, interrupt, preempt, symbols, time};

use super::registry::{CLASSES_MAX, ClassId};
use crate::{PerCpu, per_cpu};

/// Numbers of a class on one CPU. Times in nanoseconds; a minimum is kept as its complement, so that 0 is "none".
struct Cell {
    contention_bounces: AtomicU64,
    acquisition_bounces: AtomicU64,
    wait: Times,
    hold: Times,
    acquisitions: AtomicU64,
}

struct Times {
    count: AtomicU64,
    complement_of_least: AtomicU64,
    most: AtomicU64,
    total: AtomicU64,
}

impl Times {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            complement_of_least: AtomicU64::new(0),
            most: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }
}

impl Cell {
    const fn new() -> Self {
        Self {
            contention_bounces: AtomicU64::new(0),
            acquisition_bounces: AtomicU64::new(0),
            wait: Times::new(),
            hold: Times::new(),
            acquisitions: AtomicU64::new(0),
        }
    }
}

/// Cells for each CPU: they are the largest part of a kernel that counts, whose image has a limit.
const CELLS_MAX: usize = CLASSES_MAX;
/// Classes whose readers have a cell of their own; those beyond are counted with the writers.
const READERS_MAX: usize = 64;
/// Where the readers' cells begin. Classes beyond it are counted together.
const FIRST_READERS: usize = CELLS_MAX - READERS_MAX;

/// A cell for each class, then those of readers.
static CELLS: PerCpu<[Cell; CELLS_MAX]> = per_cpu!([const { Cell::new() }; CELLS_MAX]);

/// Where the readers of a class have their cell; 0 before the first one came.
static READERS: [AtomicU16; CLASSES_MAX] = [const { AtomicU16::new(0) }; CLASSES_MAX];
/// Cells of readers that were given away.
static READERS_COUNT: AtomicU16 = AtomicU16::new(0);

/// The cell of a class, or of its readers.
fn cell_of(class: ClassId, reads: bool) -> usize {
    let own = if class.index() < FIRST_READERS { class.index() } else { 0 };
    if !reads {
        return own;
    }
    let cell = &READERS[class.index()];
    let known = cell.load(Ordering::Relaxed);
    if known != 0 {
        return usize::from(known);
    }
    let take = |count: u16| (usize::from(count) < READERS_MAX).then_some(count + 1);
    let Ok(next) = READERS_COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else { return own };
    let fresh = FIRST_READERS as u16 + next;
    match cell.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => usize::from(fresh),
        Err(other) => usize::from(other),
    }
}

/// Places of a class that are told apart, as many as Linux'; those that come later are not shown.
const PLACES_MAX: usize = 4;

/// A place where a lock was waited for.
struct Place {
    /// The return address of who takes the lock; 0 while the entry is free.
    address: AtomicUsize,
    waits: AtomicU64,
}

static PLACES: [[Place; PLACES_MAX]; CLASSES_MAX] =
    [const { [const { Place { address: AtomicUsize::new(0), waits: AtomicU64::new(0) } }; PLACES_MAX] };
        CLASSES_MAX];

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

fn with_cell(class: ClassId, reads: bool, body: impl FnOnce(&Cell)) {
    let _preemption = preempt::disable();
    let _interrupts = interrupt::disable();
    body(&CELLS.of(cpu::current())[cell_of(class, reads)]);
}

/// A lock is about to be waited for. The time is returned.
#[cold]
#[inline(never)]
pub(super) fn contended(class: ClassId) -> u64 {
    if is_enabled() {
        let who = Backtrace::here().addresses().find(|address| !is_code_of_locks(*address)).unwrap_or(0);
        for place in &PLACES[class.index()] {
            let there = match place.address.compare_exchange(0, who, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => who,
                Err(other) => other,
            };
            if there == who {
                place.waits.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
    time::now_ns()
}

/// Whether the call belongs to a lock, and not to who takes it.
fn is_code_of_locks(return_address: usize) -> bool {
    const CODE: [&str; 4] = ["sync::", "sched::mutex::", "sched::rw_lock::", "memory::parking::"];
    symbols::resolve(return_address - 1).is_some_and(|symbol| {
        let name = symbol.name.trim_start_matches(['<', '_']);
        CODE.iter().any(|start| name.starts_with(start))
    })
}

/// A lock was taken; waited for since that time, if that is not 0. The time is returned.
pub(super) fn taken(class: ClassId, reads: bool, last_cpu: &AtomicU8, waits_since_ns: u64) -> u64 {
    if !is_enabled() {
        return 0;
    }
    let now_ns = time::now_ns();
    with_cell(class, reads, |cell| {
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
pub(super) fn released(class: ClassId, reads: bool, since_ns: u64) {
    if since_ns != 0 {
        let held_ns = time::now_ns().saturating_sub(since_ns);
        with_cell(class, reads, |cell| cell.hold.note(held_ns));
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
    for place in PLACES.iter().flatten() {
        place.waits.store(0, Ordering::Relaxed);
        place.address.store(0, Ordering::Relaxed);
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
        // Linux marks the rows of locks that have readers only.
        if class.index() >= FIRST_READERS {
            break;
        }
        let alone = (class.index(), if class.has_readers() { "-W" } else { "" });
        let readers = READERS[class.index()].load(Ordering::Relaxed);
        let readers = (readers != 0).then_some((usize::from(readers), "-R"));
        for (cell, mark) in core::iter::once(alone).chain(readers) {
            let sum = sum_of(cell);
            if sum.acquisitions.load(Ordering::Relaxed) > 0 {
                // The name may be long, and holds spaces; the colon ends it.
                write!(to, "{:>NAME$}:", Name(class, mark))?;
                sum.write(to)?;
            }
        }
        write_places(to, class, NAME)?;
    }
    Ok(())
}

/// A cell's sum over all CPUs.
fn sum_of(cell: usize) -> Cell {
    let mut sum = Cell::new();
    for cell in CELLS.iter().map(|cells| &cells[cell]) {
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
    sum
}

impl Cell {
    fn write(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let number = |value: &AtomicU64| value.load(Ordering::Relaxed);
        write!(to, " {:>14} {:>14}", number(&self.contention_bounces), number(&self.wait.count))?;
        self.wait.write(to)?;
        write!(to, " {:>14} {:>14}", number(&self.acquisition_bounces), number(&self.acquisitions))?;
        self.hold.write(to)?;
        writeln!(to)
    }
}

/// Where the class's locks were waited for: how often, the address, the function.
fn write_places(to: &mut dyn fmt::Write, class: ClassId, width: usize) -> fmt::Result {
    let mut first = true;
    for place in &PLACES[class.index()] {
        let (address, waits) = (place.address.load(Ordering::Relaxed), place.waits.load(Ordering::Relaxed));
        if address == 0 || waits == 0 {
            continue;
        }
        if first {
            writeln!(to, "{:>width$}", "-----------------------")?;
            first = false;
        }
        write!(to, "{:>width$} {waits:>14}  [<{address:016x}>] ", Name(class, ""))?;
        match symbols::resolve(address - 1) {
            Some(symbol) => writeln!(to, "{symbol}")?,
            None => writeln!(to, "0x{address:x}")?,
        }
    }
    Ok(())
}

/// A class's name with a mark behind it, at a width.
struct Name(ClassId, &'static str);

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
        write!(count, "{}{}", self.0, self.1)?;
        for _ in count.0..formatter.width().unwrap_or(0) {
            formatter.write_char(' ')?;
        }
        write!(formatter, "{}{}", self.0, self.1)
    }
}
