//! Processors that halt with interrupts off until another one wakes them by a non-maskable interrupt.
//!
//! A virtual machine with more processors than its host makes headway only if those that wait give the host's processors away.
//!
//! States of a processor: *awake* ─[`rest_while`]─► *resting* ─[`wake`]─► *called* ─the interrupt was sent─► *woken* ─it has come─► *awake*.
//! One that finds by itself that it need not rest goes from *resting* to *awake*, if nobody has called it. One that was called goes on when
//! the interrupt has come, so none of them is on its way when it has left. The interrupt may come between the last look at the state
//! and the halt: the handler has it leave the block ([`leave_block`]). A processor within the handler of such an interrupt can't be woken,
//! and does not halt.

use super::ipi;
use crate::cpu::{self, CpuId, MAX_CPUS};
use crate::debugger::HALTING;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

const AWAKE: u32 = 0;
const RESTING: u32 = 1;
const CALLED: u32 = 2;
const WOKEN: u32 = 3;

/// The states. From resting to called by who wakes, and then to woken; all else by the processor itself.
static STATES: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(AWAKE) }; MAX_CPUS];

core::arch::global_asm!(
    ".pushsection .text.starling_rest, \"ax\"",
    "starling_rest:",
    "cmp dword ptr [rdi], {resting}",
    "jne starling_rest_end",
    "hlt",
    "starling_rest_end:",
    "ret",
    ".popsection",
    resting = const RESTING,
);

// SAFETY: the block above defines both: the function looks at the word and halts or not, and changes nothing but flags.
unsafe extern "C" {
    fn starling_rest(state: *const AtomicU32);
    static starling_rest_end: u8;
}

/// Has an interrupted processor leave the block that halts.
pub(super) fn leave_block(rip: &mut u64) {
    let end = &raw const starling_rest_end as u64;
    if (starling_rest as *const () as u64..end).contains(rip) {
        *rip = end;
    }
}

/// Waits as long as `waits` says so, with interrupts off. Who changes that calls [`wake`] after it.
pub(crate) fn rest_while(waits: &dyn Fn() -> bool) {
    let this = cpu::current();
    let state = &STATES[this.index()];
    while waits() {
        if ipi::handles_non_maskable(this) {
            cpu::relax();
            continue;
        }
        state.store(RESTING, SeqCst);
        // Looks again: who changed it before the state was there did not call.
        if waits() {
            crate::time_window!(HALTING);
            // SAFETY: reads the state, and halts; interrupts are off, and a non-maskable one comes from whoever makes another of it.
            unsafe { starling_rest(state) };
        }
        if state.compare_exchange(RESTING, AWAKE, SeqCst, SeqCst).is_err() {
            while state.load(SeqCst) != WOKEN || ipi::awaits_non_maskable(this) {
                cpu::relax();
            }
            state.store(AWAKE, SeqCst);
        }
    }
}

/// Has a processor that rests look again.
pub(crate) fn wake(cpu: CpuId) {
    let state = &STATES[cpu.index()];
    if state.compare_exchange(RESTING, CALLED, SeqCst, SeqCst).is_ok() {
        ipi::send_non_maskable(cpu);
        state.store(WOKEN, SeqCst);
    }
}
