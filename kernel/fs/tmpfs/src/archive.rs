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
use vfs::inode::{Identity, Inode, NewFile};
use vfs::name::{Name, PATH_MAX};
use vfs::{Error, Result, allocation};

/// Bytes of a header.
const HEADER_BYTES: usize = 110;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = PAGE_SIZE;
/// Bytes that are read at a time where padding may be.
const FEW_BYTES: usize = 64;
/// Bytes that are read of every member: the header, and a name of usual length.
const HEAD_BYTES: usize = 160;
/// The name that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
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
        let mut wrong = 0;
        for (field, digits) in fields.iter_mut().zip(bytes[6..].as_chunks::<8>().0) {
            *field = hexadecimal(*digits, &mut wrong);
        }
        if wrong != 0 {
            return Err(Error::Invalid);
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

/// The value of eight hexadecimal digits, all of them at a time: an archive has a hundred of them for each member. Sets bits in
/// `wrong` when one is none.
#[inline(always)]
fn hexadecimal(digits: [u8; 8], wrong: &mut u64) -> u32 {
    /// The same value for each of the eight bytes.
    const fn each(byte: u8) -> u64 {
        u64::from_be_bytes([byte; 8])
    }
    let text = u64::from_be_bytes(digits);
    let low = text & each(0x0f);
    let high = text >> 4 & each(0x0f);
    // 1 in the bytes of letters, and all their bits. No sum below goes beyond its byte.
    let letters = text >> 6 & each(1);
    let mask = letters * 0xff;
    // '0' to '9' are 0x30 to 0x39.
    let no_digit = (high ^ each(3)) | (low + each(6)) & each(0x10);
    // 'A' to 'F' are 0x41 to 0x46, 'a' to 'f' are 0x61 to 0x66.
    let no_letter = (high & each(0xd) ^ each(4)) | ((low + each(9)) | !(low + each(15))) & each(0x10);
    *wrong |= (no_digit & !mask) | (no_letter & mask);
    let value = low + letters * 9;
    let value = (value | value >> 4) & 0x00ff_00ff_00ff_00ff;
    let value = (value | value >> 8) & 0x0000_ffff_0000_ffff;
    (value | value >> 16) as u32
}

/// The bytes of the first member with that path (without a slash at the beginning), if there is one: a message to who
/// unpacks. It is found without unpacking anything, at once when it comes first.
///
/// # Errors
/// `E2BIG` when there are more than `bytes_max`, `EINVAL` for what is no archive.
pub fn find(source: &dyn ArchiveSource, path: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let mut members = Members::new(source)?;
    while let Some(member) = members.next()? {
        if !same_path(&members.path, path) {
            continue;
        }
        if member.header.size > bytes_max {
            return Err(Error::TooBig);
        }
        let mut bytes = allocation::filled(0, member.header.size as usize)?;
        source.read(member.data, &mut bytes);
        return Ok(Some(bytes));
    }
    Ok(None)
}

/// Unpacks archives into `root`, which is of a `tmpfs`.
pub fn unpack(root: &Arc<Inode>, source: &dyn ArchiveSource) -> Result<Unpacked> {
    unpack_except(root, source, b"")
}

/// Unpacks archives into `root`, which is of a `tmpfs`, all but what has the path `except`.
pub fn unpack_except(root: &Arc<Inode>, source: &dyn ArchiveSource, except: &[u8]) -> Result<Unpacked> {
    let mut members = Members::new(source)?;
    let mut unpacker = Unpacker {
        root,
        source,
        links: Vec::new(),
        recent: None,
        outcome: Unpacked::default(),
        buffer: allocation::filled(0, COPY_BYTES)?,
    };
    while let Some(member) = members.next()? {
        if members.path == TRAILER {
            unpacker.links.clear();
        } else if !same_path(&members.path, except) {
            unpacker.unpack_member(&members.path, &member)?;
        }
    }
    Ok(unpacker.outcome)
}

/// The parts of a path that lead somewhere.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// Whether two paths mean the same member.
fn same_path(path: &[u8], other: &[u8]) -> bool {
    // Most differ in their last byte already.
    path.last() == other.last() && !path.is_empty() && parts(path).eq(parts(other))
}

/// A member of an archive; its path is with [`Members`].
struct Member {
    header: Header,
    /// Where its data begins.
    data: u64,
}

/// The members of archives, one after the other.
struct Members<'a> {
    source: &'a dyn ArchiveSource,
    /// Where the next one begins, or zeros before it.
    offset: u64,
    /// The path of the last one that was given out.
    path: Vec<u8>,
    /// What a member begins with.
    head: [u8; HEAD_BYTES],
}

impl<'a> Members<'a> {
    fn new(source: &'a dyn ArchiveSource) -> Result<Self> {
        let mut path = Vec::new();
        allocation::reserve(&mut path, HEAD_BYTES)?;
        Ok(Self { source, offset: 0, path, head: [0; HEAD_BYTES] })
    }

