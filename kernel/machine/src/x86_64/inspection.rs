//! Looking at the kernel's page tables from outside, for tests and reports.
//!
//! Tables may change while they are read; each entry is read once, and what is seen was true at that moment.

use super::{mmu, paging, register};
use crate::address::{PhysAddr, VirtAddr};
use crate::mmu::{Mapping, Protection};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS_MASK: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: u64 = 512;

/// Rights accumulated on the way down.
#[derive(Clone, Copy)]
struct Rights {
    writable: bool,
    executable: bool,
    user: bool,
}

impl Rights {
    const ALL: Rights = Rights { writable: true, executable: true, user: true };

    fn below(self, entry: u64) -> Rights {
        Rights {
            writable: self.writable && entry & WRITABLE != 0,
            executable: self.executable && entry & NO_EXECUTE == 0,
            user: self.user && entry & USER != 0,
        }
    }
}

fn entry(table: u64, index: u64) -> u64 {
    // SAFETY: `table` comes from the kernel's root or from an entry of it; tables of the upper half are never freed
    // while they are linked. The entry may change at any time, so it is read volatile.
    unsafe { mmu::phys_to_virt(PhysAddr::new(table)).cast::<u64>().add(index as usize).read_volatile() }
}

fn leaf(entry: u64, level: u32, rights: Rights) -> Mapping {
    let bytes = 4096 << (9 * (level - 1));
    let physical = entry & ADDRESS_MASK & !(bytes as u64 - 1);
    Mapping {
        physical: PhysAddr::new(physical),
        bytes,
        writable: rights.writable,
        executable: rights.executable,
        user: rights.user,
    }
}

fn is_leaf(entry: u64, level: u32) -> bool {
    level == 1 || entry & LARGE != 0
}

pub(crate) fn mapping(address: VirtAddr) -> Option<Mapping> {
    let mut table = mmu::kernel_root().as_u64();
    let mut rights = Rights::ALL;
    for level in (1..=4).rev() {
        let found = entry(table, address.as_u64() >> (12 + 9 * (level - 1)) & (ENTRIES - 1));
        if found & PRESENT == 0 {
            return None;
        }
        rights = rights.below(found);
        if is_leaf(found, level) {
            return Some(leaf(found, level, rights));
        }
        table = found & ADDRESS_MASK;
    }
    None
}

/// Visits the entries that lead to an address; the last one is not present or maps a page. Tables that lie where the direct map shows
/// nothing end the walk.
pub(crate) fn for_each_entry(root: PhysAddr, address: VirtAddr, visit: &mut dyn FnMut(u32, PhysAddr, u64)) {
    let mut table = root.as_u64() & ADDRESS_MASK;
    for level in (1..=4).rev() {
        let index = address.as_u64() >> (12 + 9 * (level - 1)) & (ENTRIES - 1);
        let place = PhysAddr::new(table + index * 8);
        if mapping(VirtAddr::new(mmu::phys_to_virt(place) as u64)).is_none() {
            return;
        }
        let found = entry(table, index);
        visit(level, place, found);
        if found & PRESENT == 0 || is_leaf(found, level) {
            return;
        }
        table = found & ADDRESS_MASK;
    }
}

/// What page tables show at an address.
pub(crate) fn translate(root: PhysAddr, address: VirtAddr) -> Option<PhysAddr> {
    let mut physical = None;
    for_each_entry(root, address, &mut |level, _, found| {
        if found & PRESENT != 0 && is_leaf(found, level) {
            let page = leaf(found, level, Rights::ALL);
            let offset = address.as_u64() & (page.bytes as u64 - 1);
            physical = Some(PhysAddr::new(page.physical.as_u64() + offset));
        }
    });
    physical
}

pub(crate) fn for_each(visit: &mut dyn FnMut(VirtAddr, Mapping)) {
    walk(mmu::kernel_root().as_u64(), 4, 0, Rights::ALL, visit);
}

fn walk(table: u64, level: u32, base: u64, rights: Rights, visit: &mut dyn FnMut(VirtAddr, Mapping)) {
    for index in 0..ENTRIES {
        let found = entry(table, index);
        if found & PRESENT == 0 {
            continue;
        }
        let mut address = base + (index << (12 + 9 * (level - 1)));
        if level == 4 && index >= ENTRIES / 2 {
            address |= 0xffff << 48;
        }
        let rights = rights.below(found);
        if is_leaf(found, level) {
            visit(VirtAddr::new(address), leaf(found, level, rights));
        } else {
            walk(found & ADDRESS_MASK, level - 1, address, rights, visit);
        }
    }
}

pub(crate) fn protection() -> Protection {
    // SAFETY: the register exists on every x86-64 processor.
    let extended = unsafe { register::read_msr(register::MSR_EFER) };
    Protection {
        write_protect: register::read_cr0() & register::CR0_WRITE_PROTECT != 0,
        no_execute: extended & register::EFER_NO_EXECUTE != 0,
        missing_features: paging::protection_features() & !register::read_cr4(),
    }
}
