//! ptrace(2): requests.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use machine::user_state::UserState;
use memory::address_space::AddressSpace;
use zerocopy::IntoBytes;

use super::options::{Course, Options};
use super::registers::{self, DEBUG_BYTES, DEBUG_OFFSET, GENERAL_BYTES, LEGACY_BYTES, USER_BYTES};
use super::tracee::{Changes, State, Tracee};
use super::{attach, debug, information};
use crate::abi::{IoVector, SignalInfoWords};
use crate::errno::{Errno, SysResult};
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::{Signal, SignalSet};
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

/// Requests by their numbers.
mod number {
    pub(super) const TRACEME: u64 = 0;
    pub(super) const PEEKTEXT: u64 = 1;
    pub(super) const PEEKDATA: u64 = 2;
    pub(super) const PEEKUSR: u64 = 3;
    pub(super) const POKETEXT: u64 = 4;
    pub(super) const POKEDATA: u64 = 5;
    pub(super) const POKEUSR: u64 = 6;
    pub(super) const CONT: u64 = 7;
    pub(super) const KILL: u64 = 8;
    pub(super) const SINGLESTEP: u64 = 9;
    pub(super) const GETREGS: u64 = 12;
    pub(super) const SETREGS: u64 = 13;
    pub(super) const GETFPREGS: u64 = 14;
    pub(super) const SETFPREGS: u64 = 15;
    pub(super) const ATTACH: u64 = 16;
    pub(super) const DETACH: u64 = 17;
    pub(super) const SYSCALL: u64 = 24;
    pub(super) const ARCH_PRCTL: u64 = 30;
    pub(super) const SYSEMU: u64 = 31;
    pub(super) const SYSEMU_SINGLESTEP: u64 = 32;
    pub(super) const SETOPTIONS: u64 = 0x4200;
    pub(super) const GETEVENTMSG: u64 = 0x4201;
    pub(super) const GETSIGINFO: u64 = 0x4202;
    pub(super) const SETSIGINFO: u64 = 0x4203;
    pub(super) const GETREGSET: u64 = 0x4204;
    pub(super) const SETREGSET: u64 = 0x4205;
    pub(super) const SEIZE: u64 = 0x4206;
    pub(super) const INTERRUPT: u64 = 0x4207;
    pub(super) const LISTEN: u64 = 0x4208;
    pub(super) const PEEKSIGINFO: u64 = 0x4209;
    pub(super) const GETSIGMASK: u64 = 0x420a;
    pub(super) const SETSIGMASK: u64 = 0x420b;
    pub(super) const SECCOMP_GET_FILTER: u64 = 0x420c;
    pub(super) const SECCOMP_GET_METADATA: u64 = 0x420d;
    pub(super) const GET_SYSCALL_INFO: u64 = 0x420e;
    pub(super) const GET_RSEQ_CONFIGURATION: u64 = 0x420f;
}

const WORD: usize = size_of::<u64>();

/// Traces another thread, or lets oneself be traced.
#[inline(never)]
pub fn ptrace(task: &mut Task, request: u64, pid: i32, address: u64, data: u64) -> SysResult {
    if request == number::TRACEME {
        return attach::trace_me(task);
    }
    let thread = u32::try_from(pid).ok().and_then(|pid| task.find_thread(pid)).ok_or(Errno::ESRCH)?;
    match request {
        number::ATTACH => return attach::attach(task, &thread, None),
        number::SEIZE if address != 0 => return Err(Errno::EIO),
        number::SEIZE => {
            let options = Options::read(task, data, Errno::EIO)?;
            return attach::attach(task, &thread, Some(options));
        }
        _ => {}
    }
    let tracee = thread.tracee().ok_or(Errno::ESRCH)?;
    let is_ours = tracee.tracer().is_some_and(|tracer| Arc::ptr_eq(&tracer, &task.thread));
    let needs_stop = !matches!(request, number::KILL | number::INTERRUPT);
    if !is_ours || needs_stop && !tracee.lock().stands() {
        return Err(Errno::ESRCH);
    }
    control(task, &tracee, request, address, data)
}

