//! Reading and writing.
//!
//! What is in memory is moved by who submits it. What a disk must bring, or what must reach it before the call ends, is left to a worker.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ::memory::buffer::{Sink, UserRange};
use ::memory::fallible;
use machine::address::PAGE_SIZE;
use vfs::{FileKind, FileMappingKind, OpenFile, OpenFlags};

use super::super::abi::{completion, entry, operation};
use super::super::groups::Provided;
use super::super::request::{Prepared, Request};
use super::super::submitter::Class;
use super::Step;
use crate::errno::{Errno, SysResult};
use crate::file::transfer::{self, user_range};
use crate::task::Task;

/// Pages that are looked for at most: what is larger goes to a worker without a look.
const PAGES_MAX: u64 = 256;

/// Where its bytes are, and the buffer that was chosen for them.
fn ranges(request: &Request) -> Result<(Vec<UserRange>, Option<Provided>), Errno> {
    let entry = &request.entry;
    if let Prepared::Ranges(list) = &request.prepared {
        let mut copy = fallible::try_vec(list.len()).map_err(|_| Errno::ENOMEM)?;
        copy.extend_from_slice(list);
        if !request.has(entry::SELECT_BUFFER) {
            return Ok((copy, None));
        }
    }
    let mut one = fallible::try_vec(1).map_err(|_| Errno::ENOMEM)?;
    let (address, length, chosen) = if request.has(entry::SELECT_BUFFER) {
        let chosen = request.ring.resources.groups.take(entry.buffer)?;
        let wanted = match &request.prepared {
            Prepared::Ranges(list) => list.first().map_or(0, |range| range.length as u32),
            _ => entry.length,
        };
        let length = if wanted == 0 { chosen.length } else { wanted.min(chosen.length) };
        (chosen.address, length, Some(chosen))
    } else {
        if matches!(entry.operation, operation::READ_FIXED | operation::WRITE_FIXED) {
            request.ring.resources.check_range(entry.buffer, entry.address, entry.length)?;
        }
        (entry.address, entry.length, None)
    };
    match user_range(address, length as usize) {
        Ok((address, length)) => one.push(UserRange { address, length }),
        Err(errno) => {
            give_back(request, chosen);
            return Err(errno);
        }
    }
    Ok((one, chosen))
}

pub(super) fn give_back(request: &Request, chosen: Option<Provided>) {
    if let Some(chosen) = chosen {
        request.ring.resources.groups.give_back(request.entry.buffer, chosen);
    }
}

/// How it ended, with the number of the buffer that was used; one that was not is given back.
pub(super) fn with_buffer(request: &Request, chosen: Option<Provided>, result: SysResult) -> Step {
    match chosen {
        Some(chosen) if result.is_ok() => {
            let number = u32::from(chosen.number) << completion::BUFFER_SHIFT;
            Step::Done(result, completion::BUFFER | number)
        }
        chosen => {
            give_back(request, chosen);
            Step::Done(result, 0)
        }
    }
}

/// The position, if it is not the file's own.
fn position(request: &Request, file: &OpenFile) -> Option<i64> {
    let position = request.entry.offset as i64;
    (position != -1 && file.check_seekable().is_ok()).then_some(position)
}

/// Whether the transfer has to wait for a device.
fn waits_for_device(file: &OpenFile, position: Option<i64>, length: usize, writes: bool) -> bool {
    if !matches!(file.inode().kind, FileKind::Regular | FileKind::BlockDevice) {
        return false;
    }
    let Ok(FileMappingKind::Pages(cache)) = file.operations().mapping(file) else { return false };
    if cache.device().is_none() {
        return false;
    }
    let synchronous = OpenFlags::DATA_SYNC | OpenFlags::FILE_SYNC;
    if file.flags().contains(OpenFlags::DIRECT) || (writes && file.flags().intersects(synchronous)) {
        return true;
    }
    let start = position.map_or(file.position(), |position| position.max(0).cast_unsigned());
    let end = start.saturating_add(length as u64).min(cache.size());
    let (first, last) = (start / PAGE_SIZE as u64, end.div_ceil(PAGE_SIZE as u64));
    // Pages that are replaced as a whole need not be there, but what is there tells of the file's blocks, too.
    !writes && (last.saturating_sub(first) > PAGES_MAX || !(first..last).all(|page| cache.is_resident(page)))
}

fn begins(request: &Request, file: &OpenFile, length: usize, writes: bool, waits: bool) -> bool {
    let durable = request.entry.operation_flags != 0 && writes;
    waits || !(durable || waits_for_device(file, position(request, file), length, writes))
}

pub(super) fn read(task: &Task, request: &Request, file: &Arc<OpenFile>, waits: bool) -> Step {
    let checked = transfer::check_flags(request.entry.operation_flags)
        .and_then(|()| Ok(file.check_readable()?))
        .and_then(|()| ranges(request));
    let (ranges, chosen) = match checked {
        Ok(ranges) => ranges,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    let length = ranges.iter().map(|range| range.length).sum();
    if !begins(request, file, length, false, waits) {
        give_back(request, chosen);
        return Step::Worker(Class::Bounded);
    }
    let mut sink = Sink::user_list(&ranges);
    let result = match position(request, file) {
        Some(position) => file.read_at(position, &mut sink),
        None => file.read(&mut sink),
    };
    let result = result.map_err(Errno::from);
    task.thread.transfers.count_read(&result);
    with_buffer(request, chosen, result)
}

pub(super) fn write(task: &Task, request: &Request, file: &Arc<OpenFile>, waits: bool) -> Step {
    let checked = transfer::check_flags(request.entry.operation_flags)
        .and_then(|()| Ok(file.check_writable()?))
        .and_then(|()| ranges(request));
    let (ranges, chosen) = match checked {
        Ok(ranges) => ranges,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    let length = ranges.iter().map(|range| range.length).sum();
    if !begins(request, file, length, true, waits) {
        give_back(request, chosen);
        return Step::Worker(Class::Bounded);
    }
    let written = transfer::write_ranges(task, file, &ranges, position(request, file));
    let result = transfer::make_last(file, written, request.entry.operation_flags);
    task.thread.transfers.count_written(&result);
    with_buffer(request, chosen, result)
}
