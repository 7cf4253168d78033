//! What a device's configuration says of it. Nothing of it is believed beyond what it can do to its own users: sizes are cut to what makes sense.

use block::Limits;
use device::mmio::Window;

/// Features of disks.
pub(super) mod feature {
    pub(crate) const SEGMENT_BYTES: u64 = 1 << 1;
    pub(crate) const SEGMENTS: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLOCK_BYTES: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const QUEUES: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const ALL: u64 = SEGMENT_BYTES
        | SEGMENTS
        | READ_ONLY
        | BLOCK_BYTES
        | FLUSH
        | TOPOLOGY
        | QUEUES
        | DISCARD
        | WRITE_ZEROES;
}

/// Pieces of a request's data at most: with head and status a table of 2 KiB.
const PIECES_MAX: usize = 126;
/// Bytes of memory that is copied to and from in one piece.
pub(super) const COPY_BYTES: usize = 32 << 10;
/// Sectors of a request at most, as of other disks.
const SECTORS_MAX: usize = 2560;
/// Pieces of a request besides its data.
pub(super) const EXTRA_PIECES: usize = 2;

const SECTOR_BYTES: usize = block::SECTOR_BYTES;

/// What the configuration says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// For the queue.
    pub(super) limits: Limits,
    /// Queues that the device has.
    pub(super) queues: u16,
    /// Pieces of a request's data at most.
    pub(super) pieces_max: usize,
    /// Bytes of a piece at most.
    pub(super) piece_bytes_max: usize,
}

/// The device's size in sectors.
pub(super) fn sectors(window: &Window) -> u64 {
    let half = |offset| u64::from(window.read_u32(offset));
    // More than any file offset reaches would overflow where sectors become bytes.
    (half(0) | half(4) << 32).min(1 << 54)
}

/// Reads the configuration. None if the driver can't work with a device like this.
pub(super) fn read(window: &Window, features: u64, indirect: bool, ring: u16) -> Option<Layout> {
    let has = |feature| features & feature != 0;
    let mut limits = Limits::of_size(sectors(window));
    limits.read_only = has(feature::READ_ONLY);
    limits.write_cache = has(feature::FLUSH);
    if has(feature::BLOCK_BYTES) {
        limits.logical_block_bytes = window.read_u32(20);
    }
    let block = limits.logical_block_bytes;
    if !block.is_power_of_two() || !(SECTOR_BYTES as u32..=64 << 10).contains(&block) {
        return None;
    }
    limits.physical_block_bytes = block;
    if has(feature::TOPOLOGY) {
        let shift = u32::from(window.read_u8(24));
        limits.physical_block_bytes = if shift <= 8 { block << shift } else { block };
    }
    if has(feature::DISCARD) {
        limits.discard_sectors_max = whole_blocks(window.read_u32(36), block);
    }
    if has(feature::WRITE_ZEROES) {
        limits.zeroes_sectors_max = whole_blocks(window.read_u32(48), block);
    }
    let said = if has(feature::SEGMENTS) { window.read_u32(12) as usize } else { 1 };
    let room = if indirect { PIECES_MAX } else { usize::from(ring).saturating_sub(EXTRA_PIECES) };
    let pieces_max = said.clamp(1, PIECES_MAX).min(room);
    let said = if has(feature::SEGMENT_BYTES) { window.read_u32(8) as usize } else { usize::MAX };
    let piece_bytes_max = (said / SECTOR_BYTES * SECTOR_BYTES).min(1 << 30);
    // Every page of the page cache is one piece.
    if pieces_max == 0 || piece_bytes_max < machine::address::PAGE_SIZE.max(block as usize) {
        return None;
    }
    let copied = COPY_BYTES.min(piece_bytes_max) / SECTOR_BYTES;
    // Whatever a request's memory is, it fits: a piece more for each that is copied than for what lies in place.
    let copies = pieces_max.div_ceil(3);
    limits.sectors_max = (copies * copied).min(SECTORS_MAX) as u32;
    limits.segments_max = (pieces_max - copies).max(1);
    limits.depth = u32::from(ring);
    let queues = if has(feature::QUEUES) { window.read_u16(34).max(1) } else { 1 };
    Some(Layout { limits, queues, pieces_max, piece_bytes_max })
}

/// The largest number of sectors up to this one that are whole blocks.
fn whole_blocks(sectors: u32, block: u32) -> u32 {
    let unit = block / SECTOR_BYTES as u32;
    sectors / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(write: impl FnOnce(&Window)) -> Window {
        let window = Window::fake(64);
        window.write_u64(0, 1000);
        write(&window);
        window
    }

    #[test]
    fn plain_device_has_one_piece_and_one_queue() {
        let layout = read(&configured(|_| ()), 0, false, 128).expect("it is fine");
        assert_eq!((layout.limits.sectors, layout.pieces_max, layout.queues), (1000, 1, 1));
        assert_eq!((layout.limits.segments_max, layout.limits.sectors_max), (1, 64));
        assert!(!layout.limits.write_cache && !layout.limits.read_only);
    }

    #[test]
    fn nonsense_is_refused_or_cut() {
        let blocks = |bytes| configured(|window| window.write_u32(20, bytes));
        for bytes in [0, 511, 513, 1 << 20, u32::MAX] {
            assert!(read(&blocks(bytes), feature::BLOCK_BYTES, true, 128).is_none(), "{bytes}");
        }
        let window = configured(|window| {
            window.write_u64(0, u64::MAX);
            window.write_u32(12, u32::MAX);
            window.write_u32(8, u32::MAX);
            window.write_u8(24, 0xff);
            window.write_u16(34, 0);
        });
        let layout = read(&window, !feature::BLOCK_BYTES, true, 128).expect("it is fine");
        assert_eq!((layout.limits.sectors, layout.pieces_max, layout.queues), (1 << 54, PIECES_MAX, 1));
        assert!(layout.limits.segments_max + layout.limits.sectors_max as usize / 64 <= PIECES_MAX);
        let tiny = configured(|window| window.write_u32(8, 512));
        assert!(read(&tiny, feature::SEGMENT_BYTES, true, 128).is_none());
        assert!(read(&configured(|_| ()), 0, false, 2).is_none());
    }
}
