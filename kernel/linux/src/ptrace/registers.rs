//! Registers as tracers name them: `struct user`, and the sets of `PTRACE_GETREGSET`.
//!
//! The program's segments are constants: selectors that could be loaded are accepted, and change nothing.

use alloc::vec::Vec;

use machine::address::USER_END;
use machine::user::{USER_CODE_SELECTOR, USER_DATA_SELECTOR};
use machine::user_state::UserState;

use super::tracee::{Changes, Snapshot};
use crate::errno::Errno;

/// `struct user_regs_struct` in words.
pub(super) const WORDS: usize = 27;
const WORD: usize = size_of::<u64>();
/// Bytes of the general registers.
pub(super) const GENERAL_BYTES: usize = WORDS * WORD;
/// Bytes of the floating-point registers as fxsave stores them.
pub(super) const LEGACY_BYTES: usize = 512;
/// `offsetof(struct user, u_debugreg)`
pub(super) const DEBUG_OFFSET: usize = 848;
/// Bytes of the debug registers.
pub(super) const DEBUG_BYTES: usize = 8 * WORD;
/// `sizeof(struct user)` as the kernel has it: two words more than programs know of.
pub(super) const USER_BYTES: usize = 928;

/// Flags that a tracer may change.
const CHANGEABLE_FLAGS: u64 = 0x0005_4dd5;
/// Where the image says which components the processor saves.
const SOFTWARE_OFFSET: usize = 464;
const HEADER_OFFSET: usize = 512;
const MXCSR_OFFSET: usize = 24;
const X87: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;

const ORIGINAL_RAX: usize = 15;
const CODE_SEGMENT: usize = 17;
const FLAGS: usize = 18;
const STACK_SEGMENT: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;

/// The general registers in the order of `struct user_regs_struct`.
pub(super) fn general(snapshot: &Snapshot) -> [u64; WORDS] {
    let r = &snapshot.registers;
    [
        r.r15,
        r.r14,
        r.r13,
        r.r12,
        r.rbp,
        r.rbx,
        r.r11,
        r.r10,
        r.r9,
        r.r8,
        r.rax,
        r.rcx,
        r.rdx,
        r.rsi,
        r.rdi,
        snapshot.call,
        r.rip,
        USER_CODE_SELECTOR.into(),
        r.rflags,
        r.rsp,
        USER_DATA_SELECTOR.into(),
        snapshot.fs_base,
        snapshot.gs_base,
        0,
        0,
        0,
        0,
    ]
}

/// Changes a general register, by its place.
///
/// # Errors
/// EIO.
pub(super) fn set_general(snapshot: &mut Snapshot, place: usize, value: u64) -> Result<(), Errno> {
    let r = &mut snapshot.registers;
    match place {
        0 => r.r15 = value,
        1 => r.r14 = value,
        2 => r.r13 = value,
        3 => r.r12 = value,
        4 => r.rbp = value,
        5 => r.rbx = value,
        6 => r.r11 = value,
        7 => r.r10 = value,
        8 => r.r9 = value,
        9 => r.r8 = value,
        10 => r.rax = value,
        11 => r.rcx = value,
        12 => r.rdx = value,
        13 => r.rsi = value,
        14 => r.rdi = value,
        ORIGINAL_RAX => snapshot.call = value,
        16 => r.rip = value,
        FLAGS => r.rflags = r.rflags & !CHANGEABLE_FLAGS | value & CHANGEABLE_FLAGS,
        19 => r.rsp = value,
        FS_BASE | GS_BASE if value >= USER_END as u64 => return Err(Errno::EIO),
        FS_BASE => snapshot.fs_base = value,
        GS_BASE => snapshot.gs_base = value,
        _ => {
            let selector = value as u16;
            let is_needed = matches!(place, CODE_SEGMENT | STACK_SEGMENT);
            if selector & 3 != 3 && (selector != 0 || is_needed) {
                return Err(Errno::EIO);
            }
        }
    }
    snapshot.changes.insert(Changes::REGISTERS);
    Ok(())
}

/// Changes the first registers.
///
/// # Errors
/// EIO; those before the bad one are changed then.
pub(super) fn set_first(snapshot: &mut Snapshot, bytes: &[u8]) -> Result<(), Errno> {
    for (place, word) in bytes.chunks_exact(WORD).enumerate() {
        set_general(snapshot, place, word_of(word))?;
    }
    Ok(())
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The first `count` bytes of a set that is made of words.
pub(super) fn bytes_of(words: &[u64]) -> Result<Vec<u8>, Errno> {
    let mut bytes = memory::fallible::try_vec_of(0u8, words.len() * WORD).map_err(|_| Errno::ENOMEM)?;
    bytes
        .chunks_exact_mut(WORD)
        .zip(words)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    Ok(bytes)
}

/// The image of all floating-point and vector registers. What the processor has not stored because it has its first value is made up, and
/// the components that there are, are told where `struct _fpx_sw_bytes` has them.
pub(super) fn image(snapshot: &Snapshot) -> Result<Vec<u8>, Errno> {
    const CONTROL_WORD: [u8; 2] = 0x37fu16.to_le_bytes();
    let bytes = UserState::image_bytes();
    let mut image = memory::fallible::try_copy(&snapshot.image[..bytes]).map_err(|_| Errno::ENOMEM)?;
    if bytes == LEGACY_BYTES {
        return Ok(image);
    }
    let stored = word_of(&image[HEADER_OFFSET..HEADER_OFFSET + WORD]);
    if stored & X87 == 0 {
        image[..MXCSR_OFFSET].fill(0);
        image[..2].copy_from_slice(&CONTROL_WORD);
        image[32..160].fill(0);
    }
    if stored & SSE == 0 {
        image[160..416].fill(0);
    }
    if stored & AVX == 0 {
        image[HEADER_OFFSET + 64..].fill(0);
    }
    image[SOFTWARE_OFFSET..SOFTWARE_OFFSET + WORD].copy_from_slice(&UserState::components().to_le_bytes());
    Ok(image)
}

/// Replaces the floating-point registers as fxsave stores them: the first bytes of an image.
///
/// # Errors
/// EINVAL for bits of MXCSR that there are none of.
pub(super) fn set_legacy(snapshot: &mut Snapshot, bytes: &[u8]) -> Result<(), Errno> {
    let mut whole = image(snapshot)?;
    whole[..bytes.len()].copy_from_slice(bytes);
    if let Some(header) = whole.get_mut(HEADER_OFFSET) {
        *header |= (X87 | SSE) as u8;
    }
    set_image(snapshot, &whole)
}

/// Replaces all floating-point and vector registers.
///
/// # Errors
/// EINVAL for what the processor would not load.
pub(super) fn set_image(snapshot: &mut Snapshot, bytes: &[u8]) -> Result<(), Errno> {
    let mut state = UserState::new();
    state.set_image(bytes).map_err(|_| Errno::EINVAL)?;
    let taken = state.image();
    snapshot.image[..taken.len()].copy_from_slice(taken);
    snapshot.changes.insert(Changes::IMAGE);
    Ok(())
}
