//! What all transports do.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use device::interrupt::Registration;
use device::mmio::Window;

use crate::ring::Addresses;

/// Bits of a device's status.
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct Status;

#[allow(missing_docs, reason = "the names are those of the specification")]
impl Status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
    pub const FAILED: u8 = 128;
}

/// What runs when the device interrupts, with interrupts off.
pub trait Handlers: Send + Sync + 'static {
    /// A buffer may have come back in this queue.
    fn queue(&self, index: usize);

    /// The device's configuration, or its status, has changed.
    fn configuration(&self);

    /// What a queue is called where programs see interrupts.
    fn queue_name(&self, index: usize) -> String;
}

/// Interrupts, as long as it lives.
pub struct Connection {
    /// The handlers.
    pub registrations: Vec<Registration>,
}

/// Where a queue's device is told that there is something in it.
#[derive(Clone, Copy)]
pub struct Notifier {
    window: Window,
    offset: usize,
    queue: u16,
    /// The register has 32 bits, not 16.
    wide: bool,
}

impl Notifier {
    /// For a queue, by a register.
    pub const fn new(window: Window, offset: usize, queue: u16, wide: bool) -> Self {
        Self { window, offset, queue, wide }
    }

    /// Tells the device.
    pub fn notify(&self) {
        if self.wide {
            self.window.write_u32(self.offset, self.queue.into());
        } else {
            self.window.write_u16(self.offset, self.queue);
        }
    }
}

/// A device's registers.
pub trait Transport: Send + Sync {
    /// Its directory below `/sys`.
    fn path(&self) -> String;

    /// Its status; all ones if it is gone.
    fn status(&self) -> u8;

    /// Sets its status; 0 resets it.
    fn set_status(&self, status: u8);

    /// What it offers.
    fn features(&self) -> u64;

    /// What the driver takes of that.
    fn accept_features(&self, features: u64);

    /// How many descriptors a queue can have; 0: it does not exist.
    fn queue_size_max(&self, queue: u16) -> u16;

    /// Tells it where a queue is, and switches it on. None if it refuses, or tells nonsense about where to notify it.
    fn start_queue(&self, queue: u16, size: u16, addresses: Addresses) -> Option<Notifier>;

    /// Has the device interrupt. Before queues are started. None without an interrupt.
    fn connect(&self, queues: usize, handlers: Arc<dyn Handlers>) -> Option<Connection>;

    /// Has the device interrupt as before, after a reset of the function has made it forget how. Before queues are started. False if it won't.
    fn connect_again(&self, connection: &Connection) -> bool {
        let _ = connection;
        true
    }

    /// Ends what [`Transport::connect`] began, when the connection is gone.
    fn disconnect(&self);

    /// The device may reach memory no more, whatever it does.
    fn shut_off(&self);

    /// A window of its configuration.
    fn configuration(&self) -> Window;

    /// Changes when the configuration does.
    fn generation(&self) -> u32;
}
