//! Preemption count of a hosted thread, in the same encoding as on the bare machine.

use std::cell::Cell;

/// Bit 31, set while no switch is wanted.
const NOT_WANTED: u32 = 1 << 31;

thread_local! {
    static WORD: Cell<u32> = const { Cell::new(NOT_WANTED) };
}

pub(crate) fn increment() {
    WORD.set(WORD.get() + 1);
}

pub(crate) fn decrement() -> bool {
    let word = WORD.get() - 1;
    WORD.set(word);
    word == 0
}

pub(crate) fn count() -> u32 {
    WORD.get() & !NOT_WANTED
}

pub(crate) fn set_count(count: u32) {
    WORD.set((WORD.get() & NOT_WANTED) | count);
}

pub(crate) fn resched_wanted() -> bool {
    WORD.get() & NOT_WANTED == 0
}

pub(crate) fn set_resched_wanted(wanted: bool) {
    let flag = if wanted { 0 } else { NOT_WANTED };
    WORD.set((WORD.get() & !NOT_WANTED) | flag);
}
