//! The kernel's page tables: built once at boot, shared by all address spaces.
//!
//! | where | what | pages |
//! |---|---|---|
//! | direct map | memory of the boot map, no-execute | 1 GiB where all of it is memory, else 2 MiB |
//! | device window | device registers, uncached, on demand | 4 KiB; 2 MiB where a device has as much |
//! | thread slots, frame metadata | empty third-level tables, filled in by crate `memory` | |
//! | top 2 GiB | kernel image: code read-execute, constants read-only, data read-write | 4 KiB |
//!
//! The last-level tables of the image serve the direct map's view of the same memory too, below a directory entry
//! that forbids execution: so the direct map can't be used to write code either.

use super::register::{self, cpuid};
use super::{boot, mmu, start};
use crate::address::{
    DEVICE_MAP_BASE, DIRECT_MAP_BASE, FRAME_METADATA_BASE, KERNEL_IMAGE_BASE, PAGE_SIZE, PhysAddr,
    THREAD_SLOT_BASE,
};
use crate::boot::{MemoryKind, early_allocate};
use core::sync::atomic::{AtomicU64, Ordering};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS_MASK: u64 = 0x000f_ffff_ffff_f000;

const DATA: u64 = PRESENT | WRITABLE | ACCESSED | DIRTY | GLOBAL | NO_EXECUTE;
const CONSTANT: u64 = PRESENT | ACCESSED | GLOBAL | NO_EXECUTE;
const CODE: u64 = PRESENT | ACCESSED | GLOBAL;
const DEVICE: u64 = DATA | WRITE_THROUGH | CACHE_DISABLE;
/// Entry that points to a table of supervisor pages.
const TABLE: u64 = PRESENT | WRITABLE | ACCESSED;

const GIB: u64 = 1 << 30;
const LARGE_PAGE: u64 = 2 << 20;
const ENTRIES: usize = 512;
/// Most last-level tables for the kernel image: 16 MiB. A kernel that counts locks, with its statistics for each CPU, takes more than half.
const IMAGE_TABLES_MAX: usize = 8;
/// Pages in the device window: one last-level table.
const DEVICE_PAGES: u64 = ENTRIES as u64;

type Table = [u64; ENTRIES];

/// Large pages in the device window: the rest of one directory, whose first entry is that table.
const DEVICE_LARGE_PAGES: u64 = ENTRIES as u64 - 1;

/// Physical address of the directory of the device window.
static DEVICE_DIRECTORY: AtomicU64 = AtomicU64::new(0);
/// Large pages of the device window given out.
static DEVICE_LARGE_NEXT: AtomicU64 = AtomicU64::new(0);
/// Physical address of the last-level table of the device window.
static DEVICE_TABLE: AtomicU64 = AtomicU64::new(0);
/// Pages of the device window given out.
static DEVICE_NEXT: AtomicU64 = AtomicU64::new(0);

// SAFETY: the linker script and the assembly define these symbols with these types.
unsafe extern "C" {
    static __text_end: u8;
    static __rodata_end: u8;
    static __bss_end: u8;
}

fn allocate_table() -> u64 {
    early_allocate(PAGE_SIZE, PAGE_SIZE).expect("memory for the kernel's page tables").as_u64()
}

/// The table at a physical address.
///
/// # Safety
/// A table of the kernel's that nobody else uses while the reference lives lies there.
unsafe fn table<'a>(physical: u64) -> &'a mut Table {
    // SAFETY: see the function's contract; the direct map shows early allocations from the start.
    unsafe { &mut *mmu::phys_to_virt(PhysAddr::new(physical)).cast::<Table>() }
}

/// The table that an entry points to, made if there is none.
///
/// # Safety
/// The entry belongs to a table under construction.
unsafe fn next_table<'a>(entry: &mut u64, flags: u64) -> &'a mut Table {
    if *entry & PRESENT == 0 {
        *entry = allocate_table() | flags;
    }
    assert!(*entry & LARGE == 0, "mappings of the kernel overlap");
    // SAFETY: the entry points to a table that `allocate_table` made.
    unsafe { table(*entry & ADDRESS_MASK) }
}

const fn index(address: usize, level: u32) -> usize {
    address >> (12 + 9 * (level - 1)) & (ENTRIES - 1)
}

/// Builds the final tables and switches to them.
///
/// # Safety
/// Called once by the boot processor while the early tables are in use and nobody else runs.
pub(crate) unsafe fn build() {
    let root_address = allocate_table();
    // SAFETY: freshly allocated tables that nobody else knows.
    unsafe {
        let root = table(root_address);
        for base in
            [DIRECT_MAP_BASE, DEVICE_MAP_BASE, THREAD_SLOT_BASE, FRAME_METADATA_BASE, KERNEL_IMAGE_BASE]
        {
            next_table(&mut root[index(base, 4)], TABLE);
        }
        map_image(root);
        map_memory(root);
        map_device_table(root);
        enable_protection();
        register::write_cr3(root_address);
    }
    mmu::set_kernel_root(root_address);
}

