//! What a function wants addresses for: its base address registers and its expansion ROM.

use super::config::Config;
use super::registers::{BASE_ADDRESS, BRIDGE_ROM, COMMAND, COMMAND_IO, COMMAND_MEMORY, ROM};

/// Base address registers of a function, and its ROM as the last one.
pub const REGIONS: usize = 7;
/// Index of the ROM.
pub const ROM_REGION: usize = 6;

const IO_SPACE: u32 = 1;
const TYPE_MASK: u32 = 6;
const TYPE_64: u32 = 4;
const PREFETCHABLE: u32 = 8;

/// Which addresses a region takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Ports.
    Io,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere.
    Memory64,
}

/// A range of addresses that a function answers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// What kind of addresses.
    pub space: Space,
    /// Reading has no side effects.
    pub prefetchable: bool,
    /// How many; a power of two.
    pub bytes: u64,
    /// The first; 0: none assigned.
    pub start: u64,
}

impl Region {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// As Linux shows it in `resource`: the kind of addresses, and the low bits of the register.
    pub fn flags(&self, index: usize) -> u64 {
        const IO: u64 = 0x100;
        const MEMORY: u64 = 0x200;
        const PREFETCH: u64 = 0x2000;
        const READ_ONLY: u64 = 0x4000;
        const ALIGNED_BY_SIZE: u64 = 0x4_0000;
        const WIDE: u64 = 0x10_0000;
        let base = ALIGNED_BY_SIZE | if self.prefetchable { PREFETCH | u64::from(PREFETCHABLE) } else { 0 };
        match self.space {
            _ if index == ROM_REGION => ALIGNED_BY_SIZE | MEMORY | PREFETCH | READ_ONLY,
            Space::Io => base | IO | u64::from(IO_SPACE),
            Space::Memory32 => base | MEMORY,
            Space::Memory64 => base | MEMORY | WIDE | u64::from(TYPE_64),
        }
    }
}

/// All regions of a function.
pub type Regions = [Option<Region>; REGIONS];

/// Finds out sizes, kinds and present addresses. The function answers to none of its addresses meanwhile.
pub(crate) fn measure(config: &Config, base_registers: usize, is_bridge: bool) -> Regions {
    let mut regions = [None; REGIONS];
    let command = config.read_u16(COMMAND);
    let decoding = COMMAND_IO | COMMAND_MEMORY;
    if command & decoding != 0 {
        config.write_u16(COMMAND, command & !decoding);
    }
    let mut index = 0;
    while index < base_registers {
        let offset = BASE_ADDRESS + 4 * index as u16;
        let region = measure_base(config, offset, index + 1 < base_registers);
        regions[index] = region;
        index += if region.is_some_and(|region| region.space == Space::Memory64) { 2 } else { 1 };
    }
    regions[ROM_REGION] = measure_rom(config, rom_offset(is_bridge));
    if command & decoding != 0 {
        config.write_u16(COMMAND, command);
    }
    regions
}

fn rom_offset(is_bridge: bool) -> u16 {
    if is_bridge { BRIDGE_ROM } else { ROM }
}

/// The bits of a register that can be set; its contents stay.
fn writable(config: &Config, offset: u16, old: u32, pattern: u32) -> u32 {
    config.write_u32(offset, pattern);
    let mask = config.read_u32(offset);
    config.write_u32(offset, old);
    mask
}

fn measure_base(config: &Config, offset: u16, has_next: bool) -> Option<Region> {
    let old = config.read_u32(offset);
    let mask = writable(config, offset, old, u32::MAX);
    if mask == 0 || mask == u32::MAX {
        return None;
    }
    if old & IO_SPACE != 0 {
        let bytes = u64::from((!(mask & 0xffff_fffc) & 0xffff).wrapping_add(1));
        let start = u64::from(old & 0xffff_fffc);
        return power(bytes).map(|bytes| Region { space: Space::Io, prefetchable: false, bytes, start });
    }
    let prefetchable = old & PREFETCHABLE != 0;
    if old & TYPE_MASK == TYPE_64 && has_next {
        let upper = config.read_u32(offset + 4);
        let upper_mask = writable(config, offset + 4, upper, u32::MAX);
        let mask = u64::from(upper_mask) << 32 | u64::from(mask & !0xf);
        let start = u64::from(upper) << 32 | u64::from(old & !0xf);
        let bytes = power((!mask).wrapping_add(1))?;
        return Some(Region { space: Space::Memory64, prefetchable, bytes, start });
    }
    let bytes = power(u64::from((!(mask & !0xf)).wrapping_add(1)))?;
    Some(Region { space: Space::Memory32, prefetchable, bytes, start: u64::from(old & !0xf) })
}

fn measure_rom(config: &Config, offset: u16) -> Option<Region> {
    const ADDRESS: u32 = 0xffff_f800;
    let old = config.read_u32(offset);
    let mask = writable(config, offset, old, ADDRESS) & ADDRESS;
    if mask == 0 || old == u32::MAX {
        return None;
    }
    let bytes = power(u64::from((!mask).wrapping_add(1)))?;
    let start = u64::from(old & ADDRESS);
    Some(Region { space: Space::Memory32, prefetchable: true, bytes, start })
}

/// A size that a working register can have.
fn power(bytes: u64) -> Option<u64> {
    bytes.is_power_of_two().then_some(bytes)
}

/// Whether the register of a region that is not the ROM holds the region's address.
pub(crate) fn has_address(config: &Config, index: usize, region: &Region) -> bool {
    let offset = BASE_ADDRESS + 4 * index as u16;
    let kind = if region.space == Space::Io { 0x3 } else { 0xf };
    let lower = config.read_u32(offset) & !kind == region.start as u32;
    lower && (region.space != Space::Memory64 || config.read_u32(offset + 4) == (region.start >> 32) as u32)
}

/// Writes a region's address into its register.
pub(crate) fn write_address(config: &Config, index: usize, region: &Region, is_bridge: bool) {
    if index == ROM_REGION {
        // Without the bit that makes the ROM answer.
        config.write_u32(rom_offset(is_bridge), region.start as u32);
        return;
    }
    let offset = BASE_ADDRESS + 4 * index as u16;
    config.write_u32(offset, region.start as u32);
    if region.space == Space::Memory64 {
        config.write_u32(offset + 4, (region.start >> 32) as u32);
    }
}
