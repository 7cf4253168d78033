//! How events are laid out for reading.

use memory::buffer::Sink;

use super::event::{About, Event, NamedDirectory, Records};
use super::mask::{FanMask, GroupFlags};
use crate::handle::FileHandle;
use crate::{Error, Result};

/// Bytes of an event without its records.
pub(super) const METADATA_BYTES: usize = 24;
const VERSION: u8 = 3;
/// Bytes that records are a multiple of.
const ALIGNMENT: usize = 4;
/// Type and length.
const HEADER_BYTES: usize = 4;
/// The file system, and the length and kind of the handle.
const HANDLE_HEAD_BYTES: usize = 16;
const PIDFD_BYTES: usize = HEADER_BYTES + 4;

/// Kinds of records.
mod record {
    pub(super) const FILE: u8 = 1;
    pub(super) const NAMED_DIRECTORY: u8 = 2;
    pub(super) const DIRECTORY: u8 = 3;
    pub(super) const PIDFD: u8 = 4;
    pub(super) const OLD_NAMED_DIRECTORY: u8 = 10;
    pub(super) const NEW_NAMED_DIRECTORY: u8 = 12;
}

fn handle_bytes(handle: &FileHandle, name: Option<&[u8]>) -> usize {
    let name = name.map_or(0, |name| name.len() + 1);
    (HEADER_BYTES + HANDLE_HEAD_BYTES + handle.as_bytes().len() + name).next_multiple_of(ALIGNMENT)
}

/// A record of an event.
struct Record<'a> {
    kind: u8,
    handle: &'a FileHandle,
    name: Option<&'a [u8]>,
}

fn of_directory(directory: &NamedDirectory, with_name: u8) -> Record<'_> {
    let name = directory.name.as_ref().map(|name| name.as_bytes());
    let kind = if name.is_some() { with_name } else { record::DIRECTORY };
    Record { kind, handle: &directory.handle, name }
}

fn records<'a>(mask: FanMask, flags: GroupFlags, records: &'a Records) -> [Option<Record<'a>>; 3] {
    let first =
        if mask.contains(FanMask::RENAME) { record::OLD_NAMED_DIRECTORY } else { record::NAMED_DIRECTORY };
    let is_directory = flags.contains(GroupFlags::REPORT_DIRECTORY)
        && records.directory.is_none()
        && records.new_directory.is_none()
        && mask.intersects(FanMask::OF_NAMES | FanMask::ON_DIRECTORY);
    let kind = if is_directory { record::DIRECTORY } else { record::FILE };
    let object = |handle| Record { kind, handle, name: None };
    [
        records.directory.as_ref().map(|directory| of_directory(directory, first)),
        records.new_directory.as_ref().map(|directory| of_directory(directory, record::NEW_NAMED_DIRECTORY)),
        records.object.as_ref().map(object),
    ]
}

/// Bytes of an event.
pub(super) fn event_bytes(event: &Event, flags: GroupFlags) -> usize {
    let handles = match &event.about {
        About::Handles(handles) => {
            let all = records(event.mask, flags, handles);
            all.iter().flatten().map(|record| handle_bytes(record.handle, record.name)).sum()
        }
        _ => 0,
    };
    METADATA_BYTES + handles + if flags.contains(GroupFlags::REPORT_PIDFD) { PIDFD_BYTES } else { 0 }
}

/// What a reader gets of his own with an event.
pub(super) struct ForReader {
    pub(super) descriptor: i32,
    pub(super) pid: i32,
    pub(super) pidfd: Option<i32>,
}

/// Writes an event.
pub(super) fn write(event: &Event, flags: GroupFlags, own: &ForReader, sink: &mut Sink<'_>) -> Result<usize> {
    let bytes = event_bytes(event, flags);
    let mut metadata = [0; METADATA_BYTES];
    metadata[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
    metadata[4] = VERSION;
    metadata[6..8].copy_from_slice(&(METADATA_BYTES as u16).to_ne_bytes());
    metadata[8..16].copy_from_slice(&u64::from(event.mask.bits()).to_ne_bytes());
    metadata[16..20].copy_from_slice(&own.descriptor.to_ne_bytes());
    metadata[20..].copy_from_slice(&own.pid.to_ne_bytes());
    let mut written = sink.write(&metadata)?;
    if let About::Handles(handles) = &event.about {
        for record in records(event.mask, flags, handles).iter().flatten() {
            written += write_record(record, handles.file_system, sink)?;
        }
    }
    if flags.contains(GroupFlags::REPORT_PIDFD) {
        let mut bytes = header(record::PIDFD, PIDFD_BYTES);
        bytes[HEADER_BYTES..PIDFD_BYTES].copy_from_slice(&own.pidfd.unwrap_or(-1).to_ne_bytes());
        written += sink.write(&bytes[..PIDFD_BYTES])?;
    }
    // Memory that ends in the midst of it.
    if written == bytes { Ok(written) } else { Err(Error::BadAddress) }
}

fn header(kind: u8, bytes: usize) -> [u8; HEADER_BYTES + HANDLE_HEAD_BYTES] {
    let mut head = [0; HEADER_BYTES + HANDLE_HEAD_BYTES];
    head[0] = kind;
    head[2..4].copy_from_slice(&(bytes as u16).to_ne_bytes());
    head
}

fn write_record(record: &Record<'_>, file_system: u64, sink: &mut Sink<'_>) -> Result<usize> {
    let total = handle_bytes(record.handle, record.name);
    let mut head = header(record.kind, total);
    let handle = record.handle.as_bytes();
    head[4..12].copy_from_slice(&file_system.to_ne_bytes());
    head[12..16].copy_from_slice(&(handle.len() as u32).to_ne_bytes());
    head[16..].copy_from_slice(&record.handle.kind().to_ne_bytes());
    let mut written = sink.write(&head)? + sink.write(handle)?;
    if let Some(name) = record.name {
        written += sink.write(name)?;
    }
    written += sink.write_zeros(total - written)?;
    Ok(written)
}
