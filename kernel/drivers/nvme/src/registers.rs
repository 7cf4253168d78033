//! A controller's registers: on, off, doorbells.
//!
//! Nothing may be written once the function is gone: another device may have its addresses. Who calls sees to that.

use alloc::sync::Arc;

use device::mmio::Window;
use device::model::DriverError;
use device::pci::Function;

use crate::queue::Placement;

mod at {
    pub(super) const CAPABILITIES: usize = 0;
    pub(super) const CONFIGURATION: usize = 0x14;
    pub(super) const STATUS: usize = 0x1c;
    pub(super) const ADMIN_SIZES: usize = 0x24;
    pub(super) const ADMIN_SUBMISSIONS: usize = 0x28;
    pub(super) const ADMIN_COMPLETIONS: usize = 0x30;
    pub(super) const DOORBELLS: usize = 0x1000;
}

/// Of the configuration: on; entries of 64 and 16 bytes, pages of 4 KiB, the set of commands for disks.
const ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// Of the configuration: what is in caches shall be written.
const SHUT_DOWN: u32 = 1 << 14;
const READY: u32 = 1;
const FATAL: u32 = 1 << 1;
const SHUTDOWN_STATE: u32 = 3 << 2;
const SHUTDOWN_IS_DONE: u32 = 2 << 2;
/// The shortest time that a controller has to follow; what it asks for in addition is believed.
const PATIENCE_NS: u64 = 2_000_000_000;
const PAUSE_NS: u64 = 1_000_000;

/// See the theory of this file.
#[derive(Clone)]
pub(crate) struct Registers {
    function: Arc<Function>,
    window: Window,
    /// Between doorbells.
    stride: usize,
    /// Entries that a queue can have.
    entries_max: u32,
    patience_ns: u64,
}

impl Registers {
    /// Those of a function.
    ///
    /// # Errors
    /// [`DriverError::NotSupported`] if they are not where they should be, or it knows neither pages of 4 KiB nor disks.
    pub(crate) fn new(function: &Arc<Function>) -> Result<Self, DriverError> {
        let region = function.region(0).ok_or(DriverError::NotSupported)?;
        let window = function.window(0, 0, region.bytes).ok_or(DriverError::NotSupported)?;
        let half = |offset| u64::from(window.read_u32(at::CAPABILITIES + offset));
        let capabilities = half(0) | half(4) << 32;
        let smallest_page = capabilities >> 48 & 0xf;
        let knows_disks = capabilities >> 37 & 1 != 0;
        if capabilities == u64::MAX || smallest_page != 0 || !knows_disks {
            return Err(DriverError::NotSupported);
        }
        let registers = Self {
            function: function.clone(),
            window,
            stride: 4 << (capabilities >> 32 & 0xf),
            entries_max: (capabilities & 0xffff) as u32 + 1,
            patience_ns: PATIENCE_NS + (capabilities >> 24 & 0xff) * 500_000_000,
        };
        if registers.entries_max < 2 || registers.doorbells() == 0 {
            return Err(DriverError::NotSupported);
        }
        Ok(registers)
    }

    /// Entries that a queue can have.
    pub(crate) fn entries_max(&self) -> u32 {
        self.entries_max
    }

    /// Pairs of doorbells that there is room for.
    pub(crate) fn doorbells(&self) -> usize {
        self.window.bytes().saturating_sub(at::DOORBELLS) / (2 * self.stride)
    }

    fn status(&self) -> u32 {
        if self.function.config.is_gone() { u32::MAX } else { self.window.read_u32(at::STATUS) }
    }

    /// Whether nothing answers any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.status() == u32::MAX
    }

    /// Whether it is at work.
    pub(crate) fn is_ready(&self) -> bool {
        self.status() & (READY | FATAL) == READY
    }

    /// Waits until the status has these bits so; an end of the device is an end of waiting too.
    fn wait(&self, mask: u32, value: u32) -> bool {
        let until_ns = machine::time::now_ns() + self.patience_ns;
        loop {
            let status = self.status();
            if status == u32::MAX || status & mask == value {
                return true;
            }
            let now_ns = machine::time::now_ns();
            if now_ns > until_ns {
                return false;
            }
            sched::timer::sleep_until_uninterruptible(now_ns + PAUSE_NS);
        }
    }

    /// Has the controller forget its queues. After this it reaches no memory: one that does not follow is cut off from it.
    pub(crate) fn stop(&self) {
        self.window.write_u32(at::CONFIGURATION, 0);
        if !self.wait(READY, 0) {
            log::error!("nvme: the controller can't be switched off");
            self.function.disable();
        }
    }

    /// Has the controller write what it holds back, before it is stopped for good.
    pub(crate) fn shut_down(&self) {
        if self.is_ready() {
            self.window.write_u32(at::CONFIGURATION, ENABLE | SHUT_DOWN);
            if !self.wait(SHUTDOWN_STATE, SHUTDOWN_IS_DONE) {
                log::error!("nvme: the controller does not say that all is written");
            }
        }
    }

    /// Switches a stopped controller on, with these queues for commands to itself.
    ///
    /// # Errors
    /// [`DriverError::Broken`] if it does not begin.
    pub(crate) fn start(&self, queues: &Placement) -> Result<(), DriverError> {
        // Counts of entries are told less one.
        let size = u32::from(queues.entries - 1);
        self.window.write_u32(at::ADMIN_SIZES, size | size << 16);
        let places =
            [(at::ADMIN_SUBMISSIONS, queues.submissions), (at::ADMIN_COMPLETIONS, queues.completions)];
        for (offset, address) in places {
            self.window.write_u32(offset, address.as_u64() as u32);
            self.window.write_u32(offset + 4, (address.as_u64() >> 32) as u32);
        }
        self.window.write_u32(at::CONFIGURATION, ENABLE);
        if self.wait(READY, READY) && self.is_ready() { Ok(()) } else { Err(DriverError::Broken) }
    }

    /// Tells the controller how far a queue's commands go.
    pub(crate) fn ring_submissions(&self, queue: u16, tail: u16) {
        self.window.write_u32(at::DOORBELLS + 2 * usize::from(queue) * self.stride, tail.into());
    }

    /// Tells the controller how far a queue's completions were taken.
    pub(crate) fn ring_completions(&self, queue: u16, head: u16) {
        self.window.write_u32(at::DOORBELLS + (2 * usize::from(queue) + 1) * self.stride, head.into());
    }
}
