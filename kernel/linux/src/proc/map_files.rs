//! `map_files`: a link to each file that a process has mapped, named by where it is mapped.
//!
//! Who may look into the process may list and read them. To follow one needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, since a file may be mapped that nobody
//! else can come to. Mappings of memory that has no open file (shared memory of System V, what is shared without a file) are left out.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt::Write;
use core::ops::Range;

use machine::address::{PAGE_SHIFT, UserAddr};
use memory::address_space::MapBacking;
use memory::region::Region;
use vfs::generated::{Body, Directory, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{Capabilities, Error, FileKind, OpenFile, Result};

use super::descriptors;
use super::process::Subject;
use crate::exec::MappedFile;
use crate::terminal::calling_thread;

struct MappedFiles(Subject);

/// `map_files`
pub(super) fn links(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> = vfs::allocation::arc(MappedFiles(subject.clone()))?;
    Ok(directory)
}

/// The range that a name is of.
fn parse(name: &[u8]) -> Result<Range<u64>> {
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let shortest = digits == "0" || !digits.starts_with('0');
        let number = plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
        number.filter(|_| shortest).ok_or(Error::NotFound)
    };
    let (start, end) =
        core::str::from_utf8(name).ok().and_then(|name| name.split_once('-')).ok_or(Error::NotFound)?;
    Ok(number(start)?..number(end)?)
}

fn file_of(region: &Region) -> Option<Arc<OpenFile>> {
    let MapBacking::File(mapping) = region.backing() else { return None };
    let any: &dyn Any = &**mapping.object()?;
    any.downcast_ref::<MappedFile>().map(|mapped| mapped.file().clone())
}

/// The first region from an address on that is of a file.
fn next(subject: &Subject, address: u64) -> Result<Option<(Region, Arc<OpenFile>)>> {
    subject.inspect(|| {
        let Some(space) = subject.process()?.address_space() else { return Ok(None) };
        let mut address = address;
        while let Some(region) = space.region_at_or_after(UserAddr::new(address)) {
            if let Some(file) = file_of(&region) {
                return Ok(Some((region, file)));
            }
            address = region.end();
        }
        Ok(None)
    })
}

/// What is mapped at just that range.
fn exactly(subject: &Subject, range: &Range<u64>) -> Result<(Region, Arc<OpenFile>)> {
    let found = next(subject, range.start)?;
    found.filter(|(region, _)| (region.start()..region.end()) == *range).ok_or(Error::NotFound)
}

impl MappedFiles {
    fn number(&self, region: &Region, file: &OpenFile) -> Result<u64> {
        self.0.part_number("map_files", file.id() << 32 ^ region.start() >> PAGE_SHIFT ^ region.end() << 8)
    }
}

impl Directory for MappedFiles {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let range = parse(name)?;
        let (region, file) = exactly(&self.0, &range)?;
        // As the file was opened, not as it is mapped.
        let mut mode = 0;
        if file.check_readable().is_ok() {
            mode |= 0o400;
        }
        if file.flags().writable() {
            mode |= 0o200;
        }
        let link = MappedFileLink { subject: self.0.clone(), range };
        let (user, group) = self.0.owner();
        let node = Node::new(mode, Body::Link(vfs::allocation::arc(link)?));
        Ok(node.owned(self.number(&region, &file)?, user, group))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        // The position after a mapping is the page after its first: others may come and go.
        let mut after = position;
        while let Some((region, file)) = next(&self.0, (after - FIRST_POSITION) << PAGE_SHIFT)? {
            let first = region.start() >> PAGE_SHIFT;
            if first < after - FIRST_POSITION {
                // Its beginning was listed before.
                after = (region.end() >> PAGE_SHIFT) + FIRST_POSITION;
                continue;
            }
            let mut name = Text::new();
            let _ = write!(name, "{:x}-{:x}", region.start(), region.end());
            let behind = first + 1 + FIRST_POSITION;
            let number = self.number(&region, &file)?;
            if !sink.entry(&name.finish()?, number, FileKind::SymbolicLink, behind) {
                break;
            }
            after = behind;
        }
        Ok(after)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        let current = || {
            let (region, file) = exactly(&self.0, &parse(name)?)?;
            self.number(&region, &file)
        };
        current() == Ok(number)
    }

    fn owner(&self) -> Option<(u32, u32)> {
        Some(self.0.process_owner())
    }
}

struct MappedFileLink {
    subject: Subject,
    range: Range<u64>,
}

impl MappedFileLink {
    fn file(&self) -> Result<Arc<OpenFile>> {
        exactly(&self.subject, &self.range).map(|(_, file)| file)
    }
}

impl Link for MappedFileLink {
    /// As much as Linux says of each.
    fn size(&self) -> u64 {
        64
    }

    fn target(&self) -> Result<LinkTarget> {
        let may = calling_thread().is_none_or(|thread| {
            let credentials = thread.credentials();
            credentials.has(Capabilities::SYS_ADMIN) || credentials.has(Capabilities::CHECKPOINT_RESTORE)
        });
        if !may {
            return Err(Error::NotPermitted);
        }
        Ok(LinkTarget::Jump(self.file()?.path_or_detached()?))
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        descriptors::name_of(&*self.file()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_two_plain_hexadecimal_numbers() {
        assert_eq!(parse(b"1000-7fff0000"), Ok(0x1000..0x7fff_0000));
        assert_eq!(parse(b"0-1000"), Ok(0..0x1000));
        for name in
            [&b"01000-2000"[..], b"1000", b"1000-", b"-2000", b"1000-2G00", b"A000-B000", b"+1-2", b"1-2-3"]
        {
            assert_eq!(parse(name), Err(Error::NotFound));
        }
    }
}
