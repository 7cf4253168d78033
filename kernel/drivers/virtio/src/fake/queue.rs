//! A queue as its device sees it: buffers that are there for it, and where it says that it has done with one.

use alloc::sync::Arc;
use alloc::vec::Vec;

use device::dma::witness::{self, Witness};
use machine::address::PhysAddr;

use crate::ring::{Addresses, Piece};

const DESCRIPTOR_BYTES: u64 = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A buffer that the device has.
pub(super) struct Held {
    pub(super) number: u16,
    descriptors: u16,
    pub(super) pieces: Vec<Piece>,
    table: Option<(u64, u64)>,
}

impl Held {
    /// Bytes that may be written.
    pub(super) fn room(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.written).map(|piece| u64::from(piece.bytes)).sum()
    }
}

/// See the theory of this file.
pub(super) struct Queue {
    size: u16,
    packed: bool,
    addresses: Addresses,
    /// Next place to look for buffers, and next place to give one back; packed: with the round.
    head: (u16, bool),
    tail: (u16, bool),
    pub(super) held: Vec<Held>,
    /// Those that it does not think of again.
    pub(super) kept: Vec<Held>,
    /// What the driver writes was overwritten: nothing sensible can be read any more.
    is_spoilt: bool,
    witness: Arc<Witness>,
}

fn read_u16(address: u64) -> u16 {
    let mut bytes = [0; 2];
    witness::read(address, &mut bytes);
    u16::from_le_bytes(bytes)
}

/// A descriptor: its piece, flags, and the word that says what is next, or, if packed, the number.
fn descriptor(address: u64, packed: bool) -> (Piece, u16, u16) {
    let mut bytes = [0; 16];
    witness::read(address, &mut bytes);
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (flags, word) = if packed { (half(14), half(12)) } else { (half(12), half(14)) };
    let start = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let length = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    let piece = Piece { address: PhysAddr::new(start), bytes: length, written: flags & WRITE != 0 };
    (piece, flags, word)
}

impl Queue {
    /// One that the driver has told of.
    pub(super) fn new(size: u16, packed: bool, addresses: Addresses, witness: Arc<Witness>) -> Self {
        let queue = Self {
            size,
            packed,
            addresses,
            head: (0, true),
            tail: (0, true),
            held: Vec::new(),
            kept: Vec::new(),
            is_spoilt: false,
            witness,
        };
        for (address, bytes) in queue.areas() {
            queue.witness.hold(address, bytes);
        }
        queue
    }

    /// Descriptors, what the driver writes, what the device writes.
    fn areas(&self) -> [(u64, u64); 3] {
        let size = u64::from(self.size);
        let (driver, device) = if self.packed { (4, 4) } else { (6 + 2 * size, 6 + 8 * size) };
        let Addresses { descriptors, driver: second, device: third } = self.addresses;
        [(descriptors.as_u64(), DESCRIPTOR_BYTES * size), (second.as_u64(), driver), (third.as_u64(), device)]
    }

    /// Takes what is there.
    pub(super) fn fetch(&mut self) {
        while !self.is_spoilt {
            let next = if self.packed { self.next_packed() } else { self.next_split() };
            let Some(held) = next else { break };
            for (address, bytes) in held.table.into_iter().chain(ranges(&held.pieces)) {
                self.witness.hold(address, bytes);
            }
            self.held.push(held);
        }
    }

    fn next_split(&mut self) -> Option<Held> {
        let available = self.addresses.driver.as_u64();
        if read_u16(available + 2) == self.head.0 {
            return None;
        }
        let entry = available + 4 + 2 * u64::from(self.head.0 % self.size);
        let number = read_u16(entry);
        self.head.0 = self.head.0.wrapping_add(1);
        let (mut pieces, mut at) = (Vec::new(), number);
        for _ in 0..self.size {
            let (piece, flags, next) = self.descriptor(at);
            if flags & INDIRECT != 0 {
                return Some(self.of_table(number, piece));
            }
            pieces.push(piece);
            if flags & NEXT == 0 {
                break;
            }
            at = next;
        }
        Some(Held { number, descriptors: pieces.len() as u16, pieces, table: None })
    }

