//! Registers in memory, on no bus: QEMU's microvm, Firecracker.
//!
//! The command line tells where they are, a word `virtio_mmio.device=<bytes>@<address>:<line>` for each; QEMU's microvm writes them when it has no ACPI tables. Where it has,
//! the byte code of `DSDT` describes each in a resource template behind its name `LNRO0005`; the two descriptors in it are looked for, the code is not run.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use device::interrupt::{Claim, Interrupt, Source};
use device::mmio::Window;
use machine::address::PhysAddr;

use super::interface::{Connection, Handlers, Notifier, Transport};
use crate::bus::Presence;
use crate::ring::Addresses;

mod register {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const KIND: usize = 8;
    pub(super) const VENDOR: usize = 0xc;
    pub(super) const DEVICE_FEATURES: usize = 0x10;
    pub(super) const DEVICE_FEATURES_SELECT: usize = 0x14;
    pub(super) const DRIVER_FEATURES: usize = 0x20;
    pub(super) const DRIVER_FEATURES_SELECT: usize = 0x24;
    pub(super) const QUEUE_SELECT: usize = 0x30;
    pub(super) const QUEUE_SIZE_MAX: usize = 0x34;
    pub(super) const QUEUE_SIZE: usize = 0x38;
    pub(super) const QUEUE_READY: usize = 0x44;
    pub(super) const QUEUE_NOTIFY: usize = 0x50;
    pub(super) const INTERRUPT_STATUS: usize = 0x60;
    pub(super) const INTERRUPT_ACKNOWLEDGE: usize = 0x64;
    pub(super) const STATUS: usize = 0x70;
    pub(super) const QUEUE_DESCRIPTORS: usize = 0x80;
    pub(super) const QUEUE_DRIVER: usize = 0x90;
    pub(super) const QUEUE_DEVICE: usize = 0xa0;
    pub(super) const GENERATION: usize = 0xfc;
    pub(super) const CONFIGURATION: usize = 0x100;
}

/// `virt`
const MAGIC: u32 = 0x7472_6976;
/// The layout of the specification; 1 is the one before it.
const VERSION: u32 = 2;
const QUEUE_INTERRUPT: u32 = 1;
const CONFIGURATION_CHANGED: u32 = 2;
/// Devices at most: more than any machine has places for.
const PLACEMENTS_MAX: usize = 64;

/// Where a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Its first register.
    pub address: u64,
    /// How many bytes of registers.
    pub bytes: u64,
    /// The line of its interrupt.
    pub line: u32,
}

impl Placement {
    /// The directory of what is there, below `/sys`.
    pub fn path(&self) -> String {
        alloc::format!("/devices/platform/virtio-mmio.{:x}", self.address)
    }
}

/// Where devices are, as this command line and this table tell.
pub fn placements(command_line: &str, dsdt: Option<&[u8]>) -> Vec<Placement> {
    let words = command_line.split_ascii_whitespace();
    let named = words.filter_map(|word| parse_word(word.strip_prefix("virtio_mmio.device=")?));
    let mut found: Vec<Placement> = named.take(PLACEMENTS_MAX).collect();
    for placement in dsdt.into_iter().flat_map(parse_table) {
        if found.len() < PLACEMENTS_MAX && !found.iter().any(|known| known.address == placement.address) {
            found.push(placement);
        }
    }
    found
}

/// A number, perhaps in hexadecimal, perhaps with a unit behind it.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    value.ok()?.checked_mul(unit)
}

fn parse_word(text: &str) -> Option<Placement> {
    let (bytes, rest) = text.split_once('@')?;
    let mut rest = rest.split(':');
    let (address, line) = (rest.next()?, rest.next()?);
    Some(Placement {
        address: number(address)?,
        bytes: number(bytes)?,
        line: u32::try_from(number(line)?).ok()?,
    })
}

fn parse_table(table: &[u8]) -> impl Iterator<Item = Placement> {
    const NAME: &[u8] = b"LNRO0005";
    /// Within which the resources follow a device's name.
    const REACH: usize = 128;
    let starts = table.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    starts.filter_map(|(start, _)| {
        let rest = &table[start + NAME.len()..];
        let end = rest.windows(NAME.len()).position(|window| window == NAME).unwrap_or(rest.len());
        resources(&rest[..end.min(REACH)])
    })
}

/// Memory and interrupt of a resource template somewhere in these bytes.
fn resources(bytes: &[u8]) -> Option<Placement> {
    /// Fixed memory: its kind, 9 bytes, whether writable, address, length.
    const MEMORY: [u8; 3] = [0x86, 9, 0];
    /// Extended interrupt: its kind, 6 bytes, flags, one number.
    const INTERRUPT: [u8; 3] = [0x89, 6, 0];
    let long = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
    let find =
        |kind: [u8; 3], bytes_of: usize| bytes.windows(bytes_of).find(|window| window.starts_with(&kind));
    let memory = find(MEMORY, 12)?;
    let interrupt = find(INTERRUPT, 9).filter(|interrupt| interrupt[4] == 1)?;
    Some(Placement {
        address: long(&memory[4..8]).into(),
        bytes: long(&memory[8..12]).into(),
        line: long(&interrupt[5..9]),
    })
}

