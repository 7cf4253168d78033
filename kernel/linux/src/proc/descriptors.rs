//! `fd` and `fdinfo`: the open files of a process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use vfs::generated::{Body, Directory, File, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{DescriptorTable, Error, FileKind, OpenFile, Result};

use super::process::Subject;

/// The directory of links, or of descriptions.
struct Descriptors {
    subject: Subject,
    links: bool,
}

/// `fd`
pub(super) fn links(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> =
        vfs::allocation::arc(Descriptors { subject: subject.clone(), links: true })?;
    Ok(directory)
}

/// `fdinfo`
pub(super) fn information(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> =
        vfs::allocation::arc(Descriptors { subject: subject.clone(), links: false })?;
    Ok(directory)
}

fn parse(name: &[u8]) -> Result<u32> {
    core::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(Error::NotFound)
}

impl Descriptors {
    fn table(&self) -> Result<Arc<DescriptorTable>> {
        self.subject.check_access()?;
        self.subject.thread()?.files().ok_or(Error::NotFound)
    }
}

/// Numbers of the nodes: apart from those of the process's own entries.
fn number_of(descriptor: u32, links: bool) -> u64 {
    (1 << 50) + (u64::from(descriptor) << 1) + u64::from(links)
}

impl Directory for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let descriptor = parse(name)?;
        let file = self.table()?.get(descriptor).map_err(|_| Error::NotFound)?;
        let subject = self.subject.clone();
        let node = match self.links {
            true => {
                let flags = file.flags();
                let mut mode = 0o100;
                if file.check_readable().is_ok() {
                    mode |= 0o400;
                }
                if flags.writable() {
                    mode |= 0o200;
                }
                Node::new(mode, Body::Link(vfs::allocation::arc(DescriptorLink { subject, descriptor })?))
            }
            false => Node::file(0o444, vfs::allocation::arc(Information { subject, descriptor })?),
        };
        Ok(node.owned(number_of(descriptor, self.links), 0, 0))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let table = self.table()?;
        let kind = if self.links { FileKind::SymbolicLink } else { FileKind::Regular };
        let mut next = position;
        while let Some(descriptor) = table.next_open((next - FIRST_POSITION) as u32) {
            let name = alloc::format!("{descriptor}");
            let after = u64::from(descriptor) + 1 + FIRST_POSITION;
            if !sink.entry(name.as_bytes(), number_of(descriptor, self.links), kind, after) {
                break;
            }
            next = after;
        }
        Ok(next)
    }

    fn still_valid(&self, name: &[u8], _number: u64) -> bool {
        parse(name).is_ok_and(|descriptor| self.table().is_ok_and(|table| table.get(descriptor).is_ok()))
    }
}

struct DescriptorLink {
    subject: Subject,
    descriptor: u32,
}

impl DescriptorLink {
    fn file(&self) -> Result<Arc<OpenFile>> {
        self.subject.check_access()?;
        let table = self.subject.thread()?.files().ok_or(Error::NotFound)?;
        table.get(self.descriptor).map_err(|_| Error::NotFound)
    }
}

impl Link for DescriptorLink {
    fn target(&self) -> Result<LinkTarget> {
        Ok(LinkTarget::Jump(self.file()?.path_or_detached()?))
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        let mut name = Vec::new();
        self.file()?.write_name(&mut name)?;
        vfs::allocation::arc_bytes(&name)
    }
}

struct Information {
    subject: Subject,
    descriptor: u32,
}

impl File for Information {
    fn show(&self, out: &mut Text) -> Result<()> {
        self.subject.check_access()?;
        let table = self.subject.thread()?.files().ok_or(Error::NotFound)?;
        let file = table.get(self.descriptor).map_err(|_| Error::NotFound)?;
        let close_on_exec = table.flags(self.descriptor)?.contains(vfs::DescriptorFlags::CLOSE_ON_EXEC);
        let mut flags = file.flags();
        flags.set(vfs::OpenFlags::CLOSE_ON_EXEC, close_on_exec);
        let mount = file.path().map_or(0, |path| path.mount.id());
        let _ = write!(
            out,
            "pos:\t{}\nflags:\t0{:o}\nmnt_id:\t{mount}\nino:\t{}\n",
            file.position(),
            flags.bits(),
            file.status().inode,
        );
        let _ = file.operations().information(&file, out);
        Ok(())
    }
}
