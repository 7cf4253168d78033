//! The memory of a new program: its segments, its interpreter, the heap's start, the vDSO, the stack.
//!
//! Everything is built in an address space that no thread runs in yet, so a failure drops it and the old program goes on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::address::{PAGE_SIZE, USER_END, UserAddr};
use machine::fault::FaultError;
use memory::address_space::{AddressSpace, MapFlags, MapRequest, Protection};
use memory::buffer::Sink;
use memory::region::FileMapping;
use vfs::{FileMappingKind, OpenFile};

use super::persona::Placement;
use crate::elf::{Header, Program, Segment};
use crate::errno::Errno;

const PAGE: u64 = PAGE_SIZE as u64;
/// Where relocatable programs go before randomisation: two thirds up, far from stack and mappings.
const RELOCATABLE_BASE: u64 = 0x5555_5555_4000;
/// Where mappings begin that go upwards: a third up.
const UPWARDS_BASE: u64 = (USER_END as u64 / 3) & !(PAGE - 1);
/// Pages of randomisation.
const RANDOM_PAGES: u64 = 1 << 28;
const STACK_RANDOM_PAGES: u64 = 1 << 22;
/// Room kept between the stack's top and the mappings: the greatest stack limit that counts for placement, as in Linux.
const STACK_GAP_MAX: u64 = (USER_END as u64) / 6 * 5;
const STACK_GAP_MIN: u64 = 128 << 20;

/// An opened program file with its first bytes.
pub(super) struct ProgramFile {
    pub(super) file: Arc<OpenFile>,
    pub(super) head: Vec<u8>,
}

/// Bytes of a file read at once for its header.
const HEAD_BYTES: usize = 4096;

impl ProgramFile {
    /// Reads the first bytes of an opened file.
    pub(super) fn read(file: Arc<OpenFile>) -> Result<ProgramFile, Errno> {
        let mut head = memory::fallible::try_vec_of(0, HEAD_BYTES).map_err(|_| Errno::ENOMEM)?;
        let length = read_at(&file, 0, &mut head)?;
        head.truncate(length);
        Ok(ProgramFile { file, head })
    }

    /// Parses it as an ELF file.
    pub(super) fn parse(&self) -> Result<Program, Errno> {
        let header = Header::parse(&self.head)?;
        let end = header.offset.saturating_add(header.table_bytes() as u64);
        if end <= self.head.len() as u64 {
            return header.program(&self.head[header.offset as usize..end as usize]);
        }
        let mut table = memory::fallible::try_vec_of(0, header.table_bytes()).map_err(|_| Errno::ENOMEM)?;
        if read_at(&self.file, header.offset, &mut table)? < table.len() {
            return Err(Errno::ENOEXEC);
        }
        header.program(&table)
    }

    /// The path of the interpreter that the program asks for.
    pub(super) fn interpreter(&self, program: &Program) -> Result<Option<Vec<u8>>, Errno> {
        let Some((offset, length)) = program.interpreter else { return Ok(None) };
        let mut path = memory::fallible::try_vec_of(0, length).map_err(|_| Errno::ENOMEM)?;
        if read_at(&self.file, offset, &mut path)? < length || path.pop() != Some(0) {
            return Err(Errno::ENOEXEC);
        }
        Ok(Some(path))
    }
}

fn read_at(file: &Arc<OpenFile>, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let position = i64::try_from(offset + done as u64).map_err(|_| Errno::ENOEXEC)?;
        let part = file.read_at(position, &mut Sink::kernel(&mut bytes[done..]))?;
        if part == 0 {
            break;
        }
        done += part;
    }
    Ok(done)
}

/// Where a program was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded {
    /// Added to the file's addresses.
    pub(super) bias: u64,
    pub(super) entry: u64,
    pub(super) headers: u64,
    pub(super) header_count: u16,
    pub(super) code: (u64, u64),
    pub(super) data: (u64, u64),
    pub(super) end: u64,
}

/// A random number of pages below `pages`, in bytes; 0 for fixed places.
fn random_bytes(pages: u64, is_fixed: bool) -> u64 {
    if is_fixed {
        return 0;
    }
    let mut bytes = [0; 8];
    crate::random::fill(&mut bytes);
    u64::from_le_bytes(bytes) % pages * PAGE
}

/// Top of the stack and of the mappings beneath it.
pub(super) fn place_stack(space: &AddressSpace, stack_limit: u64, placement: Placement) -> u64 {
    let top = USER_END as u64 - PAGE - random_bytes(STACK_RANDOM_PAGES, placement.is_fixed);
    let gap = stack_limit.clamp(STACK_GAP_MIN, STACK_GAP_MAX) + (STACK_RANDOM_PAGES * PAGE) / 64;
    let random = random_bytes(RANDOM_PAGES, placement.is_fixed);
    if placement.goes_upwards {
        space.set_mapping_bottom(UserAddr::new(UPWARDS_BASE + random));
    } else {
        space.set_mapping_top(UserAddr::new((USER_END as u64 - gap - random).min(top - gap / 2)));
    }
    if placement.has_page_zero {
        // Without it the program is told soon enough.
        let request = MapRequest::anonymous(PAGE, Protection::READ | Protection::EXECUTE)
            .at(UserAddr::new(0))
            .with(MapFlags::KERNEL);
        let _ = space.map(request);
    }
    top
}

