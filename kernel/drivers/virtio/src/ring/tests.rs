//! Rings with devices that keep to the rules, and with devices that do anything at all.
//!
//! The fake device sees the ring's memory as a real one would, finds the parts by the addresses that the driver tells, and follows the specification by
//! itself. [`hostile`] has it write anything anywhere into what it may write.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use machine::address::PhysAddr;

use super::*;

/// Memory that both sides see, at an address of its own.
#[derive(Clone)]
pub(crate) struct Shared {
    at: u64,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Shared {
    pub(crate) fn new(at: u64, bytes: usize) -> Self {
        Self { at, bytes: Arc::new(Mutex::new(vec![0; bytes])) }
    }

    fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        assert!(offset.is_multiple_of(N), "accesses are aligned");
        self.bytes.lock().unwrap()[offset..offset + N].try_into().unwrap()
    }

    fn write(&self, offset: usize, value: &[u8]) {
        assert!(offset.is_multiple_of(value.len()), "accesses are aligned");
        self.bytes.lock().unwrap()[offset..offset + value.len()].copy_from_slice(value);
    }
}

impl RingMemory for Shared {
    fn read_u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    fn read_u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    fn write_u16(&self, offset: usize, value: u16) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write_u32(&self, offset: usize, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn address(&self) -> PhysAddr {
        PhysAddr::new(self.at)
    }
}

/// A generator of numbers that repeats with its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

const RING_AT: u64 = 0x10_0000;
const TABLES_AT: u64 = 0x20_0000;
const ENTRIES: usize = 8;

struct Fixture {
    ring: Ring<u32, Shared>,
    options: Options,
    memory: Shared,
    tables: Shared,
}

fn fixture(options: Options, indirect: bool) -> Fixture {
    let memory = Shared::new(RING_AT, Ring::<u32, Shared>::bytes(options));
    let tables = Shared::new(TABLES_AT, usize::from(options.size) * ENTRIES * 16);
    let area = indirect.then(|| Area { memory: tables.clone(), entries: ENTRIES });
    let ring = Ring::new(memory.clone(), options, area).unwrap();
    Fixture { ring, options, memory, tables }
}

fn all_options() -> impl Iterator<Item = (Options, bool)> {
    (0..8).map(|bits| {
        let options = Options { size: 8, packed: bits & 1 != 0, event_index: bits & 2 != 0 };
        (options, bits & 4 != 0)
    })
}

/// A device that keeps to the rules.
struct Device {
    options: Options,
    memory: Shared,
    tables: Shared,
    addresses: Addresses,
    /// Next place to look for buffers, and next place to give one back; packed: with the round.
    head: (u16, bool),
    tail: (u16, bool),
}

/// A buffer as the device sees it: its number, its descriptors, its pieces.
type Seen = (u16, u16, Vec<Piece>);

impl Device {
    fn new(fixture: &Fixture) -> Self {
        Self {
            options: fixture.options,
            memory: fixture.memory.clone(),
            tables: fixture.tables.clone(),
            addresses: Ring::<u32, Shared>::addresses(fixture.options, PhysAddr::new(RING_AT)),
            head: (0, true),
            tail: (0, true),
        }
    }

    fn offset(&self, address: PhysAddr) -> usize {
        (address.as_u64() - RING_AT) as usize
    }

    fn piece(memory: &Shared, offset: usize, flags: u16) -> Piece {
        let address = PhysAddr::new(u64::from_le_bytes(memory.read(offset)));
        Piece { address, bytes: memory.read_u32(offset + 8), written: flags & 2 != 0 }
    }

    /// The pieces of a table.
    fn table(&self, piece: Piece) -> Vec<Piece> {
        let start = (piece.address.as_u64() - TABLES_AT) as usize;
        let count = piece.bytes as usize / 16;
        let flags_at = if self.options.packed { 14 } else { 12 };
        (0..count)
            .map(|index| start + index * 16)
            .map(|offset| Self::piece(&self.tables, offset, self.tables.read_u16(offset + flags_at)))
            .collect()
    }

