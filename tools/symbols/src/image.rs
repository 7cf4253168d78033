//! An ELF file with nothing but what the boot loader loads.

use crate::Error;
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, PT_NOTE, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PAGE: usize = 4096;

/// One entry of the new program header table.
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    virtual_address: u64,
    physical_address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

/// The loadable segments of `linked`, with `table` in the place reserved for it.
pub(crate) fn write(linked: &[u8], table: &[u8]) -> Result<Vec<u8>, Error> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(linked)?;
    let programs = header.program_headers(endian, linked)?;
    let kept: Vec<_> =
        programs.iter().filter(|program| matches!(program.p_type(endian), PT_LOAD | PT_NOTE)).collect();
    let reserved = reserved_address(&kept)?;
    let mut image = vec![0; HEADER_BYTES + PROGRAM_HEADER_BYTES * kept.len()];
    let mut segments = Vec::new();
    for program in kept {
        let data = program.data(endian, linked).map_err(|()| Error::NoRoomForTable)?;
        let is_table = program.p_type(endian) == PT_LOAD && program.p_paddr(endian) == reserved;
        let data = if is_table { table } else { data };
        let align = if program.p_type(endian) == PT_LOAD { PAGE } else { program.p_align(endian) as usize };
        image.resize(image.len().next_multiple_of(align.max(1)), 0);
        segments.push(Segment {
            kind: program.p_type(endian),
            flags: program.p_flags(endian),
            offset: image.len() as u64,
            virtual_address: program.p_vaddr(endian),
            physical_address: program.p_paddr(endian),
            file_bytes: data.len() as u64,
            memory_bytes: if is_table { data.len() as u64 } else { program.p_memsz(endian) },
            align: align as u64,
        });
        image.extend_from_slice(data);
    }
    write_headers(&mut image, header.e_entry(endian), &segments);
    Ok(image)
}

/// Physical address of the segment for the table: the highest of all, and a small one.
fn reserved_address(programs: &[&ProgramHeader64<LittleEndian>]) -> Result<u64, Error> {
    let loads = programs.iter().filter(|program| program.p_type(LittleEndian) == PT_LOAD);
    let last = loads.max_by_key(|program| program.p_paddr(LittleEndian)).ok_or(Error::NoRoomForTable)?;
    if last.p_memsz(LittleEndian) > PAGE as u64 {
        return Err(Error::NoRoomForTable);
    }
    Ok(last.p_paddr(LittleEndian))
}

fn write_headers(image: &mut [u8], entry: u64, segments: &[Segment]) {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    // 64-bit, little-endian, version 1; executable; x86-64.
    header.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    header.extend_from_slice(&2_u16.to_le_bytes());
    header.extend_from_slice(&62_u16.to_le_bytes());
    header.extend_from_slice(&1_u32.to_le_bytes());
    header.extend_from_slice(&entry.to_le_bytes());
    header.extend_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
    header.extend_from_slice(&0_u64.to_le_bytes());
    header.extend_from_slice(&0_u32.to_le_bytes());
    let counts = [HEADER_BYTES, PROGRAM_HEADER_BYTES, segments.len(), 64, 0, 0];
    header.extend(counts.iter().flat_map(|count| (*count as u16).to_le_bytes()));
    for segment in segments {
        header.extend_from_slice(&segment.kind.to_le_bytes());
        header.extend_from_slice(&segment.flags.to_le_bytes());
        let words = [
            segment.offset,
            segment.virtual_address,
            segment.physical_address,
            segment.file_bytes,
            segment.memory_bytes,
            segment.align,
        ];
        header.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    image[..header.len()].copy_from_slice(&header);
}