/// What lets a tracee go on, or is asked of a running one.
fn control(task: &mut Task, tracee: &Arc<Tracee>, request: u64, address: u64, data: u64) -> SysResult {
    let course = match request {
        number::KILL => {
            let information = SignalInformation::from_kernel(Signal::SIGKILL);
            let _ = send::to_process(tracee.process(), information);
            return Ok(0);
        }
        number::INTERRUPT => return attach::interrupt(tracee),
        number::LISTEN => return listen(tracee),
        number::DETACH => {
            attach::detach(task, tracee, signal_of(data)?);
            return Ok(0);
        }
        number::CONT => Course::Free,
        number::SYSCALL => Course::Calls,
        number::SINGLESTEP => Course::Step,
        number::SYSEMU => Course::Emulated,
        number::SYSEMU_SINGLESTEP => Course::EmulatedStep,
        _ => return inspect(task, tracee, request, address, data),
    };
    attach::resume(tracee, course, signal_of(data)?);
    Ok(0)
}

/// A signal's number, or 0 for none.
fn signal_of(data: u64) -> Result<u8, Errno> {
    if data <= Signal::COUNT as u64 { Ok(data as u8) } else { Err(Errno::EIO) }
}

fn listen(tracee: &Tracee) -> SysResult {
    {
        let mut state = tracee.lock();
        let is_trap = state.stop.as_ref().is_some_and(|stop| stop.reason == super::tracee::Reason::Trap);
        if !state.is_seized || !is_trap {
            return Err(Errno::EIO);
        }
        state.is_listening = true;
    }
    // What has come while it stood is told at once.
    tracee.event.wake_all();
    Ok(0)
}

/// What a look at a tracee that stands says.
fn with_stopped<R>(tracee: &Tracee, look: impl FnOnce(&mut State) -> Result<R, Errno>) -> Result<R, Errno> {
    let mut state = tracee.lock();
    if state.stands() { look(&mut state) } else { Err(Errno::ESRCH) }
}

/// What is asked of a tracee that stands, or changed.
fn inspect(task: &mut Task, tracee: &Arc<Tracee>, request: u64, address: u64, data: u64) -> SysResult {
    match request {
        number::PEEKTEXT | number::PEEKDATA => peek(tracee, address, data),
        number::POKETEXT | number::POKEDATA => poke(tracee, address, data),
        number::PEEKUSR => {
            let word = with_stopped(tracee, |state| user_word(state, address))?;
            UserPointer::<u64>::new(data).write(&word).map(|()| 0)
        }
        number::POKEUSR => with_stopped(tracee, |state| set_user_word(state, address, data)).map(|()| 0),
        number::GETREGS => get_set(tracee, Set::General, data, usize::MAX).map(|_| 0),
        number::SETREGS => put_set(tracee, Set::General, data, GENERAL_BYTES).map(|()| 0),
        number::GETFPREGS => get_set(tracee, Set::Legacy, data, usize::MAX).map(|_| 0),
        number::SETFPREGS => put_set(tracee, Set::Legacy, data, LEGACY_BYTES).map(|()| 0),
        number::GETREGSET | number::SETREGSET => by_vector(tracee, request, address, data),
        number::ARCH_PRCTL => base(tracee, data, address),
        number::SETOPTIONS => {
            let options = Options::read(task, data, Errno::EINVAL)?;
            with_stopped(tracee, |state| {
                state.options = options;
                Ok(0)
            })
        }
        number::GETEVENTMSG => {
            let message =
                with_stopped(tracee, |state| Ok(state.stop.as_ref().map_or(0, |stop| stop.message)))?;
            UserPointer::<u64>::new(data).write(&message).map(|()| 0)
        }
        number::GETSIGINFO => {
            let found = with_stopped(tracee, |state| Ok(state.stop.and_then(|stop| stop.information)))?;
            let words = found.ok_or(Errno::EINVAL)?.to_words();
            UserPointer::<SignalInfoWords>::new(data).write(&words).map(|()| 0)
        }
        number::SETSIGINFO => set_information(tracee, data),
        number::PEEKSIGINFO => information::peek(tracee, address, data),
        number::GETSIGMASK | number::SETSIGMASK if address != WORD as u64 => Err(Errno::EINVAL),
        number::GETSIGMASK => {
            let mask = with_stopped(tracee, |state| Ok(state.snapshot.mask.bits()))?;
            UserPointer::<u64>::new(data).write(&mask).map(|()| 0)
        }
        number::SETSIGMASK => {
            let mask = SignalSet::from_bits(UserPointer::<u64>::new(data).read()?).blockable();
            with_stopped(tracee, |state| {
                state.snapshot.mask = mask;
                state.snapshot.changes.insert(Changes::MASK);
                Ok(0)
            })
        }
        number::GET_SYSCALL_INFO => {
            information::write_call(|| with_stopped(tracee, information::call_of), address, data)
        }
        number::GET_RSEQ_CONFIGURATION => {
            let found = with_stopped(tracee, |state| Ok(information::sequence_of(state)))?;
            let room = usize::try_from(address).unwrap_or(usize::MAX).min(found.as_bytes().len());
            write_bytes(data, &found.as_bytes()[..room])?;
            Ok(found.as_bytes().len())
        }
        number::SECCOMP_GET_FILTER => crate::seccomp::show_filter(task, tracee.thread(), address, data),
        number::SECCOMP_GET_METADATA => crate::seccomp::show_metadata(task, tracee.thread(), address, data),
        _ => Err(Errno::EIO),
    }
}

