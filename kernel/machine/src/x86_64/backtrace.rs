//! Reading frames of a stack that may be damaged.

use super::inspection;
use crate::address::VirtAddr;

/// Lowest kernel address.
const KERNEL_START: usize = 1 << 63;

/// The frame pointer of the function this is inlined into.
#[inline(always)]
pub(crate) fn frame_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The two words at a frame pointer: the caller's, and the return address.
pub(crate) fn read_frame(frame: usize) -> Option<[usize; 2]> {
    let is_mapped = |address: usize| inspection::mapping(VirtAddr::new(address as u64)).is_some();
    let last = frame.checked_add(15)?;
    if frame < KERNEL_START || !frame.is_multiple_of(8) || !is_mapped(frame) || !is_mapped(last) {
        return None;
    }
    // SAFETY: both words are mapped kernel memory, read volatile because they may be anything's.
    unsafe {
        let words = core::ptr::with_exposed_provenance::<usize>(frame);
        Some([words.read_volatile(), words.add(1).read_volatile()])
    }
}

pub(crate) fn is_code(address: usize) -> bool {
    super::symbols::is_code(address)
}

/// Stack pointer, page-fault address, page-table root and control registers, for a report.
pub(crate) fn registers() -> [(&'static str, u64); 6] {
    use super::register;
    let stack: u64;
    let flags: u64;
    // SAFETY: reads registers.
    unsafe { core::arch::asm!("mov {}, rsp", "pushfq", "pop {}", out(reg) stack, out(reg) flags) };
    [
        ("rsp", stack),
        ("rflags", flags),
        ("cr0", register::read_cr0()),
        ("cr2", register::read_cr2()),
        ("cr3", register::read_cr3()),
        ("cr4", register::read_cr4()),
    ]
}
