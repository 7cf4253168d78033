//! Device registers in memory: windows that are mapped once per physical range and read and written safely.
//!
//! A window knows its length; an access outside of it reads all ones and writes nothing, as on a bus where nobody answers. Mappings are never
//! taken away: a device that comes back to the same addresses finds the mapping that its predecessor had. An access through a
//! window whose device is gone is answered by the bus, with all ones.
//!
//! The addresses must be a device's. Mapping believes those that enumeration has put into a function's registers.

use alloc::vec::Vec;

use machine::address::PhysAddr;
use sync::SpinLock;

/// Ranges are mapped by this much where they are at least as big, else by 4 KiB.
const LARGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

struct Mapped {
    start: u64,
    bytes: u64,
    address: usize,
}

/// All ranges ever mapped.
static MAPPED: SpinLock<Vec<Mapped>> = SpinLock::named("mapped device registers", Vec::new());

/// A range of device registers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    address: usize,
    bytes: usize,
}

macro_rules! access {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads a register at an aligned offset.
        pub fn $read(&self, offset: usize) -> $type {
            match self.register::<$type>(offset) {
                // SAFETY: `register` has checked that the register lies in the window, which is mapped for good.
                Some(register) => unsafe { register.read_volatile() },
                None => <$type>::MAX,
            }
        }

        /// Writes a register at an aligned offset.
        pub fn $write(&self, offset: usize, value: $type) {
            if let Some(register) = self.register::<$type>(offset) {
                // SAFETY: as for reading; the registers are a device's, which reaches no memory but what it was given.
                unsafe { register.write_volatile(value) };
            }
        }
    };
}

impl Window {
    /// Maps `bytes` of device registers at a physical address. None when there is no room for the mapping.
    pub(crate) fn map(start: u64, bytes: u64) -> Option<Self> {
        let granule = if bytes >= LARGE && start.is_multiple_of(LARGE) { LARGE } else { PAGE };
        let first = start & !(granule - 1);
        let length = start.checked_add(bytes)?.checked_next_multiple_of(granule)? - first;
        let window =
            |address: usize| Self { address: address + (start - first) as usize, bytes: bytes as usize };
        // Held while the pages are mapped, so that two users of one range map it once.
        let wanted = MAPPED.lock().len() + 8;
        let room = Vec::with_capacity(wanted);
        let mut mapped = MAPPED.lock();
        if let Some(known) =
            mapped.iter().find(|known| known.start <= first && first + length <= known.start + known.bytes)
        {
            return Some(window(known.address + (first - known.start) as usize));
        }
        let pointer = machine::mmu::map_device(PhysAddr::new(first), usize::try_from(length).ok()?)?;
        let address = pointer.expose_provenance();
        let mut old = Vec::new();
        if mapped.len() == mapped.capacity() && room.capacity() > mapped.len() {
            old = core::mem::replace(&mut *mapped, room);
            mapped.append(&mut old);
        }
        mapped.push(Mapped { start: first, bytes: length, address });
        drop(mapped);
        drop(old);
        Some(window(address))
    }

    /// Maps registers of a device that is on no bus: the command line or firmware's tables tell where. None where there is memory, or no room for the mapping.
    pub fn of_platform(start: u64, bytes: u64) -> Option<Self> {
        let end = start.checked_add(bytes)?;
        let is_memory = |region: &machine::boot::MemoryRegion| {
            region.kind == machine::boot::MemoryKind::Usable
                && region.range.start.as_u64() < end
                && start < region.range.end.as_u64()
        };
        if bytes == 0 || end > 1 << 52 || machine::boot::info().memory_map.iter().any(is_memory) {
            return None;
        }
        Self::map(start, bytes)
    }

    /// Registers that are ordinary memory, never freed, to test drivers with.
    #[cfg(any(test, not(target_os = "none")))]
    pub fn fake(bytes: usize) -> Self {
        let memory = alloc::vec![0_u64; bytes.div_ceil(8)].leak();
        Self { address: memory.as_mut_ptr().expose_provenance(), bytes }
    }

    /// Whether it is that one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.address == other.address && self.bytes == other.bytes
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of the window; what lies beyond its end is cut off.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let offset = offset.min(self.bytes);
        Self { address: self.address + offset, bytes: bytes.min(self.bytes - offset) }
    }

    fn register<T>(&self, offset: usize) -> Option<*mut T> {
        let inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        let address = self.address.wrapping_add(offset);
        (inside && address.is_multiple_of(align_of::<T>()))
            .then(|| core::ptr::with_exposed_provenance_mut(address))
    }

    access!(read_u8, write_u8, u8);
    access!(read_u16, write_u16, u16);
    access!(read_u32, write_u32, u32);
    access!(read_u64, write_u64, u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_or_askew_go_nowhere() {
        let window = Window::fake(16);
        window.write_u32(4, 0x1234_5678);
        assert_eq!((window.read_u32(4), window.read_u16(6), window.read_u8(4)), (0x1234_5678, 0x1234, 0x78));
        window.write_u32(13, 1);
        window.write_u64(16, 1);
        assert_eq!((window.read_u32(13), window.read_u64(16), window.read_u32(usize::MAX)), (!0, !0, !0));
        assert_eq!(window.part(4, 100).bytes(), 12);
        assert_eq!(window.part(4, 4).read_u32(0), 0x1234_5678);
        assert_eq!(window.part(40, 4).read_u8(0), 0xff);
    }
}