    fn next(&mut self) -> Result<Option<Member>> {
        let length = self.source.length();
        let mut count = self.read_head();
        if count == 0 {
            return Ok(None);
        }
        if self.head[0] == 0 {
            let Some(start) = self.skip_zeros() else { return Ok(None) };
            self.offset = start;
            count = self.read_head();
        }
        let Some((fields, name)) = self.head[..count].split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::Invalid);
        };
        let header = Header::parse(fields)?;
        // Names may be padded with zeros, so that the data begins on a page boundary.
        if header.name_bytes == 0 || header.name_bytes > (PATH_MAX + PAGE_SIZE) as u64 {
            return Err(Error::NameTooLong);
        }
        let name_start = self.offset + HEADER_BYTES as u64;
        let data = (name_start + header.name_bytes).next_multiple_of(4);
        let end = data + header.size;
        if name_start + header.name_bytes > length || end > length {
            return Err(Error::Invalid);
        }
        let name_bytes = header.name_bytes as usize - 1;
        self.path.clear();
        if let Some(name) = name.get(..name_bytes) {
            allocation::extend(&mut self.path, name)?;
        } else {
            self.path = allocation::filled(0, name_bytes)?;
            self.source.read(name_start, &mut self.path);
        }
        let end_of_name = self.path.iter().position(|&byte| byte == 0).unwrap_or(self.path.len());
        self.path.truncate(end_of_name);
        if self.path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        self.offset = end.next_multiple_of(4);
        Ok(Some(Member { header, data }))
    }

    /// Reads what a member begins with; returns how much of it there is.
    fn read_head(&mut self) -> usize {
        let left = self.source.length().saturating_sub(self.offset);
        let count = left.min(HEAD_BYTES as u64) as usize;
        // The last member's padding may be missing: then there is not even an empty range at the offset.
        if count > 0 {
            self.source.read(self.offset, &mut self.head[..count]);
        }
        count
    }

    /// The next byte that is not padding. Called between archives only.
    #[inline(never)]
    fn skip_zeros(&self) -> Option<u64> {
        let mut offset = self.offset;
        let mut chunk = [0; FEW_BYTES];
        while offset < self.source.length() {
            let count = (self.source.length() - offset).min(FEW_BYTES as u64) as usize;
            self.source.read(offset, &mut chunk[..count]);
            if let Some(index) = chunk[..count].iter().position(|&byte| byte != 0) {
                return Some(offset + index as u64);
            }
            offset += count as u64;
        }
        None
    }
}

/// The directory that the last member was in, so that its neighbours need no walk.
struct Recent {
    path: Vec<u8>,
    directory: Arc<Inode>,
}

struct Unpacker<'a> {
    root: &'a Arc<Inode>,
    source: &'a dyn ArchiveSource,
    /// Inodes with several names: (device, inode) of the archive, and ours.
    links: Vec<(u64, u64, Arc<Inode>)>,
    recent: Option<Recent>,
    outcome: Unpacked,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    /// A name is refused that could lead out of the directory; the rest is taken as relative to it.
    fn unpack_member(&mut self, path: &[u8], member: &Member) -> Result<()> {
        let Member { header, data } = member;
        if parts(path).any(|part| part == b"..") {
            return Err(Error::Invalid);
        }
        let Some(last) = parts(path).next_back() else {
            // The root itself: its attributes.
            self.set_attributes(&self.root.clone(), header);
            return Ok(());
        };
        let above = path.len() - path.iter().rev().take_while(|&&byte| byte == b'/').count() - last.len();
        let directory = self.directory_of(&path[..above])?;
        let name = Name::new(last)?;
        self.outcome.members += 1;
        let inode = self.make(&directory, &name, header, *data)?;
        if inode.kind == FileKind::Regular && header.size > 0 {
            self.fill(&inode, *data, header.size)?;
        }
        self.set_attributes(&inode, header);
        Ok(())
    }

    /// The directory with this path; what is missing is made.
    fn directory_of(&mut self, path: &[u8]) -> Result<Arc<Inode>> {
        if let Some(recent) = self.recent.as_ref().filter(|recent| recent.path == path) {
            return Ok(recent.directory.clone());
        }
        let mut directory = self.root.clone();
        for part in parts(path) {
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
        inode.set_identity(Identity { mode: header.mode, user: header.user, group: header.group });
        let time = Timestamp { seconds: header.modified.into(), nanoseconds: 0 };
        inode.accessed().set(time);
        inode.modified().set(time);
    }
}

const fn new_file(kind: FileKind, mode: u32, user: u32, group: u32) -> NewFile<'static> {
    NewFile { kind, mode, access_lists: None, user, group, special: DeviceNumber::new(0, 0), target: &[] }
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