/// The tracee's memory, if its tracer may look into the program that runs there now.
fn memory_of(tracee: &Tracee) -> Result<Arc<AddressSpace>, Errno> {
    let process = tracee.process();
    let is_open = process.is_dumpable.load(Ordering::Relaxed) == 1
        || tracee.may_gain_privileges(&process.executable.lock().space);
    process.address_space().filter(|_| is_open).ok_or(Errno::EIO)
}

fn peek(tracee: &Tracee, address: u64, to: u64) -> SysResult {
    let mut word = [0; WORD];
    match memory_of(tracee)?.read_remote(UserAddr::new(address), &mut word) {
        Ok(WORD) => write_bytes(to, &word).map(|()| 0),
        _ => Err(Errno::EIO),
    }
}

fn poke(tracee: &Tracee, address: u64, word: u64) -> SysResult {
    match memory_of(tracee)?.write_forced(UserAddr::new(address), &word.to_le_bytes()) {
        Ok(WORD) => Ok(0),
        _ => Err(Errno::EIO),
    }
}

/// Where a word of `struct user` is.
enum Place {
    General(usize),
    Debug(usize),
    /// Something that nothing is kept of.
    Nothing,
}

fn place_of(address: u64) -> Result<Place, Errno> {
    let offset = usize::try_from(address).map_err(|_| Errno::EIO)?;
    if !offset.is_multiple_of(WORD) || offset >= USER_BYTES {
        return Err(Errno::EIO);
    }
    Ok(match offset {
        _ if offset < GENERAL_BYTES => Place::General(offset / WORD),
        _ if (DEBUG_OFFSET..DEBUG_OFFSET + DEBUG_BYTES).contains(&offset) => {
            Place::Debug((offset - DEBUG_OFFSET) / WORD)
        }
        _ => Place::Nothing,
    })
}

fn user_word(state: &State, address: u64) -> Result<u64, Errno> {
    Ok(match place_of(address)? {
        Place::General(place) => registers::general(&state.snapshot)[place],
        Place::Debug(register) => debug::get(state, register),
        Place::Nothing => 0,
    })
}

fn set_user_word(state: &mut State, address: u64, value: u64) -> Result<(), Errno> {
    match place_of(address)? {
        Place::General(place) => registers::set_general(&mut state.snapshot, place, value),
        Place::Debug(register) => debug::set(state, register, value),
        Place::Nothing => Err(Errno::EIO),
    }
}

/// A set of registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    /// `NT_PRSTATUS`
    General,
    /// `NT_PRFPREG`
    Legacy,
    /// `NT_X86_XSTATE`
    Image,
}

