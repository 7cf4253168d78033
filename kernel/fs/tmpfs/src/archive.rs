//! Unpacking a `cpio` archive (formats `newc` and `crc`) into a directory: the initramfs.
//!
//! # Format
//! Each member: a header of 110 bytes (magic `070701` or `070702`, then 13 fields of 8 hexadecimal digits), the name with
//! a NUL, padding to 4 bytes, the data, padding to 4 bytes. A member named `TRAILER!!!` ends an archive; after any number
//! of zero bytes another may follow. Names of one inode are hard links; the data is with one of them, usually the last.
//!
//! # Memory
//! Data that begins on a page boundary of the archive is not copied: the archive's own frames become the file's pages.
//! Everything else is copied, and its frames are given back at the end.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::address::{PAGE_SIZE, PhysAddr};
use memory::buffer::Source;
use memory::frame::{self, Frame, Purpose};
use vfs::attributes::{DeviceNumber, FileKind, MODE_MASK, Timestamp};
use vfs::inode::{Inode, NewFile};
use vfs::name::{Name, PATH_MAX};
use vfs::{Error, Result, allocation};

/// Bytes of a header.
const HEADER_BYTES: usize = 110;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = PAGE_SIZE;
/// Bytes that are looked at first where padding may be.
const FEW_BYTES: usize = 8;
/// Symbolic links' targets beyond this are refused.
const TARGET_MAX: u64 = PATH_MAX as u64 - 1;

/// Where an archive's bytes are.
pub trait ArchiveSource {
    /// Bytes altogether.
    fn length(&self) -> u64;
    /// Copies bytes out; the range is within the archive.
    fn read(&self, offset: u64, into: &mut [u8]);
    /// The frame that holds the page at `offset`, to be taken over; `None` when it can't be.
    fn take_frame(&self, offset: u64) -> Option<Frame>;
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Members made.
    pub members: usize,
    /// Pages that were taken over without copying.
    pub adopted_pages: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
}

struct Header {
    device: u64,
    inode: u64,
    mode: u32,
    user: u32,
    group: u32,
    links: u32,
    modified: u32,
    size: u64,
    special: DeviceNumber,
    name_bytes: u64,
}

impl Header {
    /// Parses a header; `EINVAL` when it is none.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        if &bytes[..6] != b"070701" && &bytes[..6] != b"070702" {
            return Err(Error::Invalid);
        }
        let mut fields = [0u32; 13];
        for (field, digits) in fields.iter_mut().zip(bytes[6..].chunks_exact(8)) {
            for &digit in digits {
                let value = char::from(digit).to_digit(16).ok_or(Error::Invalid)?;
                *field = *field << 4 | value;
            }
        }
        let [
            inode,
            mode,
            user,
            group,
            links,
            modified,
            size,
            major,
            minor,
            special_major,
            special_minor,
            name,
            _,
        ] = fields;
        Ok(Self {
            device: u64::from(major) << 32 | u64::from(minor),
            inode: inode.into(),
            mode,
            user,
            group,
            links,
            modified,
            size: size.into(),
            special: DeviceNumber::new(special_major, special_minor),
            name_bytes: name.into(),
        })
    }
}

/// A member that is a message to who unpacks: it becomes no file.
pub struct SetAside<'a> {
    /// Its path, without a slash at the beginning.
    pub path: &'a [u8],
    /// More bytes than this are refused with `E2BIG`.
    pub bytes_max: u64,
    /// Its bytes, when it was there; the last of several counts.
    pub bytes: Option<Vec<u8>>,
}

/// Unpacks archives into `root`, which is of a `tmpfs`.
pub fn unpack(root: &Arc<Inode>, source: &dyn ArchiveSource) -> Result<Unpacked> {
    unpack_except(root, source, &mut SetAside { path: b"", bytes_max: 0, bytes: None })
}

/// Unpacks archives into `root`, which is of a `tmpfs`, all but one member.
pub fn unpack_except(
    root: &Arc<Inode>,
    source: &dyn ArchiveSource,
    aside: &mut SetAside<'_>,
) -> Result<Unpacked> {
    let mut unpacker = Unpacker {
        root,
        source,
        aside,
        links: Vec::new(),
        recent: None,
        outcome: Unpacked::default(),
        buffer: allocation::filled(0, COPY_BYTES)?,
    };
    let mut offset = 0;
    while let Some(start) = unpacker.skip_zeros(offset) {
        offset = unpacker.member(start)?;
    }
    Ok(unpacker.outcome)
}

/// The directory that the last member was in, so that its neighbours need no walk.
struct Recent {
    path: Vec<u8>,
    directory: Arc<Inode>,
}