/// Maps a program. An interpreter goes among the mappings, a relocatable main program to its own place.
#[inline(never)]
pub(super) fn load(
    space: &AddressSpace,
    file: &ProgramFile,
    program: &Program,
    is_interpreter: bool,
    placement: Placement,
) -> Result<Loaded, Errno> {
    let cache = match file.file.operations().mapping(&file.file).map_err(|_| Errno::ENOEXEC)? {
        FileMappingKind::Pages(cache) => cache,
        FileMappingKind::Zeroes => return Err(Errno::ENOEXEC),
    };
    let object = crate::exec::mapped_object(&file.file)?;
    let mapping =
        memory::fallible::try_arc(FileMapping::new(cache, Some(object))).map_err(|_| Errno::ENOMEM)?;
    let bias = bias_of(space, program, is_interpreter, placement)?;
    let mut loaded = Loaded {
        bias,
        entry: bias.wrapping_add(program.entry),
        headers: if program.headers == 0 { 0 } else { bias.wrapping_add(program.headers) },
        header_count: program.header_count,
        code: (u64::MAX, 0),
        data: (u64::MAX, 0),
        end: 0,
    };
    for segment in &program.segments {
        map_segment(space, &mapping, segment, bias)?;
        let (start, file_end) = (bias + segment.address, bias + segment.address + segment.file_bytes);
        let range = if segment.protection.contains(Protection::EXECUTE) {
            &mut loaded.code
        } else {
            &mut loaded.data
        };
        *range = (range.0.min(start), range.1.max(file_end));
        loaded.end = loaded.end.max(bias + segment.address + segment.memory_bytes);
    }
    Ok(loaded)
}

fn bias_of(
    space: &AddressSpace,
    program: &Program,
    is_interpreter: bool,
    placement: Placement,
) -> Result<u64, Errno> {
    if !program.relocatable {
        return Ok(0);
    }
    let first = program.first_page();
    if !is_interpreter {
        let base = RELOCATABLE_BASE + random_bytes(RANDOM_PAGES, placement.is_fixed);
        return Ok((base & !(program.alignment - 1)).wrapping_sub(first));
    }
    // Reserve a place for all of it, then map the segments over it.
    let length = program.end_page() - first;
    let slack = program.alignment - PAGE;
    let request = MapRequest::anonymous(length + slack, Protection::empty()).with(MapFlags::NO_RESERVE);
    let place = space.map(request).map_err(crate::memory::errno_of)?.as_u64();
    space.unmap(UserAddr::new(place), length + slack).map_err(crate::memory::errno_of)?;
    let aligned = (place + slack) & !(program.alignment - 1);
    Ok(aligned.wrapping_sub(first))
}

fn map_segment(
    space: &AddressSpace,
    mapping: &Arc<FileMapping>,
    segment: &Segment,
    bias: u64,
) -> Result<(), Errno> {
    let start = bias.wrapping_add(segment.first_page());
    let file_end = bias.wrapping_add(segment.address + segment.file_bytes);
    let file_pages_end = if segment.file_bytes == 0 { start } else { (file_end + PAGE - 1) & !(PAGE - 1) };
    let end = bias.wrapping_add(segment.end_page());
    if segment.file_bytes > 0 {
        let offset = segment.offset & !(PAGE - 1);
        let request =
            MapRequest::private_file(mapping.clone(), offset, file_pages_end - start, segment.protection)
                .at(UserAddr::new(start));
        space.map(request).map_err(crate::memory::errno_of)?;
    }
    if end > file_pages_end {
        let request =
            MapRequest::anonymous(end - file_pages_end, segment.protection).at(UserAddr::new(file_pages_end));
        space.map(request).map_err(crate::memory::errno_of)?;
    }
    // The last page of the file's part holds other bytes of the file where the segment wants zeros.
    if segment.memory_bytes > segment.file_bytes
        && segment.file_bytes > 0
        && segment.protection.contains(Protection::WRITE)
    {
        write_zeros(space, file_end, file_pages_end)?;
    }
    Ok(())
}

fn write_zeros(space: &AddressSpace, mut from: u64, to: u64) -> Result<(), Errno> {
    const ZEROS: [u8; 256] = [0; 256];
    while from < to {
        let part = (to - from).min(ZEROS.len() as u64) as usize;
        let written =
            space.write_remote(UserAddr::new(from), &ZEROS[..part]).map_err(|error| match error {
                FaultError::OutOfMemory => Errno::ENOMEM,
                // The file ends before its last page.
                _ => Errno::EFAULT,
            })?;
        if written == 0 {
            return Err(Errno::EFAULT);
        }
        from += written as u64;
    }
    Ok(())
}

/// Where the heap starts: after the program, a random distance away.
pub(super) fn place_heap(space: &AddressSpace, main: &Loaded, placement: Placement) -> u64 {
    const HEAP_RANDOM_PAGES: u64 = 1 << 13;
    let end = (main.end + PAGE - 1) & !(PAGE - 1);
    let start = end + random_bytes(HEAP_RANDOM_PAGES, placement.has_fixed_heap);
    space.set_break_start(UserAddr::new(start));
    start
}
