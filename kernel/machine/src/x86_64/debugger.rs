//! Breakpoint instructions and registers, and looking through page tables.

use super::{inspection, ipi, mmu};
use crate::address::{DEVICE_MAP_BASE, PhysAddr, VirtAddr};
use crate::cpu::CpuId;
use crate::debugger::{Access, Cause, has_hook};
use crate::user::DebugRegisters;
use core::arch::asm;

/// Local enable bit of breakpoint 0 in DR7; two bits for each.
const ENABLE: u64 = 1;
/// Where the conditions begin in DR7: four bits for each.
const CONDITIONS: u32 = 16;
const CONDITIONS_MASK: u64 = 0xffff << CONDITIONS;
/// Length of eight bytes, in the upper half of a condition.
const EIGHT_BYTES: u64 = 0b10 << 2;
/// DR7 with nothing armed.
const NOTHING: u64 = 1 << 10;
/// DR6 with nothing hit.
const NO_HITS: u64 = 0xffff_0ff0;
/// Bits of DR6: four breakpoints, and the single step.
const HITS: u64 = 0xf | 1 << 14;

/// In RAX at a breakpoint instruction that is there on purpose: this and the cause.
const ON_PURPOSE: u64 = 0x6a6f_696e_2074_6800;

pub(crate) fn enter(cause: Cause) {
    // SAFETY: the trap comes back here, whether there is a debugger that wants it or not.
    unsafe { asm!("int3", in("rax") ON_PURPOSE + cause as u64, options(nostack)) };
}

/// Why a processor is at a breakpoint instruction, by its RAX. None: it is not one of [`enter`]'s.
pub(crate) fn purpose(word: u64) -> Option<Cause> {
    const CAUSES: [Cause; 3] = [Cause::Breakpoint, Cause::Fault, Cause::Summons];
    CAUSES.into_iter().find(|cause| word == ON_PURPOSE + *cause as u64)
}

pub(crate) fn is_present() -> bool {
    has_hook()
}

pub(crate) fn press_button(cpu: CpuId) {
    ipi::press_button(cpu);
}

fn read_control() -> u64 {
    let control;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, dr7", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control
}

fn write_control(control: u64) {
    // SAFETY: breakpoints lead to the debugger, which is prepared for them.
    unsafe { asm!("mov dr7, {}", in(reg) control, options(nostack, preserves_flags)) };
}

fn write_address(index: usize, address: u64) {
    // SAFETY: an address register has no effect until its breakpoint is enabled.
    unsafe {
        match index {
            0 => asm!("mov dr0, {}", in(reg) address, options(nostack, preserves_flags)),
            1 => asm!("mov dr1, {}", in(reg) address, options(nostack, preserves_flags)),
            2 => asm!("mov dr2, {}", in(reg) address, options(nostack, preserves_flags)),
            _ => asm!("mov dr3, {}", in(reg) address, options(nostack, preserves_flags)),
        }
    }
}

fn read_addresses() -> [u64; DebugRegisters::COUNT] {
    let [mut first, mut second, mut third, mut fourth] = [0; DebugRegisters::COUNT];
    // SAFETY: reads registers.
    unsafe {
        asm!("mov {}, dr0", out(reg) first, options(nomem, nostack, preserves_flags));
        asm!("mov {}, dr1", out(reg) second, options(nomem, nostack, preserves_flags));
        asm!("mov {}, dr2", out(reg) third, options(nomem, nostack, preserves_flags));
        asm!("mov {}, dr3", out(reg) fourth, options(nomem, nostack, preserves_flags));
    }
    [first, second, third, fourth]
}

/// The debugger's own registers, while a program has them.
pub(crate) struct Lent {
    control: u64,
    addresses: Option<[u64; DebugRegisters::COUNT]>,
}

/// Gives this processor's registers to a program that is about to run, with interrupts off.
pub(crate) fn lend(registers: &DebugRegisters) -> Lent {
    let control = read_control();
    let is_armed = control & DebugRegisters::ENABLED != 0;
    let lent = Lent { control, addresses: is_armed.then(read_addresses) };
    if is_armed {
        write_control(NOTHING);
    }
    registers.addresses.iter().enumerate().for_each(|(index, address)| write_address(index, *address));
    // A step without breakpoints has left its mark.
    let _ = take_hits();
    // The program can't touch the registers, and its debugger is not told of attempts: only what breakpoints need is taken over.
    write_control(NOTHING | registers.control & (DebugRegisters::ENABLED | CONDITIONS_MASK));
    lent
}

/// Takes the registers back from the program, with interrupts off still.
pub(crate) fn take_back(lent: Lent) {
    write_control(NOTHING);
    if let Some(addresses) = lent.addresses {
        addresses.into_iter().enumerate().for_each(|(index, address)| write_address(index, address));
        write_control(lent.control);
    }
}

pub(crate) fn set_watch(index: usize, watch: Option<(VirtAddr, Access)>) {
    let address = watch.map_or(0, |(address, _)| address.as_u64());
    write_address(index, address);
    let shift = CONDITIONS + 4 * index as u32;
    let mut control = read_control() & !(0b11 << (2 * index)) & !(0b1111 << shift);
    if let Some((_, access)) = watch {
        let condition = match access {
            Access::Execute => 0b00,
            Access::Write => 0b01 | EIGHT_BYTES,
            Access::ReadWrite => 0b11 | EIGHT_BYTES,
        };
        control |= ENABLE << (2 * index) | condition << shift;
    }
    write_control(control);
}

pub(crate) fn take_hits() -> u64 {
    let hits: u64;
    // SAFETY: reads and clears the record of hits.
    unsafe {
        asm!("mov {}, dr6", out(reg) hits, options(nomem, nostack, preserves_flags));
        asm!("mov dr6, {}", in(reg) NO_HITS, options(nomem, nostack, preserves_flags));
    }
    hits & HITS
}

pub(crate) fn disarm() -> u64 {
    let control = read_control();
    write_control(NOTHING);
    control
}

pub(crate) fn rearm(control: u64) {
    write_control(control);
}

pub(crate) fn read_word(root: PhysAddr, address: VirtAddr) -> Option<u64> {
    const DEVICE_BYTES: u64 = 1 << 30;
    let address = address.as_u64();
    // Reading device registers may have effects.
    if !address.is_multiple_of(8)
        || (DEVICE_MAP_BASE as u64..DEVICE_MAP_BASE as u64 + DEVICE_BYTES).contains(&address)
    {
        return None;
    }
    let physical = inspection::translate(root, VirtAddr::new(address))?;
    let shown = mmu::phys_to_virt(physical);
    inspection::mapping(VirtAddr::new(shown as u64))?;
    // SAFETY: the direct map shows the word, as was just seen; it may be anything's, so it is read volatile.
    Some(unsafe { shown.cast::<u64>().read_volatile() })
}

pub(crate) fn for_each_entry(root: PhysAddr, address: VirtAddr, visit: &mut dyn FnMut(u32, PhysAddr, u64)) {
    inspection::for_each_entry(root, address, visit);
}