struct Unpacker<'a, 'b> {
    root: &'a Arc<Inode>,
    source: &'a dyn ArchiveSource,
    aside: &'a mut SetAside<'b>,
    /// Inodes with several names: (device, inode) of the archive, and ours.
    links: Vec<(u64, u64, Arc<Inode>)>,
    recent: Option<Recent>,
    outcome: Unpacked,
    buffer: Vec<u8>,
}

impl Unpacker<'_, '_> {
    /// The next byte that is not padding. There is none between most members, so a few bytes are looked at first.
    fn skip_zeros(&mut self, mut offset: u64) -> Option<u64> {
        let length = self.source.length();
        let mut chunk = FEW_BYTES;
        while offset < length {
            let count = (length - offset).min(chunk as u64) as usize;
            self.source.read(offset, &mut self.buffer[..count]);
            if let Some(index) = self.buffer[..count].iter().position(|&byte| byte != 0) {
                return Some(offset + index as u64);
            }
            offset += count as u64;
            chunk = COPY_BYTES;
        }
        None
    }

    /// Unpacks one member; returns where the next begins.
    fn member(&mut self, start: u64) -> Result<u64> {
        let length = self.source.length();
        let mut bytes = [0; HEADER_BYTES];
        let name_start = start + HEADER_BYTES as u64;
        if name_start > length {
            return Err(Error::Invalid);
        }
        self.source.read(start, &mut bytes);
        let header = Header::parse(&bytes)?;
        // Names may be padded with zeros, so that the data begins on a page boundary.
        if header.name_bytes == 0 || header.name_bytes > (PATH_MAX + PAGE_SIZE) as u64 {
            return Err(Error::NameTooLong);
        }
        let data = (name_start + header.name_bytes).next_multiple_of(4);
        let end = data + header.size;
        if name_start + header.name_bytes > length || end > length {
            return Err(Error::Invalid);
        }
        let mut path = allocation::filled(0u8, header.name_bytes as usize - 1)?;
        self.source.read(name_start, &mut path);
        let end_of_name = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
        path.truncate(end_of_name);
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        if path == b"TRAILER!!!" {
            self.links.clear();
        } else {
            self.unpack_member(&path, &header, data)?;
        }
        Ok(end.next_multiple_of(4))
    }

    /// A name is refused that could lead out of the directory; the rest is taken as relative to it.
    fn unpack_member(&mut self, path: &[u8], header: &Header, data: u64) -> Result<()> {
        let parts = || path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        if parts().any(|part| part == b"..") {
            return Err(Error::Invalid);
        }
        let Some(last) = parts().next_back() else {
            // The root itself: its attributes.
            self.set_attributes(&self.root.clone(), header);
            return Ok(());
        };
        if parts().eq(self.aside.path.split(|&byte| byte == b'/')) {
            return self.set_aside(header, data);
        }
        let above = path.len() - path.iter().rev().take_while(|&&byte| byte == b'/').count() - last.len();
        let directory = self.directory_of(&path[..above])?;
        let name = Name::new(last)?;
        self.outcome.members += 1;
        let inode = self.make(&directory, &name, header, data)?;
        if inode.kind == FileKind::Regular && header.size > 0 {
            self.fill(&inode, data, header.size)?;
        }
        self.set_attributes(&inode, header);
        Ok(())
    }

    fn set_aside(&mut self, header: &Header, data: u64) -> Result<()> {
        if header.size > self.aside.bytes_max {
            return Err(Error::TooBig);
        }
        let mut bytes = allocation::filled(0, header.size as usize)?;
        self.source.read(data, &mut bytes);
        self.aside.bytes = Some(bytes);
        Ok(())
    }

