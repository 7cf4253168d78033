//! ELF64 files as execve reads them.
//!
//! Nothing in the file is trusted: every number is checked here, so that what comes out ([`Program`]) can be mapped without further
//! arithmetic. A file that is not for this machine is ENOEXEC. Program headers that can't be mapped make the program *flawed*:
//! Linux finds that out when the old program is gone already, and kills the process with SIGSEGV; so does execve here.

use alloc::vec::Vec;

use machine::address::{PAGE_SIZE, USER_END};
use memory::address_space::Protection;

use crate::errno::Errno;

const HEADER_BYTES: usize = 64;
/// Size of one program header.
pub const ENTRY_BYTES: usize = 56;
const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
/// Program headers fill at most 64 KiB, as in Linux.
const HEADERS_MAX: usize = 65536 / ENTRY_BYTES;
const INTERPRETER_MAX: u64 = 4096;
const PAGE_MASK: u64 = PAGE_SIZE as u64 - 1;

/// One loadable segment. Addresses are relative to the load bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte in memory.
    pub address: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Where its bytes start in the file.
    pub offset: u64,
    /// Bytes from the file, at most `memory_bytes`.
    pub file_bytes: u64,
    /// What the program may do with it.
    pub protection: Protection,
}

impl Segment {
    /// The page it starts in.
    pub fn first_page(&self) -> u64 {
        self.address & !PAGE_MASK
    }

    /// The first page after it.
    pub fn end_page(&self) -> u64 {
        (self.address + self.memory_bytes + PAGE_MASK) & !PAGE_MASK
    }
}

/// What there is to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The segments in ascending order; not empty, not overlapping, all below the end of user memory.
    pub segments: Vec<Segment>,
    /// First instruction, relative to the load bias.
    pub entry: u64,
    /// It can be loaded anywhere.
    pub relocatable: bool,
    /// Where the program headers are in memory, relative to the load bias; 0 when they are not loaded.
    pub headers: u64,
    /// How many there are.
    pub header_count: u16,
    /// Place of the interpreter's path in the file.
    pub interpreter: Option<(u64, usize)>,
    /// It wants an executable stack.
    pub executable_stack: bool,
    /// Greatest alignment of a segment.
    pub alignment: u64,
    /// Something of it can't be mapped: it is no use to look at the rest.
    pub flawed: bool,
}

/// What the fixed header says about the program headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    relocatable: bool,
    entry: u64,
    /// Where the program headers are in the file.
    pub offset: u64,
    /// How many.
    pub count: u16,
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], Errno> {
    data.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or(Errno::ENOEXEC)
}

fn half(data: &[u8], at: usize) -> Result<u16, Errno> {
    bytes(data, at).map(u16::from_le_bytes)
}

fn word(data: &[u8], at: usize) -> Result<u32, Errno> {
    bytes(data, at).map(u32::from_le_bytes)
}

fn long(data: &[u8], at: usize) -> Result<u64, Errno> {
    bytes(data, at).map(u64::from_le_bytes)
}

impl Header {
    /// Reads the header at the start of a file.
    pub fn parse(data: &[u8]) -> Result<Header, Errno> {
        // The machine says what else the identification would say; Linux does not look at that.
        const IDENTIFICATION: &[u8] = b"\x7fELF";
        if data.len() < HEADER_BYTES || !data.starts_with(IDENTIFICATION) {
            return Err(Errno::ENOEXEC);
        }
        let relocatable = match half(data, 16)? {
            TYPE_EXECUTABLE => false,
            TYPE_SHARED => true,
            _ => return Err(Errno::ENOEXEC),
        };
        let header =
            Header { relocatable, entry: long(data, 24)?, offset: long(data, 32)?, count: half(data, 56)? };
        let count = usize::from(header.count);
        let sizes_fit = usize::from(half(data, 54)?) == ENTRY_BYTES && (1..=HEADERS_MAX).contains(&count);
        let end = header.offset.checked_add((count * ENTRY_BYTES) as u64);
        if half(data, 18)? != MACHINE_X86_64 || !sizes_fit || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::ENOEXEC);
        }
        Ok(header)
    }

    /// Bytes of all program headers.
    pub fn table_bytes(&self) -> usize {
        usize::from(self.count) * ENTRY_BYTES
    }

    /// Reads the program headers, given as [`Header::table_bytes`] bytes.
    #[inline(never)]
    pub fn program(&self, table: &[u8]) -> Result<Program, Errno> {
        let mut program = Program {
            segments: memory::fallible::try_vec(usize::from(self.count)).map_err(|_| Errno::ENOMEM)?,
            entry: self.entry,
            relocatable: self.relocatable,
            headers: 0,
            header_count: self.count,
            interpreter: None,
            executable_stack: false,
            alignment: PAGE_SIZE as u64,
            flawed: false,
        };
        for entry in table.chunks_exact(ENTRY_BYTES) {
            let (kind, flags) = (word(entry, 0)?, word(entry, 4)?);
            match kind {
                PT_LOAD => program.add(self, entry, flags)?,
                PT_INTERP if program.interpreter.is_none() => {
                    let (offset, length) = (long(entry, 8)?, long(entry, 32)?);
                    if !(2..=INTERPRETER_MAX).contains(&length) || offset > i64::MAX as u64 {
                        return Err(Errno::ENOEXEC);
                    }
                    program.interpreter = Some((offset, length as usize));
                }
                PT_GNU_STACK => program.executable_stack = flags & 1 != 0,
                _ => {}
            }
        }
        program.flawed |= program.segments.is_empty() || self.entry >= USER_END as u64;
        Ok(program)
    }
}

