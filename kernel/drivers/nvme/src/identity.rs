//! What a controller and its namespaces say of themselves. Nothing of it is believed beyond what it can do to its own users: sizes are cut to what makes sense.

use alloc::string::String;
use alloc::vec::Vec;

use block::{Limits, SECTOR_BYTES};
use machine::address::PAGE_SIZE;
use memory::{OutOfMemory, fallible};

use crate::transfer::SECTORS_MAX;

/// Bytes of each of the structures.
pub(crate) const BYTES: usize = 4096;
/// Which of them is asked for.
pub(crate) const NAMESPACE: u32 = 0;
pub(crate) const CONTROLLER: u32 = 1;
pub(crate) const NAMESPACES: u32 = 2;
/// Namespaces of a controller that are looked at.
const NAMESPACES_MAX: usize = 64;
/// The last number that a namespace can have.
const LAST_NAMESPACE: u32 = 0xffff_fffd;
/// More than any file offset reaches would overflow where sectors become bytes.
const SIZE_MAX: u64 = 1 << 54;
/// Sectors that one discard forgets at most.
const DISCARD_MAX: u32 = 1 << 21;

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// What a controller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControllerIdentity {
    pub(crate) serial: String,
    pub(crate) model: String,
    /// The version of what runs in it.
    pub(crate) firmware: String,
    /// Its number among those of its subsystem.
    pub(crate) id: u16,
    /// Sectors of a command's data at most.
    pub(crate) sectors_max: u32,
    /// Whether it forgets ranges.
    discards: bool,
    /// Whether it writes zeroes.
    zeroes: bool,
    /// Whether completed writes may be lost until a flush.
    write_cache: bool,
}

fn text(bytes: &[u8]) -> String {
    let kept = bytes.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
    let text: String = kept.map(|byte| char::from(*byte)).collect();
    text.trim().into()
}

impl ControllerIdentity {
    /// From its structure, of [`BYTES`].
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let shift = u32::from(bytes[77]);
        let page_sectors = (PAGE_SIZE / SECTOR_BYTES) as u32;
        let said = if (1..16).contains(&shift) { page_sectors << shift } else { SECTORS_MAX };
        let optional = number::<2>(bytes, 520);
        Self {
            serial: text(&bytes[4..24]),
            model: text(&bytes[24..64]),
            firmware: text(&bytes[64..72]),
            id: number::<2>(bytes, 78) as u16,
            sectors_max: said.min(SECTORS_MAX),
            discards: optional & 1 << 2 != 0,
            zeroes: optional & 1 << 3 != 0,
            write_cache: bytes[525] & 1 != 0,
        }
    }
}

/// The numbers of the namespaces in a list, of [`BYTES`]: they ascend.
///
/// # Errors
/// No memory.
pub(crate) fn namespaces(bytes: &[u8]) -> Result<Vec<u32>, OutOfMemory> {
    let mut ids = fallible::try_vec(NAMESPACES_MAX)?;
    let mut last = 0;
    for entry in bytes.chunks_exact(4).take(NAMESPACES_MAX) {
        let id = number::<4>(entry, 0) as u32;
        if id <= last || id > LAST_NAMESPACE {
            break;
        }
        ids.push(id);
        last = id;
    }
    Ok(ids)
}

/// What a namespace is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamespaceIdentity {
    /// For the queue; its depth is the controller's to say.
    pub(crate) limits: Limits,
    /// Sectors are shifted right by so much to be blocks.
    pub(crate) shift: u32,
    /// Whether zeroes may be written by forgetting.
    pub(crate) may_forget: bool,
}

