//! A ring of what RCU did last, for drawing it over time: the paper's Figures 7 and 8.
//!
//! Off until somebody wants it ([`enable`]): then the ring is allocated, once, and every event claims the next slot with one
//! atomic addition. A slot holds four words; the last one, its number, is cleared before and set after the others
//! are written, so that a reader skips what is being overwritten.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use machine::{cpu, time};

use super::flavour::Kind;

/// Events kept: about 20 s of a flood.
pub const CAPACITY: usize = 16 * 1024;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Event {
    /// A grace period began; its number.
    GracePeriodStart,
    /// A grace period ended; how many nanoseconds it took.
    GracePeriodEnd,
    /// Callbacks were run in one go; how many.
    Batch,
    /// A window of 4 ms with softirqs is over; how many there were.
    SoftirqWindow,
}

impl Event {
    const ALL: [(Event, &'static str); 4] = [
        (Event::GracePeriodStart, "gp_start"),
        (Event::GracePeriodEnd, "gp_end"),
        (Event::Batch, "cb_batch"),
        (Event::SoftirqWindow, "softirq_window"),
    ];
}

struct Slot {
    time_ns: AtomicU64,
    /// The event, the flavour above 8 bits, the CPU above 16.
    what: AtomicU64,
    value: AtomicU64,
    /// 1 + the event's number; 0 while it is written.
    number: AtomicU64,
}

/// The ring, null until it is wanted. Never freed.
static RING: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn ring() -> Option<&'static [Slot]> {
    // Acquire: pairs with the Release in `enable`.
    let first = RING.load(Ordering::Acquire);
    // SAFETY: a non-null pointer is that of a leaked slice of CAPACITY slots.
    (!first.is_null()).then(|| unsafe { core::slice::from_raw_parts(first, CAPACITY) })
}

/// Records from now on; false if there is no memory for it.
pub fn enable() -> bool {
    if ring().is_some() {
        return true;
    }
    let mut slots = Vec::new();
    if slots.try_reserve_exact(CAPACITY).is_err() {
        return false;
    }
    slots.resize_with(CAPACITY, || Slot {
        time_ns: AtomicU64::new(0),
        what: AtomicU64::new(0),
        value: AtomicU64::new(0),
        number: AtomicU64::new(0),
    });
    let slots = Box::into_raw(slots.into_boxed_slice());
    let first = slots.cast::<Slot>();
    // Release: the slots are initialized before they are found.
    if RING.compare_exchange(core::ptr::null_mut(), first, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: somebody else was faster; nobody has seen this ring.
        drop(unsafe { Box::from_raw(slots) });
    }
    true
}

/// Records an event of this CPU. The caller cannot migrate.
#[inline]
pub(super) fn record(event: Event, kind: Kind, value: u64) {
    if !RING.load(Ordering::Relaxed).is_null() {
        record_in_ring(event, kind, value);
    }
}

#[cold]
fn record_in_ring(event: Event, kind: Kind, value: u64) {
    let Some(ring) = ring() else { return };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let slot = &ring[number as usize % CAPACITY];
    slot.number.store(0, Ordering::Release);
    slot.time_ns.store(time::now_ns(), Ordering::Relaxed);
    let what = event as u64 | (kind as u64) << 8 | (cpu::current().index() as u64) << 16;
    slot.what.store(what, Ordering::Relaxed);
    slot.value.store(value, Ordering::Relaxed);
    // Release: pairs with the Acquire in `write_csv`.
    slot.number.store(number + 1, Ordering::Release);
}

/// Writes what the ring holds as comma-separated values, oldest first, with a line of headings.
///
/// # Errors
/// What the writer says.
pub fn write_csv(out: &mut dyn fmt::Write) -> fmt::Result {
    out.write_str("time_ns,cpu,event,flavour,value\n")?;
    let Some(ring) = ring() else { return Ok(()) };
    let end = NEXT.load(Ordering::Acquire);
    for number in end.saturating_sub(CAPACITY as u64)..end {
        let slot = &ring[number as usize % CAPACITY];
        if slot.number.load(Ordering::Acquire) != number + 1 {
            continue;
        }
        let (time_ns, what) = (slot.time_ns.load(Ordering::Relaxed), slot.what.load(Ordering::Relaxed));
        let value = slot.value.load(Ordering::Relaxed);
        let Some((_, event)) = Event::ALL.iter().find(|(event, _)| *event as u64 == what & 0xff) else {
            continue;
        };
        let flavour = Kind::ALL[(what >> 8 & 1) as usize].name();
        writeln!(out, "{time_ns},{},{event},{flavour},{value}", what >> 16)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_oldest_first() {
        assert!(enable());
        let section = machine::preempt::disable();
        record(Event::Batch, Kind::Bh, 1_234_567);
        record(Event::SoftirqWindow, Kind::Classic, 7_654_321);
        drop(section);
        let mut text = String::new();
        write_csv(&mut text).unwrap();
        let (batch, window) = (text.find("cb_batch,bh,1234567").unwrap(), text.find(",7654321").unwrap());
        assert!(text.starts_with("time_ns,cpu,event,flavour,value\n") && batch < window);
    }
}