impl Program {
    fn add(&mut self, header: &Header, entry: &[u8], flags: u32) -> Result<(), Errno> {
        let mut protection = Protection::empty();
        protection.set(Protection::EXECUTE, flags & 1 != 0);
        protection.set(Protection::WRITE, flags & 2 != 0);
        protection.set(Protection::READ, flags & 4 != 0);
        let segment = Segment {
            address: long(entry, 16)?,
            memory_bytes: long(entry, 40)?,
            offset: long(entry, 8)?,
            file_bytes: long(entry, 32)?,
            protection,
        };
        if segment.memory_bytes == 0 {
            return Ok(());
        }
        let limit = USER_END as u64;
        let end =
            segment.address.checked_add(segment.memory_bytes).filter(|end| *end <= limit - PAGE_SIZE as u64);
        let file_end = segment.offset.checked_add(segment.file_bytes).filter(|end| *end <= i64::MAX as u64);
        let congruent = (segment.address ^ segment.offset) & PAGE_MASK == 0;
        let after_last =
            self.segments.last().is_none_or(|last| last.address + last.memory_bytes <= segment.address);
        if end.is_none()
            || file_end.is_none()
            || segment.file_bytes > segment.memory_bytes
            || (segment.file_bytes > 0 && !congruent)
            || !after_last
        {
            self.flawed = true;
            return Ok(());
        }
        if (segment.offset..segment.offset + segment.file_bytes).contains(&header.offset) {
            self.headers = header.offset - segment.offset + segment.address;
        }
        let alignment = long(entry, 48)?;
        if alignment.is_power_of_two() {
            self.alignment = self.alignment.max(alignment);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// First page of all segments.
    pub fn first_page(&self) -> u64 {
        self.segments.first().map_or(0, Segment::first_page)
    }

    /// First page after all segments.
    pub fn end_page(&self) -> u64 {
        self.segments.last().map_or(0, Segment::end_page)
    }
}

/// Keeps writers away from the file of a running program: while one exists, opening the file for writing is ETXTBSY.
pub struct ExecutableGuard(alloc::sync::Arc<vfs::Inode>);

impl ExecutableGuard {
    /// Fails with ETXTBSY when somebody has the file open for writing.
    pub fn new(inode: &alloc::sync::Arc<vfs::Inode>) -> Result<ExecutableGuard, Errno> {
        inode.deny_write_access()?;
        Ok(ExecutableGuard(inode.clone()))
    }
}

impl Drop for ExecutableGuard {
    fn drop(&mut self) {
        self.0.allow_write_access();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn entry(kind: u32, flags: u32, offset: u64, address: u64, file: u64, memory: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        for value in [offset, address, address, file, memory, 0x1000] {
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    fn sample() -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16] = 2;
        file[18] = 62;
        file[24..32].copy_from_slice(&0x40_1000u64.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54] = ENTRY_BYTES as u8;
        file[56] = 3;
        file.extend(entry(PT_LOAD, 5, 0, 0x40_0000, 0x2000, 0x2000));
        file.extend(entry(PT_LOAD, 6, 0x2000, 0x40_2000, 0x100, 0x3000));
        file.extend(entry(PT_GNU_STACK, 6, 0, 0, 0, 0));
        file
    }

    fn parse(file: &[u8]) -> Result<Program, Errno> {
        let header = Header::parse(file)?;
        let start = usize::try_from(header.offset).map_err(|_| Errno::ENOEXEC)?;
        let end = start.checked_add(header.table_bytes()).ok_or(Errno::ENOEXEC)?;
        header.program(file.get(start..end).ok_or(Errno::ENOEXEC)?)
    }

    #[test]
    fn a_static_program_is_understood() {
        let program = parse(&sample()).expect("well formed");
        assert_eq!(program.segments.len(), 2);
        assert_eq!((program.first_page(), program.end_page()), (0x40_0000, 0x40_5000));
        assert_eq!(program.headers, 0x40_0040);
        assert!(!program.executable_stack && !program.relocatable);
    }

    #[test]
    fn every_mutation_gives_a_sound_program_or_an_error() {
        // A fixed generator: the same mutations in each run.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut file = sample();
            for _ in 0..1 + next() % 8 {
                let at = next() as usize % file.len();
                file[at] = next() as u8;
            }
            if let Ok(program) = parse(&file) {
                let mut last = 0;
                for segment in &program.segments {
                    assert!(segment.address >= last);
                    last = segment.address + segment.memory_bytes;
                    assert!(segment.end_page() <= USER_END as u64);
                    assert!(segment.file_bytes <= segment.memory_bytes);
                }
            }
        }
    }

    #[test]
    fn truncated_files_are_refused() {
        let file = sample();
        for length in 0..file.len() {
            assert!(parse(&file[..length]).is_err());
        }
    }
}
