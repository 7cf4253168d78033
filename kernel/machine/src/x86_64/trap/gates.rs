//! The interrupt descriptor table and the system-call registers.
//!
//! The table is shared by all processors. Every vector has an IST stack (specs/kernel-stacks.md M4):
//!
//! | IST | vectors | bytes |
//! |---|---|---|
//! | 1 | #DF | 8 KiB |
//! | 2 | NMI | 8 KiB |
//! | 3 | #MC | 8 KiB |
//! | 4 | #DB, the debugger's interrupt (which disarms hardware breakpoints) | 8 KiB |
//! | 5 | #PF | 8 KiB in four slots |
//! | 6 | external interrupts | 4 KiB |
//! | 7 | all other exceptions | 8 KiB |
//!
//! An experiment takes the stack from page faults: see [`fault_on_own_stack`].

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, Ordering};

use super::stubs;
use crate::backend::apic::VECTOR_DEBUGGER;
use crate::backend::gdt::{KERNEL_CODE, USER_BASE};
use crate::backend::register::{read_msr, write_msr};

/// Bytes of the IST stacks 1 to 7. Each has an unmapped page beneath it.
pub(crate) const STACK_BYTES: [usize; 7] = [8192, 8192, 8192, 8192, 8192, 4096, 8192];
/// Bytes of the per-processor interrupt stack.
pub(crate) const INTERRUPT_STACK_BYTES: usize = 16384;
const _: () = assert!(STACK_BYTES[4] == 4 * stubs::PAGE_FAULT_SLOT_BYTES);

#[repr(C)]
#[derive(Clone, Copy)]
struct Gate {
    low: u64,
    high: u64,
}

struct GateTable(UnsafeCell<[Gate; 256]>);

// SAFETY: written by the boot processor in `fill` before any other processor starts; only the
// hardware reads it afterwards.
unsafe impl Sync for GateTable {}

static GATES: GateTable = GateTable(UnsafeCell::new([Gate { low: 0, high: 0 }; 256]));

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

fn stack_of(vector: u8) -> u64 {
    match vector {
        8 => 1,
        2 => 2,
        18 => 3,
        1 | VECTOR_DEBUGGER => 4,
        14 => 5,
        0..=31 => 7,
        _ => 6,
    }
}

/// Fills the table.
///
/// # Safety
/// Once, on the boot processor, before any processor loads the table.
pub(crate) unsafe fn fill() {
    // SAFETY: nobody else uses the table yet (caller).
    let gates = unsafe { &mut *GATES.0.get() };
    for vector in 0..=255_u8 {
        // int3 and into are raised by programs on purpose.
        let privilege = if matches!(vector, 3 | 4) { 3 } else { 0 };
        gates[usize::from(vector)] = gate(stubs::stub_address(vector), stack_of(vector), privilege);
    }
}

fn gate(address: u64, stack: u64, privilege: u64) -> Gate {
    const PRESENT_INTERRUPT_GATE: u64 = 0x8e << 40;
    let offset_low = (address & 0xffff) | ((address >> 16) & 0xffff) << 48;
    Gate {
        low: offset_low
            | u64::from(KERNEL_CODE) << 16
            | stack << 32
            | PRESENT_INTERRUPT_GATE
            | privilege << 45,
        high: address >> 32,
    }
}

/// Whether page faults enter on the stack that they interrupt.
static IN_PLACE: AtomicBool = AtomicBool::new(false);

/// Has page faults enter on the stack that they interrupt, as processors without an interrupt stack table do. Where that has
/// no room, a double fault comes of it, in which the stack can grow. To compare with (specs/kernel-stacks.md M10).
///
/// # Safety
/// Once, on the boot processor while it is alone.
pub unsafe fn fault_on_own_stack() {
    const PAGE_FAULT: usize = 14;
    let _interrupts_off = crate::interrupt::disable();
    // SAFETY: no other processor uses the table yet (caller), and no fault comes between the two words.
    unsafe { (*GATES.0.get())[PAGE_FAULT] = gate(stubs::page_fault_in_place_address(), 0, 0) };
    IN_PLACE.store(true, Ordering::Relaxed);
}

/// See [`fault_on_own_stack`].
pub(super) fn faults_enter_in_place() -> bool {
    IN_PLACE.load(Ordering::Relaxed)
}

/// Loads the table on this processor and points the system-call registers to their entries.
///
/// # Safety
/// The table is filled; this processor's GDT, TSS (with mapped stacks 1 to 7 of [`STACK_BYTES`]) and
/// GS base are in place.
pub(crate) unsafe fn load() {
    const EFER: u32 = 0xc000_0080;
    const EFER_SYSTEM_CALL: u64 = 1;
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const CSTAR: u32 = 0xc000_0083;
    const SFMASK: u32 = 0xc000_0084;
    /// Flags cleared on system-call entry: TF IF DF IOPL NT RF AC.
    const MASKED_FLAGS: u64 = 0x0005_7700;
    let selectors = u64::from(USER_BASE) << 48 | u64::from(KERNEL_CODE) << 32;
    let gates = TablePointer { limit: (size_of::<Gate>() * 256) as u16 - 1, base: GATES.0.get() as u64 };
    // SAFETY: the table and the entry points are the stubs written for them; the selectors are those
    // of the loaded GDT.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const gates, options(nostack, readonly));
        write_msr(EFER, read_msr(EFER) | EFER_SYSTEM_CALL);
        write_msr(STAR, selectors);
        write_msr(LSTAR, stubs::starling_system_call_entry as *const () as u64);
        write_msr(CSTAR, stubs::starling_compatibility_entry as *const () as u64);
        write_msr(SFMASK, MASKED_FLAGS);
    }
}
