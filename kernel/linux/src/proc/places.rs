//! Links to places: `cwd`, `root`, `exe`, and the files of `fd`; and the names in `ns`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vfs::generated::{Body, Directory, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{Error, FileKind, Path, Result};

use super::process::Subject;
use crate::name_space::{self, ENTRIES, Kind};
use crate::process::thread::Thread;

/// Appends the path of a place as the reader sees it, ` (deleted)` behind it when its name is gone.
pub(super) fn write_path(place: &Path, out: &mut Text) -> Result<()> {
    let mut bytes = Vec::new();
    place.write_as_seen(&mut bytes)?;
    out.push_bytes(&bytes);
    Ok(())
}

/// `cwd`
pub(super) fn current_directory(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().cwd.clone())
}

/// `root`
pub(super) fn root(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().root.clone())
}

/// `exe`
pub(super) fn executable(subject: &Subject) -> Result<Path> {
    subject.process()?.executable.lock().file.clone().ok_or(Error::NotFound)
}

/// A link that jumps to a place of the process.
pub(super) struct PlaceLink {
    pub(super) subject: Subject,
    pub(super) place: fn(&Subject) -> Result<Path>,
}

impl PlaceLink {
    fn place(&self) -> Result<Path> {
        self.subject.inspect(|| (self.place)(&self.subject))
    }
}

impl Link for PlaceLink {
    fn target(&self) -> Result<LinkTarget> {
        self.place().map(LinkTarget::Jump)
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        let mut text = Text::new();
        write_path(&self.place()?, &mut text)?;
        vfs::allocation::arc_bytes(&text.finish()?)
    }
}

/// The directory `ns`.
struct NameSpaces(Subject);

/// `ns`
pub(super) fn name_spaces(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> = vfs::allocation::arc(NameSpaces(subject.clone()))?;
    Ok(directory)
}

/// A link to the file of a name space.
struct NameSpaceLink {
    subject: Subject,
    kind: Kind,
}

impl NameSpaceLink {
    /// As Linux says it: a zombie is in none, and of what is gone nobody may know.
    fn look<T>(&self, look: impl Fn(&Thread, Kind) -> Result<T>) -> Result<T> {
        let looked = || look(&*self.subject.thread().map_err(|_| Error::NotFound)?, self.kind);
        self.subject.inspect(looked).map_err(|error| match error {
            Error::NoProcess => Error::AccessDenied,
            other => other,
        })
    }
}

impl Link for NameSpaceLink {
    fn target(&self) -> Result<LinkTarget> {
        self.look(name_space::place_of).map(LinkTarget::Jump)
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        vfs::allocation::arc_bytes(&self.look(name_space::name_of)?)
    }
}

impl Directory for NameSpaces {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let index = ENTRIES.iter().position(|entry| entry.0.as_bytes() == name).ok_or(Error::NotFound)?;
        let link = NameSpaceLink { subject: self.0.clone(), kind: ENTRIES[index].1 };
        let (user, group) = self.0.owner();
        let node = Node::new(0o777, Body::Link(vfs::allocation::arc(link)?));
        Ok(node.owned(self.0.part_number("ns", index as u64)?, user, group))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        for (index, (name, _)) in ENTRIES.iter().enumerate().skip((position - FIRST_POSITION) as usize) {
            let number = self.0.part_number("ns", index as u64)?;
            if !sink.entry(name.as_bytes(), number, FileKind::SymbolicLink, next + 1) {
                break;
            }
            next += 1;
        }
        Ok(next)
    }

    fn still_valid(&self, _name: &[u8], _number: u64) -> bool {
        self.0.process().is_ok()
    }
}
