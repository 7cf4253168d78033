//! PCI: five structures in the function's regions, told by capabilities.
//!
//! Interrupts: an entry of the function's table for the configuration and one for each queue; else one for the configuration and one for all queues; else one for
//! everything; else the pin, with a register that says why.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use device::interrupt::{Claim, Interrupt, Source};
use device::mmio::Window;
use device::pci::{Function, capability, line_interrupt, table_size};
use machine::cpu::{self, CpuId};

use super::interface::{Connection, Handlers, Notifier, Transport};
use crate::bus::Presence;
use crate::ring::Addresses;

/// A capability that a vendor defines.
const VENDOR_SPECIFIC: u8 = 9;
/// Kinds of structures.
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const INTERRUPT: u8 = 3;
const DEVICE: u8 = 4;

/// Registers of the common structure.
mod register {
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0;
    pub(super) const DEVICE_FEATURE: usize = 4;
    pub(super) const DRIVER_FEATURE_SELECT: usize = 8;
    pub(super) const DRIVER_FEATURE: usize = 12;
    pub(super) const CONFIGURATION_VECTOR: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const GENERATION: usize = 21;
    pub(super) const QUEUE_SELECT: usize = 22;
    pub(super) const QUEUE_SIZE: usize = 24;
    pub(super) const QUEUE_VECTOR: usize = 26;
    pub(super) const QUEUE_ENABLE: usize = 28;
    pub(super) const QUEUE_NOTIFY: usize = 30;
    pub(super) const QUEUE_DESCRIPTORS: usize = 32;
    pub(super) const QUEUE_DRIVER: usize = 40;
    pub(super) const QUEUE_DEVICE: usize = 48;
    pub(super) const BYTES: u64 = 56;
}

/// A vector register without a vector.
const NO_VECTOR: u16 = u16::MAX;
/// The configuration's part of the interrupt register; the queues' is bit 0.
const CONFIGURATION_CHANGED: u8 = 2;
const QUEUE_INTERRUPT: u8 = 1;
/// Device ids of virtio devices begin here; the rest is the kind. Those below are of devices that can also be reached as in old times.
const FIRST_ID: u16 = 0x1040;
const TRANSITIONAL_ID: u16 = 0x1000;
/// Kinds by the device ids of old times.
const OLD_KINDS: [u32; 10] = [1, 2, 5, 3, 8, 4, 0, 0, 0, 9];

/// See the theory of this file.
pub struct Pci {
    function: Arc<Function>,
    presence: Arc<Presence>,
    common: Window,
    notify: Window,
    notify_multiplier: usize,
    interrupt: Window,
    device: Window,
    /// Entries of the table in use; 0: the pin.
    vectors: AtomicUsize,
}

/// A structure's place.
struct Structure {
    window: Window,
    capability: u16,
}

/// The first structure of a kind that is where one can be.
fn find(function: &Function, kind: u8, bytes_min: u64) -> Option<Structure> {
    let config = &function.config;
    let mut all = capability::capabilities(config);
    all.find_map(|entry| {
        let at = entry.offset;
        if entry.id != VENDOR_SPECIFIC || config.read_u8(at + 3) != kind {
            return None;
        }
        let (offset, bytes) = (config.read_u32(at + 8), config.read_u32(at + 12));
        let window = function.window(config.read_u8(at + 4).into(), offset.into(), bytes.into())?;
        (u64::from(bytes) >= bytes_min).then_some(Structure { window, capability: at })
    })
}

impl Pci {
    /// Which kind of virtio device a function is; None if it has not all structures that one must have.
    pub fn kind_of(function: &Function) -> Option<u32> {
        for (kind, bytes_min) in [(NOTIFY, 2), (COMMON, register::BYTES), (INTERRUPT, 1)] {
            find(function, kind, bytes_min)?;
        }
        let id = function.identity.device;
        match id.checked_sub(FIRST_ID) {
            Some(kind) => Some(kind.into()),
            None => OLD_KINDS.get(usize::from(id.wrapping_sub(TRANSITIONAL_ID))).copied(),
        }
    }

