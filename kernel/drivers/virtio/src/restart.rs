//! Recovery of devices whose drivers can't give a device back what it had (specs/pcie-port-bus.md, feature 16): consoles, balloons, file servers, random bytes.
//!
//! | step | what happens |
//! |---|---|
//! | error detected | nothing: who waits for the device goes on waiting |
//! | reset | the driver lets go of the device, which has forgotten everything, and takes it anew |
//! | no recovery | the driver lets go of it |
//!
//! For programs that is a device that was taken out and put back: what they have open of it is at its end (a mounted file server gives `EIO`), and what they open
//! next is the new one. Memory that a balloon has lent comes back and is lent again.
//!
//! The driver lets go only after the reset: before, the device might still reach the memory that it was given.

use alloc::boxed::Box;
use alloc::sync::Arc;

use device::express::{ChannelState, ErrorHandlers, Verdict};
use device::model::{Binding, DriverError};
use device::pci::Function;
use sched::Mutex;

/// Takes a device, as it is after a reset.
type Probe = Box<dyn Fn(&Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> + Send + Sync>;

/// The hold of a driver that takes its device anew after a reset.
pub(crate) struct Restarting {
    function: Arc<Function>,
    probe: Probe,
    /// None: it has let go for good.
    binding: Mutex<Option<Arc<dyn Binding>>>,
}

impl Restarting {
    /// Has the driver, which `probe` has just given this hold, take part in recoveries.
    pub(crate) fn new(function: &Arc<Function>, binding: Arc<dyn Binding>, probe: Probe) -> Arc<Self> {
        let binding = Mutex::named("virtio device that can be restarted", Some(binding));
        Arc::new(Self { function: function.clone(), probe, binding })
    }
}

impl Binding for Restarting {
    fn remove(&self) {
        let binding = self.binding.lock().take();
        if let Some(binding) = binding {
            binding.remove();
        }
    }

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}

impl ErrorHandlers for Restarting {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        if state == ChannelState::Failed {
            self.remove();
            return Verdict::Disconnect;
        }
        match (self.binding.lock().is_some(), state) {
            (false, _) => Verdict::None,
            (true, ChannelState::Normal) => Verdict::CanRecover,
            (true, _) => Verdict::NeedReset,
        }
    }

    fn slot_reset(&self) -> Verdict {
        let mut held = self.binding.lock();
        let Some(binding) = held.take() else { return Verdict::None };
        binding.remove();
        drop(binding);
        match (self.probe)(&self.function) {
            Ok(binding) => {
                *held = Some(binding);
                Verdict::Recovered
            }
            Err(error) => {
                log::error!("{}: it can't be started again: {error:?}", self.function.address());
                Verdict::Disconnect
            }
        }
    }
}
