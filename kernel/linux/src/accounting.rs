//! Accounting of processes: acct(2), and the records of acct(5).
//!
//! While a file is set, each process that ends leaves a record of 64 bytes there, of version 3, before its parent can hear of the end. When the file's file system has hardly any
//! room left, none are written until there is more again (`/proc/sys/kernel/acct`: the percentages at which writing begins again and ends, and the seconds between two looks).
//!
//! It keeps no file system mounted: its file is open through a mount that is attached nowhere, and the account ends with the mount by which the file was found, as
//! that mount's [companion](vfs::mount::Companion).
//!
//! Only the first name space of processes has it; in later ones the call is EPERM.
//!
//! While nothing is set, the end of a process pays one load. A record that can't be written is lost; the process ends all the same.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use memory::buffer::Source;
use memory::per_cpu::Shared;
use vfs::mount::{Companion, Mount};
use vfs::{Capabilities, FileKind, MountFlags, OpenFile, OpenFlags, Path};
use zerocopy::{Immutable, IntoBytes};

use crate::errno::{Errno, SysResult};
use crate::file::context::AT_FDCWD;
use crate::file::open::{how_of, open_file};
use crate::process::process::Process;
use crate::task::Task;

/// It has not executed a program since it was made.
const FORKED: u8 = 1;
/// It left a core dump.
const DUMPED: u8 = 8;
/// A signal killed it.
const KILLED: u8 = 0x10;
const VERSION: u8 = 3;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Bits of the mantissa of a [`compressed`] number.
const MANTISSA_BITS: u32 = 13;

/// Free blocks of a hundred at which writing begins again, those at which it ends, and the seconds until it is looked at again.
pub(crate) static SETTINGS: [AtomicU64; 3] = [AtomicU64::new(4), AtomicU64::new(2), AtomicU64::new(30)];

static IS_ON: AtomicBool = AtomicBool::new(false);
/// The account, which the mount keeps.
static ACCOUNT: sched::Mutex<Weak<Account>> = sched::Mutex::named("account of processes", Weak::new());

/// Where records go, until it ends.
struct Account(sched::Mutex<Option<Records>>);

impl Companion for Account {
    fn end(&self) {
        let records = self.0.lock().take();
        drop(records);
    }

    fn is_writing(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// The file, and whether there is room.
struct Records {
    file: Arc<OpenFile>,
    has_room: bool,
    next_look_ns: u64,
}

/// `struct acct_v3`
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    flags: u8,
    version: u8,
    terminal: u16,
    exit_code: u32,
    user: u32,
    group: u32,
    pid: u32,
    parent: u32,
    began_s: u32,
    /// A floating-point number of ticks.
    elapsed_ticks: u32,
    user_ticks: u16,
    system_ticks: u16,
    memory_kib: u16,
    transferred: u16,
    blocks: u16,
    minor_faults: u16,
    major_faults: u16,
    swaps: u16,
    name: [u8; 16],
}
const _: () = assert!(size_of::<Record>() == 64);

/// A number of 13 bits and three bits that say by which power of 8 it is multiplied; rounded.
fn compressed(mut value: u64) -> u16 {
    let (mut exponent, mut rounds_up) = (0, false);
    while value >> MANTISSA_BITS != 0 {
        rounds_up = value & 4 != 0;
        value >>= 3;
        exponent += 1;
    }
    if rounds_up {
        value += 1;
        if value >> MANTISSA_BITS != 0 {
            value >>= 3;
            exponent += 1;
        }
    }
    if exponent > 7 { u16::MAX } else { exponent << MANTISSA_BITS | value as u16 }
}

/// A number as a floating-point one of 32 bits; what has no place in it is cut off.
fn floating(value: u64) -> u32 {
    const BIAS: u32 = 127;
    const FRACTION_BITS: u32 = 23;
    let Some(highest) = value.checked_ilog2() else { return 0 };
    let fraction = if highest > FRACTION_BITS {
        value >> (highest - FRACTION_BITS)
    } else {
        value << (FRACTION_BITS - highest)
    };
    (BIAS + highest) << FRACTION_BITS | fraction as u32 & ((1 << FRACTION_BITS) - 1)
}

/// Whether more than some of a hundred blocks are available. A file system that counts no blocks has room.
fn is_above(available: u64, blocks: u64, percent: u64) -> bool {
    blocks == 0 || u128::from(available) * 100 > u128::from(blocks) * u128::from(percent)
}

impl Records {
    /// Opens the file at a place once more, so that the mount stays free.
    fn open(place: &Path, flags: OpenFlags) -> Result<Self, Errno> {
        let shown = &place.mount;
        let own = Mount::new(shown.superblock().clone(), shown.root().clone(), b"", MountFlags::empty())?;
        let file = vfs::open_place(Path::new(own, place.dentry.clone()), flags)?;
        Ok(Self { file, has_room: true, next_look_ns: 0 })
    }

