//! `softirq_flood` in debugfs: a flood of softirqs on request, to see what is left for programs.
//!
//! A number of milliseconds that is written floods the writer's CPU for that long: a softirq that raises itself, and a timer that is due again
//! at once, each with some work to do. Reading tells how many softirqs all floods have had.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::time;
use sched::softirq::{self, Softirq};
use sched::timer::Timer;
use sync::Once;
use vfs::generated::{Node, knob};
use vfs::text::Text;
use vfs::{Error, Result};

/// What each softirq takes, as one that handles a few packets.
const WORK_NS: u64 = 20_000;
/// Longest flood.
const FLOOD_MS_MAX: u64 = 10_000;

/// When the flood ends.
static END_NS: AtomicU64 = AtomicU64::new(0);
static SOFTIRQS: AtomicU64 = AtomicU64::new(0);
static TIMER: Once<Option<Arc<Timer>>> = Once::new();

/// Fills the tree.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn register() -> Result<()> {
    debugfs::add("softirq_flood", Node::file(0o600, knob(show, flood)?))
}

fn show(out: &mut Text) -> Result<()> {
    // A text remembers when memory ran out.
    let _ = writeln!(out, "{}", SOFTIRQS.load(Relaxed));
    Ok(())
}

fn flood(bytes: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(bytes.trim_ascii()).map_err(|_| Error::Invalid)?;
    let milliseconds: u64 = text.parse().map_err(|_| Error::Invalid)?;
    if milliseconds > FLOOD_MS_MAX {
        return Err(Error::Invalid);
    }
    let timer = TIMER.call_once(restless_timer).as_ref().ok_or(Error::OutOfMemory)?;
    softirq::register(Softirq::Tasklet, raise_again);
    END_NS.store(time::now_ns() + milliseconds * 1_000_000, Relaxed);
    softirq::raise(Softirq::Tasklet);
    timer.arm(time::now_ns());
    Ok(())
}

/// Works; returns whether the flood goes on.
fn work() -> bool {
    let end_ns = time::now_ns() + WORK_NS;
    while time::now_ns() < end_ns {
        machine::cpu::relax();
    }
    SOFTIRQS.fetch_add(1, Relaxed);
    time::now_ns() < END_NS.load(Relaxed)
}

fn raise_again() {
    if work() {
        softirq::raise(Softirq::Tasklet);
    }
}

/// A timer that is due again at once.
fn restless_timer() -> Option<Arc<Timer>> {
    static OWN: Once<Weak<Timer>> = Once::new();
    let timer = Timer::new(Box::new(|| {
        if work()
            && let Some(timer) = OWN.get().and_then(Weak::upgrade)
        {
            timer.arm(time::now_ns());
        }
    }))
    .ok()?;
    OWN.call_once(|| Arc::downgrade(&timer));
    Some(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sensible_number_is_taken() {
        for text in [&b""[..], b"soon", b"-1", b"10001", b"\xff"] {
            assert_eq!(flood(text), Err(Error::Invalid));
        }
    }
}
