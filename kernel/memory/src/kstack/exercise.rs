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
    static LOCK: sync::SpinLock<()> = sync::SpinLock::named("exercise", ());
    let marker = 0u8;
    let floor = (&raw const marker).addr().saturating_sub(bytes);
    let mut descent = Descent { floor, at_level: &mut || {}, at_depth };
    match kind {
        Exercise::Recurse => descend(&mut descent, 1),
        Exercise::Atomic => {
            let _interrupts_off = machine::interrupt::disable();
            let _lock = LOCK.lock();
            descend(&mut descent, 1)
        }
    }
}

/// Like [`exercise`], calling `at_level` on each level of the way down.
pub fn exercise_poked(bytes: usize, at_level: &mut dyn FnMut()) -> bool {
    let marker = 0u8;
    let floor = (&raw const marker).addr().saturating_sub(bytes);
    descend(&mut Descent { floor, at_level, at_depth: &mut || {} }, 1)
}

/// Touches the calling thread's stack, `pages` pages beneath the one that it runs in; returns the cycles that it took: those
/// of a growth fault if all pages above are there and this one is not. None beyond the end of the window.
#[cfg(target_os = "none")]
pub fn touch_beneath(pages: u32) -> Option<u64> {
    use super::geometry::PAGE_BYTES;
    let marker = 0u8;
    let _interrupts_off = machine::interrupt::disable();
    let window = super::own_window()?;
    let page = ((&raw const marker).addr() as u64 & !(PAGE_BYTES - 1)) - u64::from(pages) * PAGE_BYTES;
    if page < window.bottom() {
        return None;
    }
    let word: *const u64 = core::ptr::with_exposed_provenance(page as usize);
    let start = machine::time::cycles();
    // SAFETY: the word lies in the window of the stack that this runs on, whose pages come when they are touched; what is
    // read does not matter.
    let _ = unsafe { word.read_volatile() };
    Some(machine::time::cycles() - start)
}

/// An end of a stack's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lowest address, towards which the stack grows.
    Bottom,
    /// Above the highest address.
    Top,
}

/// Reads the word next to the calling thread's stack, beyond this end of its window. There is a guard, so the thread ends there; this
/// returns only where stacks have no guards (on the hosted machine).
pub fn touch_guard(end: End) {
    #[cfg(target_os = "none")]
    if let Some(window) = super::own_window() {
        let address = match end {
            End::Bottom => window.bottom() - 8,
            End::Top => window.top(),
        };
        let word: *const u64 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: no page is ever mapped in a guard, so nothing is read: the fault ends the thread.
        let _ = unsafe { word.read_volatile() };
    }
    #[cfg(not(target_os = "none"))]
    let _ = end;
}

/// How many bytes of the calling thread's stack are in use where this is called. None on a stack that is not of this crate.
#[cfg(target_os = "none")]
pub fn bytes_in_use() -> Option<u64> {
    let marker = 0u8;
    super::own_window().map(|window| window.top() - (&raw const marker).addr() as u64)
}

/// How many bytes of the calling thread's stack are in use: not known on the hosted machine.
#[cfg(not(target_os = "none"))]
pub fn bytes_in_use() -> Option<u64> {
    None
}

struct Descent<'a> {
    /// The recursion ends when it is at or below this address.
    floor: usize,
    at_level: &'a mut dyn FnMut(),
    at_depth: &'a mut dyn FnMut(),
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
fn descend(descent: &mut Descent<'_>, level: u32) -> bool {
    let mut frame = [level; STEP_BYTES / 4];
    black_box(&mut frame);
    (descent.at_level)();
    let deeper = if (&raw const frame).addr() <= descent.floor {
        (descent.at_depth)();
        true
    } else {
        descend(descent, level.wrapping_add(1))
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
    fn each_level_is_told() {
        let mut levels = 0;
        assert!(exercise_poked(10 * STEP_BYTES, &mut || levels += 1));
        assert!((2..=11).contains(&levels), "{levels} levels");
    }

    #[test]
    fn an_atomic_recursion_holds_a_lock() {
        let mut count = 0;
        assert!(exercise(1000, Exercise::Atomic, &mut || count = machine::preempt::count()));
        assert!(count > 0);
    }
}
