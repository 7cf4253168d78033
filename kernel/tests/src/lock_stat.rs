//! `/proc/lock_stat`, in kernels that count locks: what was done to locks of the test's own is what it says, for those who read, those who
//! write, and where they waited. In other kernels there is nothing to test.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ::machine::cpu::{self, CpuId};
use ::sched::{Mutex, RwLock};
use ::sync::classes::{self, COUNTING};
use ::sync::{RwSpinLock, SpinLock};

use super::kit::{Team, delay};
use super::{Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "lock_stat::reads_and_writes_are_told_apart", run: reads_and_writes },
    Test { name: "lock_stat::waits_are_counted_where_they_were", run: waits },
    Test { name: "lock_stat::nothing_is_counted_when_it_is_off", run: switched_off },
];

static SPIN: SpinLock<u32> = SpinLock::named("test lock_stat spin", 0);
static RW_SPIN: RwSpinLock<u32> = RwSpinLock::named("test lock_stat rw-spin", 0);
static MUTEX: Mutex<u32> = Mutex::named("test lock_stat mutex", 0);
static RW: RwLock<u32> = RwLock::named("test lock_stat rw", 0);

/// Columns behind a name.
const COLUMNS: usize = 12;
const CONTENTIONS: usize = 1;
const ACQUISITIONS: usize = 7;

fn text() -> String {
    let mut text = String::new();
    let _ = classes::write_statistics(&mut text);
    text
}

/// The row of that name; `None` if nothing was counted for it.
fn row<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let start = format!("{name}:");
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(start.as_str()))?;
    Some(rest.split_whitespace().collect())
}

/// A number of a row.
fn number(text: &str, name: &str, column: usize) -> Result<u64, super::Failure> {
    let Some(row) = row(text, name) else { return Ok(0) };
    check!(row.len() == COLUMNS, "{name} has {} columns", row.len());
    let Ok(number) = row[column].parse() else { super::fail!("{name}: column {column} is {}", row[column]) };
    Ok(number)
}

fn reads_and_writes() -> Outcome {
    if !COUNTING {
        return Ok(());
    }
    classes::reset_statistics();
    (0..7).for_each(|_| *SPIN.lock() += 1);
    (0..3).for_each(|_| *RW_SPIN.write() += 1);
    (0..5).for_each(|_| _ = *RW_SPIN.read());
    (0..6).for_each(|_| *MUTEX.lock() += 1);
    (0..2).for_each(|_| *RW.write() += 1);
    (0..4).for_each(|_| _ = *RW.read());
    check!(RW.try_read().is_some() && RW.try_write().is_some(), "a free lock");
    let text = text();
    let header = "con-bounces    contentions   waittime-min   waittime-max waittime-total   waittime-avg    acq-bounces";
    check!(text.starts_with("lock_stat version 0.4\n") && text.contains(header), "the header: {text:.400}");
    for (name, taken) in [
        ("test lock_stat spin:spin", 7),
        ("test lock_stat rw-spin:rw-spin-W", 3),
        ("test lock_stat rw-spin:rw-spin-R", 5),
        ("test lock_stat mutex:mutex", 6),
        ("test lock_stat rw:rw-lock-W", 3),
        ("test lock_stat rw:rw-lock-R", 5),
    ] {
        let (acquisitions, contentions) =
            (number(&text, name, ACQUISITIONS)?, number(&text, name, CONTENTIONS)?);
        check!(acquisitions == taken, "{name}: {acquisitions} acquisitions, not {taken}");
        check!(contentions == 0, "{name}: {contentions} contentions, with nobody else there");
    }
    classes::reset_statistics();
    check!(!self::text().contains("test lock_stat"), "a reset forgets it");
    Ok(())
}

/// Who waits, by a name that is found again.
#[inline(never)]
fn take_spin() {
    *SPIN.lock() += 1;
}

#[inline(never)]
fn read_rw_spin() {
    assert!(*RW_SPIN.read() < u32::MAX, "a count of a test");
}

#[inline(never)]
fn write_rw() {
    *RW.write() += 1;
}

/// How often a lock is held while another thread takes it before that one must have waited. The last ones are held 4,096 times
/// as long as the first.
const ATTEMPTS: u32 = 400;

/// Holds a lock while another thread takes it, until that one has waited.
fn wait_for(hold: fn(&dyn Fn()), take: fn(), row: &str) -> Outcome {
    let (here, there) = (CpuId::from_index(0), CpuId::from_index(1));
    for attempt in 0..ATTEMPTS {
        let (holds, comes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (held, coming) = (holds.clone(), comes.clone());
        let mut team = Team::new();
        // The holder last: it keeps this thread from running, if that is on its CPU.
        team.start(there, move || {
            while !holds.load(SeqCst) {
                cpu::relax();
            }
            comes.store(true, SeqCst);
            take();
        })?;
        team.start(here, move || {
            hold(&|| {
                held.store(true, SeqCst);
                while !coming.load(SeqCst) {
                    cpu::relax();
                }
                delay(1_000 << (attempt / 8).min(12));
            });
        })?;
        team.join()?;
        if number(&text(), row, CONTENTIONS)? > 0 {
            return Ok(());
        }
    }
    super::fail!("{row}: nobody waited for it in {ATTEMPTS} attempts")
}

fn waits() -> Outcome {
    if !COUNTING || cpu::online().count() < 2 {
        return Ok(());
    }
    classes::reset_statistics();
    wait_for(
        |body| {
            let _held = SPIN.lock();
            body();
        },
        take_spin,
        "test lock_stat spin:spin",
    )?;
    wait_for(
        |body| {
            let _held = RW_SPIN.write();
            body();
        },
        read_rw_spin,
        "test lock_stat rw-spin:rw-spin-R",
    )?;
    wait_for(
        |body| {
            let _held = RW.read();
            body();
        },
        write_rw,
        "test lock_stat rw:rw-lock-W",
    )?;
    let text = text();
    for (class, who) in [
        ("test lock_stat spin:spin", "lock_stat::take_spin"),
        ("test lock_stat rw-spin:rw-spin", "lock_stat::read_rw_spin"),
        ("test lock_stat rw:rw-lock", "lock_stat::write_rw"),
    ] {
        let told = text.lines().any(|line| line.trim_start().starts_with(class) && line.contains(who));
        let found: Vec<&str> = text.lines().filter(|line| line.contains(class)).collect();
        check!(told, "{who} is not among the places of {class}: {found:#?}");
    }
    for (row, other) in [("rw-spin:rw-spin-W", "rw-spin"), ("rw:rw-lock-R", "rw")] {
        let name = format!("test lock_stat {row}");
        check!(number(&text, &name, CONTENTIONS)? == 0, "{other}: those who had it did not wait");
    }
    Ok(())
}

fn switched_off() -> Outcome {
    if !COUNTING {
        return Ok(());
    }
    classes::reset_statistics();
    classes::keep_statistics(false);
    *SPIN.lock() += 1;
    let off = row(&text(), "test lock_stat spin:spin").is_none();
    classes::keep_statistics(true);
    *SPIN.lock() += 1;
    check!(off && classes::keeps_statistics(), "it counts although it is off");
    check!(number(&text(), "test lock_stat spin:spin", ACQUISITIONS)? == 1, "it does not count again");
    Ok(())
}
