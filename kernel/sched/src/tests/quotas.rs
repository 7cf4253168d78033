//! Threads of a group that has used up its processor time.

use std::sync::Arc;

use machine::hosted::advance;
use machine::time::now_ns;

use super::spawn;
use crate::control::{Group, wait_for_quota};
use crate::{Completion, WaitError, block_interruptible, current};

const MS: u64 = 1_000_000;

#[test]
fn a_wait_in_the_kernel_goes_on_while_the_group_is_held_back() {
    let done = Arc::new(Completion::new());
    {
        let done = done.clone();
        spawn("limited", move || {
            let thread = current();
            let group = Arc::new(Group::new(None));
            group.set_quota_ns(Some(2 * MS), 100 * MS);
            drop(thread.set_processor_group(Some(group.clone())));
            let begin = now_ns();
            advance(20 * MS);
            let waited = block_interruptible(|| false, Some(begin + 50 * MS));
            assert_eq!((waited, now_ns() - begin), (Err(WaitError::TimedOut), 50 * MS));
            assert!(thread.must_look() && !thread.attention(), "it is told to look before it goes on");
            assert!(wait_for_quota());
            assert!(now_ns() - begin >= 900 * MS, "what was used too much is taken off the next periods");
            thread.set_attention(true);
            assert_eq!(block_interruptible(|| false, None), Err(WaitError::Interrupted));
            thread.set_attention(false);
            assert!(!thread.must_look());
            drop(thread.set_processor_group(None));
            done.complete();
        });
    }
    done.wait();
}
