//! The PVH start information, and the early allocator over its memory map.
//!
//! [`read_start_info`] copies everything out of the boot loader's memory into the image, because that memory is given
//! away later. The allocator bumps through the largest free range of the first GiB, which is what the early page
//! tables show. All of this runs on the boot processor before another one starts; after that the data never changes.

use super::start::BootCell;
use crate::address::{DIRECT_MAP_BASE, KERNEL_IMAGE_BASE, PAGE_SIZE, PhysAddr};
use crate::boot::{BootInfo, MemoryKind, MemoryRegion, PhysRange};
use core::sync::atomic::{AtomicU64, Ordering};

/// Value of the first word of the start information.
const START_INFO_MAGIC: u32 = 0x336e_c578;
/// Longest command line kept; Linux has the same limit.
const COMMAND_LINE_BYTES_MAX: usize = 2048;
/// Most memory map entries kept. Firmware reports fewer than twenty.
const MEMORY_MAP_MAX: usize = 64;
/// Most ranges handed over: each reserved range can split one.
const FREE_RANGES_MAX: usize = MEMORY_MAP_MAX + 4;
/// Memory below this is never given away: real-mode tables and the start-up code of application processors.
const LOW_MEMORY_KEPT: u64 = 0x1_0000;
/// What the early page tables show of the direct map.
const EARLY_DIRECT_MAP_BYTES: u64 = 1 << 30;

/// Structure `hvm_start_info`, version 1, as the boot loader writes it.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct Module {
    start: u64,
    bytes: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
struct MapEntry {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

static INFO: BootCell<BootInfo> = BootCell::new(BootInfo {
    memory_map: &[],
    command_line: "",
    initramfs: None,
    rsdp: None,
    kernel_image: EMPTY,
});
static COMMAND_LINE: BootCell<[u8; COMMAND_LINE_BYTES_MAX]> = BootCell::new([0; COMMAND_LINE_BYTES_MAX]);
static MEMORY_MAP: BootCell<[MemoryRegion; MEMORY_MAP_MAX]> =
    BootCell::new([MemoryRegion { range: EMPTY, kind: MemoryKind::Reserved }; MEMORY_MAP_MAX]);
static FREE_RANGES: BootCell<[PhysRange; FREE_RANGES_MAX]> = BootCell::new([EMPTY; FREE_RANGES_MAX]);

const EMPTY: PhysRange = PhysRange { start: PhysAddr::new(0), end: PhysAddr::new(0) };

/// The early allocator: next free byte and end; both 0 before it is set up and after the hand-over. Written by the
/// boot processor only.
static NEXT: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// Where the early allocator started.
static FIRST: AtomicU64 = AtomicU64::new(0);

pub(crate) fn info() -> &'static BootInfo {
    INFO.get()
}

fn range(start: u64, end: u64) -> PhysRange {
    PhysRange { start: PhysAddr::new(start), end: PhysAddr::new(end) }
}

/// A copy of a structure of the boot loader's at a physical address below 1 GiB.
///
/// # Safety
/// The boot loader says that a `T`, for which all bit patterns are valid, lies there.
unsafe fn read_early<T>(address: u64) -> T {
    assert!(address + (size_of::<T>() as u64) < EARLY_DIRECT_MAP_BYTES, "boot information above 1 GiB");
    // SAFETY: the early tables map the address; the caller vouches for its contents.
    unsafe { core::ptr::read_unaligned((DIRECT_MAP_BASE as u64 + address) as *const T) }
}

/// Copies what the boot loader left at `address` and sets up the early allocator.
///
/// # Safety
/// Called once, at kernel entry, with the address the boot loader passed, while the early page tables are in use.
pub(crate) unsafe fn read_start_info(address: u64) {
    // SAFETY: all addresses come from the start information that the caller vouches for; all structures are
    // plain integers. The cells are written before anybody reads them.
    unsafe {
        let start: StartInfo = read_early(address);
        assert!(start.magic == START_INFO_MAGIC, "not entered by a PVH boot loader");
        let initramfs = (start.modules > 0).then(|| {
            let module: Module = read_early(start.module_list);
            range(module.start, module.start + module.bytes)
        });
        let image_end = super::start::image_end();
        INFO.set(BootInfo {
            memory_map: read_memory_map(start.memory_map, start.memory_map_entries),
            command_line: read_command_line(start.command_line),
            initramfs: initramfs.filter(|range| !range.is_empty()),
            rsdp: (start.rsdp != 0).then(|| PhysAddr::new(start.rsdp)),
            kernel_image: range(super::start::image_start(), image_end),
        });
    }
    set_up_allocator();
}

/// # Safety
/// As for [`read_start_info`].
unsafe fn read_command_line(address: u64) -> &'static str {
    if address == 0 {
        return "";
    }
    // SAFETY: the boot loader's command line is a zero-terminated string; nobody else uses the cell yet.
    unsafe {
        let copy = COMMAND_LINE.get_mut();
        let mut length = 0;
        while length < copy.len() {
            let byte = read_early::<u8>(address + length as u64);
            if byte == 0 {
                break;
            }
            copy[length] = byte;
            length += 1;
        }
        core::str::from_utf8(&COMMAND_LINE.get()[..length]).unwrap_or("")
    }
}

