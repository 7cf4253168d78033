//! `splice`, `tee`, `vmsplice`, `sendfile`, `copy_file_range`.
//!
//! From a file with pages into a pipe, frames are shared, not copied. Between pipes buffers are moved (`splice`) or
//! shared (`tee`). Into files, terminals and sockets bytes are copied once from the frame by way of a page of kernel
//! memory, since a file's pages are its own.
//!
//! Two pipes are locked in the order of their addresses; nothing waits while a ring is locked, but copies from and to
//! user memory may.

use alloc::sync::Arc;

use memory::buffer::{Sink, Source};
use memory::file_cache::{FileCache, Intent};
use memory::frame::{Frame, Purpose, Zeroed};

use super::end::Pipe;
use super::ring::{BUFFER_BYTES, Buffer};
use crate::attributes::FileKind;
use crate::fanotify;
use crate::file::{FileFeatures, OpenFile, TRANSFER_MAX};
use crate::flags::OpenFlags;
use crate::inotify::{self, EventMask};
use crate::{Error, Result, allocation};

fn check_ends(input: &OpenFile, output: &OpenFile) -> Result<()> {
    input.check_readable()?;
    output.check_writable()
}

/// Asks who wants to be asked before a file is read.
fn ask(input: &OpenFile) -> Result<()> {
    if inotify::active() { fanotify::ask_access(input) } else { Ok(()) }
}

/// Tells who watches the files that something was moved from one to the other.
fn report(input: &OpenFile, output: &OpenFile, moved: Result<usize>) -> Result<usize> {
    if inotify::active() && matches!(moved, Ok(number) if number > 0) {
        inotify::report_file(input, EventMask::ACCESS);
        inotify::report_file(output, EventMask::MODIFY);
    }
    moved
}