/// See the theory of this file.
pub struct Mmio {
    window: Window,
    placement: Placement,
    presence: Arc<Presence>,
}

impl Mmio {
    /// What is at a place: kind and vendor. None if there are no registers, or nothing is behind them.
    pub fn identify(placement: Placement) -> Option<(u32, u32)> {
        let window = Window::of_platform(placement.address, placement.bytes)?;
        let (magic, version) = (window.read_u32(register::MAGIC), window.read_u32(register::VERSION));
        if magic != MAGIC || window.read_u32(register::KIND) == 0 {
            return None;
        }
        if version != VERSION {
            log::warn!("virtio at {:#x}: version {version} of the registers is not known", placement.address);
            return None;
        }
        Some((window.read_u32(register::KIND), window.read_u32(register::VENDOR)))
    }

    /// The registers at a place where a device was found.
    pub fn new(placement: Placement, presence: Arc<Presence>) -> Option<Self> {
        let window = Window::of_platform(placement.address, placement.bytes)?;
        Some(Self { window, placement, presence })
    }

    fn write_address(&self, register: usize, address: PhysAddr) {
        self.window.write_u32(register, address.as_u64() as u32);
        self.window.write_u32(register + 4, (address.as_u64() >> 32) as u32);
    }
}

impl Transport for Mmio {
    fn path(&self) -> String {
        self.presence.path.clone()
    }

    fn status(&self) -> u8 {
        let status = self.window.read_u32(register::STATUS) as u8;
        self.presence.note_status(status);
        status
    }

    fn set_status(&self, status: u8) {
        self.presence.note_status(status);
        self.window.write_u32(register::STATUS, status.into());
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.window.write_u32(register::DEVICE_FEATURES_SELECT, select);
            u64::from(self.window.read_u32(register::DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn accept_features(&self, features: u64) {
        self.presence.note_features(features);
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.window.write_u32(register::DRIVER_FEATURES_SELECT, select);
            self.window.write_u32(register::DRIVER_FEATURES, half);
        }
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        self.window.write_u32(register::QUEUE_SELECT, queue.into());
        u16::try_from(self.window.read_u32(register::QUEUE_SIZE_MAX)).unwrap_or(u16::MAX)
    }

    fn start_queue(&self, queue: u16, size: u16, addresses: Addresses) -> Option<Notifier> {
        self.window.write_u32(register::QUEUE_SELECT, queue.into());
        self.window.write_u32(register::QUEUE_SIZE, size.into());
        self.write_address(register::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write_address(register::QUEUE_DRIVER, addresses.driver);
        self.write_address(register::QUEUE_DEVICE, addresses.device);
        self.window.write_u32(register::QUEUE_READY, 1);
        (self.window.read_u32(register::QUEUE_READY) == 1)
            .then(|| Notifier::new(self.window, register::QUEUE_NOTIFY, queue, true))
    }

    fn connect(&self, queues: usize, handlers: Arc<dyn Handlers>) -> Option<Connection> {
        let interrupt = Interrupt::allocate(Source::Line(self.placement.line))?;
        let window = self.window;
        let handler = Box::new(move || {
            let why = window.read_u32(register::INTERRUPT_STATUS);
            if why == 0 || why == u32::MAX {
                return Claim::NotMine;
            }
            window.write_u32(register::INTERRUPT_ACKNOWLEDGE, why);
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

    fn disconnect(&self) {}

    fn shut_off(&self) {
        // A device on no bus has no switch of its own but its status.
        self.set_status(0);
    }

    fn configuration(&self) -> Window {
        self.window.part(register::CONFIGURATION, self.window.bytes())
    }

    fn generation(&self) -> u32 {
        self.window.read_u32(register::GENERATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_tells_where_devices_are() {
        let line = "quiet virtio_mmio.device=512@0xfeb00e00:12 \
                    virtio_mmio.device=4K@0xd0000000:5:1 virtio_mmio.device=x@1:2";
        let first = Placement { address: 0xfeb0_0e00, bytes: 512, line: 12 };
        let second = Placement { address: 0xd000_0000, bytes: 4096, line: 5 };
        assert_eq!(placements(line, None), [first, second]);
        assert!(
            placements("virtio_mmio.device= virtio_mmio.device=1@2 virtio_mmio.device=@:", None).is_empty()
        );
    }

    #[test]
    fn byte_code_tells_where_devices_are() {
        let mut table = b"....LNRO0005\0\x08_CRS".to_vec();
        table.extend([0x11, 0x1a, 0x0a, 0x17, 0x86, 9, 0, 1, 0, 0x0e, 0xb0, 0xfe, 0, 2, 0, 0]);
        table.extend([0x89, 6, 0, 1, 1, 23, 0, 0, 0, 0x79, 0]);
        table.extend(b"LNRO0005 cut off \x86\x09\x00");
        // The flags of the interrupt are not looked at.
        table[4 + 8 + 6 + 4 + 12 + 3] = 3;
        assert_eq!(placements("", Some(&table)).len(), 1);
        assert_eq!(placements("", Some(&table))[0], Placement { address: 0xfeb0_0e00, bytes: 512, line: 23 });
    }
}
