//! From the signal that ends a process to the end of the file.
//!
//! Nothing is dumped of a process that does not let itself be dumped (`PR_SET_DUMPABLE`), nor with a limit below a page for files. A process that gained privileges
//! (`fs.suid_dumpable` 2) leaves a file that is root's, and only where an absolute path says where. A name that is there already is removed first, but not by such a process.
//! The status tells of a dump once one has begun, however far it came.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use machine::address::{PAGE_SIZE, UserAddr};
use vfs::pipe::WrittenPipe;
use vfs::{FileKind, OpenFile, OpenFlags, OpenHow, PathContext};
use zerocopy::IntoBytes;

use super::gathering::{Gathering, Presence};
use super::notes::Notes;
use super::output::Output;
use super::pattern::{self, Destination, Facts};
use super::segments::{Filter, Segment, segments};
use crate::elf::ENTRY_BYTES;
use crate::errno::Errno;
use crate::process::limits::Resource;
use crate::signal::information::SignalInformation;
use crate::task::Task;

/// The dump is for root only.
const ROOT_ONLY: u8 = 2;
/// In a status as wait4 reports it.
const CORE_DUMPED: u32 = 0x80;
const HEADER_BYTES: usize = 64;
const PAGE: u64 = PAGE_SIZE as u64;

/// Programs that are reading dumps.
static READERS: AtomicU32 = AtomicU32::new(0);

/// Dumps the process, which ends of this signal, if it is to be dumped. Returns whether its end has begun.
#[inline(never)]
pub(crate) fn dump(task: &Task, information: &SignalInformation) -> bool {
    let process = task.process();
    let status = u32::from(information.signal.number());
    let is_dumpable = process.is_dumpable.load(Ordering::Relaxed) != 0;
    let facts = Facts { task, signal: status };
    let Some(destination) = pattern::destination(&facts).ok().flatten().filter(|_| is_dumpable) else {
        return false;
    };
    // Below a page not even the headers would fit.
    if matches!(destination, Destination::File(_)) && process.limit(Resource::Core) < PAGE {
        return false;
    }
    let Some(gathering) = Gathering::announce(task, status) else { return false };
    let others = gathering.wait_for_all(process);
    let dumped = write(task, information, &others, destination);
    if let Err(errno) = dumped {
        log::info!("no core dump of process {}: {errno:?}", process.pid());
    }
    gathering.end(process, status | if dumped.is_ok() { CORE_DUMPED } else { 0 });
    task.thread.kill();
    true
}

fn write(
    task: &Task,
    information: &SignalInformation,
    others: &[Presence],
    destination: Destination,
) -> Result<(), Errno> {
    let dumper = Presence::of(task).ok_or(Errno::ENOMEM)?;
    let notes = Notes::of(task, information, &dumper, others)?;
    drop(dumper);
    match destination {
        Destination::File(path) => {
            let file = open_file(task, &path)?;
            note_failure(
                task,
                write_to(task, &notes, Output::to_file(task, file, task.process().limit(Resource::Core))),
            );
            Ok(())
        }
        Destination::Program(words) => give_to_program(task, &notes, words),
    }
}

/// Starts the program that reads the dump, and writes to it.
fn give_to_program(task: &Task, notes: &Notes, words: Vec<Vec<u8>>) -> Result<(), Errno> {
    let limit = pattern::pipe_limit();
    // A limit of 1 is what such programs have themselves, so that they leave no dumps.
    if task.process().limit(Resource::Core) == 1 {
        return Err(Errno::EPERM);
    }
    let _reading = Reading::begin(limit)?;
    let (reader, writer) = vfs::pipe::create_pipe(OpenFlags::empty(), &task.credentials.file)?;
    crate::helper::start_reader(words, reader)?;
    let written = write_to(task, notes, Output::to_pipe(task, &writer));
    if written == Err(Errno::EPIPE) || written == Err(Errno::EINTR) {
        return written;
    }
    note_failure(task, written);
    if limit > 0 {
        wait_for_reader(task, writer);
    }
    Ok(())
}

/// A dump that was begun is one, whatever is missing.
fn note_failure(task: &Task, written: Result<(), Errno>) {
    if let Err(errno) = written {
        log::info!("the core dump of process {} is not whole: {errno:?}", task.process().pid());
    }
}

/// Until the program has closed the pipe, which has come to its end, it may look into the process.
fn wait_for_reader(task: &Task, writer: Arc<OpenFile>) {
    let Ok(pipe) = WrittenPipe::close(writer) else { return };
    while !task.thread.is_killed() {
        match pipe.wait_for_readers() {
            Err(vfs::Error::Interrupted) => sched::current().set_attention(false),
            _ => return,
        }
    }
}

