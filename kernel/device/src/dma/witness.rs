//! What devices that are part of a test see of memory: buffers by their addresses, and whether one was freed that a device still had. Only on the host.
//!
//! A [`Witness`] belongs to a device. It is told what the device learns the address of ([`Witness::hold`]) and gives back ([`Witness::release`]); the end of every buffer is
//! compared with what all witnesses hold.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use machine::address::{PAGE_SIZE, PhysAddr};
use memory::frame::Frame;
use sync::SpinLock;

/// A buffer that there is.
#[derive(Clone, Copy)]
struct Live {
    bytes: u64,
    /// Its place in the test's own memory.
    place: usize,
    /// No two buffers have the same.
    serial: u64,
}

struct Buffers {
    live: BTreeMap<u64, Live>,
    serial: u64,
}

static BUFFERS: SpinLock<Buffers> =
    SpinLock::named("buffers of devices", Buffers { live: BTreeMap::new(), serial: 0 });
static WITNESSES: SpinLock<Vec<Weak<Witness>>> = SpinLock::named("witnesses of devices", Vec::new());

/// A buffer was made.
pub(super) fn made(address: PhysAddr, bytes: usize, place: *mut u8) {
    let mut buffers = BUFFERS.lock();
    buffers.serial += 1;
    let live = Live { bytes: bytes as u64, place: place.expose_provenance(), serial: buffers.serial };
    let before = buffers.live.insert(address.as_u64(), live);
    assert!(before.is_none(), "two buffers at one address");
}

/// A buffer goes.
pub(super) fn unmade(address: PhysAddr, bytes: usize) {
    let witnesses = WITNESSES.lock().clone();
    for witness in witnesses.iter().filter_map(Weak::upgrade) {
        witness.check_end(address.as_u64(), bytes as u64);
    }
    BUFFERS.lock().live.remove(&address.as_u64());
}

impl Buffers {
    /// The buffer that has all of these bytes, and their place.
    fn find(&self, address: u64, bytes: u64) -> Option<(Live, usize)> {
        let (start, live) = self.live.range(..=address).next_back()?;
        let offset = address - start;
        (offset < live.bytes && bytes <= live.bytes - offset).then(|| (*live, live.place + offset as usize))
    }
}

/// The frame of the page cache or of a program that has the address, and the offset in it.
fn frame_of(address: u64) -> Option<(Frame, usize)> {
    let offset = address % PAGE_SIZE as u64;
    Frame::try_from_physical(PhysAddr::new(address - offset)).map(|frame| (frame, offset as usize))
}

/// Reads as a device does. False, and nothing read, where there is no memory for it.
pub fn read(address: u64, into: &mut [u8]) -> bool {
    let buffers = BUFFERS.lock();
    if let Some((_, place)) = buffers.find(address, into.len() as u64) {
        let from: *const u8 = core::ptr::with_exposed_provenance(place);
        for (index, byte) in into.iter_mut().enumerate() {
            // SAFETY: the bytes lie in a buffer, which is freed only after it was taken from the list, whose lock is held.
            *byte = unsafe { from.add(index).read_volatile() };
        }
        return true;
    }
    drop(buffers);
    let found = frame_of(address).filter(|(_, offset)| offset + into.len() <= PAGE_SIZE);
    found.is_some_and(|(frame, offset)| {
        frame.read(offset, into);
        true
    })
}

/// Writes as a device does. False, and nothing written, where there is no memory for it.
pub fn write(address: u64, from: &[u8]) -> bool {
    let buffers = BUFFERS.lock();
    if let Some((_, place)) = buffers.find(address, from.len() as u64) {
        let into: *mut u8 = core::ptr::with_exposed_provenance_mut(place);
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: as for reading; nobody has a reference to a buffer's memory.
            unsafe { into.add(index).write_volatile(*byte) };
        }
        return true;
    }
    drop(buffers);
    let found = frame_of(address).filter(|(_, offset)| offset + from.len() <= PAGE_SIZE);
    found.is_some_and(|(frame, offset)| {
        frame.write(offset, from);
        true
    })
}

