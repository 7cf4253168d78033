//! Directories whose entries are computed when they are looked at.
//!
//! What something is called decides its inode number, so that a file has the same number each time. What belongs to a device that can
//! be taken out has the device's identity in its number too: a device that comes back has the name of the one that went, and an entry
//! that is kept of the old one must not be taken for it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use device::model::Identity;
use vfs::allocation;
use vfs::generated::{Body, Directory, File, Node, knob, text_file};
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::text::Text;
use vfs::{Error, Result};

/// The entries of a directory, as they are made.
pub(crate) struct Entries {
    path: String,
    entries: Vec<(String, Node)>,
}

/// What has entries now. Fails when it is gone.
pub(crate) type Fill = dyn Fn(&mut Entries) -> Result<()> + Send + Sync;

/// A number for a name in a directory: of 62 bits, far away from those of nodes that are made once.
fn number(path: &str, name: &str) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let bytes = path.bytes().chain([b'/']).chain(name.bytes());
    let hash = bytes.fold(START, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    1 << 61 | hash >> 3
}

impl Entries {
    fn add(&mut self, name: &str, mode: u32, body: Body) -> Result<()> {
        self.add_numbered(number(&self.path, name), name, mode, body)
    }

    fn add_numbered(&mut self, number: u64, name: &str, mode: u32, body: Body) -> Result<()> {
        let node = Node { number, mode, user: 0, group: 0, body };
        allocation::push(&mut self.entries, (name.into(), node))
    }

    /// A file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, file: Arc<dyn File>) -> Result<()> {
        self.add(name, mode, Body::File(file))
    }

    /// A file of a device.
    pub(crate) fn file_of(
        &mut self,
        identity: Identity,
        name: &str,
        mode: u32,
        file: Arc<dyn File>,
    ) -> Result<()> {
        self.add_numbered(number(&path_of(&self.path, name, identity), ""), name, mode, Body::File(file))
    }

    /// A file with a line of text for everybody.
    pub(crate) fn line(
        &mut self,
        name: &str,
        show: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static,
    ) -> Result<()> {
        let file = text_file(move |out| {
            // A text remembers when memory ran out.
            let _ = show(out).and_then(|()| out.write_str("\n"));
            Ok(())
        })?;
        self.file(name, 0o444, file)
    }

    /// A file that only takes.
    pub(crate) fn switch(
        &mut self,
        name: &str,
        store: impl Fn(&str) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let file = knob(|_| Err(Error::Io), move |bytes| store(text_of(bytes)?))?;
        self.file(name, 0o200, file)
    }

    /// A file with a line of text that root may change.
    pub(crate) fn setting(
        &mut self,
        name: &str,
        show: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static,
        store: impl Fn(&str) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let show = move |out: &mut Text| {
            let _ = show(out).and_then(|()| out.write_str("\n"));
            Ok(())
        };
        let file = knob(show, move |bytes| store(text_of(bytes)?))?;
        self.file(name, 0o644, file)
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: String) -> Result<()> {
        let link = move || allocation::arc_bytes(target.as_bytes());
        self.add(name, 0o777, Body::Link(allocation::arc(link)?))
    }

    /// A directory.
    pub(crate) fn directory(
        &mut self,
        name: &str,
        fill: impl Fn(&mut Entries) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let path = alloc::format!("{}/{name}", self.path);
        self.add(name, 0o755, Body::Directory(Contents::new(path, fill)?))
    }

    /// The directory of a device, or of anything else that can go and come back.
    pub(crate) fn directory_of(
        &mut self,
        identity: Identity,
        name: &str,
        fill: impl Fn(&mut Entries) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let path = path_of(&self.path, name, identity);
        let number = number(&path, "");
        self.add_numbered(number, name, 0o755, Body::Directory(Contents::new(path, fill)?))
    }
}

/// What decides the numbers of a device's files.
fn path_of(directory: &str, name: &str, identity: Identity) -> String {
    alloc::format!("{directory}/{name}#{}", identity.number())
}

/// What was written, without the blanks around it.
fn text_of(bytes: &[u8]) -> Result<&str> {
    core::str::from_utf8(bytes).map(str::trim).map_err(|_| Error::Invalid)
}

/// A directory whose entries are computed.
pub(crate) struct Contents {
    path: String,
    fill: alloc::boxed::Box<Fill>,
}

impl Contents {
    /// The directory at a path, which only decides inode numbers.
    pub(crate) fn new(
        path: String,
        fill: impl Fn(&mut Entries) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        allocation::arc(Self { path, fill: allocation::boxed(fill)? })
    }

    fn entries(&self) -> Result<Vec<(String, Node)>> {
        let mut entries = Entries { path: self.path.clone(), entries: Vec::new() };
        (self.fill)(&mut entries)?;
        Ok(entries.entries)
    }
}

/// Positions are inode numbers' order, so that what comes and goes while a program lists moves nothing else.
impl Directory for Contents {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let found = self.entries()?.into_iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, node)| node).ok_or(Error::NotFound)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut entries = self.entries()?;
        sorting::sort_by_key(&mut entries, |(_, node)| node.number);
        let place = |node: &Node| node.number + FIRST_POSITION;
        let mut next = position;
        for (name, node) in entries.iter().filter(|(_, node)| place(node) >= position) {
            if !sink.entry(name.as_bytes(), node.number, node.kind(), place(node) + 1) {
                return Ok(next);
            }
            next = place(node) + 1;
        }
        Ok(next)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        self.entries().is_ok_and(|entries| {
            entries.iter().any(|(known, node)| node.number == number && known.as_bytes() == name)
        })
    }
}