/// A place among the programs that may read at the same time.
struct Reading;

impl Reading {
    fn begin(limit: u32) -> Result<Reading, Errno> {
        let before = READERS.fetch_add(1, Ordering::Relaxed);
        let reading = Reading;
        if limit > 0 && before >= limit { Err(Errno::EAGAIN) } else { Ok(reading) }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens the file of a dump, empty.
fn open_file(task: &Task, path: &[u8]) -> Result<Arc<OpenFile>, Errno> {
    let is_for_root = task.process().is_dumpable.load(Ordering::Relaxed) == ROOT_ONLY;
    let root = vfs::Credentials::root();
    let (file_system, credentials) = if is_for_root {
        if path.first() != Some(&b'/') {
            return Err(Errno::EPERM);
        }
        (crate::helper::root()?, &root)
    } else {
        (&*task.file_system, &task.credentials.file)
    };
    let places = file_system.places();
    let context = PathContext { places: &places, credentials, umask: task.file_system.umask() };
    if !is_for_root {
        // What else may be wrong is found out below.
        let _ = context.unlink(&places.cwd, path);
    }
    let flags = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::READ_WRITE | OpenFlags::NO_FOLLOW;
    let how = OpenHow { flags, mode: 0o600, ..OpenHow::default() };
    let file = context.open(&places.cwd, path, &how)?;
    let inode = file.inode();
    if inode.kind != FileKind::Regular || inode.links() != 1 || inode.user() != credentials.user {
        return Err(Errno::EPERM);
    }
    Ok(file)
}

/// Writes headers, notes and memory.
fn write_to(task: &Task, notes: &Notes, mut output: Output<'_>) -> Result<(), Errno> {
    let filter = Filter::from_bits_truncate(task.process().core_filter.load(Ordering::Relaxed));
    let segments = segments(&task.address_space, filter)?;
    let notes_at = (HEADER_BYTES + (segments.len() + 1) * ENTRY_BYTES) as u64;
    let notes_end = notes_at + notes.bytes().len() as u64;
    let memory_at = notes_end.next_multiple_of(PAGE);

    output.put(&header(segments.len() + 1))?;
    output.put(&program_header(PT_NOTE, 0, notes_at, 0, notes.bytes().len() as u64, 0, 4))?;
    let mut at = memory_at;
    for segment in &segments {
        let length = segment.end - segment.start;
        let entry =
            program_header(PT_LOAD, segment.protection, at, segment.start, segment.dumped, length, PAGE);
        output.put(&entry)?;
        at += segment.dumped;
    }
    output.put(notes.bytes())?;
    output.skip(memory_at - notes_end)?;
    let mut page: Box<[u8; PAGE_SIZE]> =
        memory::fallible::try_box([0; PAGE_SIZE]).map_err(|_| Errno::ENOMEM)?;
    for segment in &segments {
        write_segment(task, segment, &mut page, &mut output)?;
    }
    output.finish()
}

fn write_segment(
    task: &Task,
    segment: &Segment,
    page: &mut [u8; PAGE_SIZE],
    output: &mut Output<'_>,
) -> Result<(), Errno> {
    let space = &task.address_space;
    let end = segment.start + segment.dumped;
    let mut at = segment.start;
    while at < end {
        if task.thread.is_killed() {
            return Err(Errno::EINTR);
        }
        if !segment.has_file {
            // What was never touched is not even looked at: reservations can be huge.
            let next = space.next_in_tables(UserAddr::new(at), end).map_or(end, UserAddr::as_u64);
            output.skip(next - at)?;
            at = next;
            if at >= end {
                break;
            }
        }
        let has_page = space.copy_page(UserAddr::new(at), page)
            || segment.has_file && space.read_remote(UserAddr::new(at), page) == Ok(PAGE_SIZE);
        if has_page {
            output.put(page)?
        } else {
            output.skip(PAGE)?
        }
        at += PAGE;
    }
    Ok(())
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

fn header(entries: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    // 64 bits, little-endian, version 1; a core file for x86-64.
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16..20].copy_from_slice([4u16, 62].as_bytes());
    header[20..24].copy_from_slice(&1u32.to_le_bytes());
    header[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
    let sizes = [HEADER_BYTES as u16, ENTRY_BYTES as u16, entries as u16];
    header[52..58].copy_from_slice(sizes.as_bytes());
    header
}

fn program_header(
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice([kind, flags].as_bytes());
    entry[8..].copy_from_slice([offset, address, 0, file_bytes, memory_bytes, align].as_bytes());
    entry
}
