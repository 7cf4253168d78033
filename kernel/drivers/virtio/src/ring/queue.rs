//! A ring of either layout.

use machine::address::PhysAddr;
use memory::OutOfMemory;

use super::memory::{Area, Piece, RingMemory};
use super::packed::Packed;
use super::slots::Trouble;
use super::split::Split;

/// What was negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Descriptors of the ring.
    pub size: u16,
    /// The packed layout.
    pub packed: bool,
    /// Each side says at which entry it wants to hear of the other.
    pub event_index: bool,
}

/// Where the parts of a ring are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Descriptors.
    pub descriptors: PhysAddr,
    /// What the driver writes.
    pub driver: PhysAddr,
    /// What the device writes.
    pub device: PhysAddr,
}

/// A ring.
pub enum Ring<T, M> {
    /// In three parts.
    Split(Split<T, M>),
    /// In one.
    Packed(Packed<T, M>),
}

macro_rules! either {
    ($self:ident, $ring:ident => $what:expr) => {
        match $self {
            Self::Split($ring) => $what,
            Self::Packed($ring) => $what,
        }
    };
}

impl<T, M: RingMemory> Ring<T, M> {
    /// Bytes of memory that it needs.
    pub const fn bytes(options: Options) -> usize {
        if options.packed { Packed::<T, M>::bytes(options.size) } else { Split::<T, M>::bytes(options.size) }
    }

    /// Where its parts will be in memory at this address.
    pub fn addresses(options: Options, at: PhysAddr) -> Addresses {
        let place = |offset: usize| PhysAddr::new(at.as_u64() + offset as u64);
        let (driver, device) = if options.packed {
            (Packed::<T, M>::driver_event(options.size), Packed::<T, M>::device_event(options.size))
        } else {
            (Split::<T, M>::available(options.size), Split::<T, M>::used(options.size))
        };
        Addresses { descriptors: at, driver: place(driver), device: place(device) }
    }

    /// An empty one in zeroed memory.
    ///
    /// # Errors
    /// No memory.
    pub fn new(memory: M, options: Options, tables: Option<Area<M>>) -> Result<Self, OutOfMemory> {
        let Options { size, event_index, .. } = options;
        Ok(if options.packed {
            Self::Packed(Packed::new(memory, size, event_index, tables)?)
        } else {
            Self::Split(Split::new(memory, size, event_index, tables)?)
        })
    }

    /// See [`Split::with_device`].
    pub fn with_device(&self) -> u16 {
        either!(self, ring => ring.with_device())
    }

    /// See [`Split::add`].
    ///
    /// # Errors
    /// The token, if there is no room now.
    pub fn add(&mut self, pieces: &[Piece], token: T) -> Result<(), T> {
        either!(self, ring => ring.add(pieces, token))
    }

    /// See [`Split::publish`].
    pub fn publish(&mut self) -> bool {
        either!(self, ring => ring.publish())
    }

    /// See [`Split::take`].
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn take(&mut self) -> Result<Option<(T, u32)>, Trouble> {
        either!(self, ring => ring.take())
    }

    /// See [`Split::want_interrupt`].
    pub fn want_interrupt(&mut self) -> bool {
        either!(self, ring => ring.want_interrupt())
    }

    /// See [`Split::refuse_interrupts`].
    pub fn refuse_interrupts(&mut self) {
        either!(self, ring => ring.refuse_interrupts());
    }

    /// See [`Split::take_away`].
    pub fn take_away(&mut self) -> Option<T> {
        either!(self, ring => ring.take_away())
    }
}
