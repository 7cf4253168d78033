//! The preemption word of this processor, changed by single instructions through GS.

use super::per_cpu::{LOCKS_HELD, NO_SWITCH_WANTED, PREEMPT_WORD};
use core::arch::asm;

#[inline(always)]
pub(crate) fn increment() {
    // SAFETY: changes this processor's own word; not `nomem`, so that no access moves out of the section.
    unsafe { asm!("inc dword ptr gs:[{offset}]", offset = const PREEMPT_WORD, options(nostack)) };
}

/// Ends one reason; says whether it was the last one and a switch is wanted.
#[inline(always)]
pub(crate) fn decrement() -> bool {
    let zero: u8;
    // SAFETY: as in `increment`.
    unsafe {
        asm!("dec dword ptr gs:[{offset}]", "setz {zero}", offset = const PREEMPT_WORD, zero = out(reg_byte) zero,
            options(nostack));
    }
    zero != 0
}

#[inline(always)]
fn word() -> u32 {
    let value: u32;
    // SAFETY: reads this processor's own word.
    unsafe {
        asm!("mov {:e}, gs:[{offset}]", out(reg) value, offset = const PREEMPT_WORD,
            options(nostack, preserves_flags, readonly));
    }
    value
}

#[inline(always)]
pub(crate) fn count() -> u32 {
    word() & !NO_SWITCH_WANTED
}

#[inline(always)]
pub(crate) fn resched_wanted() -> bool {
    word() & NO_SWITCH_WANTED == 0
}

#[inline(always)]
pub(crate) fn set_resched_wanted(wanted: bool) {
    // SAFETY: as in `increment`.
    unsafe {
        if wanted {
            asm!("and dword ptr gs:[{offset}], 0x7fffffff", offset = const PREEMPT_WORD, options(nostack));
        } else {
            asm!("or dword ptr gs:[{offset}], 0x80000000", offset = const PREEMPT_WORD, options(nostack));
        }
    }
}

#[inline(always)]
pub(crate) fn set_count(count: u32) {
    // An interrupt between the two instructions may only change the flag from unwanted to wanted, which the
    // difference, applied by one addition, keeps.
    let difference = count.wrapping_sub(self::count());
    // SAFETY: as in `increment`.
    unsafe {
        asm!("add dword ptr gs:[{offset}], {:e}", in(reg) difference, offset = const PREEMPT_WORD, options(nostack));
    }
}

#[inline(always)]
pub(crate) fn note_lock() {
    // SAFETY: changes this processor's own word, which goes along with the thread.
    unsafe { asm!("inc dword ptr gs:[{offset}]", offset = const LOCKS_HELD, options(nostack)) };
}

#[inline(always)]
pub(crate) fn forget_lock() {
    // SAFETY: as in `note_lock`.
    unsafe { asm!("dec dword ptr gs:[{offset}]", offset = const LOCKS_HELD, options(nostack)) };
}

#[inline(always)]
pub(crate) fn luggage() -> u32 {
    let word: u32;
    // SAFETY: reads this processor's own word.
    unsafe {
        asm!("mov {:e}, gs:[{offset}]", out(reg) word, offset = const LOCKS_HELD,
            options(nostack, preserves_flags, readonly));
    }
    word
}

#[inline(always)]
pub(crate) fn set_luggage(word: u32) {
    // SAFETY: writes this processor's own word.
    unsafe {
        asm!("mov gs:[{offset}], {:e}", in(reg) word, offset = const LOCKS_HELD,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub(crate) fn payer() -> u16 {
    let number: u32;
    // SAFETY: reads the upper half of this processor's own word.
    unsafe {
        asm!("movzx {:e}, word ptr gs:[{offset}]", out(reg) number, offset = const LOCKS_HELD + 2,
            options(nostack, preserves_flags, readonly));
    }
    number as u16
}

#[inline(always)]
pub(crate) fn set_payer(number: u16) {
    // SAFETY: writes the upper half of this processor's own word, which goes along with the thread.
    unsafe {
        asm!("mov gs:[{offset}], {:x}", in(reg) number, offset = const LOCKS_HELD + 2,
            options(nostack, preserves_flags));
    }
}
