//! `fd` and `fdinfo`: the open files of a process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use vfs::generated::{Body, Directory, File, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{DescriptorTable, Error, FileKind, OpenFile, Result};

use super::places;
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

/// A decimal number as it is listed: without sign and leading zeros.
fn parse(name: &[u8]) -> Result<u32> {
    if name.first().is_none_or(|&first| !first.is_ascii_digit() || first == b'0' && name.len() > 1) {
        return Err(Error::NotFound);
    }
    core::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(Error::NotFound)
}

fn table_of(subject: &Subject) -> Result<Arc<DescriptorTable>> {
    subject.thread()?.files().ok_or(Error::NotFound)
}

/// An open file of the process, if the caller may look into it.
fn file_of(subject: &Subject, descriptor: u32) -> Result<Arc<OpenFile>> {
    subject.inspect(|| table_of(subject)?.get(descriptor).map_err(|_| Error::NotFound))
}

impl Descriptors {
    fn file(&self, descriptor: u32) -> Result<Arc<OpenFile>> {
        file_of(&self.subject, descriptor)
    }

    /// The inode number of a descriptor's node: another one when the descriptor becomes another file.
    fn number_of(&self, descriptor: u32, file: &OpenFile) -> Result<u64> {
        let directory = if self.links { "fd" } else { "fdinfo" };
        self.subject.part_number(directory, file.id() << 32 | u64::from(descriptor))
    }
}

impl Directory for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let descriptor = parse(name)?;
        let file = self.file(descriptor)?;
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
        let (user, group) = self.subject.owner();
        Ok(node.owned(self.number_of(descriptor, &file)?, user, group))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let table = self.subject.inspect(|| table_of(&self.subject))?;
        let kind = if self.links { FileKind::SymbolicLink } else { FileKind::Regular };
        let mut next = position;
        while let Some(descriptor) = table.next_open((next - FIRST_POSITION) as u32) {
            let after = u64::from(descriptor) + 1 + FIRST_POSITION;
            // Closed meanwhile: the next one is as good.
            if let Ok(file) = self.file(descriptor) {
                let mut buffer = [0; 10];
                let name = vfs::text::digits(descriptor, &mut buffer);
                if !sink.entry(name, self.number_of(descriptor, &file)?, kind, after) {
                    break;
                }
            }
            next = after;
        }
        Ok(next)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        let current = || -> Result<u64> {
            let descriptor = parse(name)?;
            self.number_of(descriptor, &*self.file(descriptor)?)
        };
        current().is_ok_and(|current| current == number)
    }

    fn owner(&self) -> Option<(u32, u32)> {
        Some(self.subject.process_owner())
    }
}

struct DescriptorLink {
    subject: Subject,
    descriptor: u32,
}

impl DescriptorLink {
    fn file(&self) -> Result<Arc<OpenFile>> {
        file_of(&self.subject, self.descriptor)
    }
}

impl Link for DescriptorLink {
    /// As much as Linux says of each.
    fn size(&self) -> u64 {
        64
    }

    fn target(&self) -> Result<LinkTarget> {
        Ok(LinkTarget::Jump(self.file()?.path_or_detached()?))
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        name_of(&*self.file()?)
    }
}

/// What a link to an open file reads.
pub(super) fn name_of(file: &OpenFile) -> Result<Arc<[u8]>> {
    let mut name = Vec::new();
    match file.path() {
        Some(path) => {
            let mut text = Text::new();
            places::write_path(path, &mut text)?;
            name = text.finish()?;
        }
        None => file.write_name(&mut name)?,
    }
    vfs::allocation::arc_bytes(&name)
}

struct Information {
    subject: Subject,
    descriptor: u32,
}

impl File for Information {
    fn show(&self, out: &mut Text) -> Result<()> {
        let (file, table, close_on_exec) = self.subject.inspect(|| {
            let table = table_of(&self.subject)?;
            let file = table.get(self.descriptor).map_err(|_| Error::NotFound)?;
            let flags = table.flags(self.descriptor)?;
            Ok((file, table.id(), flags.contains(vfs::DescriptorFlags::CLOSE_ON_EXEC)))
        })?;
        let mut flags = file.flags();
        flags.set(vfs::OpenFlags::CLOSE_ON_EXEC, close_on_exec);
        let mount = file.path_or_detached()?.mount.id();
        let _ = write!(
            out,
            "pos:\t{}\nflags:\t0{:o}\nmnt_id:\t{mount}\nino:\t{}\n",
            file.position(),
            flags.bits(),
            file.status().inode,
        );
        super::locks::of_file(&file, table, out);
        let _ = file.operations().information(&file, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_named_by_plain_numbers() {
        assert_eq!(parse(b"0"), Ok(0));
        assert_eq!(parse(b"17"), Ok(17));
        for name in [&b"017"[..], b"", b"+1", b"-1", b"1 ", b"4294967296"] {
            assert_eq!(parse(name), Err(Error::NotFound));
        }
    }
}
