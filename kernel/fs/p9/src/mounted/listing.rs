//! Directories.
//!
//! # Positions
//! The server gives each entry the place from which listing goes on behind it: any number. The file layer has 0 and 1 for `.` and `..`, so two is added, except where that
//! would leave the numbers that programs know how to seek to.

use alloc::sync::Arc;

use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::{FileKind, Result, allocation};

use super::file::{File, OpenFid};
use super::node::{Node, node_of};
use crate::client::Client;
use crate::wire::{Decoder, Entry, Identity, Request, reply};

/// What is asked for at a time.
const LIST_BYTES: usize = 32 << 10;
/// Places from here on stay as they are.
const LAST_PLACES: u64 = i64::MAX as u64 - FIRST_POSITION + 1;

const fn position_of(place: u64) -> u64 {
    if place >= LAST_PLACES { place } else { place + FIRST_POSITION }
}

const fn place_of(position: u64) -> u64 {
    if position >= LAST_PLACES { position } else { position.saturating_sub(FIRST_POSITION) }
}

fn kind_of(entry: &Entry<'_>) -> FileKind {
    let by_identity = match entry.identity.kind {
        kind if kind & Identity::DIRECTORY != 0 => FileKind::Directory,
        kind if kind & Identity::SYMBOLIC_LINK != 0 => FileKind::SymbolicLink,
        _ => FileKind::Anonymous,
    };
    match entry.kind {
        0 => by_identity,
        kind => FileKind::from_mode(u32::from(kind) << 12).unwrap_or(by_identity),
    }
}

/// Opens a directory at the server.
pub(super) fn open(file: &File) -> Result<Arc<OpenFid>> {
    file.open(OpenFlags::DIRECTORY.bits())
}

/// Lists it from a position until the sink is full.
pub(super) fn list(
    client: &Client,
    open: &OpenFid,
    position: u64,
    sink: &mut dyn DirectorySink,
) -> Result<u64> {
    let mut place = place_of(position);
    let asked = LIST_BYTES.min(open.transfer_bytes);
    loop {
        let bytes = client.read(open.fid.number(), place, asked, true)?;
        let mut entries = Decoder::new(&bytes);
        let before = place;
        while let Some(entry) = reply::entry(&mut entries)? {
            let is_hidden = matches!(entry.name, b"." | b"..");
            let next = position_of(entry.next);
            if !is_hidden && !sink.entry(entry.name, entry.identity.path, kind_of(&entry), next) {
                return Ok(position_of(place));
            }
            place = entry.next;
        }
        // At the end; or a server that leads in circles.
        if bytes.is_empty() || place == before {
            return Ok(position_of(place));
        }
    }
}

/// An open directory.
pub(super) struct OpenDirectory {
    way: Arc<OpenFid>,
}

impl OpenDirectory {
    pub(super) fn open(node: &Node) -> Result<Arc<dyn FileOperations>> {
        let way = open(&node.file)?;
        let open: Arc<dyn FileOperations> = allocation::arc(Self { way })?;
        Ok(open)
    }
}

impl FileOperations for OpenDirectory {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read_directory(&self, file: &OpenFile, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        list(&node_of(file.inode())?.instance.client, &self.way, position, sink)
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let node = node_of(file.inode())?;
        node.instance.client.call(&Request::Sync { fid: self.way.fid.number(), data_only })
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
