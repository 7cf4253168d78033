//! Processors of a hosted machine: every thread is on processor 0.

use crate::cpu::{CpuId, CpuSet};
use std::cell::Cell;

thread_local! {
    static THREAD_WORD: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn current_index() -> u32 {
    0
}

pub(crate) fn count() -> usize {
    1
}

pub(crate) fn online() -> CpuSet {
    CpuSet::only(CpuId::BOOT)
}

pub(crate) fn thread_word() -> usize {
    THREAD_WORD.get()
}

pub(crate) fn set_thread_word(word: usize) {
    THREAD_WORD.set(word);
}

pub(crate) fn set_ap_entry(_entry: fn(CpuId) -> !) {}

pub(crate) fn start_application_processors() {}

pub(crate) fn halt_forever() -> ! {
    std::process::abort()
}
