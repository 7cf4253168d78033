//! The local APIC of each processor: end of interrupt, interprocessor interrupts, timer registers.
//!
//! Where the processor has x2APIC, its model-specific registers are used; else the memory-mapped xAPIC, whose
//! registers lie at the same physical address for every processor, each seeing its own. The mode is chosen once, on
//! the boot processor, and all others follow. In xAPIC mode the id stands in bits 31:24 of the id register and of the
//! high command word.

use super::register::{self, MSR_APIC_BASE, MSR_X2APIC, cpuid, read_msr, write_msr};
use crate::address::PhysAddr;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// The local timer's vector.
pub(crate) const VECTOR_TIMER: u8 = 0xd0;
/// Vector of [`crate::ipi::Ipi::Reschedule`].
pub(crate) const VECTOR_RESCHEDULE: u8 = 0xd1;
/// Vector of [`crate::ipi::Ipi::Call`]: the only one of its priority class. Old controllers queue two interrupts of a class and
/// lose the third; alone, what is lost is one of several that say the same (specs/fiasco-mp.md rule 22).
pub(crate) const VECTOR_CALL: u8 = 0xe0;
/// Vector of [`crate::ipi::Ipi::Debugger`].
pub(crate) const VECTOR_DEBUGGER: u8 = 0xf0;
const _: () = assert!(VECTOR_CALL >> 4 != VECTOR_RESCHEDULE >> 4 && VECTOR_CALL >> 4 != VECTOR_DEBUGGER >> 4);
/// Vector of the APIC's own errors.
pub(crate) const VECTOR_ERROR: u8 = 0xfe;
/// Vector of interrupts that went away before they were taken; gets no end of interrupt.
pub(crate) const VECTOR_SPURIOUS: u8 = 0xff;

const DEFAULT_ADDRESS: u64 = 0xfee0_0000;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
const SOFTWARE_ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
pub(crate) const NON_MASKABLE: u32 = 4 << 8;
const DELIVERY_PENDING: u32 = 1 << 12;
pub(crate) const LEVEL_ASSERT: u32 = 1 << 14;
const ALL_BUT_SELF: u32 = 3 << 18;
/// Delivery mode INIT of the command register.
pub(crate) const COMMAND_INIT: u32 = 5 << 8 | LEVEL_ASSERT;
/// Delivery mode start-up; the low byte is the page to start at.
pub(crate) const COMMAND_START_UP: u32 = 6 << 8 | LEVEL_ASSERT;
/// Most polls for the command register; a command is delivered within microseconds.
const DELIVERY_POLLS_MAX: u32 = 1_000_000;

/// Registers, numbered by their xAPIC offset divided by 16.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Register {
    Id = 0x02,
    TaskPriority = 0x08,
    EndOfInterrupt = 0x0b,
    Spurious = 0x0f,
    Command = 0x30,
    CommandHigh = 0x31,
    Timer = 0x32,
    Line0 = 0x35,
    Line1 = 0x36,
    Error = 0x37,
    InitialCount = 0x38,
    CurrentCount = 0x39,
    Divide = 0x3e,
}

/// Address of the mapped xAPIC registers; 0 in x2APIC mode. Written once by [`choose_mode`].
static REGISTERS: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn registers() -> Option<*mut u32> {
    match REGISTERS.load(Ordering::Relaxed) {
        0 => None,
        address => Some(core::ptr::with_exposed_provenance_mut(address)),
    }
}

#[inline(always)]
pub(crate) fn read(register: Register) -> u32 {
    // SAFETY: the register exists in either mode (but for the ids of commands, which are not read), and reading
    // has no side effect.
    unsafe {
        match registers() {
            Some(base) => base.add(register as usize * 4).read_volatile(),
            None => read_msr(MSR_X2APIC + register as u32) as u32,
        }
    }
}