/// Maps the kernel image with the rights of its sections.
///
/// # Safety
/// As for [`build`].
unsafe fn map_image(root: &mut Table) {
    // SAFETY: tables under construction.
    unsafe {
        let gigabytes = next_table(&mut root[index(KERNEL_IMAGE_BASE, 4)], TABLE);
        let top = next_table(&mut gigabytes[index(KERNEL_IMAGE_BASE, 3)], TABLE);
        let direct = next_table(&mut root[index(DIRECT_MAP_BASE, 4)], TABLE);
        let direct = next_table(&mut direct[0], TABLE);
        let (start, end) = (start::image_start(), start::image_end());
        assert!(start.is_multiple_of(LARGE_PAGE), "the image starts at a large page");
        assert!(end - start <= IMAGE_TABLES_MAX as u64 * LARGE_PAGE, "the kernel image is too big");
        for chunk in (start..end).step_by(LARGE_PAGE as usize) {
            let slot = (chunk / LARGE_PAGE) as usize;
            let pages_address = allocate_table();
            top[slot] = pages_address | TABLE;
            direct[slot] = pages_address | TABLE | NO_EXECUTE;
            for (number, page) in table(pages_address).iter_mut().enumerate() {
                let address = chunk + (number * PAGE_SIZE) as u64;
                *page = address | image_rights(address);
            }
        }
    }
}

/// The rights of a page of the image, or of what follows it in the same last-level table.
fn image_rights(address: u64) -> u64 {
    let bound = |symbol: *const u8| boot::image_physical(symbol.addr());
    let (text_end, rodata_end) = (bound(&raw const __text_end), bound(&raw const __rodata_end));
    let bss_end = bound(&raw const __bss_end);
    match address {
        _ if address < text_end => CODE,
        _ if address < rodata_end => CONSTANT,
        _ if address < bss_end => DATA,
        _ if address < start::image_end() => CONSTANT,
        _ => DATA,
    }
}

/// Maps memory (and firmware tables in memory) in the direct map.
///
/// # Safety
/// As for [`build`].
unsafe fn map_memory(root: &mut Table) {
    let huge_pages = cpuid(0x8000_0001, 0).edx & (1 << 26) != 0;
    let mut highest = LARGE_PAGE;
    // SAFETY: tables under construction.
    let gigabytes = unsafe { next_table(&mut root[index(DIRECT_MAP_BASE, 4)], TABLE) };
    let low = crate::boot::PhysRange { start: PhysAddr::new(0), end: PhysAddr::new(1 << 20) };
    let memory = crate::boot::info().memory_map.iter();
    let memory = memory.filter(|region| region.kind != MemoryKind::Reserved).map(|region| region.range);
    for range in memory.chain(core::iter::once(low)) {
        let mut address = range.start.as_u64() & !(LARGE_PAGE - 1);
        let end = range.end.as_u64().next_multiple_of(LARGE_PAGE);
        assert!(end <= (ENTRIES as u64) << 30, "more memory than the direct map has room for");
        highest = highest.max(end);
        while address < end {
            let gigabyte = &mut gigabytes[(address / GIB) as usize];
            let is_free = *gigabyte & PRESENT == 0;
            if huge_pages && is_free && address.is_multiple_of(GIB) && end - address >= GIB {
                *gigabyte = address | DATA | LARGE;
                address += GIB;
                continue;
            }
            if *gigabyte & LARGE == 0 {
                // SAFETY: tables under construction.
                let pages = unsafe { next_table(gigabyte, TABLE) };
                let page = &mut pages[(address / LARGE_PAGE) as usize % ENTRIES];
                if *page & PRESENT == 0 {
                    *page = address | DATA | LARGE;
                }
            }
            address += LARGE_PAGE;
        }
    }
    mmu::set_direct_map_bytes(highest);
}

/// # Safety
/// As for [`build`].
unsafe fn map_device_table(root: &mut Table) {
    // SAFETY: tables under construction.
    unsafe {
        let gigabytes = next_table(&mut root[index(DEVICE_MAP_BASE, 4)], TABLE);
        let directory = next_table(&mut gigabytes[0], TABLE);
        next_table(&mut directory[0], TABLE);
        DEVICE_TABLE.store(directory[0] & ADDRESS_MASK, Ordering::Relaxed);
        DEVICE_DIRECTORY.store(gigabytes[0] & ADDRESS_MASK, Ordering::Relaxed);
    }
}

/// The protection bits of CR4 that this processor has.
pub(crate) fn protection_features() -> u64 {
    let features = cpuid(7, 0);
    let mut bits = 0;
    for (present, bit) in [
        (features.ebx & 1 << 0, register::CR4_FSGSBASE),
        (features.ebx & 1 << 7, register::CR4_SMEP),
        (features.ebx & register::CPUID_7_EBX_SMAP, register::CR4_SMAP),
        (features.ecx & 1 << 2, register::CR4_UMIP),
    ] {
        if present != 0 {
            bits |= bit;
        }
    }
    bits
}

