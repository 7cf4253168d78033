//! A guest of a few dozen bytes that answers one question: does this accelerator run a guest at speed?
//!
//! It counts down [`ITERATIONS`] with a memory access each, then leaves QEMU through its debug-exit device. A processor
//! needs about ten milliseconds for that and TCG twenty; nested or emulated KVM can need minutes.

/// Iterations of the loop.
const ITERATIONS: u32 = 10_000_000;
/// Where the guest is loaded.
const LOAD_ADDRESS: u32 = 0x10_0000;
/// Bytes before the code: the ELF header, two program headers and the note.
const CODE_OFFSET: u32 = 52 + 2 * 32 + NOTE.len() as u32 + 4;
/// I/O port of the debug-exit device.
pub(super) const EXIT_PORT: u16 = 0xf4;
/// QEMU's exit status when the guest has finished: twice the value written, plus one.
pub(super) const EXIT_STATUS: i32 = (EXIT_VALUE as i32) * 2 + 1;
const EXIT_VALUE: u8 = 0x2a;

/// The note that says "enter here in 32-bit mode": name length, value length, type, name. The value follows.
const NOTE: [u8; 16] = [4, 0, 0, 0, 4, 0, 0, 0, 18, 0, 0, 0, b'X', b'e', b'n', 0];

/// The guest as an ELF file that QEMU boots with `-kernel`.
pub(super) fn image() -> Vec<u8> {
    let code = code();
    let length = CODE_OFFSET + code.len() as u32;
    let entry = LOAD_ADDRESS + CODE_OFFSET;
    let note_offset = 52 + 2 * 32;
    let note_bytes = NOTE.len() as u32 + 4;
    let mut image = Vec::new();
    image.extend(b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0");
    halves(&mut image, &[2, 3]);
    words(&mut image, &[1, entry, 52, 0, 0]);
    halves(&mut image, &[52, 32, 2, 40, 0, 0]);
    // PT_LOAD: the whole file, readable and executable.
    words(&mut image, &[1, 0, LOAD_ADDRESS, LOAD_ADDRESS, length, length, 5, 4096]);
    // PT_NOTE.
    words(
        &mut image,
        &[
            4,
            note_offset,
            LOAD_ADDRESS + note_offset,
            LOAD_ADDRESS + note_offset,
            note_bytes,
            note_bytes,
            4,
            4,
        ],
    );
    image.extend(NOTE);
    words(&mut image, &[entry]);
    assert_eq!(image.len(), CODE_OFFSET as usize);
    image.extend(code);
    image
}

fn code() -> Vec<u8> {
    let mut code = vec![0xb9]; // mov ecx, ITERATIONS
    words(&mut code, &[ITERATIONS]);
    code.extend([0x01, 0x0c, 0x25]); // next: add [0x200000], ecx
    words(&mut code, &[0x20_0000]);
    code.push(0x49); // dec ecx
    code.extend([0x75, 0xf6]); // jnz next
    code.extend([0x66, 0xba]); // mov dx, EXIT_PORT
    halves(&mut code, &[EXIT_PORT]);
    code.extend([0xb0, EXIT_VALUE]); // mov al, EXIT_VALUE
    code.push(0xee); // out dx, al
    code.extend([0xf4, 0xeb, 0xfd]); // halt: hlt; jmp halt
    code
}

fn words(out: &mut Vec<u8>, values: &[u32]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn halves(out: &mut Vec<u8>, values: &[u16]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
