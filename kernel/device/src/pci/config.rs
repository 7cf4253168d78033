//! Configuration space: how it is reached ([`ConfigAccess`]), and one function's part of it ([`Config`]).
//!
//! # A function that is gone
//! Removal marks the function. From then on reads give all ones, as the bus itself answers for a device that was pulled out, and
//! writes go nowhere, so that a driver that comes too late can't reach whatever took the place. Drivers that see all ones where
//! that can't be expect their device to be gone.
//!
//! # Locking
//! Single accesses need no lock here (an access that takes two steps has its own). [`Config::modify_u16`] reads and writes
//! under the function's lock, which holders of different capabilities of one function share.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use sync::IrqSpinLock;

use super::Address;

/// Size of an access, naturally aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two bytes.
    Word,
    /// Four bytes.
    Long,
}

impl Width {
    /// In bytes.
    pub const fn bytes(self) -> u16 {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Long => 4,
        }
    }

    /// What a read gives where nothing answers.
    pub const fn ones(self) -> u32 {
        match self {
            Self::Byte => 0xff,
            Self::Word => 0xffff,
            Self::Long => u32::MAX,
        }
    }
}

/// A way to configuration space.
///
/// What is written can make a function reach memory: implementations hand themselves only to this crate's callers, who program what they
/// own.
pub trait ConfigAccess: Send + Sync {
    /// Reads; all ones where no function answers. `offset` is aligned and below [`ConfigAccess::bytes`].
    fn read(&self, address: Address, offset: u16, width: Width) -> u32;

    /// Writes.
    fn write(&self, address: Address, offset: u16, width: Width, value: u32);

    /// Bytes of a function that it reaches: 256 or 4096.
    fn bytes(&self) -> u16;
}

/// One function's configuration space.
pub struct Config {
    access: Arc<dyn ConfigAccess>,
    address: Address,
    /// Set once, by removal.
    gone: AtomicBool,
    modifying: IrqSpinLock<()>,
}

impl Config {
    /// That of the function at an address, whether there is one or not.
    pub fn new(access: Arc<dyn ConfigAccess>, address: Address) -> Self {
        Self {
            access,
            address,
            gone: AtomicBool::new(false),
            modifying: IrqSpinLock::named("configuration registers", ()),
        }
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes of it can be reached.
    pub fn bytes(&self) -> u16 {
        self.access.bytes()
    }

    /// Nobody reaches the function through this any more.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn reaches(&self, offset: u16, width: Width) -> bool {
        let inside = offset.checked_add(width.bytes()).is_some_and(|end| end <= self.bytes());
        inside && offset.is_multiple_of(width.bytes()) && !self.is_gone()
    }

    /// Reads; all ones beyond the end, across an alignment, or if the function is gone.
    pub fn read(&self, offset: u16, width: Width) -> u32 {
        if self.reaches(offset, width) {
            self.access.read(self.address, offset, width) & width.ones()
        } else {
            width.ones()
        }
    }

    /// Writes; nothing happens where [`Config::read`] gives all ones without looking.
    pub fn write(&self, offset: u16, width: Width, value: u32) {
        if self.reaches(offset, width) {
            self.access.write(self.address, offset, width, value & width.ones());
        }
    }

    /// Reads a byte.
    pub fn read_u8(&self, offset: u16) -> u8 {
        self.read(offset, Width::Byte) as u8
    }

    /// Reads 16 bits.
    pub fn read_u16(&self, offset: u16) -> u16 {
        self.read(offset, Width::Word) as u16
    }

    /// Reads 32 bits.
    pub fn read_u32(&self, offset: u16) -> u32 {
        self.read(offset, Width::Long)
    }

    /// Writes a byte.
    pub fn write_u8(&self, offset: u16, value: u8) {
        self.write(offset, Width::Byte, value.into());
    }

    /// Writes 16 bits.
    pub fn write_u16(&self, offset: u16, value: u16) {
        self.write(offset, Width::Word, value.into());
    }

    /// Writes 32 bits.
    pub fn write_u32(&self, offset: u16, value: u32) {
        self.write(offset, Width::Long, value);
    }

    /// Replaces the bits of `mask` with those of `value`; nobody else who uses this comes between. Returns what is written.
    pub fn modify_u16(&self, offset: u16, mask: u16, value: u16) -> u16 {
        let _guard = self.modifying.lock();
        let new = self.read_u16(offset) & !mask | value & mask;
        self.write_u16(offset, new);
        new
    }

    /// Whether a function answers.
    pub fn is_present(&self) -> bool {
        !matches!(self.read_u16(super::registers::VENDOR), 0 | 0xffff)
    }
}

impl core::fmt::Debug for Config {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Config({})", self.address)
    }
}
