//! Moving data between files without passing through the program.

use alloc::sync::Arc;

use memory::buffer::{Sink, Source};
use vfs::OpenFile;
use vfs::pipe::UserMemory;

use super::transfer::{broken_pipe, read_vectors};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_KNOWN: u32 = 15;

/// Runs a transfer with an offset that lies in user memory, if there is one, and stores the moved offset.
fn with_offset<R>(
    pointer: u64,
    transfer: impl FnOnce(Option<&mut u64>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let Some(pointer) = UserPointer::<i64>::new(pointer).given() else { return transfer(None) };
    let mut offset = u64::try_from(pointer.read()?).map_err(|_| Errno::EINVAL)?;
    let result = transfer(Some(&mut offset))?;
    pointer.write(&(offset as i64))?;
    Ok(result)
}

/// Moves data between a pipe and another file.
#[inline(never)]
pub fn splice(
    task: &mut Task,
    input: i32,
    input_offset: u64,
    output: i32,
    output_offset: u64,
    length: usize,
    flags: u32,
) -> SysResult {
    if flags & !SPLICE_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let (input, output) = (task.usable_file(input)?, task.usable_file(output)?);
    with_offset(input_offset, |from| {
        with_offset(output_offset, |to| splice_files(task, (&input, from), (&output, to), length, flags))
    })
}

/// The same for open files, whose positions are given where they are not the files' own.
pub(crate) fn splice_files(
    task: &Task,
    (input, from): (&Arc<OpenFile>, Option<&mut u64>),
    (output, to): (&Arc<OpenFile>, Option<&mut u64>),
    length: usize,
    flags: u32,
) -> SysResult {
    if flags & !SPLICE_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let non_block = flags & SPLICE_F_NONBLOCK != 0;
    broken_pipe(task, vfs::pipe::splice(input, from, output, to, length, non_block))
}

/// Copies data from one pipe to another without consuming it.
#[inline(never)]
pub fn tee(task: &mut Task, input: i32, output: i32, length: usize, flags: u32) -> SysResult {
    if flags & !SPLICE_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    tee_files(task, &task.usable_file(input)?, &task.usable_file(output)?, length, flags)
}

/// The same for open files.
pub(crate) fn tee_files(
    task: &Task,
    input: &Arc<OpenFile>,
    output: &Arc<OpenFile>,
    length: usize,
    flags: u32,
) -> SysResult {
    if flags & !SPLICE_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    broken_pipe(task, vfs::pipe::tee(input, output, length, flags & SPLICE_F_NONBLOCK != 0))
}

/// Moves data between user memory and a pipe.
#[inline(never)]
pub fn vmsplice(task: &mut Task, descriptor: i32, list: u64, count: usize, flags: u32) -> SysResult {
    if flags & !SPLICE_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let file = task.usable_file(descriptor)?;
    let ranges = read_vectors(list, count)?;
    if ranges.iter().all(|range| range.length == 0) {
        return Ok(0);
    }
    let result = if file.flags().writable() {
        let mut source = Source::user_list(&ranges);
        vfs::pipe::vmsplice(&file, UserMemory::Into(&mut source))
    } else {
        let mut sink = Sink::user_list(&ranges);
        vfs::pipe::vmsplice(&file, UserMemory::From(&mut sink))
    };
    broken_pipe(task, result)
}

/// Copies from a file to another.
#[inline(never)]
pub fn sendfile(task: &mut Task, output: i32, input: i32, offset: u64, count: usize) -> SysResult {
    let (output, input) = (task.usable_file(output)?, task.usable_file(input)?);
    with_offset(offset, |from| {
        let result = broken_pipe(task, vfs::pipe::sendfile(&output, &input, from, count));
        task.thread.transfers.count_copied(&result);
        result
    })
}

/// Copies a range from one file to another.
#[inline(never)]
pub fn copy_file_range(
    task: &mut Task,
    input: i32,
    input_offset: u64,
    output: i32,
    output_offset: u64,
    length: usize,
    flags: u32,
) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (input, output) = (task.usable_file(input)?, task.usable_file(output)?);
    with_offset(input_offset, |from| {
        with_offset(output_offset, |to| {
            let result = broken_pipe(task, vfs::pipe::copy_file_range(&input, from, &output, to, length));
            task.thread.transfers.count_copied(&result);
            result
        })
    })
}
