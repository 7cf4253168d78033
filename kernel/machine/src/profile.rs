//! Where the kernel spends its time: once a millisecond each processor looks what its timer's interrupt came to.
//!
//! Off, and without cost but a load at each setting of a timer, until somebody provides counters ([`start`]). A processor that runs a program is not counted; one that waits is, at the
//! instruction where it waits. Code that keeps interrupts off is counted where it turns them on again.
//!
//! The timer of a processor is never set beyond its next look (`limit`), whatever else it waits for.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::backend;
use crate::cpu::{self, MAX_CPUS};
use crate::set_once::SetOnce;
use crate::time;

/// How far looks are apart.
pub const PERIOD_NS: u64 = 1_000_000;

/// Counters, each for 2^`shift` bytes of code.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// From the beginning of the code on.
    pub counts: &'static [AtomicU32],
    /// Logarithm of the bytes of each.
    pub shift: u32,
}

static COUNTERS: SetOnce<Counters> = SetOnce::new();

/// When each processor looks next. Written by itself.
static NEXT_NS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// The addresses of the kernel's code; empty where it is a part of a process.
pub fn code() -> Range<usize> {
    backend::symbols::code()
}

/// Begins to count. Each processor joins in when it sets its timer next.
///
/// # Panics
/// When it has begun already.
pub fn start(counters: Counters) {
    COUNTERS.set(counters);
}

/// The counters, if it has begun.
#[inline(always)]
pub fn counters() -> Option<&'static Counters> {
    COUNTERS.get_ref()
}

/// When a processor's timer must be set to, which is to be set to this.
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "hosted processors have no timers of their own")
)]
#[inline(always)]
pub(crate) fn limit(deadline_ns: u64) -> u64 {
    if counters().is_none() {
        return deadline_ns;
    }
    deadline_ns.min(NEXT_NS[cpu::current().index()].load(Ordering::Relaxed))
}

/// In the timer's interrupt: counts what it has interrupted, if it is time.
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "hosted processors have no timers of their own")
)]
pub(crate) fn sample(counters: &Counters) {
    let next_ns = &NEXT_NS[cpu::current().index()];
    let now_ns = time::now_ns();
    if now_ns < next_ns.load(Ordering::Relaxed) {
        return;
    }
    next_ns.store(now_ns + PERIOD_NS, Ordering::Relaxed);
    let Some((address, _)) = backend::interrupt::interrupted_code() else { return };
    if let Some(count) = place(counters, &code(), address as usize) {
        counters.counts[count].fetch_add(1, Ordering::Relaxed);
    }
}

/// Which counter is an address's.
fn place(counters: &Counters, code: &Range<usize>, address: usize) -> Option<usize> {
    let offset = code.contains(&address).then(|| address - code.start)?;
    Some(offset >> counters.shift).filter(|place| *place < counters.counts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_part_of_the_code() {
        static COUNTS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
        let counters = Counters { counts: &COUNTS, shift: 4 };
        let of = |address| place(&counters, &(0x1000..0x1050), address);
        assert_eq!([of(0x1000), of(0x100f), of(0x1010), of(0x103f)], [Some(0), Some(0), Some(1), Some(3)]);
        // Outside of the code, and where there is no counter.
        assert_eq!([of(0xfff), of(0x1040), of(0x1050)], [None; 3]);
    }
}
