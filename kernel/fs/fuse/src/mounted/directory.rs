//! Open directories.
//!
//! # Positions
//! The server gives each entry the place from which listing goes on behind it: any number. The file layer has 0 and 1 for `.` and `..`, so two is added, except where that
//! would leave the numbers that programs know how to seek to.

use alloc::sync::Arc;

use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::{Error, FileKind, Result, allocation};

use super::handle::Handle;
use super::node::Node;
use crate::wire::{Decoder, reply};

/// What is asked for at a time.
const LIST_BYTES: usize = 4096;
/// Lists in a row that show nothing: a server may list `.` for ever.
const IDLE_LISTS_MAX: usize = 16;
/// Places from here on stay as they are.
const LAST_PLACES: u64 = i64::MAX as u64 - FIRST_POSITION + 1;

const fn position_of(place: u64) -> u64 {
    if place >= LAST_PLACES { place } else { place + FIRST_POSITION }
}

const fn place_of(position: u64) -> u64 {
    if position >= LAST_PLACES { position } else { position.saturating_sub(FIRST_POSITION) }
}

/// Lists a directory from a position until the sink is full.
pub(super) fn list(handle: &Handle, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
    let mut place = place_of(position);
    let mut idle = 0;
    while idle < IDLE_LISTS_MAX {
        idle += 1;
        let bytes = handle.read(place, LIST_BYTES)?;
        let mut entries = Decoder::new(&bytes);
        let before = place;
        while let Some(entry) = reply::listed(&mut entries)? {
            let is_hidden = matches!(entry.name, b"." | b"..");
            let next = position_of(entry.next);
            if !is_hidden && !sink.entry(entry.name, entry.number, entry.kind, next) {
                return Ok(position_of(place));
            }
            place = entry.next;
            if !is_hidden {
                idle = 0;
            }
        }
        // At the end; or a server that leads in circles.
        if bytes.is_empty() || place == before {
            return Ok(position_of(place));
        }
    }
    Err(Error::Io)
}

/// An open directory.
pub(super) struct OpenDirectory {
    handle: Arc<Handle>,
}

impl OpenDirectory {
    pub(super) fn open(node: &Node, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
        let handle = Handle::open(node.connection(), node.number, flags, FileKind::Directory)?;
        let open: Arc<dyn FileOperations> = allocation::arc(Self { handle })?;
        Ok(open)
    }
}

impl FileOperations for OpenDirectory {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read_directory(&self, _file: &OpenFile, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        list(&self.handle, position, sink)
    }

    fn sync(&self, _file: &OpenFile, data_only: bool) -> Result<()> {
        self.handle.sync(data_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_lead_back_to_places() {
        for place in [0, 1, 2, 77, 1 << 40, LAST_PLACES - 5, i64::MAX as u64, u64::MAX] {
            assert_eq!(place_of(position_of(place)), place, "{place:#x}");
        }
        assert_eq!(position_of(0), FIRST_POSITION);
    }
}