    /// Whether there is room for a record, as far as was looked.
    fn look_for_room(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_look_ns {
            return self.has_room;
        }
        let [begin, end, seconds] = [0, 1, 2].map(|index| SETTINGS[index].load(Relaxed));
        self.next_look_ns = now_ns.saturating_add(seconds.saturating_mul(NS_PER_SECOND));
        let Some(path) = self.file.path() else { return self.has_room };
        let status = path.mount.superblock().status();
        let percent = if self.has_room { end } else { begin };
        self.has_room = is_above(status.blocks_available, status.blocks, percent);
        self.has_room
    }
}

/// Begins to account in a file, or ends it.
#[inline(never)]
pub(crate) fn acct(task: &mut Task, path: u64) -> SysResult {
    // What a later name space of processes began would have to end with it.
    if !task.credentials.has(Capabilities::SYS_PACCT) || task.process().space().is_some() {
        return Err(Errno::EPERM);
    }
    let new = if path == 0 { None } else { Some(begin(task, path)?) };
    let (ended, replaced) = {
        let mut current = ACCOUNT.lock();
        IS_ON.store(new.is_some(), Relaxed);
        let (account, replaced) = match new {
            Some((account, mount)) => (Arc::downgrade(&account), mount.accompany(account)),
            None => (Weak::new(), None),
        };
        (core::mem::replace(&mut *current, account).upgrade(), replaced)
    };
    if let Some(ended) = ended {
        ended.end();
    }
    drop(replaced);
    Ok(0)
}

/// An account in a file, and the mount by which it was found.
fn begin(task: &mut Task, path: u64) -> Result<(Arc<Account>, Shared<Mount>), Errno> {
    let flags = OpenFlags::WRITE_ONLY | OpenFlags::APPEND | OpenFlags::LARGE_FILE;
    let file = open_file(task, AT_FDCWD, path, &how_of(flags.bits(), 0)?)?;
    let place = file.path().ok_or(Errno::EACCES)?;
    if place.inode()?.kind != FileKind::Regular {
        return Err(Errno::EACCES);
    }
    let records = Records::open(place, flags)?;
    let account = Account(sched::Mutex::named("records of processes", Some(records)));
    let account = memory::fallible::try_arc(account).map_err(|_| Errno::ENOMEM)?;
    Ok((account, place.mount.clone()))
}

/// The last thread of a process has left, and its parent has not heard of it.
#[inline(always)]
pub(crate) fn process_ends(process: &Arc<Process>) {
    if IS_ON.load(Relaxed) {
        write_record(process);
    }
}

fn record_of(process: &Arc<Process>, now_ns: u64) -> Record {
    let status = process.exit_status.load(Relaxed);
    let ticks = |ns: u64| ns / crate::time::NS_PER_TICK;
    let (user_ns, system_ns) = process.cpu_time_ns();
    let mut flags = if process.did_exec.load(Relaxed) { 0 } else { FORKED };
    if status & 0x7f != 0 {
        flags |= KILLED;
    }
    if status & 0x80 != 0 {
        flags |= DUMPED;
    }
    let credentials = process.last_credentials.lock().clone();
    let (terminal, _) = crate::terminal::numbers_of(process.group().session());
    let mapped = process.address_space().map_or(0, |space| space.usage().mapped_pages);
    Record {
        flags,
        version: VERSION,
        terminal: terminal as u16,
        exit_code: status,
        user: credentials.user.real,
        group: credentials.group.real,
        pid: process.pid(),
        parent: process.parent_pid(),
        began_s: ((crate::time::clock::realtime_offset_ns() + process.start_ns()) / NS_PER_SECOND) as u32,
        elapsed_ticks: floating(ticks(now_ns.saturating_sub(process.start_ns()))),
        user_ticks: compressed(ticks(user_ns)),
        system_ticks: compressed(ticks(system_ns)),
        memory_kib: compressed(mapped * (machine::address::PAGE_SIZE as u64 / 1024)),
        transferred: 0,
        blocks: 0,
        minor_faults: compressed(process.faults()),
        major_faults: 0,
        swaps: 0,
        name: *process.last_name.lock(),
    }
}

#[cold]
fn write_record(process: &Arc<Process>) {
    let now_ns = machine::time::now_ns();
    let record = record_of(process, now_ns);
    let account = {
        let account = ACCOUNT.lock();
        let found = account.upgrade();
        // It has ended with its mount.
        if found.is_none() {
            IS_ON.store(false, Relaxed);
        }
        found
    };
    let Some(account) = account else { return };
    let mut records = account.0.lock();
    let Some(records) = &mut *records else { return };
    if !records.look_for_room(now_ns) {
        return;
    }
    // Who is killed is still to leave its record.
    sched::current().set_attention(false);
    if let Err(error) = records.file.write(&mut Source::kernel(record.as_bytes())) {
        log::warn!("accounting: a record is lost: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compressed_to_a_mantissa_and_a_power_of_eight() {
        for (value, expected) in [
            (0, 0),
            (1, 1),
            (8191, 8191),
            (8192, 1 << 13 | 1024),
            (8196, 1 << 13 | 1025),
            (65_535, 2 << 13 | 1024),
        ] {
            assert_eq!(compressed(value), expected, "{value}");
        }
        assert_eq!(compressed(u64::MAX), u16::MAX);
    }

    #[test]
    fn room_is_compared_whatever_a_file_system_says() {
        assert!(is_above(5, 100, 4) && !is_above(4, 100, 4));
        assert!(is_above(0, 0, 100));
        assert!(is_above(u64::MAX, u64::MAX, 99) && !is_above(u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn numbers_are_made_floating() {
        for value in [0, 1, 2, 3, 8, 100, 65_537, 1 << 23, (1 << 24) - 1, 1 << 40] {
            assert_eq!(floating(value), (value as f32).to_bits(), "{value}");
        }
        assert_eq!(floating((1 << 24) + 1), ((1 << 24) as f32).to_bits());
    }
}