fn check_offset(file: &OpenFile, offset: Option<u64>) -> Result<()> {
    match offset {
        Some(_) if !file.features().contains(FileFeatures::SEEKABLE) => Err(Error::IllegalSeek),
        Some(offset) if i64::try_from(offset).is_err() => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// Moves up to `length` bytes between two files, one of which is a pipe. Offsets stand in for the files' positions and
/// are moved.
pub fn splice(
    input: &Arc<OpenFile>,
    input_offset: Option<&mut u64>,
    output: &Arc<OpenFile>,
    output_offset: Option<&mut u64>,
    length: usize,
    non_block: bool,
) -> Result<usize> {
    check_ends(input, output)?;
    let length = length.min(TRANSFER_MAX);
    if length == 0 {
        return Ok(0);
    }
    ask(input)?;
    let moved = match (input.operations().pipe(), output.operations().pipe()) {
        (Some(from), Some(to)) => {
            if input_offset.is_some() || output_offset.is_some() {
                return Err(Error::IllegalSeek);
            }
            if core::ptr::eq(from, to) {
                return Err(Error::Invalid);
            }
            let non_block = non_block || input.non_block() || output.non_block();
            between(from, to, length, non_block, Mode::Move)
        }
        (Some(from), None) => {
            if input_offset.is_some() {
                return Err(Error::IllegalSeek);
            }
            check_offset(output, output_offset.as_deref().copied())?;
            if output.flags().contains(OpenFlags::APPEND) || output.inode().kind == FileKind::Anonymous {
                return Err(Error::Invalid);
            }
            pipe_to_file(from, output, output_offset, length, non_block || input.non_block())
        }
        (None, Some(to)) => {
            if output_offset.is_some() {
                return Err(Error::IllegalSeek);
            }
            check_offset(input, input_offset.as_deref().copied())?;
            file_to_pipe(input, input_offset, to, length, non_block || output.non_block())
        }
        (None, None) => Err(Error::Invalid),
    };
    report(input, output, moved)
}

/// Copies what is in one pipe to another without taking it out.
pub fn tee(input: &OpenFile, output: &OpenFile, length: usize, non_block: bool) -> Result<usize> {
    check_ends(input, output)?;
    let (Some(from), Some(to)) = (input.operations().pipe(), output.operations().pipe()) else {
        return Err(Error::Invalid);
    };
    if core::ptr::eq(from, to) {
        return Err(Error::Invalid);
    }
    between(
        from,
        to,
        length.min(TRANSFER_MAX),
        non_block || input.non_block() || output.non_block(),
        Mode::Share,
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Move,
    Share,
}

fn between(from: &Pipe, to: &Pipe, length: usize, non_block: bool, mode: Mode) -> Result<usize> {
    if length == 0 {
        return Ok(0);
    }
    loop {
        if !from.wait_readable(non_block)? {
            return Ok(0);
        }
        // Nothing is taken out: another reader gets the wake-up that may have ended the wait.
        to.wait_writable(non_block).inspect_err(|_| from.pass_on())?;
        let mut states = (false, false);
        let mut is_lent = false;
        let mut work = |source: &mut super::ring::Ring, target: &mut super::ring::Ring| {
            states = (source.is_full(), target.buffers.is_empty());
            is_lent = mode == Mode::Move && from.is_lent();
            if is_lent {
                return Ok(0);
            }
            transfer(source, target, length, mode)
        };
        let moved = if core::ptr::from_ref(from) < core::ptr::from_ref(to) {
            from.with_ring(|source| to.with_second_ring(|target| work(source, target)))
        } else {
            to.with_ring(|target| from.with_second_ring(|source| work(source, target)))
        }?;
        if moved > 0 {
            to.written(states.1);
            from.taken(states.0 && mode == Mode::Move);
            return Ok(moved);
        }
        to.pass_on();
        if is_lent {
            from.wait_for_return()?;
            continue;
        }
        if from.is_empty() && !from.has_writers() {
            return Ok(0);
        }
    }
}

fn transfer(
    source: &mut super::ring::Ring,
    target: &mut super::ring::Ring,
    length: usize,
    mode: Mode,
) -> Result<usize> {
    let mut done = 0;
    let mut index = 0;
    while done < length && !target.is_full() {
        let position = if mode == Mode::Move { 0 } else { index };
        let Some(buffer) = source.buffers.get(position) else { break };
        let count = buffer.length.min(length - done);
        let part = Buffer { frame: buffer.frame.clone(), offset: buffer.offset, length: count, own: false };
        if let Err(error) = target.push(part) {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
        // From now on somebody else looks at the frame too: nothing may be appended to it, nor may it be reused.
        source.buffers[position].own = false;
        if mode == Mode::Move {
            source.consume(count);
        }
        done += count;
        index += 1;
    }
    Ok(done)
}

/// Runs `transfer` at the offset, or at the file's own position. The position's lock is not held: two files are in
/// play, and two transfers in opposite directions would wait for each other.
fn at_position(
    file: &Arc<OpenFile>,
    offset: Option<&mut u64>,
    transfer: impl FnOnce(&mut u64) -> Result<usize>,
) -> Result<usize> {
    if let Some(offset) = offset {
        return transfer(offset);
    }
    let mut position = file.position();
    let result = transfer(&mut position);
    if file.features().contains(FileFeatures::SEEKABLE) {
        file.store_position(position);
    }
    result
}

fn file_to_pipe(
    input: &Arc<OpenFile>,
    offset: Option<&mut u64>,
    to: &Pipe,
    length: usize,
    non_block: bool,
) -> Result<usize> {
    if input.inode().kind == FileKind::Directory {
        return Err(Error::Invalid);
    }
    to.wait_writable(non_block)?;
    at_position(input, offset, |position| {
        if let Some(moved) = input.operations().splice_to(input, position, to, length) {
            return moved;
        }
        let cache = input.inode().operations().cache().filter(|_| input.inode().kind == FileKind::Regular);
        let Some(cache) = cache else { return read_into_pipe(input, position, to, length) };
        let (was_empty, moved) = to.with_ring(|ring| {
            let was_empty = ring.buffers.is_empty();
            (was_empty, share_pages(cache, position, ring, length))
        });
        let moved = moved?;
        if moved > 0 {
            to.written(was_empty);
            crate::time::accessed(input);
        }
        Ok(moved)
    })
}

/// Puts pages of a file into a ring.
fn share_pages(
    cache: &FileCache,
    position: &mut u64,
    ring: &mut super::ring::Ring,
    length: usize,
) -> Result<usize> {
    let mut done = 0;
    while done < length && !ring.is_full() {
        let left_in_file = cache.size().saturating_sub(*position);
        let offset = (*position % BUFFER_BYTES as u64) as usize;
        let count = (BUFFER_BYTES - offset).min(length - done);
        let count = usize::try_from(left_in_file).unwrap_or(usize::MAX).min(count);
        if count == 0 {
            break;
        }
        let frame = match cache.frame(*position / BUFFER_BYTES as u64, Intent::Read)? {
            Some(frame) => frame,
            None => Frame::allocate(Purpose::Pipe, Zeroed::Yes)?,
        };
        if let Err(error) = ring.push(Buffer { frame, offset, length: count, own: false }) {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
        *position += count as u64;
        done += count;
    }
    Ok(done)
}

/// Reads from a file without pages, one buffer at a time, without holding the ring while the file may wait.
fn read_into_pipe(input: &Arc<OpenFile>, position: &mut u64, to: &Pipe, length: usize) -> Result<usize> {
    let mut bytes = allocation::filled(0u8, length.min(BUFFER_BYTES))?;
    let read = input.operations().read(input, position, &mut Sink::kernel(&mut bytes))?;
    let mut source = Source::kernel(&bytes[..read]);
    while !source.is_empty() {
        // What was read can't be given back: wait for room, whoever took it.
        to.write_some(&mut source, false)?;
    }
    Ok(read)
}

fn pipe_to_file(
    from: &Pipe,
    output: &Arc<OpenFile>,
    offset: Option<&mut u64>,
    length: usize,
    non_block: bool,
) -> Result<usize> {
    if !from.wait_readable(non_block)? {
        return Ok(0);
    }
    if let Some(moved) = output.operations().splice_from(output, from, length) {
        return moved;
    }
    at_position(output, offset, |position| {
        let mut bytes = allocation::filled(0u8, BUFFER_BYTES)?;
        let mut done = 0;
        while done < length {
            // Taken out after they were written: what the file refuses stays in the pipe. Nobody else reads them meanwhile.
            let wanted = BUFFER_BYTES.min(length - done);
            let outcome = from.lend(&mut bytes[..wanted]).and_then(|count| {
                if count == 0 {
                    return Ok((0, true));
                }
                let written =
                    output.operations().write(output, position, &mut Source::kernel(&bytes[..count]));
                from.give_back(*written.as_ref().unwrap_or(&0));
                written.map(|written| (written, written < count))
            });
            let (written, is_last) = match outcome {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            done += written;
            if is_last {
                break;
            }
        }
        Ok(done)
    })
}

/// `vmsplice`: between user memory and a pipe; always by copying.
pub fn vmsplice(file: &Arc<OpenFile>, memory: UserMemory<'_, '_>) -> Result<usize> {
    if file.operations().pipe().is_none() {
        return Err(Error::BadDescriptor);
    }
    match memory {
        UserMemory::Into(source) => {
            file.check_writable()?;
            file.operations().write(file, &mut 0, source)
        }
        UserMemory::From(sink) => {
            file.check_readable()?;
            file.operations().read(file, &mut 0, sink)
        }
    }
}

/// The direction of [`vmsplice`].
pub enum UserMemory<'a, 'b> {
    /// Into the pipe.
    Into(&'a mut Source<'b>),
    /// Out of the pipe.
    From(&'a mut Sink<'b>),
}

/// `sendfile`: copies from a file with pages (or any that can be read at a position) to any file.
pub fn sendfile(
    output: &Arc<OpenFile>,
    input: &Arc<OpenFile>,
    offset: Option<&mut u64>,
    length: usize,
) -> Result<usize> {
    check_ends(input, output)?;
    check_offset(input, offset.as_deref().copied())?;
    if output.flags().contains(OpenFlags::APPEND) || input.inode().kind == FileKind::Directory {
        return Err(Error::Invalid);
    }
    if !input.features().contains(FileFeatures::SEEKABLE) {
        return Err(Error::Invalid);
    }
    ask(input)?;
    let length = length.min(TRANSFER_MAX);
    let moved = match output.operations().pipe() {
        Some(pipe) => file_to_pipe(input, offset, pipe, length, output.non_block()),
        None => {
            let copied =
                |from: &mut u64| at_position(output, None, |to| copy(input, from, output, to, length));
            at_position(input, offset, copied)
        }
    };
    report(input, output, moved)
}

/// `copy_file_range`: between two regular files.
pub fn copy_file_range(
    input: &Arc<OpenFile>,
    input_offset: Option<&mut u64>,
    output: &Arc<OpenFile>,
    output_offset: Option<&mut u64>,
    length: usize,
) -> Result<usize> {
    for file in [input, output] {
        match file.inode().kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
    }
    check_ends(input, output)?;
    if output.flags().contains(OpenFlags::APPEND) {
        return Err(Error::BadDescriptor);
    }
    if !input.inode().same_superblock(output.inode()) {
        return Err(Error::CrossDevice);
    }
    let length = length.min(TRANSFER_MAX);
    let from = input_offset.as_deref().copied().unwrap_or(input.position());
    let to = output_offset.as_deref().copied().unwrap_or(output.position());
    let (Some(from_end), Some(to_end)) = (from.checked_add(length as u64), to.checked_add(length as u64))
    else {
        return Err(Error::Overflow);
    };
    if Arc::ptr_eq(input.inode(), output.inode()) && from < to_end && to < from_end {
        return Err(Error::Invalid);
    }
    let same_position = Arc::ptr_eq(input, output) && input_offset.is_none() && output_offset.is_none();
    if same_position {
        return Err(Error::Invalid);
    }
    ask(input)?;
    let copied = at_position(input, input_offset, |from| {
        at_position(output, output_offset, |to| copy(input, from, output, to, length))
    });
    report(input, output, copied)
}

/// Copies through a page of kernel memory.
fn copy(
    input: &Arc<OpenFile>,
    from: &mut u64,
    output: &Arc<OpenFile>,
    to: &mut u64,
    length: usize,
) -> Result<usize> {
    let mut bytes = allocation::filled(0u8, BUFFER_BYTES.min(length))?;
    let mut done = 0;
    // Two gigabytes of zeros from a sparse file take long: whoever is killed does not finish them.
    while done < length && !sched::current().is_killed() {
        let count = bytes.len().min(length - done);
        let mut position = *from;
        let read = match input.operations().read(input, &mut position, &mut Sink::kernel(&mut bytes[..count]))
        {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let written = match output.operations().write(output, to, &mut Source::kernel(&bytes[..read])) {
            Ok(written) => written,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        *from += written as u64;
        done += written;
        if written < read {
            break;
        }
    }
    Ok(done)
}
