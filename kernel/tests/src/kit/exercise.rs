//! The kit's own tests.

use alloc::sync::Arc;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use ::machine::cpu::{self, CpuId};
use ::machine::{interrupt, time_window};

use super::{Meeting, Sweep, Team, delay, window};
use crate::{Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "kit::nobody_leaves_a_meeting_before_all_have_come", run: nobody_leaves_early },
    Test { name: "kit::the_other_thread_acts_within_the_window", run: acts_within_the_window },
    Test { name: "kit::a_sweep_goes_from_nothing_to_twice_the_fixed_delay", run: sweep_covers_both_sides },
];

fn nobody_leaves_early() -> Outcome {
    const ROUNDS: u32 = 200;
    let size = cpu::online().count() as u32;
    let (meeting, came) = (Arc::new(Meeting::new(size)), Arc::new(AtomicU32::new(0)));
    let early = Arc::new(AtomicU32::new(0));
    let mut team = Team::new();
    let count = early.clone();
    team.start_on_each(cpu::online(), move |cpu| {
        for round in 1..=ROUNDS {
            delay(cpu.index() as u32 * 50);
            came.fetch_add(1, SeqCst);
            meeting.meet();
            if came.load(SeqCst) < round * size {
                count.fetch_add(1, Relaxed);
            }
        }
    })?;
    team.join()?;
    let early = early.load(Relaxed);
    check!(early == 0, "{early} left early");
    Ok(())
}

/// A place of this test's own.
const PLACE: u32 = u32::MAX;

fn acts_within_the_window() -> Outcome {
    const ROUNDS: u32 = 50;
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let (watched, other) = (CpuId::from_index(0), CpuId::from_index(1));
    let steps = Arc::new(AtomicU32::new(0));
    let wrong = Arc::new(AtomicU32::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    for round in 0..ROUNDS {
        steps.store(0, SeqCst);
        ended.store(false, SeqCst);
        window::arm(PLACE, watched, None);
        let mut team = Team::new();
        let (seen, end) = (steps.clone(), ended.clone());
        let late = wrong.clone();
        team.start(other, move || {
            let act = || {
                late.fetch_add(u32::from(seen.load(SeqCst) != 1), Relaxed);
                seen.store(2, SeqCst);
            };
            if !window::pass_through(act, || end.load(SeqCst)) {
                late.fetch_add(1, Relaxed);
            }
        })?;
        let (steps, wrong, ended) = (steps.clone(), wrong.clone(), ended.clone());
        team.start(watched, move || {
            let interrupts = (round % 2 == 0).then(interrupt::disable);
            steps.store(1, SeqCst);
            time_window!(PLACE);
            wrong.fetch_add(u32::from(steps.load(SeqCst) != 2), Relaxed);
            drop(interrupts);
            ended.store(true, SeqCst);
        })?;
        team.join()?;
        check!(window::disarm(), "the window did not open");
    }
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} steps out of order");
    Ok(())
}

fn sweep_covers_both_sides() -> Outcome {
    let sweep = Sweep::new(300, 40);
    check!(sweep.swept(0) == 0 && sweep.swept(39) == 600, "from {} to {}", sweep.swept(0), sweep.swept(39));
    check!((1..40).all(|round| sweep.swept(round) > sweep.swept(round - 1)), "a step back");
    Ok(())
}