/// Turns on what keeps the kernel from executing data, writing constants and using user memory by accident, as far
/// as the processor has it. Run by each processor.
pub(crate) fn enable_protection() {
    let control = register::read_cr4() | register::CR4_PAGE_GLOBAL | protection_features();
    // SAFETY: every x86-64 processor this kernel supports has no-execute and global pages; the other bits are set
    // only where CPUID has them. The kernel executes no user page and touches none without the access flag.
    unsafe {
        register::write_msr(
            register::MSR_EFER,
            register::read_msr(register::MSR_EFER) | register::EFER_NO_EXECUTE,
        );
        register::write_cr4(control);
        register::write_cr0(register::read_cr0() | register::CR0_WRITE_PROTECT);
    }
}

/// Maps device registers. The window's pages are given out once and never taken back.
pub(crate) fn map_device(physical: u64, bytes: usize) -> Option<*mut u8> {
    if physical.is_multiple_of(LARGE_PAGE) && (bytes as u64).is_multiple_of(LARGE_PAGE) && bytes > 0 {
        return map_large_device(physical, bytes as u64 / LARGE_PAGE);
    }
    let first = physical & !(PAGE_SIZE as u64 - 1);
    let pages = (physical + bytes as u64).div_ceil(PAGE_SIZE as u64) - first / PAGE_SIZE as u64;
    let slot = DEVICE_NEXT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next + pages <= DEVICE_PAGES).then_some(next + pages)
        })
        .ok()?;
    for page in 0..pages {
        let table = mmu::phys_to_virt(PhysAddr::new(DEVICE_TABLE.load(Ordering::Relaxed))).cast::<u64>();
        // SAFETY: the slot was taken by the update above, so no one else writes this entry of the window's table;
        // it was not present before, so no processor has it cached.
        unsafe {
            table.add((slot + page) as usize).write_volatile((first + page * PAGE_SIZE as u64) | DEVICE)
        };
    }
    let virtual_address = DEVICE_MAP_BASE + slot as usize * PAGE_SIZE + (physical - first) as usize;
    Some(core::ptr::with_exposed_provenance_mut(virtual_address))
}

/// Maps device registers that fill whole large pages.
fn map_large_device(physical: u64, pages: u64) -> Option<*mut u8> {
    let slot = DEVICE_LARGE_NEXT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next + pages <= DEVICE_LARGE_PAGES).then_some(next + pages)
        })
        .ok()?;
    let directory = mmu::phys_to_virt(PhysAddr::new(DEVICE_DIRECTORY.load(Ordering::Relaxed))).cast::<u64>();
    for page in 0..pages {
        // SAFETY: the slot was taken by the update above, so no one else writes this entry of the window's directory, of which
        // the first entry is never given out; it was not present before, so no processor has it cached.
        unsafe {
            directory
                .add((slot + page + 1) as usize)
                .write_volatile((physical + page * LARGE_PAGE) | DEVICE | LARGE);
        }
    }
    let virtual_address = DEVICE_MAP_BASE + (slot as usize + 1) * LARGE_PAGE as usize;
    Some(core::ptr::with_exposed_provenance_mut(virtual_address))
}

/// Maps one page of memory, read-write, before crate `memory` takes over.
///
/// # Safety
/// On the boot processor while it is alone, after [`build`]; the address is free and the page belongs to its user.
pub(crate) unsafe fn map_early(address: usize, physical: u64) {
    // SAFETY: we are alone, so nobody else walks or changes the tables.
    unsafe {
        let root = table(mmu::kernel_root().as_u64());
        let gigabytes = next_table(&mut root[index(address, 4)], TABLE);
        let directory = next_table(&mut gigabytes[index(address, 3)], TABLE);
        let pages = next_table(&mut directory[index(address, 2)], TABLE);
        let page = &mut pages[index(address, 1)];
        assert!(*page == 0, "early mapping of an address in use");
        *page = physical | DATA;
    }
}

/// Whether the direct map shows this range.
pub(crate) fn direct_map_shows(physical: u64, bytes: usize) -> bool {
    let first = physical & !(LARGE_PAGE - 1);
    let last = physical.saturating_add(bytes as u64);
    (first..last).step_by(LARGE_PAGE as usize).all(|address| {
        let Some(slot) = DIRECT_MAP_BASE.checked_add(address as usize) else { return false };
        if address >= (ENTRIES as u64) << 30 {
            return false;
        }
        // SAFETY: the direct map's upper tables are not changed after start-up; they are only read here.
        unsafe {
            let root = table(mmu::kernel_root().as_u64());
            let gigabyte = table(root[index(slot, 4)] & ADDRESS_MASK)[index(slot, 3)];
            if gigabyte & PRESENT == 0 {
                return false;
            }
            gigabyte & LARGE != 0 || table(gigabyte & ADDRESS_MASK)[index(slot, 2)] & PRESENT != 0
        }
    })
}
