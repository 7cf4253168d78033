//! Reading directories.
//!
//! A directory that is one layer's is read there. One that is merged is read as a whole, at its beginning, and kept by the open file until it is read from the
//! beginning again: positions are places in that list, so whoever deletes what it has listed misses nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashTable;
use vfs::dentry::Dentry;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode};
use vfs::mount::Path;
use vfs::name::hash_name;
use vfs::tree::open_place;
use vfs::{Error, FileKind, OpenFlags, Result, allocation};

use crate::node::{self, Node, find, is_whiteout};

/// A name in a list.
struct Entry {
    start: usize,
    length: u8,
    kind: FileKind,
    number: u64,
    /// It is a directory of the upper layer whose number may be that of one below.
    is_upper: bool,
    hidden: bool,
}

/// The names of a merged directory, whiteouts included.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    index: HashTable<usize>,
}

impl Names {
    fn name(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..entry.start + usize::from(entry.length)]
    }

    fn add(&mut self, name: &[u8], number: u64, kind: FileKind, is_upper: bool) -> Result<()> {
        let Self { bytes, entries, index } = self;
        let hash = u64::from(hash_name(name));
        let own = |entry: &Entry| entry.start..entry.start + usize::from(entry.length);
        if let Some(&at) = index.find(hash, |&at| &bytes[own(&entries[at])] == name) {
            let entry = &mut entries[at];
            // A merged directory shows the number of the uppermost of those below the upper layer.
            if entry.is_upper && entry.kind == FileKind::Directory && kind == entry.kind {
                entry.number = number;
                entry.is_upper = false;
            }
            return Ok(());
        }
        let length = u8::try_from(name.len()).map_err(|_| Error::NameTooLong)?;
        let start = bytes.len();
        allocation::extend(bytes, name)?;
        allocation::push(entries, Entry { start, length, kind, number, is_upper, hidden: false })?;
        let rehash = |&at: &usize| u64::from(hash_name(&bytes[own(&entries[at])]));
        index.try_reserve(1, rehash).map_err(|_| Error::OutOfMemory)?;
        index.insert_unique(hash, entries.len() - 1, rehash);
        Ok(())
    }

    /// Adds what a directory of a layer has, and finds out which of it are whiteouts.
    fn add_directory(&mut self, node: &Node, directory: &Arc<Dentry>, layer: usize) -> Result<()> {
        let first_new = self.entries.len();
        let inode = directory.existing()?;
        let is_upper = layer == 0 && node.upper().is_some();
        let mut sink = Adding { names: self, node, inode, is_upper, added: 0, outcome: Ok(()) };
        {
            let _shared = inode.lock().read();
            let mut position = FIRST_POSITION;
            loop {
                let before = sink.added;
                position = inode.operations().read_directory(inode, position, &mut sink)?;
                core::mem::replace(&mut sink.outcome, Ok(()))?;
                if sink.added == before {
                    break;
                }
            }
        }
        for at in first_new..self.entries.len() {
            if self.entries[at].kind == FileKind::CharacterDevice {
                let found = find(directory, self.name(&self.entries[at]))?;
                let inode = found.as_ref().and_then(|dentry| dentry.inode());
                self.entries[at].hidden = inode.is_none_or(|inode| is_whiteout(inode));
            }
        }
        Ok(())
    }

    /// Shows them from a position on.
    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> u64 {
        let mut next = position;
        let first = usize::try_from(position - FIRST_POSITION).unwrap_or(usize::MAX);
        for (entry, behind) in self.entries.iter().zip(FIRST_POSITION + 1..).skip(first) {
            if !entry.hidden && !sink.entry(self.name(entry), entry.number, entry.kind, behind) {
                break;
            }
            next = behind;
        }
        next
    }

    /// All names of a directory.
    fn of(node: &Node) -> Result<Self> {
        let mut names = Self::default();
        for (layer, directory) in node.directories().enumerate() {
            names.add_directory(node, directory, layer)?;
        }
        Ok(names)
    }
}

struct Adding<'a> {
    names: &'a mut Names,
    node: &'a Node,
    inode: &'a Arc<Inode>,
    is_upper: bool,
    added: usize,
    outcome: Result<()>,
}

impl DirectorySink for Adding<'_> {
    fn entry(&mut self, name: &[u8], number: u64, kind: FileKind, _next: u64) -> bool {
        let overlay = &self.node.overlay;
        let number = if self.is_upper && kind != FileKind::Directory {
            overlay.number_of_copy(self.inode.device(), number)
        } else {
            number
        };
        self.added += 1;
        let is_upper = self.is_upper && overlay.one_file_system;
        self.outcome = self.names.add(name, number, kind, is_upper);
        self.outcome.is_ok()
    }
}

/// Whether nobody sees anything in a directory.
pub(crate) fn is_empty(node: &Node) -> Result<bool> {
    Ok(Names::of(node)?.entries.iter().all(|entry| entry.hidden))
}

/// Lists a directory for who has not opened it: another overlay, which does so from front to back at once.
pub(crate) fn list(node: &Node, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
    if node.is_merged() { Ok(Names::of(node)?.list(position, sink)) } else { list_real(node, position, sink) }
}

/// Lists a directory that is one layer's.
fn list_real(node: &Node, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
    let real = node.real()?;
    let _shared = real.lock().read();
    real.operations().read_directory(real, position, sink)
}

/// An open directory.
pub(crate) struct OpenDirectory {
    inode: Arc<Inode>,
    names: sched::Mutex<Option<Names>>,
}

impl OpenDirectory {
    pub(crate) fn new(inode: &Arc<Inode>) -> Result<Self> {
        let names = match node::of(inode)?.overlay.stacked {
            0 | 1 => sched::Mutex::named("names of a merged directory", None),
            _ => sched::Mutex::named("names of a directory merged from overlays", None),
        };
        Ok(Self { inode: inode.clone(), names })
    }

    fn list(&self, node: &Node, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut names = self.names.lock();
        if position == FIRST_POSITION || names.is_none() {
            *names = Some(Names::of(node)?);
        }
        Ok(names.as_ref().map_or(position, |names| names.list(position, sink)))
    }
}

impl FileOperations for OpenDirectory {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read_directory(&self, _file: &OpenFile, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let node = node::of(&self.inode)?;
        if node.is_merged() { self.list(node, position, sink) } else { list_real(node, position, sink) }
    }

    fn sync(&self, _file: &OpenFile, data_only: bool) -> Result<()> {
        let node = node::of(&self.inode)?;
        match (node.upper(), &node.overlay.upper) {
            (Some(dentry), Some(upper)) if !upper.volatile => {
                let place: Path = upper.layer.place(dentry);
                let file = open_place(place, OpenFlags::DIRECTORY)?;
                file.operations().sync(&file, data_only)
            }
            _ => Ok(()),
        }
    }
}
