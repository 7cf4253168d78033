//! Files that are open at the server.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vfs::flags::OpenFlags;
use vfs::{Error, FileKind, Result, allocation};

use crate::connection::{Call, Connection, Room};
use crate::wire::init::Flags;
use crate::wire::reply::{self, OPENED_BYTES, Opened};
use crate::wire::{Body, Decoder, opcode, open_flag};

/// What concerns only the opening.
const NOT_TOLD: OpenFlags = OpenFlags::CREATE
    .union(OpenFlags::EXCLUSIVE)
    .union(OpenFlags::NO_CONTROLLING_TERMINAL)
    .union(OpenFlags::CLOSE_ON_EXEC);

/// What the server hears of how a file is opened.
pub(super) fn told(connection: &Connection, flags: OpenFlags) -> u32 {
    let mut told = flags.difference(NOT_TOLD) | OpenFlags::LARGE_FILE;
    if !connection.flags().contains(Flags::OPEN_TRUNCATES) {
        told.remove(OpenFlags::TRUNCATE);
    }
    told.bits()
}

/// An open file. When it is dropped the server hears that it is closed.
pub(super) struct Handle {
    pub(super) connection: Arc<Connection>,
    pub(super) node: u64,
    pub(super) number: u64,
    /// See [`open_flag`].
    pub(super) flags: u32,
    /// How it was opened.
    pub(super) opened: OpenFlags,
    is_directory: bool,
    /// The server knows no open files of this kind.
    is_unknown: bool,
}

impl Handle {
    pub(super) fn new(
        connection: &Arc<Connection>,
        node: u64,
        opened: Opened,
        flags: OpenFlags,
        kind: FileKind,
    ) -> Result<Arc<Self>> {
        let is_directory = kind == FileKind::Directory;
        let release = if is_directory { opcode::RELEASE_DIRECTORY } else { opcode::RELEASE };
        let made = allocation::arc(Self {
            connection: connection.clone(),
            node,
            number: opened.handle,
            flags: opened.flags,
            opened: flags,
            is_directory,
            is_unknown: false,
        });
        made.inspect_err(|_| connection.release(release, node, opened.handle, flags.bits()))
    }

    /// Has the server open a file or directory.
    pub(super) fn open(
        connection: &Arc<Connection>,
        node: u64,
        flags: OpenFlags,
        kind: FileKind,
    ) -> Result<Arc<Self>> {
        let is_directory = kind == FileKind::Directory;
        let (opcode, optional) = if is_directory {
            (opcode::OPEN_DIRECTORY, Flags::NO_OPEN_DIRECTORY)
        } else {
            (opcode::OPEN, Flags::NO_OPEN)
        };
        let body = Body::new().u32s(&[told(connection, flags), 0]);
        let call = Call::new(opcode, node, body, Room::exactly(OPENED_BYTES));
        // The server may do without, but only if it has said that it knows of that.
        let answer = if connection.flags().contains(optional) {
            connection.call_if_known(call)
        } else {
            connection.call(call)
        };
        match answer {
            Err(Error::NotImplemented) if connection.flags().contains(optional) => allocation::arc(Self {
                connection: connection.clone(),
                node,
                number: 0,
                flags: open_flag::KEEP_CACHE,
                opened: flags,
                is_directory,
                is_unknown: true,
            }),
            answer => {
                let opened = reply::opened(&mut Decoder::new(&answer?))?;
                Self::new(connection, node, opened, flags, kind)
            }
        }
    }

    /// Reads; the answer has at most so many bytes.
    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let opcode = if self.is_directory { opcode::READ_DIRECTORY } else { opcode::READ };
        let count = u32::try_from(bytes).map_err(|_| Error::Invalid)?;
        let body = Body::new()
            .u64s(&[self.number, offset])
            .u32s(&[count, 0])
            .u64s(&[0])
            .u32s(&[told(&self.connection, self.opened), 0]);
        self.connection.call(Call::new(opcode, self.node, body, Room::up_to(bytes)))
    }

    /// What a write says.
    pub(super) fn write_body(&self, offset: u64, data: &[u8], flags: u32) -> Body {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Body::new()
            .u64s(&[self.number, offset])
            .u32s(&[count, flags])
            .u64s(&[0])
            .u32s(&[told(&self.connection, self.opened), 0])
            .bytes(data)
    }

    /// Writes; returns how many bytes.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let body = self.write_body(offset, data, 0);
        let answer = self.connection.call(Call::new(opcode::WRITE, self.node, body, Room::exactly(8)))?;
        let written = Decoder::new(&answer).u32()? as usize;
        if written > data.len() { Err(Error::Io) } else { Ok(written) }
    }

    /// Everything that was written lasts.
    pub(super) fn sync(&self, data_only: bool) -> Result<()> {
        let opcode = if self.is_directory { opcode::SYNC_DIRECTORY } else { opcode::SYNC };
        let body = Body::new().u64s(&[self.number]).u32s(&[u32::from(data_only), 0]);
        match self.connection.call_if_known(Call::new(opcode, self.node, body, Room::NONE)) {
            Ok(_) | Err(Error::NotImplemented) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.flags & open_flag::DIRECT != 0
    }

    pub(super) fn is_seekable(&self) -> bool {
        self.flags & (open_flag::NOT_SEEKABLE | open_flag::STREAM) == 0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_unknown {
            let kind = if self.is_directory { opcode::RELEASE_DIRECTORY } else { opcode::RELEASE };
            let flags = told(&self.connection, self.opened);
            self.connection.release(kind, self.node, self.number, flags);
        }
    }
}
