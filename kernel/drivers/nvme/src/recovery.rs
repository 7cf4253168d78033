//! What the driver does about errors of the way to its controller (specs/pcie-port-bus.md, feature 16).
//!
//! | step | what happens |
//! |---|---|
//! | error detected | requests wait from now on; of a way that still works, what the controller has may end, else nothing of it is believed: *held* or *frozen* |
//! | registers can be accessed | a controller that is at work needs no reset |
//! | reset | the controller was reset: it interrupts as before and is switched on with empty queues; what it had waits to be given to it again, before others |
//! | resume | requests go to it |
//! | no recovery | it is stopped, and everything fails with `EIO` |
//!
//! A controller that has failed, or whose driver lets go of it, takes no part, and lets others go on. The driver may let go at any step: the states are changed with `admin` held,
//! and the final ones are not left.

use block::Request;
use device::express::{ChannelState, ErrorHandlers, Verdict};

use crate::controller::{Controller, FAILED, FROZEN, HELD, RESTARTING, WORKING};

impl Controller {
    /// Whether a recovery is under way in which this takes part.
    fn is_held(&self) -> bool {
        matches!(self.state(), HELD | FROZEN)
    }
}

impl ErrorHandlers for Controller {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        if state == ChannelState::Failed {
            if self.state() < FAILED {
                self.fail(FAILED);
            }
            return Verdict::Disconnect;
        }
        // A restart under way ends before.
        let _admin = self.admin.lock();
        let (to, verdict) = match state {
            ChannelState::Normal => (HELD, Verdict::CanRecover),
            _ => (FROZEN, Verdict::NeedReset),
        };
        // One that is held already may be frozen, and one that is frozen stays so.
        let changed = self.exchange(WORKING, to).or_else(|_| self.exchange(HELD, to));
        if changed.is_ok() || self.state() == FROZEN { verdict } else { Verdict::None }
    }

    fn mmio_enabled(&self) -> Verdict {
        match self.is_held() {
            true if !self.registers.is_ready() => Verdict::NeedReset,
            true => Verdict::Recovered,
            false => Verdict::None,
        }
    }

    fn slot_reset(&self) -> Verdict {
        let mut admin = self.admin.lock();
        let begun = self.exchange(FROZEN, RESTARTING).or_else(|_| self.exchange(HELD, RESTARTING));
        if begun.is_err() {
            return Verdict::None;
        }
        let works = self.interrupt_again() && self.start_again(&mut admin, Request::try_again);
        // It may be gone meanwhile: who has said so waits for `admin`, and stops it.
        let _ = self.exchange(RESTARTING, FROZEN);
        if works { Verdict::Recovered } else { Verdict::Disconnect }
    }

    fn resume(&self) {
        let admin = self.admin.lock();
        let resumed = self.exchange(FROZEN, WORKING).or_else(|_| self.exchange(HELD, WORKING));
        drop(admin);
        if resumed.is_ok() {
            log::info!("nvme{}: it goes on", self.number());
            self.look();
            self.run_queues();
        }
    }
}
