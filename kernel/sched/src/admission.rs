//! Who gets a reservation (`run_queue/reservation.rs`), and how its holder waits for its next period.
//!
//! All reservations together may be of 95 % of the CPUs: what is left is for everybody else, and for the kernel. Within that each thread has
//! what it reserved, on one CPU always before its deadline. On several CPUs, where threads queue where they woke and move to a CPU that runs something less urgent, one may come
//! too late by as much as the others may run, and no more.

use machine::{cpu, time};

use crate::policy::Policy;
use crate::run_queue::Reservation;
use crate::thread::{Thread, current};
use crate::{Mutex, WaitError, block_interruptible};

/// What of each CPU is given away, in per cent.
const PERCENT_MOST: u64 = 95;

/// The sum of all that is reserved, as parts of a CPU. Held while a thread gets a reservation.
static RESERVED: Mutex<u64> = Mutex::named("sum of reservations", 0);

/// There is not so much time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTimeLeft;

/// A reservation has ended.
#[cold]
pub(crate) fn give_back(former: Reservation) {
    *RESERVED.lock() -= former.share();
}

impl Thread {
    /// Its reservation, if it has one.
    pub fn reservation(&self) -> Option<Reservation> {
        (self.policy() == Policy::Deadline).then(|| self.entity.reservation())
    }

    /// What is left of its time in this period, and by when it has it; if it has a reservation.
    pub fn budget_and_deadline_ns(&self) -> Option<(u64, u64)> {
        self.reservation().map(|_| self.entity.budget_and_deadline_ns())
    }

    /// Has it compete with a reservation.
    ///
    /// # Errors
    /// [`NoTimeLeft`]: others have reserved too much.
    pub fn reserve(&self, terms: Reservation) -> Result<(), NoTimeLeft> {
        let mut reserved = RESERVED.lock();
        let own = self.reservation().map_or(0, Reservation::share);
        let most = (PERCENT_MOST << Reservation::SHARE_BITS) / 100 * cpu::online().count() as u64;
        if *reserved - own + terms.share() > most {
            return Err(NoTimeLeft);
        }
        let former = self.apply_policy(Policy::Deadline, Some(terms));
        *reserved = *reserved + terms.share() - former.map_or(0, Reservation::share);
        Ok(())
    }
}

/// On the way to user mode: sleeps while the calling thread has used up its time. False if attention is wanted before that is over.
pub fn wait_for_period() -> bool {
    let thread = current();
    while thread.policy() == Policy::Deadline {
        let until_ns = thread.entity.held_until_ns();
        if time::now_ns() >= until_ns {
            break;
        }
        if block_interruptible(|| false, Some(until_ns)) == Err(WaitError::Interrupted) {
            return false;
        }
    }
    true
}