/// # Safety
/// As for [`read_start_info`].
unsafe fn read_memory_map(address: u64, entries: u32) -> &'static [MemoryRegion] {
    let entries = (entries as usize).min(MEMORY_MAP_MAX);
    // SAFETY: the start information says that this many entries lie there; nobody else uses the cell yet.
    unsafe {
        let map = MEMORY_MAP.get_mut();
        for (index, region) in map.iter_mut().enumerate().take(entries) {
            let entry: MapEntry = read_early(address + (index * size_of::<MapEntry>()) as u64);
            let kind = match entry.kind {
                1 => MemoryKind::Usable,
                3 | 4 => MemoryKind::Firmware,
                _ => MemoryKind::Reserved,
            };
            *region = MemoryRegion { range: range(entry.start, entry.start + entry.bytes), kind };
        }
        sorting::sort_by_key(&mut map[..entries], |region| region.range.start);
        &MEMORY_MAP.get()[..entries]
    }
}

/// Calls `visit` with each usable page-aligned range that is neither kernel image nor initramfs nor low memory.
fn for_each_free(mut visit: impl FnMut(u64, u64)) {
    let page = PAGE_SIZE as u64;
    let info = info();
    let initramfs = info.initramfs.unwrap_or(EMPTY);
    let mut taken = [(0, LOW_MEMORY_KEPT), bounds(info.kernel_image), bounds(initramfs)];
    sorting::sort(&mut taken);
    for region in info.memory_map.iter().filter(|region| region.kind == MemoryKind::Usable) {
        let mut start = region.range.start.as_u64().next_multiple_of(page);
        let end = region.range.end.as_u64() & !(page - 1);
        for (taken_start, taken_end) in taken {
            if taken_end > start && taken_start < end && taken_end > taken_start {
                if (taken_start & !(page - 1)) > start {
                    visit(start, taken_start & !(page - 1));
                }
                start = taken_end.next_multiple_of(page);
            }
        }
        if start < end {
            visit(start, end);
        }
    }
}

fn bounds(range: PhysRange) -> (u64, u64) {
    (range.start.as_u64(), range.end.as_u64())
}

fn set_up_allocator() {
    let (mut best_start, mut best_end) = (0, 0);
    for_each_free(|start, end| {
        let end = end.min(EARLY_DIRECT_MAP_BYTES);
        if end > start && end - start > best_end - best_start {
            (best_start, best_end) = (start, end);
        }
    });
    assert!(best_end > best_start, "no usable memory below 1 GiB");
    FIRST.store(best_start, Ordering::Relaxed);
    NEXT.store(best_start, Ordering::Relaxed);
    LIMIT.store(best_end, Ordering::Relaxed);
}

/// Where ACPI's tables start, told or found; 0: there are none. Written once, by the boot processor.
static ROOT_POINTER: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_root_pointer(address: Option<u64>) {
    ROOT_POINTER.store(address.unwrap_or(0), Ordering::Relaxed);
}

pub(crate) fn has_firmware_tables() -> bool {
    ROOT_POINTER.load(Ordering::Relaxed) != 0
}

pub(crate) fn firmware_table(signature: [u8; 4]) -> Option<&'static [u8]> {
    let address = Some(ROOT_POINTER.load(Ordering::Relaxed)).filter(|address| *address != 0)?;
    crate::firmware::find_table(&super::firmware_memory::FirmwareMemory, address, signature)
}

pub(crate) fn early_allocate(bytes: usize, align: usize) -> Option<PhysAddr> {
    let start = early_allocate_dirty(bytes, align)?;
    // SAFETY: the range is usable memory that belongs to this allocation, and the direct map shows it.
    unsafe { core::ptr::write_bytes((DIRECT_MAP_BASE + start.as_usize()) as *mut u8, 0, bytes) };
    Some(start)
}

/// Like [`early_allocate`] for memory that need not be zero.
pub(crate) fn early_allocate_dirty(bytes: usize, align: usize) -> Option<PhysAddr> {
    assert!(align.is_power_of_two() && align >= 16, "alignment of an early allocation");
    let start = NEXT.load(Ordering::Relaxed).next_multiple_of(align as u64);
    let end = start.checked_add(bytes as u64)?;
    if start == 0 || end > LIMIT.load(Ordering::Relaxed) {
        return None;
    }
    NEXT.store(end, Ordering::Relaxed);
    Some(PhysAddr::new(start))
}

pub(crate) fn hand_over() -> &'static [PhysRange] {
    let used_start = FIRST.load(Ordering::Relaxed);
    let used_end = NEXT.swap(0, Ordering::Relaxed).next_multiple_of(PAGE_SIZE as u64);
    LIMIT.store(0, Ordering::Relaxed);
    if used_end == 0 {
        return &[];
    }
    // SAFETY: the swap above lets only one caller come here, and nobody reads the cell before it returns.
    let ranges = unsafe { FREE_RANGES.get_mut() };
    let mut length = 0;
    for_each_free(|start, end| {
        let start = if start == used_start { used_end } else { start };
        if start < end && length < FREE_RANGES_MAX {
            ranges[length] = range(start, end);
            length += 1;
        }
    });
    &FREE_RANGES.get()[..length]
}

/// The kernel-image address of a symbol as a physical address.
pub(crate) fn image_physical(address: usize) -> u64 {
    (address - KERNEL_IMAGE_BASE) as u64
}
