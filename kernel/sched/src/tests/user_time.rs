//! Time in user mode is the program's own, whenever it is preempted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as HostMutex};

use machine::hosted::advance;
use machine::hosted_user::set_script;
use machine::user::{UserContext, UserEvent};

use super::{eventually, spawn};
use crate::{RunState, current};

/// What the main thread saw of one that was on its way into user mode, through it or out of it.
#[derive(Default)]
struct Seen {
    inside: u32,
    counting: u32,
}

/// Runs a program that makes ten calls, each after so many interrupts in user mode. Whenever it leaves user mode, for one or the other, it is another
/// thread's turn.
fn others_see(interrupts: u32) -> Seen {
    const CALLS: u32 = 10;
    /// Longer than any slice.
    const STAY_NS: u64 = 100_000_000;
    current();
    let seen = Arc::new(HostMutex::new(Seen::default()));
    // Odd while it runs its program.
    let stage = Arc::new(AtomicU32::new(0));
    let thread = {
        let stage = stage.clone();
        spawn("program", move || {
            let thread = current();
            let mut stays = 0;
            set_script(Box::new(move |_| {
                assert!(thread.counts_user_time());
                // Interrupts are off: what is due now comes when they are not any more.
                advance(STAY_NS);
                stays += 1;
                if stays % (interrupts + 1) == 0 { UserEvent::SystemCall } else { UserEvent::Interrupted }
            }));
            let mut context = UserContext::new(0, 0);
            for _ in 0..CALLS {
                stage.fetch_add(1, Ordering::SeqCst);
                while thread.run_user(&mut context, thread.switches()) != UserEvent::SystemCall {
                    assert!(!thread.counts_user_time());
                }
                stage.fetch_add(1, Ordering::SeqCst);
                assert!(!thread.counts_user_time());
            }
        })
    };
    eventually(|| {
        let mut seen = seen.lock().unwrap();
        seen.inside += u32::from(stage.load(Ordering::SeqCst) % 2 == 1);
        seen.counting += u32::from(thread.counts_user_time());
        thread.state() == RunState::Dead
    });
    assert_eq!(stage.load(Ordering::SeqCst), 2 * CALLS);
    Arc::try_unwrap(seen).unwrap_or_else(|_| panic!("nobody else has it")).into_inner().unwrap()
}

#[test]
fn what_others_run_at_the_end_of_a_stay_is_not_counted_as_user_time() {
    let seen = others_see(0);
    assert!(seen.inside >= 5, "the interrupt that waited for the end has another thread run");
    assert_eq!(seen.counting, 0);
}

#[test]
fn what_others_run_in_the_midst_of_user_mode_is_not_counted_as_user_time() {
    let seen = others_see(3);
    assert!(seen.inside >= 15, "user mode was interrupted, and it was another thread's turn");
    assert_eq!(seen.counting, 0);
}
