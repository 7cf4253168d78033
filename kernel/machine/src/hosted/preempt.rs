//! Preemption count of a hosted processor, in the same encoding as on the bare machine.
//!
//! Increments are sequentially consistent so that [`super::is_preemptible`] can be asked from outside.

use std::sync::atomic::Ordering;

use super::{interrupt, processor};

/// Bit 31, set while no switch is wanted.
pub(super) const NOT_WANTED: u32 = 1 << 31;

pub(crate) fn increment() {
    processor::this().preempt_word.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn decrement() -> bool {
    let word = processor::this().preempt_word.fetch_sub(1, Ordering::SeqCst) - 1;
    if word & !NOT_WANTED == 0 {
        interrupt::poll();
    }
    word == 0
}

pub(crate) fn count() -> u32 {
    processor::this().preempt_word.load(Ordering::SeqCst) & !NOT_WANTED
}

pub(crate) fn set_count(count: u32) {
    let word = &processor::this().preempt_word;
    word.store((word.load(Ordering::SeqCst) & NOT_WANTED) | count, Ordering::SeqCst);
}

pub(crate) fn resched_wanted() -> bool {
    processor::this().preempt_word.load(Ordering::SeqCst) & NOT_WANTED == 0
}

pub(crate) fn set_resched_wanted(wanted: bool) {
    let word = &processor::this().preempt_word;
    if wanted {
        word.fetch_and(!NOT_WANTED, Ordering::SeqCst);
    } else {
        word.fetch_or(NOT_WANTED, Ordering::SeqCst);
    }
}

pub(crate) fn note_lock() {}

pub(crate) fn forget_lock() {}

pub(crate) fn luggage() -> u32 {
    processor::this().luggage.load(Ordering::Relaxed)
}

pub(crate) fn set_luggage(word: u32) {
    processor::this().luggage.store(word, Ordering::Relaxed);
}

pub(crate) fn payer() -> u16 {
    (luggage() >> u16::BITS) as u16
}

pub(crate) fn set_payer(number: u16) {
    set_luggage(u32::from(number) << u16::BITS);
}
