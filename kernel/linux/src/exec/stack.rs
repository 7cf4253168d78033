//! What a new program finds on its stack: argument count, arguments, environment, auxiliary vector, and the strings they point to.

use alloc::vec::Vec;

use machine::address::UserAddr;
use memory::address_space::{AddressSpace, MapFlags, MapRequest, Protection};

use super::arguments::Arguments;
use super::image::Loaded;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::process::process::Executable;

const AT_NULL: u64 = 0;
/// Ignored by programs: in its place comes AT_EXECFD.
const AT_IGNORE: u64 = 1;
const AT_EXECFD: u64 = 2;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_FLAGS: u64 = 8;
const AT_ENTRY: u64 = 9;
const AT_UID: u64 = 11;
const AT_EUID: u64 = 12;
const AT_GID: u64 = 13;
const AT_EGID: u64 = 14;
const AT_PLATFORM: u64 = 15;
const AT_HWCAP: u64 = 16;
const AT_CLKTCK: u64 = 17;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;
const AT_HWCAP2: u64 = 26;
const AT_RSEQ_FEATURE_SIZE: u64 = 27;
const AT_RSEQ_ALIGN: u64 = 28;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;
const AT_MINSIGSTKSZ: u64 = 51;
/// Pairs in the auxiliary vector, the terminating one included.
pub(crate) const AUXILIARY_PAIRS: usize = 24;
/// Those that say who the program acts for, and how many are before them.
const IDENTITY_PAIRS: usize = 5;
const BEFORE_IDENTITY: u64 = 11;
/// AT_FLAGS: the first argument stands behind the path.
const FLAG_PRESERVE_FIRST: u64 = 1;
/// Stack mapped beyond what the arguments need; it grows from there.
const INITIAL_BYTES: u64 = 128 << 10;
const RANDOM_BYTES: u64 = 16;
const PLATFORM: &[u8] = b"x86_64\0";

/// What the auxiliary vector says besides addresses on the stack itself.
pub(super) struct Facts<'a> {
    pub(super) main: &'a Loaded,
    pub(super) interpreter_base: u64,
    pub(super) vdso: u64,
    pub(super) credentials: &'a Credentials,
    pub(super) secure: bool,
    /// Path of the program as given to execve.
    pub(super) file_name: &'a [u8],
    pub(super) executable_stack: bool,
    /// The interpreter finds the first argument behind the path.
    pub(super) keeps_first: bool,
    /// The program finds a file open.
    pub(super) hands_over: bool,
}

/// Where the number of the file that a program finds open stands, in an auxiliary vector there.
pub(super) fn place_of_descriptor(auxiliary: (u64, u64)) -> u64 {
    // The last pair but the end.
    auxiliary.1 - 3 * 8
}

/// Says who the program acts for after all, in an auxiliary vector there.
///
/// # Errors
/// ENOMEM if it is not there any more.
pub(super) fn correct_identity(
    space: &AddressSpace,
    auxiliary: (u64, u64),
    credentials: &Credentials,
    secure: bool,
) -> Result<(), Errno> {
    let mut bytes = [0; 16 * IDENTITY_PAIRS];
    let pairs = identity(credentials, secure);
    for (word, value) in
        bytes.chunks_exact_mut(8).zip(pairs.into_iter().flat_map(|(kind, value)| [kind, value]))
    {
        word.copy_from_slice(&value.to_le_bytes());
    }
    write(space, auxiliary.0 + 16 * BEFORE_IDENTITY, &bytes)
}

/// What an auxiliary vector says of who the program acts for, and whether it is to be careful.
fn identity(credentials: &Credentials, secure: bool) -> [(u64, u64); IDENTITY_PAIRS] {
    let (user, group, space) = (&credentials.user, &credentials.group, credentials.space());
    [
        (AT_UID, space.shown_user(user.real).into()),
        (AT_EUID, space.shown_user(user.effective).into()),
        (AT_GID, space.shown_group(group.real).into()),
        (AT_EGID, space.shown_group(group.effective).into()),
        (AT_SECURE, secure.into()),
    ]
}

