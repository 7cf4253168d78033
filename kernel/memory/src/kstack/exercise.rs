//! Deep recursion on purpose: what the test device `/dev/kstack_test` and the in-kernel tests do to a stack.
//!
//! The recursion uses [`STEP_BYTES`] of stack a level and writes a pattern into each frame, which it checks on the way
//! back: a page lost or zeroed under it is noticed.

use core::hint::black_box;

/// What happens at the deepest point of the recursion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exercise {
    /// Nothing.
    Recurse,
    /// The recursion runs with a spin lock held and interrupts off.
    Atomic,
}

/// Bytes of a level's own array; its frame is a little larger.
const STEP_BYTES: usize = 128;

/// Recurses until `bytes` bytes of the stack below the caller are in use, then calls `at_depth`. Returns whether all
/// frames were found as they were left.
pub fn exercise(bytes: usize, kind: Exercise, at_depth: &mut dyn FnMut()) -> bool {
    static LOCK: sync::SpinLock<()> = sync::SpinLock::new(());
    let marker = 0u8;
    let floor = (&raw const marker).addr().saturating_sub(bytes);
    match kind {
        Exercise::Recurse => descend(floor, 1, at_depth),
        Exercise::Atomic => {
            let _interrupts_off = machine::interrupt::disable();
            let _lock = LOCK.lock();
            descend(floor, 1, at_depth)
        }
    }
}

/// Stands with the stack pointer `offset` bytes above the lowest mapped page of the running stack, interrupts enabled,
/// for a moment. `provoke` is called before, with interrupts off: what it makes pending arrives there. If an interrupt's
/// frame were pushed on this stack, it would fault and be lost (specs/kernel-stacks.md §M2). Returns false when the
/// running thread is not on a stack of this crate.
#[cfg(target_os = "none")]
pub fn interrupt_at_edge(offset: u64, provoke: &mut dyn FnMut()) -> bool {
    /// Longer than any interrupt takes to arrive, even emulated.
    const PAUSES: u32 = 2000;
    let _preemption_off = machine::preempt::disable();
    let _interrupts_off = machine::interrupt::disable();
    provoke();
    let Some(edge) = super::mapped::lowest_mapped() else { return false };
    let stand = edge + offset;
    // SAFETY: the stack pointer moves down within the mapped part of this thread's own stack, below all that is in use,
    // and back; in between nothing is pushed but by interrupts, whose handlers leave the registers as they were and do
    // not switch threads, because preemption is off.
    unsafe {
        core::arch::asm!(
            "mov {saved}, rsp",
            "mov rsp, {stand}",
            "sti",
            "2:",
            "pause",
            "dec {pauses:e}",
            "jnz 2b",
            "cli",
            "mov rsp, {saved}",
            saved = out(reg) _,
            stand = in(reg) stand,
            pauses = inout(reg) PAUSES => _,
        );
    }
    true
}

#[inline(never)]
fn descend(floor: usize, level: u32, at_depth: &mut dyn FnMut()) -> bool {
    let mut frame = [level; STEP_BYTES / 4];
    black_box(&mut frame);
    let deeper = if (&raw const frame).addr() <= floor {
        at_depth();
        true
    } else {
        descend(floor, level.wrapping_add(1), at_depth)
    };
    black_box(&mut frame);
    deeper && frame.iter().all(|&word| word == level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_reaches_the_depth_asked_for() {
        let marker = 0u8;
        let start = (&raw const marker).addr();
        let mut deepest = usize::MAX;
        let whole = exercise(6000, Exercise::Recurse, &mut || {
            let here = 0u8;
            deepest = (&raw const here).addr();
        });
        assert!(whole);
        assert!(start - deepest >= 6000);
    }

    #[test]
    fn an_atomic_recursion_holds_a_lock() {
        let mut count = 0;
        assert!(exercise(1000, Exercise::Atomic, &mut || count = machine::preempt::count()));
        assert!(count > 0);
    }
}
