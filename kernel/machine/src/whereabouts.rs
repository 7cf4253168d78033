//! Where a processor is that takes no interrupts: asked by a non-maskable one, which takes down its calls and lets it go on.
//!
//! One processor is asked at a time. Whoever asks waits for the answer, which takes as long as the interrupt; a processor of a virtual machine that does not
//! run answers later, to nobody.

use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::backtrace::Backtrace;
use crate::cpu::{self, CpuId};
use crate::symbols;
use crate::{ipi, time};

/// Calls taken down, innermost first.
const CALLS_MAX: usize = 24;
/// How long an answer is waited for.
const PATIENCE_NS: u64 = 10_000_000;

/// Nobody is asked; else a processor's number and one, that it writes, or that it has written.
const NOBODY: u64 = 0;
const WRITES: u64 = u64::MAX - 1;
const WRITTEN: u64 = u64::MAX;

static ASKED: AtomicU64 = AtomicU64::new(NOBODY);
static CALLS: [AtomicUsize; CALLS_MAX] = [const { AtomicUsize::new(0) }; CALLS_MAX];

/// The calls that a processor was in, innermost first; none if that was user mode. Printing them gives one line for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls([usize; CALLS_MAX]);

impl fmt::Display for Calls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &address) in self.0.iter().take_while(|&&address| address != 0).enumerate() {
            // A return address may be the first of the next function; the call is before it.
            match symbols::resolve(if index == 0 { address } else { address - 1 }) {
                Some(symbol) => writeln!(formatter, "  {address:#x} {symbol}")?,
                None => writeln!(formatter, "  {address:#x}")?,
            }
        }
        Ok(())
    }
}

const fn number(cpu: CpuId) -> u64 {
    cpu.index() as u64 + 1
}

/// Asks another processor, whatever it does. None if somebody else asks just now, or no answer comes within 10 ms.
pub fn ask(target: CpuId) -> Option<Calls> {
    ASKED.compare_exchange(NOBODY, number(target), Ordering::SeqCst, Ordering::Relaxed).ok()?;
    ipi::send_non_maskable(target);
    let limit_ns = time::now_ns() + PATIENCE_NS;
    while ASKED.load(Ordering::Acquire) != WRITTEN {
        let late = time::now_ns() > limit_ns;
        if late
            && ASKED.compare_exchange(number(target), NOBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return None;
        }
        cpu::relax();
    }
    let calls = core::array::from_fn(|index| CALLS[index].load(Ordering::Relaxed));
    ASKED.store(NOBODY, Ordering::Release);
    Some(Calls(calls))
}

/// Answers, if this processor is asked: with what the non-maskable interrupt has interrupted; None for user mode.
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "the hosted machine has no such interrupts"))]
pub(crate) fn answer(interrupted: Option<Backtrace>) {
    let this = number(cpu::current());
    if ASKED.load(Ordering::Relaxed) != this
        || ASKED.compare_exchange(this, WRITES, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return;
    }
    let mut addresses = interrupted.iter().flat_map(Backtrace::addresses);
    CALLS.iter().for_each(|call| call.store(addresses.next().unwrap_or(0), Ordering::Relaxed));
    ASKED.store(WRITTEN, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_asked_answers_and_once() {
        answer(None);
        assert_eq!(ASKED.load(Ordering::Relaxed), NOBODY);
        ASKED.store(number(cpu::current()), Ordering::Relaxed);
        answer(Some(Backtrace::from_registers(4711, 0)));
        assert_eq!(ASKED.load(Ordering::Relaxed), WRITTEN);
        assert_eq!([0, 1].map(|index| CALLS[index].load(Ordering::Relaxed)), [4711, 0]);
        answer(None);
        assert_eq!(CALLS[0].load(Ordering::Relaxed), 4711);
        ASKED.store(NOBODY, Ordering::Relaxed);
    }
}
