//! Whatever a file claims to be, reading it as a program ends in an error or in segments that can be mapped as they are.
//! `PROPTEST_CASES` says how many files are tried.
#![forbid(unsafe_code)]

use linux::elf::{ENTRY_BYTES, Header, Program};
use machine::address::USER_END;
use proptest::collection::vec;
use proptest::prelude::*;

const HEADER_BYTES: usize = 64;
const ENTRIES: usize = 4;

/// A position-independent program with an interpreter and two segments.
fn well_formed() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [3_u16, 62, 1, 0] {
        file.extend(half.to_le_bytes());
    }
    for long in [0x1000_u64, HEADER_BYTES as u64, 0] {
        file.extend(long.to_le_bytes());
    }
    for half in [0_u16, 0, 64, ENTRY_BYTES as u16, ENTRIES as u16, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for (kind, flags, offset, address, file_bytes, memory_bytes) in [
        (3_u32, 4_u32, 0x200_u64, 0x200_u64, 20_u64, 20_u64),
        (1, 5, 0, 0, 0x1800, 0x1800),
        (1, 6, 0x2000, 0x3000, 0x100, 0x5000),
        (0x6474_e551, 6, 0, 0, 0, 0),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for long in [offset, address, address, file_bytes, memory_bytes, 0x1000] {
            file.extend(long.to_le_bytes());
        }
    }
    file
}

fn parse(file: &[u8]) -> Option<Program> {
    let header = Header::parse(file).ok()?;
    let start = usize::try_from(header.offset).ok()?;
    let table = file.get(start..start.checked_add(header.table_bytes())?)?;
    header.program(table).ok()
}

/// What the rest of the kernel relies on without looking again.
fn check(program: &Program) {
    let mut end = 0;
    for segment in &program.segments {
        assert!(segment.address >= end, "segments ascend");
        assert!(segment.file_bytes <= segment.memory_bytes && segment.memory_bytes > 0);
        end = segment.address.checked_add(segment.memory_bytes).expect("segments end");
        assert!(segment.end_page() < USER_END as u64);
        segment.offset.checked_add(segment.file_bytes).expect("files end");
    }
    assert!(program.alignment.is_power_of_two());
    assert!(program.interpreter.is_none_or(|(_, length)| (2..=4096).contains(&length)));
    // What is flawed is not mapped.
    if !program.flawed {
        assert!(program.first_page() < program.end_page() && program.entry < USER_END as u64);
    }
}

#[test]
fn the_unchanged_program_is_read() {
    let program = parse(&well_formed()).expect("well formed");
    assert_eq!((program.segments.len(), program.interpreter), (2, Some((0x200, 20))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_programs_are_refused_or_mappable(
        bytes in vec((0_usize..HEADER_BYTES + ENTRIES * ENTRY_BYTES, any::<u8>()), 0..6),
        words in vec((0_usize..(HEADER_BYTES + ENTRIES * ENTRY_BYTES) / 8, edge()), 0..4),
        cut in 0_usize..2000,
    ) {
        let mut file = well_formed();
        for (at, byte) in bytes {
            file[at] = byte;
        }
        for (at, word) in words {
            file[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        file.truncate(cut.max(HEADER_BYTES));
        if let Some(program) = parse(&file) {
            check(&program);
        }
    }
}

/// Numbers around the places where arithmetic goes wrong.
fn edge() -> impl Strategy<Value = u64> {
    let places = vec![0, 0x1000, USER_END as u64, i64::MAX as u64, u64::MAX];
    (proptest::sample::select(places), -0x1001_i64..0x1001)
        .prop_map(|(place, off)| place.wrapping_add_signed(off))
}
