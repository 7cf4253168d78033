//! Boot information of a hosted machine: its memory and an empty command line.

use std::sync::Mutex;

use super::processor::lock;
use crate::address::{PAGE_SIZE, PhysAddr};
use crate::boot::{BootInfo, MemoryKind, MemoryRegion, PhysRange};

/// Physical memory of the hosted machine. The host backs only what is touched.
pub const MEMORY_BYTES: usize = 1 << 30;

/// Usable memory starts here, as on a PC; below lies frame 0, which is never given away.
const FIRST_USABLE: u64 = 1 << 20;

const fn range(start: u64, end: u64) -> PhysRange {
    PhysRange { start: PhysAddr::new(start), end: PhysAddr::new(end) }
}

static MEMORY_MAP: [MemoryRegion; 1] =
    [MemoryRegion { range: range(FIRST_USABLE, MEMORY_BYTES as u64), kind: MemoryKind::Usable }];

static INFO: BootInfo = BootInfo {
    memory_map: &MEMORY_MAP,
    command_line: "",
    initramfs: None,
    rsdp: None,
    kernel_image: range(0, 0),
};

/// First byte that the early allocator has not given away; None after `hand_over`.
static EARLY: Mutex<Option<u64>> = Mutex::new(Some(FIRST_USABLE));

pub(crate) fn info() -> &'static BootInfo {
    &INFO
}

pub(crate) fn early_allocate(bytes: usize, align: usize) -> Option<PhysAddr> {
    let mut early = lock(&EARLY);
    let start = (*early)?.checked_next_multiple_of(align as u64)?;
    let end = start.checked_add(bytes as u64)?;
    if end > MEMORY_BYTES as u64 {
        return None;
    }
    *early = Some(end);
    Some(PhysAddr::new(start))
}

pub(crate) fn hand_over() -> &'static [PhysRange] {
    match lock(&EARLY).take() {
        Some(first) => {
            let start = first.next_multiple_of(PAGE_SIZE as u64);
            Vec::leak(vec![range(start, MEMORY_BYTES as u64)])
        }
        None => &[],
    }
}

pub(crate) fn has_firmware_tables() -> bool {
    false
}

pub(crate) fn firmware_table(_signature: [u8; 4]) -> Option<&'static [u8]> {
    None
}
