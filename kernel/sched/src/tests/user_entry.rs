//! A program does not go on when other threads have run since it was looked after, wherever it was preempted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::hosted::advance;
use machine::hosted_user::set_script;
use machine::user::{UserContext, UserEvent};

use super::{eventually, spawn};
use crate::{RunState, current};

/// Longer than any slice.
const STAY_NS: u64 = 100_000_000;

#[test]
fn user_mode_is_entered_only_by_who_knows_of_all_switches() {
    const STAYS: u32 = 30;
    current();
    let told = Arc::new(AtomicU64::new(0));
    let thread = {
        let told = told.clone();
        spawn("program", move || {
            let thread = current();
            let seen = Arc::new(AtomicU64::new(u64::MAX));
            let mut stays = 0;
            let known = seen.clone();
            set_script(Box::new(move |_| {
                assert_eq!(current().switches(), known.load(Ordering::SeqCst));
                // Interrupts are off: what is due now comes when they are not any more, and it is another thread's turn then.
                advance(STAY_NS);
                stays += 1;
                if stays % 3 == 0 { UserEvent::SystemCall } else { UserEvent::Interrupted }
            }));
            let mut context = UserContext::new(0, 0);
            let mut calls = 0;
            while calls < STAYS / 3 {
                match thread.run_user(&mut context, seen.load(Ordering::SeqCst)) {
                    UserEvent::Switched => {
                        assert_ne!(thread.switches(), seen.swap(thread.switches(), Ordering::SeqCst));
                        told.fetch_add(1, Ordering::SeqCst);
                    }
                    UserEvent::SystemCall => calls += 1,
                    _ => {}
                }
            }
        })
    };
    eventually(|| thread.state() == RunState::Dead);
    assert!(told.load(Ordering::SeqCst) >= u64::from(STAYS / 2), "others ran at the ends of stays");
}