/// Writes a register of this processor's APIC.
///
/// # Safety
/// What the write sets off must be prepared for: vectors have handlers, other processors can bear the command.
#[inline(always)]
pub(crate) unsafe fn write(register: Register, value: u32) {
    // SAFETY: the register exists in either mode; see the function's contract.
    unsafe {
        match registers() {
            Some(base) => base.add(register as usize * 4).write_volatile(value),
            None => write_msr(MSR_X2APIC + register as u32, u64::from(value)),
        }
    }
}

/// Chooses the mode, on the boot processor.
pub(crate) fn choose_mode(address: Option<u64>) {
    let has_x2apic = cpuid(1, 0).ecx & 1 << 21 != 0;
    if !has_x2apic {
        let address = PhysAddr::new(address.unwrap_or(DEFAULT_ADDRESS));
        let mapped =
            super::mmu::map_device(address, 4096).expect("room in the device window for the local APIC");
        REGISTERS.store(mapped.expose_provenance(), Ordering::Relaxed);
    }
}

/// Enables this processor's APIC: every local source masked but the error interrupt and, as wired, NMI.
pub(crate) fn initialise_cpu() {
    let mode = if registers().is_none() { BASE_ENABLED | BASE_X2APIC } else { BASE_ENABLED };
    // SAFETY: all vectors have entry stubs; the processor runs with interrupts disabled. The base register exists
    // on every x86-64 processor; its address field is kept.
    unsafe {
        write_msr(MSR_APIC_BASE, read_msr(MSR_APIC_BASE) | mode);
        write(Register::TaskPriority, 0);
        write(Register::Timer, MASKED);
        write(Register::Line0, MASKED);
        write(Register::Line1, NON_MASKABLE);
        write(Register::Error, u32::from(VECTOR_ERROR));
        write(Register::Spurious, SOFTWARE_ENABLED | u32::from(VECTOR_SPURIOUS));
    }
}

/// This processor's hardware id.
pub(crate) fn id() -> u32 {
    if registers().is_some() { read(Register::Id) >> 24 } else { read(Register::Id) }
}

#[inline(always)]
pub(crate) fn end_of_interrupt() {
    // SAFETY: called once for each interrupt taken.
    unsafe { write(Register::EndOfInterrupt, 0) };
}

/// Sends a command to another processor.
///
/// # Safety
/// The target can bear the command.
pub(crate) unsafe fn send_command(target: u32, command: u32) {
    let guard = crate::interrupt::disable();
    // The receiver must see everything written before the send.
    fence(Ordering::SeqCst);
    // SAFETY: see the function's contract. With interrupts disabled nobody gets between the two words.
    unsafe {
        match registers() {
            Some(_) => {
                wait_for_delivery();
                write(Register::CommandHigh, target << 24);
                write(Register::Command, command);
            }
            None => {
                core::arch::asm!("lfence", options(nostack, preserves_flags));
                write_msr(
                    MSR_X2APIC + Register::Command as u32,
                    u64::from(target) << 32 | u64::from(command),
                );
            }
        }
    }
    drop(guard);
}

fn wait_for_delivery() {
    for _ in 0..DELIVERY_POLLS_MAX {
        if read(Register::Command) & DELIVERY_PENDING == 0 {
            return;
        }
        core::hint::spin_loop();
    }
}

/// Sends a non-maskable interrupt to all other processors.
pub(crate) fn send_non_maskable_to_others() {
    // SAFETY: the receivers stop, which is what the caller wants.
    unsafe {
        if registers().is_some() {
            wait_for_delivery();
            write(Register::Command, ALL_BUT_SELF | NON_MASKABLE | LEVEL_ASSERT);
        } else {
            let command = ALL_BUT_SELF | NON_MASKABLE | LEVEL_ASSERT;
            write_msr(MSR_X2APIC + Register::Command as u32, u64::from(command));
        }
    }
}

/// Whether the APIC is set up, so that a panic may use it.
pub(crate) fn is_ready() -> bool {
    // SAFETY: the register exists on every x86-64 processor.
    let base = unsafe { read_msr(register::MSR_APIC_BASE) };
    registers().is_some() || base & BASE_X2APIC != 0
}
