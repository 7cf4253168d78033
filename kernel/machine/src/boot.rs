//! What the boot loader told us, the early allocator, and the boot-time trace.
//!
//! [`info`] is filled in once at kernel entry. Before crate `memory` takes over, memory comes from a bump allocator
//! over the boot memory map ([`early_allocate`]); [`hand_over`] ends that and gives all the rest away, once.
//! [`trace`] records how long each step of the start-up took.

use crate::address::PhysAddr;
use crate::backend;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A range of physical memory, `start` inclusive, `end` exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysRange {
    /// First byte.
    pub start: PhysAddr,
    /// One past the last byte.
    pub end: PhysAddr,
}

impl PhysRange {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end.as_u64() - self.start.as_u64()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.end.as_u64() <= self.start.as_u64()
    }
}

/// What a range of the boot memory map is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Ordinary memory (also where the kernel and the initramfs lie).
    Usable,
    /// Memory with ACPI tables, or kept by the firmware.
    Firmware,
    /// Not memory, or not ours.
    Reserved,
}

/// One entry of the boot memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// Where.
    pub range: PhysRange,
    /// What.
    pub kind: MemoryKind,
}

/// What the boot loader told us. Lives for ever, never changes.
#[derive(Clone, Copy, Debug)]
pub struct BootInfo {
    /// The memory map in ascending order, not overlapping.
    pub memory_map: &'static [MemoryRegion],
    /// The kernel command line.
    pub command_line: &'static str,
    /// Where the initramfs lies.
    pub initramfs: Option<PhysRange>,
    /// The ACPI root pointer, if the firmware has one.
    pub rsdp: Option<PhysAddr>,
    /// Where the kernel image lies.
    pub kernel_image: PhysRange,
}

impl BootInfo {
    /// The value of `key=value` on the command line; the last one wins.
    pub fn option(&self, key: &str) -> Option<&'static str> {
        option_in(self.command_line, key)
    }

    /// Whether the bare word is on the command line.
    pub fn flag(&self, word: &str) -> bool {
        self.command_line.split_ascii_whitespace().any(|item| item == word)
    }
}

fn option_in<'a>(command_line: &'a str, key: &str) -> Option<&'a str> {
    command_line
        .split_ascii_whitespace()
        .filter_map(|item| item.split_once('='))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value)
        .next_back()
}

/// What the boot loader told us.
pub fn info() -> &'static BootInfo {
    backend::boot::info()
}

/// Whether the machine has ACPI tables.
pub fn has_firmware_tables() -> bool {
    backend::boot::has_firmware_tables()
}

/// The ACPI table with this signature, header included; None if there are no tables or they have none. What the
/// firmware wrote is to be believed as little as anything from outside.
pub fn firmware_table(signature: [u8; 4]) -> Option<&'static [u8]> {
    backend::boot::firmware_table(signature)
}

/// Copies bytes of the initramfs out, from `offset` on; the rest of `into` stays as it is beyond the end. For the time
/// before the initramfs's memory is given back: later, the bytes are whatever the memory is used for.
pub fn read_initramfs(offset: u64, into: &mut [u8]) {
    let Some(range) = info().initramfs else { return };
    let Some(left) = range.bytes().checked_sub(offset) else { return };
    let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    let from = crate::mmu::phys_to_virt(PhysAddr::new(range.start.as_u64() + offset));
    // SAFETY: the range is memory that the boot loader filled, mapped in the direct map, and `count` bytes from `offset`
    // lie within it; `into` is the caller's own and does not overlap it.
    unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), count) };
}

/// Takes memory from the early allocator: zeroed, aligned to `align` (a power of two, at least 16). None when it
/// is exhausted or has been handed over.
pub fn early_allocate(bytes: usize, align: usize) -> Option<PhysAddr> {
    backend::boot::early_allocate(bytes, align)
}

/// Ends the early allocator and gives away the usable memory it has not used: page-aligned ranges in ascending
/// order, without kernel image, initramfs and early allocations. Empty when called again.
pub fn hand_over() -> &'static [PhysRange] {
    backend::boot::hand_over()
}

/// Upper bound of trace marks; later ones are dropped. A boot has about thirty steps.
const TRACE_CAPACITY: usize = 64;

/// One mark of the boot-time trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceMark {
    /// The step that ended here.
    pub name: &'static str,
    /// When, in nanoseconds since kernel entry.
    pub at_ns: u64,
}

struct TraceSlot {
    name_pointer: AtomicUsize,
    name_bytes: AtomicUsize,
    /// Cycle counter + 1 at the mark; 0 while the slot is being written. Cycles, because the first marks are made
    /// before the clock is calibrated.
    cycles: AtomicUsize,
}

static TRACE: [TraceSlot; TRACE_CAPACITY] = [const {
    TraceSlot {
        name_pointer: AtomicUsize::new(0),
        name_bytes: AtomicUsize::new(0),
        cycles: AtomicUsize::new(0),
    }
}; TRACE_CAPACITY];
static TRACE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Records that a step of the start-up has ended now.
pub fn trace(name: &'static str) {
    let index = TRACE_LENGTH.fetch_add(1, Ordering::Relaxed);
    if let Some(slot) = TRACE.get(index) {
        slot.name_pointer.store(name.as_ptr() as usize, Ordering::Relaxed);
        slot.name_bytes.store(name.len(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `trace_marks`.
        slot.cycles.store(crate::time::cycles() as usize | 1, Ordering::Release);
    }
}

/// The marks recorded so far, in order.
pub fn trace_marks() -> impl Iterator<Item = TraceMark> {
    TRACE.iter().filter_map(|slot| {
        let cycles = slot.cycles.load(Ordering::Acquire);
        if cycles == 0 {
            return None;
        }
        let pointer = slot.name_pointer.load(Ordering::Relaxed) as *const u8;
        let bytes = slot.name_bytes.load(Ordering::Relaxed);
        // SAFETY: pointer and length were taken from one `&'static str` in `trace`, before `cycles` was set.
        let name = unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(pointer, bytes)) };
        Some(TraceMark { name, at_ns: backend::time::cycles_to_ns_since_boot(cycles as u64) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_option_on_the_command_line_wins() {
        assert_eq!(option_in("log=info x test=a log=error", "log"), Some("error"));
        assert_eq!(option_in("log=info", "test"), None);
        assert_eq!(option_in("a=b=c", "a"), Some("b=c"));
    }

    #[test]
    fn trace_keeps_names_in_order() {
        trace("first");
        trace("second");
        let names: std::vec::Vec<_> = trace_marks().map(|mark| mark.name).collect();
        let first = names.iter().position(|name| *name == "first");
        let second = names.iter().position(|name| *name == "second");
        assert!(first.is_some() && first < second);
    }
}