impl Set {
    fn of(note: u64) -> Result<Set, Errno> {
        Ok(match note {
            1 => Set::General,
            2 => Set::Legacy,
            0x202 if UserState::components() != 0 => Set::Image,
            _ => return Err(Errno::EINVAL),
        })
    }

    fn bytes(self) -> usize {
        match self {
            Set::General => GENERAL_BYTES,
            Set::Legacy => LEGACY_BYTES,
            Set::Image => UserState::image_bytes(),
        }
    }
}

/// Writes as much of a set as there is room for; returns how much that is.
fn get_set(tracee: &Tracee, set: Set, to: u64, room: usize) -> Result<usize, Errno> {
    let bytes = with_stopped(tracee, |state| match set {
        Set::General => registers::bytes_of(&registers::general(&state.snapshot)),
        Set::Legacy | Set::Image => registers::image(&state.snapshot),
    })?;
    let count = set.bytes().min(room);
    write_bytes(to, &bytes[..count])?;
    Ok(count)
}

/// Changes the first `count` bytes of a set.
fn put_set(tracee: &Tracee, set: Set, from: u64, count: usize) -> Result<(), Errno> {
    match set {
        Set::Legacy if count != LEGACY_BYTES => return Err(Errno::EINVAL),
        Set::Image if count != set.bytes() => return Err(Errno::EFAULT),
        _ => {}
    }
    let mut bytes = memory::fallible::try_vec_of(0u8, count).map_err(|_| Errno::ENOMEM)?;
    read_bytes(from, &mut bytes)?;
    with_stopped(tracee, |state| match set {
        Set::General => registers::set_first(&mut state.snapshot, &bytes),
        Set::Legacy => registers::set_legacy(&mut state.snapshot, &bytes),
        Set::Image => registers::set_image(&mut state.snapshot, &bytes),
    })
}

fn by_vector(tracee: &Tracee, request: u64, note: u64, data: u64) -> SysResult {
    let vector = UserPointer::<IoVector>::new(data);
    let given = vector.read()?;
    let set = Set::of(note)?;
    if !given.length.is_multiple_of(WORD as u64) {
        return Err(Errno::EINVAL);
    }
    let length = usize::try_from(given.length).unwrap_or(usize::MAX).min(set.bytes());
    if request == number::GETREGSET {
        get_set(tracee, set, given.base, length)?;
    } else {
        put_set(tracee, set, given.base, length)?;
    }
    vector.write(&IoVector { base: given.base, length: length as u64 })?;
    Ok(0)
}

/// `PTRACE_ARCH_PRCTL`: the bases of FS and GS.
fn base(tracee: &Tracee, code: u64, address: u64) -> SysResult {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    const FS_BASE: usize = 21;
    const GS_BASE: usize = 22;
    match code {
        SET_FS | SET_GS => {
            let place = if code == SET_FS { FS_BASE } else { GS_BASE };
            let set = |state: &mut State| registers::set_general(&mut state.snapshot, place, address);
            with_stopped(tracee, set).map(|()| 0).map_err(|errno| match errno {
                Errno::EIO => Errno::EPERM,
                errno => errno,
            })
        }
        GET_FS | GET_GS => {
            let place = if code == GET_FS { FS_BASE } else { GS_BASE };
            let base = with_stopped(tracee, |state| Ok(registers::general(&state.snapshot)[place]))?;
            UserPointer::<u64>::new(address).write(&base).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn set_information(tracee: &Tracee, data: u64) -> SysResult {
    let words = UserPointer::<SignalInfoWords>::new(data).read()?;
    with_stopped(tracee, |state| {
        let stop = state.stop.as_mut().ok_or(Errno::ESRCH)?;
        let known = stop.information.as_mut().ok_or(Errno::EINVAL)?;
        // A number that no signal has is one that the tracer can't let the tracee go on with.
        let signal = u64::try_from(words.signal).ok().and_then(Signal::new).unwrap_or(known.signal);
        *known = SignalInformation::from_words(signal, &words);
        Ok(0)
    })
}