#[derive(Default)]
struct Known {
    /// What the device has: address and bytes.
    held: Vec<(u64, u64)>,
    /// Serial numbers of all buffers that it ever had, by their addresses.
    met: BTreeMap<u64, u64>,
    faults: Vec<String>,
}

/// See the theory of this file.
pub struct Witness(SpinLock<Known>);

impl Witness {
    /// One that knows nothing.
    pub fn new() -> Arc<Self> {
        let known = Known { held: Vec::new(), met: BTreeMap::new(), faults: Vec::new() };
        let witness = Arc::new(Self(SpinLock::named("witness of a device", known)));
        let mut witnesses = WITNESSES.lock();
        witnesses.retain(|other| other.strong_count() > 0);
        witnesses.push(Arc::downgrade(&witness));
        witness
    }

    /// The device has these bytes from now on. That there is no such memory is a fault.
    pub fn hold(&self, address: u64, bytes: u64) {
        let buffer = BUFFERS.lock().find(address, bytes).map(|(live, _)| live.serial);
        let is_memory = buffer.is_some() || frame_of(address).is_some();
        let mut known = self.0.lock();
        if let Some(serial) = buffer {
            known.met.insert(serial, address);
        }
        if !is_memory {
            known.faults.push(format!("the device was given {address:#x}, {bytes} bytes that are nobody's"));
        }
        known.held.push((address, bytes));
    }

    /// The device has given these bytes back.
    pub fn release(&self, address: u64, bytes: u64) {
        let mut known = self.0.lock();
        if let Some(at) = known.held.iter().position(|held| *held == (address, bytes)) {
            known.held.swap_remove(at);
        }
    }

    /// The device has forgotten everything, or reaches nothing any more.
    pub fn release_all(&self) {
        self.0.lock().held.clear();
    }

    /// Whether the device has some of these bytes.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        self.0.lock().overlap(address, bytes)
    }

    /// Something is wrong.
    pub fn blame(&self, what: String) {
        self.0.lock().faults.push(what);
    }

    /// What was wrong.
    pub fn faults(&self) -> Vec<String> {
        self.0.lock().faults.clone()
    }

    /// How many of the buffers that the device ever had are not freed yet.
    pub fn left(&self) -> usize {
        let buffers = BUFFERS.lock();
        let known = self.0.lock();
        let is_left = |(serial, address): &(&u64, &u64)| {
            buffers.find(**address, 1).is_some_and(|(live, _)| live.serial == **serial)
        };
        known.met.iter().filter(is_left).count()
    }

    fn check_end(&self, address: u64, bytes: u64) {
        let mut known = self.0.lock();
        if known.overlap(address, bytes) {
            known.faults.push(format!("{address:#x}, {bytes} bytes, was freed while the device had it"));
        }
    }
}

impl Known {
    fn overlap(&self, address: u64, bytes: u64) -> bool {
        self.held.iter().any(|(start, length)| *start < address + bytes && address < start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Buffer;
    use super::*;

    #[test]
    fn buffer_that_a_device_has_is_not_to_be_freed() {
        memory::initialize();
        let witness = Witness::new();
        let buffers = [(); 2].map(|()| Buffer::allocate(100).unwrap());
        let address = |index: usize| buffers[index].physical().as_u64();
        let (first, second) = (address(0), address(1));
        witness.hold(first + 10, 20);
        witness.hold(second, 30);
        assert!(write(first + 10, b"seen") && witness.holds(first, 11) && !witness.holds(first, 10));
        let mut bytes = [0; 4];
        buffers[0].read(10, &mut bytes);
        assert_eq!(&bytes, b"seen");
        assert!(read(first + 9, &mut bytes) && bytes == *b"\0see");
        witness.release(second, 30);
        assert_eq!((witness.left(), witness.faults().len()), (2, 0));
        drop(buffers);
        assert_eq!((witness.left(), witness.faults().len()), (0, 1));
        witness.hold(1, 1);
        assert_eq!(witness.faults().len(), 2, "there is no such memory");
    }
}