    /// The directory with this path; what is missing is made.
    fn directory_of(&mut self, path: &[u8]) -> Result<Arc<Inode>> {
        if let Some(recent) = self.recent.as_ref().filter(|recent| recent.path == path) {
            return Ok(recent.directory.clone());
        }
        let mut directory = self.root.clone();
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
            directory = match directory.operations().lookup(&directory, part) {
                Ok(found) if found.kind == FileKind::Directory => found,
                Ok(_) => return Err(Error::NotDirectory),
                Err(Error::NotFound) => {
                    let new = new_file(FileKind::Directory, 0o755, 0, 0);
                    directory.operations().create(&directory, &Name::new(part)?, &new)?
                }
                Err(error) => return Err(error),
            };
        }
        let mut copy = Vec::new();
        allocation::extend(&mut copy, path)?;
        self.recent = Some(Recent { path: copy, directory: directory.clone() });
        Ok(directory)
    }

    /// The inode of a member: a further name of a known one, an existing directory, or a new one.
    fn make(
        &mut self,
        directory: &Arc<Inode>,
        name: &Name,
        header: &Header,
        data: u64,
    ) -> Result<Arc<Inode>> {
        let kind = FileKind::from_mode(header.mode).ok_or(Error::Invalid)?;
        let operations = directory.operations();
        if let Ok(existing) = operations.lookup(directory, name.as_bytes()) {
            if existing.kind == FileKind::Directory {
                return if kind == FileKind::Directory { Ok(existing) } else { Err(Error::IsDirectory) };
            }
            operations.unlink(directory, name.as_bytes(), &existing)?;
        }
        let shares = header.links > 1 && kind != FileKind::Directory;
        if shares {
            let known = self
                .links
                .iter()
                .find(|(device, inode, _)| (*device, *inode) == (header.device, header.inode));
            if let Some((_, _, inode)) = known {
                operations.link(directory, name, inode)?;
                return Ok(inode.clone());
            }
        }
        let mut target = Vec::new();
        if kind == FileKind::SymbolicLink {
            if header.size == 0 || header.size > TARGET_MAX {
                return Err(Error::Invalid);
            }
            target = allocation::filled(0u8, header.size as usize)?;
            self.source.read(data, &mut target);
        }
        let new = NewFile {
            special: header.special,
            target: &target,
            ..new_file(kind, header.mode & MODE_MASK, header.user, header.group)
        };
        let inode = operations.create(directory, name, &new)?;
        if shares {
            allocation::push(&mut self.links, (header.device, header.inode, inode.clone()))?;
        }
        Ok(inode)
    }

    /// Brings a file's bytes in: whole pages by taking frames over where the archive has them aligned.
    fn fill(&mut self, inode: &Arc<Inode>, data: u64, size: u64) -> Result<()> {
        let cache = inode.operations().cache().ok_or(Error::Io)?;
        cache.truncate(0)?;
        let page = PAGE_SIZE as u64;
        let mut done = 0;
        if data.is_multiple_of(page) && size >= page {
            let mut frames = Vec::new();
            allocation::reserve(&mut frames, (size / page) as usize)?;
            while done + page <= size {
                let Some(frame) = self.source.take_frame(data + done) else { break };
                frames.push(frame);
                done += page;
            }
            self.outcome.adopted_pages += frames.len() as u64;
            cache.adopt(done, frames)?;
        }
        while done < size {
            let count = (size - done).min(COPY_BYTES as u64) as usize;
            self.source.read(data + done, &mut self.buffer[..count]);
            let written = cache.write_at(done, &mut Source::kernel(&self.buffer[..count]))?;
            if written == 0 {
                return Err(Error::NoSpace);
            }
            done += written as u64;
            self.outcome.copied_bytes += written as u64;
        }
        inode.set_size(size);
        Ok(())
    }

    fn set_attributes(&self, inode: &Arc<Inode>, header: &Header) {
        inode.set_mode(header.mode);
        inode.set_owner(header.user, header.group);
        let time = Timestamp { seconds: header.modified.into(), nanoseconds: 0 };
        inode.accessed().set(time);
        inode.modified().set(time);
    }
}

const fn new_file(kind: FileKind, mode: u32, user: u32, group: u32) -> NewFile<'static> {
    NewFile { kind, mode, user, group, special: DeviceNumber::new(0, 0), target: &[] }
}

/// The initramfs that the boot loader put into memory.
pub struct BootArchive {
    start: PhysAddr,
    length: u64,
}

impl BootArchive {
    /// The initramfs, if there is one.
    pub fn new() -> Option<Self> {
        let range = machine::boot::info().initramfs?;
        Some(Self { start: range.start, length: range.end.as_u64() - range.start.as_u64() })
    }

    /// Gives all memory back that no file took over. Call it once, after unpacking.
    pub fn release(self) {
        let mut address = self.start.page_floor().as_u64();
        while address < self.start.as_u64() + self.length {
            drop(frame::from_boot(PhysAddr::new(address), Purpose::Kernel));
            address += PAGE_SIZE as u64;
        }
    }
}

impl ArchiveSource for BootArchive {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        machine::boot::read_initramfs(offset, into);
    }

    fn take_frame(&self, offset: u64) -> Option<Frame> {
        let address = self.start.as_u64() + offset;
        if !address.is_multiple_of(PAGE_SIZE as u64) {
            return None;
        }
        frame::from_boot(PhysAddr::new(address), Purpose::Shmem)
    }
}
