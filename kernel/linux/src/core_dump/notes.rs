//! The notes of a core file: what debuggers want to know besides memory.
//!
//! Per thread: registers and signals (`NT_PRSTATUS`), vector registers (`NT_FPREGSET`, `NT_X86_XSTATE`). Per process, with the first thread: names and
//! numbers (`NT_PRPSINFO`), the signal (`NT_SIGINFO`), the auxiliary vector (`NT_AUXV`), mapped files (`NT_FILE`).

use alloc::vec::Vec;

use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use machine::user::{USER_CODE_SELECTOR, USER_DATA_SELECTOR};
use machine::user_state::UserState;
use memory::address_space::{AddressSpace, MapBacking};
use zerocopy::IntoBytes;

use super::gathering::Presence;
use crate::abi::Timeval;
use crate::errno::Errno;
use crate::process::process::Process;
use crate::signal::information::SignalInformation;
use crate::task::Task;

const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_X86_XSTATE: u32 = 0x202;
const NT_FILE: u32 = 0x4649_4c45;
const NT_SIGINFO: u32 = 0x5349_4749;
/// Bytes of the vector registers that all processors have.
const LEGACY_BYTES: usize = 512;
/// Where an image of vector registers says which components it has, for debuggers.
const COMPONENTS_OFFSET: usize = 464;
const STATUS_BYTES: usize = 336;
const NAMES_BYTES: usize = 136;
const ARGUMENTS_SHOWN: usize = 80;
const NAME_SHOWN: usize = 16;
/// Most that names of mapped files take.
const FILE_NOTE_MAX: usize = 4 << 20;

/// Notes one after the other.
#[derive(Default)]
pub(super) struct Notes(Vec<u8>);

impl Notes {
    /// All notes of a process; the first of the threads is the one that took the signal.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn of(
        task: &Task,
        information: &SignalInformation,
        dumper: &Presence,
        others: &[Presence],
    ) -> Result<Notes, Errno> {
        let process = task.process();
        let mut notes = Notes::default();
        notes.add(b"CORE", NT_PRSTATUS, &status_of(process, dumper, information))?;
        notes.add(b"CORE", NT_PRPSINFO, &names_of(task))?;
        notes.add(b"CORE", NT_SIGINFO, information.to_words().as_bytes())?;
        notes.add(b"CORE", NT_AUXV, &auxiliary_of(process, &task.address_space)?)?;
        if let Some(files) = files_of(&task.address_space)? {
            notes.add(b"CORE", NT_FILE, &files)?;
        }
        notes.add_vector_registers(dumper)?;
        for other in others {
            notes.add(b"CORE", NT_PRSTATUS, &status_of(process, other, information))?;
            notes.add_vector_registers(other)?;
        }
        Ok(notes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        vfs::allocation::extend(&mut self.0, bytes)?;
        Ok(())
    }

    fn align(&mut self) -> Result<(), Errno> {
        let missing = self.0.len().next_multiple_of(4) - self.0.len();
        self.extend(&[0; 3][..missing])
    }

    fn add(&mut self, owner: &[u8], kind: u32, contents: &[u8]) -> Result<(), Errno> {
        self.extend([owner.len() as u32 + 1, contents.len() as u32, kind].as_bytes())?;
        self.extend(owner)?;
        self.extend(&[0])?;
        self.align()?;
        self.extend(contents)?;
        self.align()
    }

    fn add_vector_registers(&mut self, presence: &Presence) -> Result<(), Errno> {
        let image = &presence.image;
        self.add(b"CORE", NT_FPREGSET, &image[..LEGACY_BYTES])?;
        let bytes = UserState::image_bytes();
        if bytes > LEGACY_BYTES {
            let mut extended = memory::fallible::try_copy(&image[..bytes]).map_err(|_| Errno::ENOMEM)?;
            extended[COMPONENTS_OFFSET..COMPONENTS_OFFSET + 8]
                .copy_from_slice(&UserState::components().to_le_bytes());
            self.add(b"LINUX", NT_X86_XSTATE, &extended)?;
        }
        Ok(())
    }
}

/// A record that is filled from its beginning.
struct Record<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Record<N> {
    const fn new() -> Self {
        Record { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn numbers(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.put(&value.to_le_bytes()));
    }

    fn words(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.put(&value.to_le_bytes()));
    }
}