    /// A function's structures, which are enabled; None if it has not all that it must have.
    pub fn new(function: &Arc<Function>, presence: Arc<Presence>) -> Option<Self> {
        let notify = find(function, NOTIFY, 2)?;
        let notify_multiplier = function.config.read_u32(notify.capability + 16) as usize;
        let common = find(function, COMMON, register::BYTES)?.window;
        let interrupt = find(function, INTERRUPT, 1)?.window;
        // A device without configuration has no structure for it.
        let device = find(function, DEVICE, 1).map_or(common.part(0, 0), |found| found.window);
        function.enable();
        let (notify, vectors) = (notify.window, AtomicUsize::new(0));
        Some(Self {
            function: function.clone(),
            presence,
            common,
            notify,
            notify_multiplier,
            interrupt,
            device,
            vectors,
        })
    }

    fn select(&self, queue: u16) {
        self.common.write_u16(register::QUEUE_SELECT, queue);
    }

    fn write_address(&self, register: usize, address: machine::address::PhysAddr) {
        self.common.write_u32(register, address.as_u64() as u32);
        self.common.write_u32(register + 4, (address.as_u64() >> 32) as u32);
    }

    /// Which entry of the table a queue uses.
    fn vector_of(&self, queue: u16) -> u16 {
        match self.vectors.load(Ordering::Relaxed) {
            0 => NO_VECTOR,
            1 => 0,
            2 => 1,
            _ => 1 + queue,
        }
    }

    /// So many interrupts by message, if the function and the machine have them. Those of queues are spread over the processors, and stay there if each of
    /// several queues has its own.
    fn messages(&self, count: usize, queues: usize) -> Option<Vec<Arc<Interrupt>>> {
        if table_size(&self.function) < count {
            return None;
        }
        let mut interrupts = Vec::with_capacity(count);
        for index in 0..count {
            let is_placed = index > 0 && queues > 1 && count == queues + 1;
            interrupts.push(match is_placed {
                true => {
                    Interrupt::allocate_on(Source::Message, CpuId::from_index((index - 1) % cpu::count()))?
                }
                false => Interrupt::allocate(Source::Message)?,
            });
        }
        self.function.enable_table(&interrupts).then_some(interrupts)
    }

    fn connect_messages(&self, queues: usize, handlers: &Arc<dyn Handlers>) -> Option<Connection> {
        let interrupts = [queues + 1, 2, 1].into_iter().find_map(|count| self.messages(count, queues))?;
        self.vectors.store(interrupts.len(), Ordering::Relaxed);
        let alone = interrupts.len() == 1;
        let shared = interrupts.len() < queues + 1;
        let mut registrations = Vec::with_capacity(interrupts.len());
        for (entry, interrupt) in interrupts.iter().enumerate() {
            let own = handlers.clone();
            let name = match (entry, shared) {
                (0, _) if !alone => self.interrupt_name("config"),
                (_, true) => self.interrupt_name("virtqueues"),
                (_, false) => self.interrupt_name(&handlers.queue_name(entry.saturating_sub(1))),
            };
            let handler = Box::new(move || {
                if entry == 0 {
                    own.configuration();
                }
                match (entry, shared) {
                    (0, _) if !alone => {}
                    (_, true) => (0..queues).for_each(|queue| own.queue(queue)),
                    (_, false) => own.queue(entry.saturating_sub(1)),
                }
                Claim::Mine
            });
            registrations.push(interrupt.register(&name, handler)?);
        }
        self.choose_configuration_vector().then_some(Connection { registrations })
    }

    /// As on Linux.
    fn interrupt_name(&self, part: &str) -> String {
        format!("{}-{part}", self.presence.name)
    }