    fn next(&mut self) -> Option<Seen> {
        if self.options.packed { self.next_packed() } else { self.next_split() }
    }

    fn next_split(&mut self) -> Option<Seen> {
        let available = self.offset(self.addresses.driver);
        if self.memory.read_u16(available + 2) == self.head.0 {
            return None;
        }
        let entry = available + 4 + 2 * usize::from(self.head.0 % self.options.size);
        let number = self.memory.read_u16(entry);
        self.head.0 = self.head.0.wrapping_add(1);
        let (mut pieces, mut at) = (Vec::new(), number);
        loop {
            let offset = 16 * usize::from(at);
            let flags = self.memory.read_u16(offset + 12);
            let piece = Self::piece(&self.memory, offset, flags);
            if flags & 4 != 0 {
                return Some((number, 1, self.table(piece)));
            }
            pieces.push(piece);
            if flags & 1 == 0 {
                return Some((number, pieces.len() as u16, pieces));
            }
            at = self.memory.read_u16(offset + 14);
        }
    }

    fn advance(place: &mut (u16, bool), count: u16, size: u16) {
        place.0 += count;
        if place.0 >= size {
            *place = (place.0 - size, !place.1);
        }
    }

    fn next_packed(&mut self) -> Option<Seen> {
        let mut pieces = Vec::new();
        loop {
            let offset = 16 * usize::from(self.head.0);
            let flags = self.memory.read_u16(offset + 14);
            let is_ours = (flags & 0x80 != 0) == self.head.1 && (flags & 0x8000 != 0) != self.head.1;
            if !is_ours {
                assert!(pieces.is_empty(), "a buffer is shown when all of it is there");
                return None;
            }
            Self::advance(&mut self.head, 1, self.options.size);
            let piece = Self::piece(&self.memory, offset, flags);
            let number = self.memory.read_u16(offset + 12);
            if flags & 4 != 0 {
                return Some((number, 1, self.table(piece)));
            }
            pieces.push(piece);
            if flags & 1 == 0 {
                return Some((number, pieces.len() as u16, pieces));
            }
        }
    }