/// `struct elf_prstatus`
fn status_of(process: &Process, presence: &Presence, information: &SignalInformation) -> [u8; STATUS_BYTES] {
    let thread = &presence.thread;
    let signal = information.signal.number();
    let mut record = Record::<STATUS_BYTES>::new();
    // Code and error number stand in a note of their own.
    record.numbers(&[signal.into(), 0, 0, signal.into()]);
    record.words(&[thread.pending.lock().set().bits(), thread.blocked().bits()]);
    record.numbers(&[thread.tid(), process.parent_pid(), process.group_id(), process.session_id()]);
    let runtime = thread.kernel_thread().map(|kernel| kernel.runtime()).unwrap_or_default();
    let children = process.children.lock().usage;
    for time in [
        Timeval::from_ns(runtime.user_ns),
        Timeval::from_ns(runtime.system_ns()),
        children.user_time,
        children.system_time,
    ] {
        record.put(time.as_bytes());
    }
    let registers = &presence.user.registers;
    let (code, data) = (u64::from(USER_CODE_SELECTOR), u64::from(USER_DATA_SELECTOR));
    record.words(&[
        registers.r15,
        registers.r14,
        registers.r13,
        registers.r12,
        registers.rbp,
        registers.rbx,
        registers.r11,
        registers.r10,
        registers.r9,
        registers.r8,
        registers.rax,
        registers.rcx,
        registers.rdx,
        registers.rsi,
        registers.rdi,
        presence.user.call,
        registers.rip,
        code,
        registers.rflags,
        registers.rsp,
        data,
        presence.fs_base,
        presence.gs_base,
        // The other segment registers are never used.
        0,
        0,
        0,
        0,
    ]);
    // There are vector registers.
    record.numbers(&[1, 0]);
    debug_assert_eq!(record.at, STATUS_BYTES);
    record.bytes
}

/// `struct elf_prpsinfo`
fn names_of(task: &Task) -> [u8; NAMES_BYTES] {
    let process = task.process();
    let nice = task.thread.kernel_thread().map_or(0, |kernel| kernel.nice().value());
    let mut record = Record::<NAMES_BYTES>::new();
    // It runs; its nice value; no flags.
    record.put(&[0, b'R', 0, nice as u8]);
    record.numbers(&[0]);
    record.words(&[0]);
    let user = &task.credentials;
    record.numbers(&[user.user.real, user.group.real]);
    record.numbers(&[process.pid(), process.parent_pid(), process.group_id(), process.session_id()]);
    let name = task.thread.name();
    record.put(&name[..name.len().min(NAME_SHOWN)]);
    let (start, end) = process.executable.lock().arguments;
    let mut arguments = [0; ARGUMENTS_SHOWN];
    let length = ((end - start) as usize).min(ARGUMENTS_SHOWN - 1);
    let read = task.address_space.read_remote(UserAddr::new(start), &mut arguments[..length]).unwrap_or(0);
    arguments[read..].fill(0);
    for byte in arguments[..read].iter_mut().filter(|byte| **byte == 0) {
        *byte = b' ';
    }
    record.put(&arguments);
    debug_assert_eq!(record.at, NAMES_BYTES);
    record.bytes
}

fn auxiliary_of(process: &Process, space: &AddressSpace) -> Result<Vec<u8>, Errno> {
    let ((start, end), own) = {
        let executable = process.executable.lock();
        (executable.auxiliary, executable.own_auxiliary.clone())
    };
    if let Some(own) = own {
        return memory::fallible::try_copy(own.shown().as_bytes()).map_err(|_| Errno::ENOMEM);
    }
    let mut bytes = memory::fallible::try_vec_of(0, (end - start) as usize).map_err(|_| Errno::ENOMEM)?;
    let read = space.read_remote(UserAddr::new(start), &mut bytes).unwrap_or(0);
    bytes.truncate(read);
    Ok(bytes)
}

/// Which files are mapped where: their count, the size of a page, the ranges, and then their names.
fn files_of(space: &AddressSpace) -> Result<Option<Vec<u8>>, Errno> {
    let (mut ranges, mut names, mut count) = (Vec::new(), Vec::new(), 0u64);
    let mut outcome: Result<(), vfs::Error> = Ok(());
    space.for_each_region(|region| {
        let MapBacking::File(file) = region.backing() else { return };
        let Some(object) = file.object() else { return };
        if outcome.is_err() || names.len() > FILE_NOTE_MAX {
            return;
        }
        count += 1;
        let range = [region.start(), region.end(), region.file_offset() >> PAGE_SHIFT];
        let mut name = vfs::text::Text::new();
        let _ = object.write_name(&mut name);
        outcome = vfs::allocation::extend(&mut ranges, range.as_bytes())
            .and_then(|()| vfs::allocation::extend(&mut names, &name.finish()?))
            .and_then(|()| vfs::allocation::push(&mut names, 0));
    });
    outcome?;
    if count == 0 {
        return Ok(None);
    }
    let mut note = Vec::new();
    vfs::allocation::extend(&mut note, [count, PAGE_SIZE as u64].as_bytes())?;
    vfs::allocation::extend(&mut note, &ranges)?;
    vfs::allocation::extend(&mut note, &names)?;
    Ok(Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_padded_to_four_bytes() {
        let mut notes = Notes::default();
        notes.add(b"CORE", 7, b"abcde").expect("memory");
        let mut wanted = [5u32, 5, 7].as_bytes().to_vec();
        wanted.extend(b"CORE\0\0\0\0abcde\0\0\0");
        assert_eq!(notes.bytes(), wanted);
    }
}