    fn next_packed(&mut self) -> Option<Held> {
        let mut pieces = Vec::new();
        for _ in 0..self.size {
            let (piece, flags, number) = self.descriptor(self.head.0);
            let is_ours = (flags & 0x80 != 0) == self.head.1 && (flags & 0x8000 != 0) != self.head.1;
            if !is_ours {
                assert!(pieces.is_empty(), "a buffer is shown when all of it is there");
                return None;
            }
            advance(&mut self.head, 1, self.size);
            if flags & INDIRECT != 0 {
                return Some(self.of_table(number, piece));
            }
            pieces.push(piece);
            if flags & NEXT == 0 {
                return Some(Held { number, descriptors: pieces.len() as u16, pieces, table: None });
            }
        }
        None
    }

    fn descriptor(&self, index: u16) -> (Piece, u16, u16) {
        let at = self.addresses.descriptors.as_u64() + DESCRIPTOR_BYTES * u64::from(index % self.size);
        descriptor(at, self.packed)
    }

    fn of_table(&self, number: u16, table: Piece) -> Held {
        let start = table.address.as_u64();
        let places = (0..u64::from(table.bytes) / DESCRIPTOR_BYTES).map(|at| start + at * DESCRIPTOR_BYTES);
        let pieces = places.map(|place| descriptor(place, self.packed).0).collect();
        Held { number, descriptors: 1, pieces, table: Some((start, table.bytes.into())) }
    }

    /// Has done with a buffer, and says to have written so much.
    pub(super) fn give_back(&mut self, held: Held, written: u32) {
        self.release(&held);
        self.say_used(held.number.into(), held.descriptors, written);
    }

    fn release(&self, held: &Held) {
        for (address, bytes) in held.table.into_iter().chain(ranges(&held.pieces)) {
            self.witness.release(address, bytes);
        }
    }

    /// Says that it has done with a buffer of that number, true or not. If it has one, it is the driver's now.
    pub(super) fn claim_used(&mut self, number: u32, descriptors: u16, written: u32) {
        let number = if self.packed { number & u32::from(u16::MAX) } else { number };
        let find = |list: &mut Vec<Held>| {
            let at = list.iter().position(|held| u32::from(held.number) == number)?;
            Some(list.swap_remove(at))
        };
        if let Some(held) = find(&mut self.held).or_else(|| find(&mut self.kept)) {
            self.release(&held);
        }
        self.say_used(number, descriptors, written);
    }

    fn say_used(&mut self, number: u32, descriptors: u16, written: u32) {
        if self.packed {
            let at = self.addresses.descriptors.as_u64() + DESCRIPTOR_BYTES * u64::from(self.tail.0);
            let flags: u16 = if self.tail.1 { 0x8080 } else { 0 };
            witness::write(at + 8, &written.to_le_bytes());
            witness::write(at + 12, &(number as u16).to_le_bytes());
            witness::write(at + 14, &flags.to_le_bytes());
            advance(&mut self.tail, descriptors, self.size);
        } else {
            let used = self.addresses.device.as_u64();
            let entry = used + 4 + 8 * u64::from(self.tail.0 % self.size);
            witness::write(entry, &number.to_le_bytes());
            witness::write(entry + 4, &written.to_le_bytes());
            self.tail.0 = self.tail.0.wrapping_add(1);
            witness::write(used + 2, &self.tail.0.to_le_bytes());
        }
    }

    /// Writes something somewhere in the ring. It may well say so that it has done with any buffer.
    pub(super) fn spoil(&mut self, which: usize, offset: u64, value: u16) {
        self.fetch();
        for held in core::mem::take(&mut self.held).into_iter().chain(core::mem::take(&mut self.kept)) {
            self.release(&held);
        }
        let (address, bytes) = self.areas()[which % 3];
        witness::write(address + offset % bytes / 2 * 2, &value.to_le_bytes());
        self.is_spoilt = true;
    }
}

fn advance(place: &mut (u16, bool), count: u16, size: u16) {
    place.0 += count;
    if place.0 >= size {
        *place = (place.0 - size, !place.1);
    }
}

fn ranges(pieces: &[Piece]) -> impl Iterator<Item = (u64, u64)> {
    pieces.iter().map(|piece| (piece.address.as_u64(), u64::from(piece.bytes)))
}