/// Reads a namespace's structure, of [`BYTES`]. None if the driver can't work with one like this.
pub(crate) fn read_namespace(bytes: &[u8], controller: &ControllerIdentity) -> Option<NamespaceIdentity> {
    let format = usize::from(bytes[26] & 0xf);
    let metadata = number::<2>(bytes, 128 + 4 * format);
    let exponent = u32::from(bytes[128 + 4 * format + 2]);
    let blocks = number::<8>(bytes, 0);
    // Data beside blocks would have to be transferred too.
    if format > usize::from(bytes[25]) || metadata != 0 || !(9..=16).contains(&exponent) || blocks == 0 {
        return None;
    }
    let shift = exponent - 9;
    let block = 1 << exponent;
    let sectors = if blocks > SIZE_MAX >> shift { SIZE_MAX } else { blocks << shift };
    let mut limits = Limits::of_size(sectors);
    limits.logical_block_bytes = block;
    limits.physical_block_bytes = block;
    let preferred = (number::<2>(bytes, 64) as u32 + 1) * block;
    if bytes[24] & 1 << 4 != 0 && preferred.is_power_of_two() && preferred <= 1 << 20 {
        limits.physical_block_bytes = preferred;
    }
    limits.sectors_max = controller.sectors_max;
    limits.read_only = bytes[99] & 1 != 0;
    limits.write_cache = controller.write_cache;
    limits.force_unit_access = controller.write_cache;
    let whole = |sectors: u32| sectors >> shift << shift;
    if controller.discards {
        limits.discard_sectors_max = whole(DISCARD_MAX);
    }
    if controller.zeroes {
        limits.zeroes_sectors_max = whole(controller.sectors_max);
    }
    // A write of zeroes that forgets, after which zeroes are read.
    let may_forget = bytes[33] & 0b1111 == 0b1001;
    Some(NamespaceIdentity { limits, shift, may_forget })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace of so many blocks of 2^exponent bytes.
    fn namespace(blocks: u64, exponent: u8) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..8].copy_from_slice(&blocks.to_le_bytes());
        bytes[130] = exponent;
        bytes
    }

    fn controller() -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[4..24].copy_from_slice(b"serial 1\x00\xff          ");
        bytes[77] = 5;
        bytes[520] = 1 << 2 | 1 << 3;
        bytes[525] = 1;
        bytes
    }

    #[test]
    fn plain_namespace_is_taken_as_it_says() {
        let identity = ControllerIdentity::read(&controller());
        assert_eq!((identity.serial.as_str(), identity.sectors_max), ("serial 1", 256));
        let found = read_namespace(&namespace(1000, 12), &identity).unwrap();
        let limits = found.limits;
        assert_eq!((limits.sectors, limits.logical_block_bytes, found.shift), (8000, 4096, 3));
        assert!(limits.write_cache && limits.force_unit_access && !limits.read_only);
        assert_eq!((limits.discard_sectors_max, limits.zeroes_sectors_max), (DISCARD_MAX, 256));
    }

    #[test]
    fn nonsense_is_refused_or_cut() {
        let identity = ControllerIdentity::read(&[0xff; BYTES]);
        assert_eq!(identity.sectors_max, SECTORS_MAX);
        for exponent in [0, 8, 17, 63, 64, 255] {
            assert!(read_namespace(&namespace(1, exponent), &identity).is_none(), "{exponent}");
        }
        for exponent in 9..=16 {
            let found = read_namespace(&namespace(u64::MAX, exponent), &identity).unwrap();
            assert_eq!(found.limits.sectors, SIZE_MAX);
        }
        assert!(read_namespace(&namespace(0, 9), &identity).is_none());
        assert!(read_namespace(&[0xff; BYTES], &identity).is_none());
        let mut with_metadata = namespace(1, 9);
        with_metadata[128] = 8;
        assert!(read_namespace(&with_metadata, &identity).is_none());
        let mut other_format = namespace(1, 9);
        other_format[26] = 3;
        assert!(read_namespace(&other_format, &identity).is_none());
    }

    #[test]
    fn any_bytes_give_limits_that_a_queue_takes() {
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut bytes =
                if seed & 1 == 0 { namespace(seed, 9 + (seed >> 32) as u8 % 9) } else { controller() };
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes[(seed >> 40) as usize % 1024] = (seed >> 32) as u8;
            }
            let identity = ControllerIdentity::read(&bytes);
            assert!(
                identity.sectors_max.is_power_of_two() && (16..=SECTORS_MAX).contains(&identity.sectors_max)
            );
            if let Some(found) = read_namespace(&bytes, &identity) {
                let limits = found.limits;
                assert!(limits.sectors <= SIZE_MAX && limits.logical_block_bytes.is_power_of_two());
                assert!((512..=1 << 16).contains(&limits.logical_block_bytes));
                assert!(limits.physical_block_bytes >= limits.logical_block_bytes);
            }
            assert!(namespaces(&bytes).unwrap().is_sorted());
        }
    }

    #[test]
    fn list_of_namespaces_ends_where_it_does_not_ascend() {
        let list = |ids: &[u32]| {
            let mut bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            bytes.resize(BYTES, 0);
            namespaces(&bytes).unwrap()
        };
        assert_eq!(list(&[1, 2, 7]), [1, 2, 7]);
        assert_eq!(list(&[3, 3, 4]), [3]);
        assert_eq!(list(&[5, u32::MAX]), [5]);
        assert!(list(&[]).is_empty());
        assert_eq!(list(&(1..=1024).collect::<Vec<_>>()).len(), NAMESPACES_MAX);
    }
}