    /// The first entry of the table is for the configuration. False if the device has no room for that.
    fn choose_configuration_vector(&self) -> bool {
        self.common.write_u16(register::CONFIGURATION_VECTOR, 0);
        self.common.read_u16(register::CONFIGURATION_VECTOR) != NO_VECTOR
    }

    fn connect_pin(&self, queues: usize, handlers: Arc<dyn Handlers>) -> Option<Connection> {
        self.vectors.store(0, Ordering::Relaxed);
        let interrupt = line_interrupt(&self.function)?;
        let reason = self.interrupt;
        let handler = Box::new(move || {
            // Reading it lets the line go down. A device that is gone reads as all ones.
            let why = reason.read_u8(0);
            if why == 0 || why == u8::MAX {
                return Claim::NotMine;
            }
            if why & QUEUE_INTERRUPT != 0 {
                (0..queues).for_each(|queue| handlers.queue(queue));
            }
            if why & CONFIGURATION_CHANGED != 0 {
                handlers.configuration();
            }
            Claim::Mine
        });
        let registration = interrupt.register(&self.presence.name, handler)?;
        Some(Connection { registrations: alloc::vec![registration] })
    }
}

impl Transport for Pci {
    fn path(&self) -> String {
        self.presence.path.clone()
    }

    fn status(&self) -> u8 {
        if self.function.config.is_gone() {
            return u8::MAX;
        }
        let status = self.common.read_u8(register::STATUS);
        self.presence.note_status(status);
        status
    }

    fn set_status(&self, status: u8) {
        self.presence.note_status(status);
        self.common.write_u8(register::STATUS, status);
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.common.write_u32(register::DEVICE_FEATURE_SELECT, select);
            u64::from(self.common.read_u32(register::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn accept_features(&self, features: u64) {
        self.presence.note_features(features);
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.common.write_u32(register::DRIVER_FEATURE_SELECT, select);
            self.common.write_u32(register::DRIVER_FEATURE, half);
        }
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        self.select(queue);
        self.common.read_u16(register::QUEUE_SIZE)
    }

    fn start_queue(&self, queue: u16, size: u16, addresses: Addresses) -> Option<Notifier> {
        self.select(queue);
        self.common.write_u16(register::QUEUE_SIZE, size);
        let vector = self.vector_of(queue);
        self.common.write_u16(register::QUEUE_VECTOR, vector);
        if self.common.read_u16(register::QUEUE_VECTOR) != vector {
            return None;
        }
        self.write_address(register::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write_address(register::QUEUE_DRIVER, addresses.driver);
        self.write_address(register::QUEUE_DEVICE, addresses.device);
        let at = usize::from(self.common.read_u16(register::QUEUE_NOTIFY)) * self.notify_multiplier;
        if at + 2 > self.notify.bytes() {
            return None;
        }
        self.common.write_u16(register::QUEUE_ENABLE, 1);
        Some(Notifier::new(self.notify, at, queue, false))
    }

    fn connect(&self, queues: usize, handlers: Arc<dyn Handlers>) -> Option<Connection> {
        if let Some(connection) = self.connect_messages(queues, &handlers) {
            return Some(connection);
        }
        self.function.disable_messages();
        self.connect_pin(queues, handlers)
    }

    fn connect_again(&self, connection: &Connection) -> bool {
        if self.vectors.load(Ordering::Relaxed) == 0 {
            // What says that the pin is used was given back with the rest of the configuration.
            return true;
        }
        let interrupts: Vec<_> =
            connection.registrations.iter().map(|registration| registration.interrupt().clone()).collect();
        self.function.enable_table(&interrupts) && self.choose_configuration_vector()
    }

    fn disconnect(&self) {
        self.function.disable_messages();
    }

    fn shut_off(&self) {
        self.function.disable();
    }

    fn configuration(&self) -> Window {
        self.device
    }

    fn generation(&self) -> u32 {
        self.common.read_u8(register::GENERATION).into()
    }
}
