//! What the driver does about errors of the way to its device (specs/pcie-port-bus.md, feature 16).
//!
//! | step | what happens |
//! |---|---|
//! | error detected | requests wait from now on; of a way that still works, what the device has may end, else nothing of it is believed: *held* or *frozen* |
//! | registers can be accessed | a device that is at work needs no reset |
//! | reset | what was agreed with the device is agreed again, and it gets new queues; what it had waits to be given to it again, before others |
//! | resume | requests go to it |
//! | no recovery | it is reset, and everything fails with `EIO` |
//!
//! A device that has failed, or whose driver lets go of it, takes no part, and lets others go on. The driver may let go at any step: the final states are not left, and who
//! enters one stops the device with `changing` held.

use device::express::{ChannelState, ErrorHandlers, Verdict};

use super::disk::{FAILED, FROZEN, HELD, VirtioDisk, WORKING};
use crate::transport::Status;

impl ErrorHandlers for VirtioDisk {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        if state == ChannelState::Failed {
            if self.state() < FAILED {
                self.fail(FAILED);
            }
            return Verdict::Disconnect;
        }
        let (to, verdict) = match state {
            ChannelState::Normal => (HELD, Verdict::CanRecover),
            _ => (FROZEN, Verdict::NeedReset),
        };
        // One that is held already may be frozen, and one that is frozen stays so.
        let changed = self.exchange(WORKING, to).or_else(|_| self.exchange(HELD, to));
        if changed.is_ok() || self.state() == FROZEN { verdict } else { Verdict::None }
    }

    fn mmio_enabled(&self) -> Verdict {
        let _changing = self.changing.lock();
        if !matches!(self.state(), HELD | FROZEN) {
            return Verdict::None;
        }
        let status = self.transport.status();
        let works =
            status != u8::MAX && status & (Status::DRIVER_OK | Status::NEEDS_RESET) == Status::DRIVER_OK;
        if works { Verdict::Recovered } else { Verdict::NeedReset }
    }

    fn slot_reset(&self) -> Verdict {
        let _changing = self.changing.lock();
        let is_frozen = self.exchange(HELD, FROZEN).is_ok() || self.state() == FROZEN;
        if !is_frozen {
            return Verdict::None;
        }
        match self.start_again() {
            Ok(()) => Verdict::Recovered,
            Err(error) => {
                log::error!("virtio disk: it can't be started again: {error:?}");
                Verdict::Disconnect
            }
        }
    }

    fn resume(&self) {
        let resumed = self.exchange(FROZEN, WORKING).or_else(|_| self.exchange(HELD, WORKING));
        if resumed.is_ok() {
            log::info!("{}: it goes on", self.transport.path());
            self.look();
            self.run();
        }
    }
}
