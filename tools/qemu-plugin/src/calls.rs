//! Atomic read-modify-writes of the kernel, by system call.
//!
//! The kernel stores a byte into a table of its own when a call begins (at the call's place), when it ends (at the last place but
//! one) and when another thread runs; a store at the last place has the counts written. Each processor counts what it
//! executes between two such stores; interrupts that come in between are counted with the call.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Processors that can be told apart.
const PROCESSORS: usize = 64;
/// Places of the table, at most.
const PLACES: usize = 1024;

/// The table: its address and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) address: u64,
    pub(crate) places: usize,
}

impl Marks {
    /// From `ADDRESS+LENGTH`, in hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, places) = text.split_once('+')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let places = usize::from_str_radix(places, 16).ok().filter(|places| (2..=PLACES).contains(places))?;
        Some(Self { address, places })
    }

    /// The place at an address.
    fn place(self, address: u64) -> Option<usize> {
        let place = usize::try_from(address.checked_sub(self.address)?).ok()?;
        (place < self.places).then_some(place)
    }
}

static MARKS: OnceLock<Marks> = OnceLock::new();
static OUTPUT: OnceLock<Mutex<File>> = OnceLock::new();
/// The place that each processor is at. Written by its own thread.
static CURRENT: [AtomicUsize; PROCESSORS] = [const { AtomicUsize::new(PLACES - 1) }; PROCESSORS];
/// What was executed at each place.
static COUNTS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Counts from now on. Only the first call counts.
pub(crate) fn begin(marks: Marks, file: File) {
    let _ = OUTPUT.set(Mutex::new(file));
    let _ = MARKS.set(marks);
}

/// Whether calls are what is counted.
pub(crate) fn are_counted() -> bool {
    MARKS.get().is_some()
}

/// A processor has stored at an address.
pub(crate) fn stored(processor: usize, address: u64) {
    let Some((marks, place)) = MARKS.get().and_then(|marks| Some((marks, marks.place(address)?))) else {
        return;
    };
    if place == marks.places - 1 {
        write();
    } else if let Some(current) = CURRENT.get(processor) {
        current.store(place, Ordering::Relaxed);
    }
}

/// A processor has executed an atomic read-modify-write.
pub(crate) fn count(processor: usize) {
    if let Some(current) = CURRENT.get(processor) {
        COUNTS[current.load(Ordering::Relaxed)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes lines `PLACE COUNT`.
fn write() {
    let Some(output) = OUTPUT.get() else { return };
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: String = COUNTS
        .iter()
        .enumerate()
        .map(|(place, count)| (place, count.load(Ordering::Relaxed)))
        .filter(|(_, count)| *count > 0)
        .map(|(place, count)| format!("{place} {count}\n"))
        .collect();
    if let Err(error) = output.write_all(lines.as_bytes()).and_then(|()| output.flush()) {
        eprintln!("qemu-plugin: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_address() {
        let marks = Marks::parse("ffffffff81000000+10").expect("good");
        assert_eq!(marks.place(0xffff_ffff_8100_000f), Some(15));
        assert_eq!(marks.place(0xffff_ffff_8100_0010), None);
        assert_eq!(marks.place(0), None);
        assert_eq!(Marks::parse("12"), None);
    }
}
