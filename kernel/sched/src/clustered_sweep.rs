//! Looks about once a second who uses clustered objects that have become distributed (`sync::clustered`), as long as there are
//! any.

use alloc::boxed::Box;
use alloc::sync::Arc;

use machine::time;
use sync::{Once, clustered};

use crate::timer::Timer;

const PERIOD_NS: u64 = 1_000_000_000;

static TIMER: Once<Arc<Timer>> = Once::new();

/// Start-up.
pub(crate) fn initialize() {
    match Timer::new(Box::new(sweep)) {
        Ok(timer) => {
            TIMER.call_once(|| timer);
            clustered::set_adaptive_hook(arm);
        }
        Err(memory::OutOfMemory) => log::warn!("no memory for the look at clustered objects"),
    }
}

fn arm() {
    if let Some(timer) = TIMER.get() {
        timer.arm(time::now_ns() + PERIOD_NS);
    }
}

fn sweep() {
    if clustered::sweep() {
        arm();
    }
}