/// Maps the stack below `top` and fills it; notes in `executable` where things are. Returns the first stack pointer.
#[inline(never)]
pub(super) fn build(
    space: &AddressSpace,
    top: u64,
    arguments: &Arguments,
    facts: &Facts<'_>,
    executable: &mut Executable,
) -> Result<u64, Errno> {
    // From the top down: an empty word, the file name, the strings, platform, random bytes, then the vectors.
    let name = top - 8 - (facts.file_name.len() as u64 + 1);
    let strings = name - arguments.bytes().len() as u64;
    let platform = strings - PLATFORM.len() as u64;
    let random = (platform - RANDOM_BYTES) & !15;
    let words = 1 + arguments.count + 1 + arguments.environment_count + 1 + 2 * AUXILIARY_PAIRS;
    let sp = (random - words as u64 * 8) & !15;

    map(space, top, top - sp, facts.executable_stack)?;
    let mut vector: Vec<u8> = memory::fallible::try_vec(words * 8).map_err(|_| Errno::ENOMEM)?;
    let mut push = |word: u64| vector.extend_from_slice(&word.to_le_bytes());
    push(arguments.count as u64);
    let mut address = strings;
    for (index, string) in arguments.strings().enumerate() {
        if index == arguments.count {
            push(0);
        }
        push(address);
        address += string.len() as u64 + 1;
    }
    if arguments.environment_count == 0 {
        push(0);
    }
    push(0);
    let auxiliary = auxiliary_vector(facts, random, name, platform);
    for (key, value) in auxiliary {
        push(key);
        push(value);
    }
    debug_assert_eq!(vector.len(), words * 8);

    write(space, sp, &vector)?;
    write(space, strings, arguments.bytes())?;
    write(space, name, facts.file_name)?;
    write(space, platform, PLATFORM)?;
    let mut bytes = [0; RANDOM_BYTES as usize];
    crate::random::fill(&mut bytes);
    write(space, random, &bytes)?;

    let boundary = strings + arguments.argument_bytes() as u64;
    executable.arguments = (strings, boundary);
    executable.environment = (boundary, name);
    executable.auxiliary = (sp + (words - 2 * AUXILIARY_PAIRS) as u64 * 8, sp + words as u64 * 8);
    executable.start_stack = sp;
    Ok(sp)
}

fn auxiliary_vector(
    facts: &Facts<'_>,
    random: u64,
    name: u64,
    platform: u64,
) -> [(u64, u64); AUXILIARY_PAIRS] {
    let [user, effective_user, group, effective_group, secure] = identity(facts.credentials, facts.secure);
    [
        (AT_SYSINFO_EHDR, facts.vdso),
        (AT_MINSIGSTKSZ, crate::signal::frame::largest_frame() as u64),
        (AT_HWCAP, crate::hardware::capabilities().into()),
        (AT_PAGESZ, machine::address::PAGE_SIZE as u64),
        (AT_CLKTCK, 100),
        (AT_PHDR, facts.main.headers),
        (AT_PHENT, crate::elf::ENTRY_BYTES as u64),
        (AT_PHNUM, facts.main.header_count.into()),
        (AT_BASE, facts.interpreter_base),
        (AT_FLAGS, if facts.keeps_first { FLAG_PRESERVE_FIRST } else { 0 }),
        (AT_ENTRY, facts.main.entry),
        // From here on the pairs of the identity.
        user,
        effective_user,
        group,
        effective_group,
        secure,
        (AT_RANDOM, random),
        (AT_HWCAP2, crate::hardware::more_capabilities().into()),
        (AT_EXECFN, name),
        (AT_PLATFORM, platform),
        (AT_RSEQ_FEATURE_SIZE, crate::rseq::FEATURE_BYTES.into()),
        (AT_RSEQ_ALIGN, crate::rseq::ALIGNMENT.into()),
        (if facts.hands_over { AT_EXECFD } else { AT_IGNORE }, 0),
        (AT_NULL, 0),
    ]
}

fn map(space: &AddressSpace, top: u64, used: u64, executable: bool) -> Result<(), Errno> {
    let page = machine::address::PAGE_SIZE as u64;
    let end = (top + page - 1) & !(page - 1);
    let bytes = (used + INITIAL_BYTES + page - 1) & !(page - 1);
    let mut protection = Protection::READ | Protection::WRITE;
    protection.set(Protection::EXECUTE, executable);
    let request = MapRequest::anonymous(bytes, protection)
        .at(UserAddr::new(end - bytes))
        .with(MapFlags::GROWS_DOWN | MapFlags::STACK);
    space.map(request).map_err(crate::memory::errno_of)?;
    Ok(())
}

fn write(space: &AddressSpace, mut address: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = space.write_remote(UserAddr::new(address), bytes).map_err(|_| Errno::ENOMEM)?;
        if written == 0 {
            return Err(Errno::ENOMEM);
        }
        address += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}