    fn give_back(&mut self, number: u16, descriptors: u16, written: u32) {
        if self.options.packed {
            let offset = 16 * usize::from(self.tail.0);
            self.memory.write_u32(offset + 8, written);
            self.memory.write_u16(offset + 12, number);
            self.memory.write_u16(offset + 14, if self.tail.1 { 0x8080 } else { 0 });
            Self::advance(&mut self.tail, descriptors, self.options.size);
        } else {
            let used = self.offset(self.addresses.device);
            let entry = used + 4 + 8 * usize::from(self.tail.0 % self.options.size);
            self.memory.write_u32(entry, number.into());
            self.memory.write_u32(entry + 4, written);
            self.tail.0 = self.tail.0.wrapping_add(1);
            self.memory.write_u16(used + 2, self.tail.0);
        }
    }
}

fn pieces_of(random: &mut Random) -> Vec<Piece> {
    let count = 1 + random.below(5) as usize;
    let read = random.below(count as u64 + 1) as usize;
    (0..count)
        .map(|index| {
            let address = PhysAddr::new(random.below(1 << 40));
            Piece { address, bytes: 1 + random.below(4096) as u32, written: index >= read }
        })
        .collect()
}

#[test]
fn all_layouts_bring_every_buffer_back_in_any_order() {
    for (options, indirect) in all_options() {
        let mut fixture = fixture(options, indirect);
        let mut device = Device::new(&fixture);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut added: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
        let mut unseen: VecDeque<u32> = VecDeque::new();
        let mut with_device: Vec<(u32, Seen, u32)> = Vec::new();
        let (mut token, mut back) = (0, 0);
        while back < 5000 {
            match random.below(4) {
                0 => {
                    let pieces = pieces_of(&mut random);
                    if fixture.ring.add(&pieces, token).is_ok() {
                        added.insert(token, pieces);
                        unseen.push_back(token);
                    }
                    token += 1;
                    fixture.ring.publish();
                }
                1 => {
                    if let Some(seen) = device.next() {
                        let token = unseen.pop_front().expect("a buffer that was added");
                        assert_eq!(seen.2, added[&token], "{options:?}");
                        let room: u32 =
                            seen.2.iter().filter(|piece| piece.written).map(|piece| piece.bytes).sum();
                        with_device.push((token, seen, random.below(u64::from(room) + 1) as u32));
                    }
                }
                2 if !with_device.is_empty() => {
                    let index = random.below(with_device.len() as u64) as usize;
                    let (token, seen, written) = with_device.remove(index);
                    device.give_back(seen.0, seen.1, written);
                    assert_eq!(fixture.ring.take(), Ok(Some((token, written))), "{options:?}");
                    added.remove(&token);
                    back += 1;
                }
                _ => assert_eq!(fixture.ring.take(), Ok(None)),
            }
            assert_eq!(usize::from(fixture.ring.with_device()), added.len());
        }
    }
}

#[test]
fn full_ring_takes_no_more_and_goes_on_after_one_came_back() {
    for (options, indirect) in all_options() {
        let mut fixture = fixture(options, indirect);
        let mut device = Device::new(&fixture);
        let piece = [Piece::written(PhysAddr::new(4096), 512); 2];
        let room = if indirect { 8 } else { 4 };
        for token in 0..room {
            fixture.ring.add(&piece, token).unwrap();
        }
        assert_eq!(fixture.ring.add(&piece, 99), Err(99));
        fixture.ring.publish();
        let (number, descriptors, _) = device.next().unwrap();
        device.give_back(number, descriptors, 1024);
        assert_eq!(fixture.ring.take(), Ok(Some((0, 1024))));
        fixture.ring.add(&piece, 99).unwrap();
        let mut left: Vec<u32> = core::iter::from_fn(|| fixture.ring.take_away()).collect();
        left.sort_unstable();
        assert_eq!(left.len(), room as usize);
        assert!(left.contains(&99) && fixture.ring.with_device() == 0);
    }
}

#[test]
fn device_is_notified_when_it_wants_to_be() {
    for (options, _) in all_options() {
        let mut fixture = fixture(options, false);
        let addresses = Ring::<u32, Shared>::addresses(options, PhysAddr::new(RING_AT));
        let device = (addresses.device.as_u64() - RING_AT) as usize;
        let mut notified = |token| {
            fixture.ring.add(&[Piece::read(PhysAddr::new(0), 1)], token).unwrap();
            fixture.ring.publish()
        };
        assert!(notified(0), "{options:?}: it wants to hear of the first");
        match (options.packed, options.event_index) {
            (false, false) => fixture.memory.write_u16(device, 1),
            (false, true) => fixture.memory.write_u16(device + 4 + 8 * 8, 2),
            (true, false) => fixture.memory.write_u16(device + 2, 1),
            (true, true) => {
                fixture.memory.write_u16(device, 2 | 1 << 15);
                fixture.memory.write_u16(device + 2, 2);
            }
        }
        assert!(!notified(1), "{options:?}: not of the second");
        assert_eq!(notified(2), options.event_index, "{options:?}: of the third by index");
        assert!(!notified(3), "{options:?}: not of the fourth");
    }
}

#[test]
fn what_comes_before_an_interrupt_is_wanted_is_told() {
    for (options, indirect) in all_options() {
        let mut fixture = fixture(options, indirect);
        let mut device = Device::new(&fixture);
        fixture.ring.refuse_interrupts();
        for round in 0..20 {
            fixture.ring.add(&[Piece::written(PhysAddr::new(0), 4)], round).unwrap();
            fixture.ring.publish();
            assert!(!fixture.ring.want_interrupt());
            let (number, descriptors, _) = device.next().unwrap();
            device.give_back(number, descriptors, 0);
            assert!(fixture.ring.want_interrupt());
            assert_eq!(fixture.ring.take(), Ok(Some((round, 0))));
        }
    }
}

#[test]
fn lies_are_trouble() {
    for (options, indirect) in all_options() {
        let lie = |number: u16, written| {
            let mut fixture = fixture(options, indirect);
            let mut device = Device::new(&fixture);
            fixture
                .ring
                .add(&[Piece::read(PhysAddr::new(0), 9), Piece::written(PhysAddr::new(0), 5)], 1)
                .unwrap();
            fixture.ring.publish();
            let (real, descriptors, _) = device.next().unwrap();
            device.give_back(if number == 0 { real } else { number ^ real }, descriptors, written);
            fixture.ring.take()
        };
        assert_eq!(lie(0, 5), Ok(Some((1, 5))));
        assert_eq!(lie(0, 6), Err(Trouble::TooLong));
        assert_eq!(lie(0, u32::MAX), Err(Trouble::TooLong));
        for number in [2, 7, 8, 0x7fff, u16::MAX] {
            assert_eq!(lie(number, 0), Err(Trouble::Unknown), "{options:?} {number}");
        }
    }
    let mut fixture = fixture(Options { size: 8, packed: false, event_index: false }, false);
    let mut device = Device::new(&fixture);
    fixture.ring.add(&[Piece::read(PhysAddr::new(0), 9)], 1).unwrap();
    fixture.ring.publish();
    let (number, ..) = device.next().unwrap();
    device.give_back(number, 1, 0);
    device.give_back(number, 1, 0);
    assert_eq!(fixture.ring.take(), Err(Trouble::TooMany), "it gives back twice what it had once");
}

/// A device that writes anything anywhere: the driver gets each token back at most once, nothing else, and never panics.
fn hostile(seed: u64) {
    let mut random = Random(seed | 1);
    let (mut options, indirect) = all_options().nth(random.below(8) as usize).unwrap();
    options.size = 1 << random.below(6);
    let mut fixture = fixture(options, indirect);
    let mut device = Device::new(&fixture);
    let mut mine: Vec<u32> = Vec::new();
    let mut token = 0;
    for _ in 0..400 {
        match random.below(8) {
            0 | 1 => {
                let pieces = pieces_of(&mut random);
                if fixture.ring.add(&pieces, token).is_ok() {
                    mine.push(token);
                }
                token += 1;
            }
            2 => {
                fixture.ring.publish();
                fixture.ring.want_interrupt();
            }
            3 => fixture.ring.refuse_interrupts(),
            4 => {
                // Something near what is true gets further than noise.
                let number = random.below(u64::from(options.size) + 1) as u16;
                let descriptors = (1 + random.below(2) as u16).min(options.size);
                device.give_back(number, descriptors, random.below(3) as u32 * 100);
            }
            5 => {
                let words = fixture.memory.bytes.lock().unwrap().len() as u64 / 2;
                for _ in 0..=random.below(4) {
                    let value = match random.below(3) {
                        0 => random.next() as u16,
                        1 => random.below(4) as u16,
                        _ => [0x80, 0x8000, 0x8080, 0xffff][random.below(4) as usize],
                    };
                    fixture.memory.write_u16(2 * random.below(words) as usize, value);
                }
            }
            _ => match fixture.ring.take() {
                Ok(Some((token, _))) => {
                    let index = mine.iter().position(|known| *known == token).expect("a token that is out");
                    mine.swap_remove(index);
                }
                Ok(None) => {}
                Err(_) => break,
            },
        }
        assert_eq!(usize::from(fixture.ring.with_device()), mine.len());
    }
    // The device was reset: what it had comes back, once.
    while let Some(token) = fixture.ring.take_away() {
        let index = mine.iter().position(|known| *known == token).expect("a token that is out");
        mine.swap_remove(index);
    }
    assert!(mine.is_empty());
}

#[test]
fn hostile_devices_get_nothing_but_their_own_buffers_lost() {
    // A long hunt: VIRTIO_FUZZ_ROUNDS=10000000.
    let rounds = std::env::var("VIRTIO_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000);
    for seed in 1..=rounds {
        hostile(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
    }
}
