//! The bus of virtio devices. Each is a device of its own, below the PCI function or the registers in memory that it is reached by, and has a driver for its kind:
//! as on Linux, `virtio0` and so on, in the order in which they are found.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use device::model::{Binding, Bus, BusDevice, Driver, DriverError, Number, Numbers};
use device::pci::Function;

use crate::transport::{Mmio, Pci, Placement, Transport};

/// All virtio devices, and the drivers for their kinds.
pub static BUS: Bus<VirtioDevice> = Bus::new("virtio", "virtio bus");

/// Each has room for 64; more devices than there are interrupt vectors are of no use.
static NUMBERS: [Numbers; 4] = [const { Numbers::new() }; 4];

/// How a device is reached.
pub(crate) enum Place {
    /// By the registers of a PCI function.
    Function(Arc<Function>),
    /// By registers in memory.
    Memory(Placement),
}

/// What is known of a device without asking it.
pub struct Presence {
    /// Its directory below `/sys`.
    pub(crate) path: String,
    /// Its name on the bus.
    pub(crate) name: String,
    features: AtomicU64,
    status: AtomicU8,
}

impl Presence {
    /// Of a device of that name, below the directory of what it is reached by.
    pub(crate) fn new(parent: &str, name: String) -> Arc<Self> {
        let path = format!("{parent}/{name}");
        Arc::new(Self { path, name, features: AtomicU64::new(0), status: AtomicU8::new(0) })
    }

    /// A driver takes these features.
    pub(crate) fn note_features(&self, features: u64) {
        self.features.store(features, Ordering::Relaxed);
    }

    /// The device has that status.
    pub(crate) fn note_status(&self, status: u8) {
        self.status.store(status, Ordering::Relaxed);
    }
}

/// A virtio device.
pub struct VirtioDevice {
    /// Which kind of device it is, by the specification's number.
    pub kind: u32,
    /// Who made it.
    pub vendor: u32,
    place: Place,
    presence: Arc<Presence>,
    number: Number,
    /// Its function recovers from an error: no driver is to begin with it now.
    is_recovering: AtomicBool,
}

impl VirtioDevice {
    /// One that is reached so, below that directory of `/sys`. None if there are too many.
    pub(crate) fn new(place: Place, parent: &str, kind: u32, vendor: u32) -> Option<Arc<Self>> {
        let (group, number) =
            NUMBERS.iter().enumerate().find_map(|(group, set)| Some((group, set.take()?)))?;
        let name = format!("virtio{}", group as u32 * u64::BITS + number.value());
        let presence = Presence::new(parent, name);
        Some(Arc::new(Self { kind, vendor, place, presence, number, is_recovering: AtomicBool::new(false) }))
    }

    /// The features that it agreed on with its driver, or the last one it had.
    pub fn features(&self) -> u64 {
        self.presence.features.load(Ordering::Relaxed)
    }

    /// Its status when that was last set or looked at.
    pub fn status(&self) -> u8 {
        self.presence.status.load(Ordering::Relaxed)
    }

    /// Writes what driver modules are found by.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_modalias(&self, out: &mut dyn Write) -> core::fmt::Result {
        write!(out, "virtio:d{:08X}v{:08X}", self.kind, self.vendor)
    }

    pub(crate) fn set_recovering(&self, recovering: bool) {
        self.is_recovering.store(recovering, Ordering::Release);
    }

    /// Its name may be another one's from now on: it was removed.
    pub(crate) fn release_name(&self) {
        self.number.release();
    }

    fn open(&self) -> Option<Box<dyn Transport>> {
        let presence = self.presence.clone();
        match &self.place {
            Place::Function(function) => Some(Box::new(Pci::new(function, presence)?)),
            Place::Memory(placement) => Some(Box::new(Mmio::new(*placement, presence)?)),
        }
    }

    /// Takes back that it was opened for a driver that does not take it.
    fn close(&self) {
        if let Place::Function(function) = &self.place {
            function.disable();
        }
    }
}

impl BusDevice for VirtioDevice {
    fn name(&self) -> String {
        self.presence.name.clone()
    }

    fn subsystem(&self) -> &'static str {
        "virtio"
    }

    fn path(&self) -> String {
        self.presence.path.clone()
    }

    fn describe(&self, out: &mut String) {
        // Writing into a string does not fail.
        let _ = write!(out, "MODALIAS=");
        let _ = self.write_modalias(out);
        out.push('\n');
    }
}

/// Takes a device. May sleep.
pub(crate) type Probe = fn(Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError>;

/// A driver for devices of one kind.
pub(crate) struct KindDriver {
    /// Its name, as on Linux.
    pub(crate) name: &'static str,
    /// The kind.
    pub(crate) kind: u32,
    /// How it takes one.
    pub(crate) probe: Probe,
}

impl Driver<VirtioDevice> for KindDriver {
    fn name(&self) -> &str {
        self.name
    }

    fn matches(&self, device: &VirtioDevice) -> bool {
        device.kind == self.kind
    }

    fn probe(&self, device: &Arc<VirtioDevice>) -> Result<Arc<dyn Binding>, DriverError> {
        if device.is_recovering.load(Ordering::Acquire) {
            return Err(DriverError::Busy);
        }
        let transport = device.open().ok_or(DriverError::NotSupported)?;
        (self.probe)(transport).inspect_err(|_| device.close())
    }
}
