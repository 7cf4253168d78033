//! Pairs of calls and faults in address spaces.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;

use super::{DIRECTORY, Operation, Pair, Step, call};

const PAGE: usize = 4096;
/// Bytes of a mapping.
const LENGTH: usize = 4 * PAGE;
/// Where each side's mapping lies: far from the other one's, so that they have no page table in common.
const PLACES: [usize; 2] = [0x1000_0000_0000, 0x2000_0000_0000];

/// The pairs.
pub(super) const PAIRS: [Pair; 9] = [
    Pair::processes("mmap_munmap", mmap_munmap),
    Pair::threads("mmap_munmap_threads", mmap_munmap),
    Pair::threads("mprotect_threads", mprotect),
    Pair::processes("fault_anonymous", fault_anonymous),
    Pair::threads("fault_threads_distinct_regions", fault_anonymous),
    Pair::threads("fault_threads_distinct_files", |side| {
        fault_file(format!("{DIRECTORY}/fault-{side}"), side)
    }),
    Pair::processes("fault_same_file", |side| fault_file(format!("{DIRECTORY}/fault"), side)),
    Pair::processes("futex_wake", |_| futex_wake()),
    Pair::threads("futex_wake_threads_distinct_words", |_| futex_wake()),
];

fn writable() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

fn map_anonymous(side: usize) -> io::Result<*mut c_void> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let place = PLACES[side] as *mut c_void;
    // SAFETY: nothing of this program lies there, and the kernel would say so.
    Ok(unsafe { mmap_anonymous(place, LENGTH, writable(), flags) }?)
}

fn mmap_munmap(side: usize) -> io::Result<Operation> {
    Ok(call(move || {
        let start = map_anonymous(side).expect("memory");
        // SAFETY: the mapping was just made, and nobody refers to it.
        unsafe { munmap(start, LENGTH) }.expect("it is mapped");
    }))
}

fn mprotect(side: usize) -> io::Result<Operation> {
    let start = map_anonymous(side)?.addr();
    let mut protection = rustix::mm::MprotectFlags::READ;
    Ok(call(move || {
        protection ^= rustix::mm::MprotectFlags::WRITE;
        let start = start as *mut c_void;
        // SAFETY: the mapping is this operation's, and nobody refers to it.
        unsafe { rustix::mm::mprotect(start, LENGTH, protection) }.expect("it is mapped");
    }))
}

/// Touches a page of a mapping, which is dropped from it afterwards.
fn fault(start: *mut c_void) -> Operation {
    Box::new(move |step| match step {
        Step::Before => {}
        // SAFETY: the byte is inside a mapping of this operation's, which stays.
        Step::Call => unsafe { start.cast::<u8>().add(PAGE).write_volatile(1) },
        // SAFETY: nobody has a reference into the mapping.
        Step::After => unsafe { madvise(start, LENGTH, Advice::LinuxDontNeed) }.expect("it is mapped"),
    })
}

fn fault_anonymous(side: usize) -> io::Result<Operation> {
    Ok(fault(map_anonymous(side)?))
}

fn fault_file(path: String, side: usize) -> io::Result<Operation> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(&[1; LENGTH], 0)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
    let place = PLACES[side] as *mut c_void;
    // SAFETY: nothing of this program lies there, and the file is as long and stays so.
    let start = unsafe { mmap(place, LENGTH, ProtFlags::READ, flags, file, 0) }?;
    Ok(Box::new(move |step| match step {
        Step::Before => {}
        // SAFETY: the byte is inside the mapping, which stays.
        Step::Call => _ = unsafe { start.cast::<u8>().add(PAGE).read_volatile() },
        // SAFETY: nobody has a reference into the mapping.
        Step::After => unsafe { madvise(start, LENGTH, Advice::LinuxDontNeed) }.expect("it is mapped"),
    }))
}

fn futex_wake() -> io::Result<Operation> {
    // Two words of one line would be the program's own sharing.
    #[repr(align(128))]
    struct Alone(AtomicU32);
    let word = Box::new(Alone(AtomicU32::new(0)));
    Ok(call(move || assert_eq!(futex::wake(&word.0, futex::Flags::PRIVATE, 1), Ok(0))))
}
