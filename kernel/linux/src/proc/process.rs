//! The directory of a process or thread: names, kinds, and who may look.
//!
//! A node holds a weak reference: it keeps no zombie alive, and reading it after the process's end is ESRCH. What others may not
//! see (memory maps, environment, descriptors) is checked when it is read, by the rule of ptrace(2).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use procfs::ProcessSource;
use vfs::file::FileOperations;
use vfs::generated::{Body, Directory, File, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode};
use vfs::text::Text;
use vfs::{Error, FileKind, OpenFile, OpenFlags, Path, Result};

use super::places::{self, PlaceLink};
use super::{
    activity, attributes, descriptors, entries, lists, map_files, maps, memory_files, mounts, stat, status,
    time_offsets, timers, user_maps,
};
use crate::credentials::inspection::Inspector;
use crate::process::pid_space::{self, Space};
use crate::process::process::{Process, State};
use crate::process::table;
use crate::process::thread::Thread;
use crate::terminal::calling_thread;

/// Inode numbers of processes' nodes lie above those that fixed nodes get. Below this bit they are made of the time at
/// which the process started (so that a number used again is another file), its number, and a place in its directory.
const NUMBER_BASE: u64 = 1 << 62;
const START_SHIFT: u32 = 30;
const PID_SHIFT: u32 = 8;
/// Places of threads' nodes; those of processes come before.
const THREAD_PLACES: u64 = 1 << 7;
/// Start times are told apart from 65 µs on, for three days.
const START_UNIT_SHIFT: u32 = 16;
const START_MASK: u64 = 0xffff_ffff;
const _: () = assert!(ENTRIES.len() < THREAD_PLACES as usize);

/// Whose node it is.
#[derive(Clone)]
pub(super) struct Subject {
    process: Weak<Process>,
    /// The thread, in `task` directories.
    tid: Option<u32>,
    /// The name space of process numbers whose `/proc` it is.
    view: Space,
}

impl Subject {
    /// The process, until it is reaped: somebody may refer to what is left of it for a while longer.
    pub(super) fn process(&self) -> Result<Arc<Process>> {
        self.process.upgrade().filter(|process| process.state() != State::Dead).ok_or(Error::NoProcess)
    }

    /// The thread: the one of the directory, or the process's leader.
    pub(super) fn thread(&self) -> Result<Arc<Thread>> {
        let process = self.process()?;
        match self.tid {
            Some(tid) => process.thread(tid).ok_or(Error::NoProcess),
            None => process.representative().ok_or(Error::NoProcess),
        }
    }

    /// The thread whose state is shown; `None`: it has ended, as a leader may before the others.
    pub(super) fn shown_thread(&self) -> Result<Option<Arc<Thread>>> {
        let process = self.process()?;
        let shown = self.tid.unwrap_or(process.pid());
        if shown == process.pid() && process.leader_is_gone() { Ok(None) } else { self.thread().map(Some) }
    }

    /// Whether it is one thread's directory.
    pub(super) fn is_thread(&self) -> bool {
        self.tid.is_some()
    }

    /// The kernel's number of what the directory is of.
    pub(super) fn kernel_number(&self) -> Result<u32> {
        match self.tid {
            Some(tid) => Ok(tid),
            None => Ok(self.process()?.pid()),
        }
    }

    /// The number that the directory is named by.
    pub(super) fn number(&self) -> Result<u32> {
        self.kernel_number().map(|pid| self.seen(pid))
    }

    /// What a process or thread is called in this `/proc`.
    pub(super) fn seen(&self, pid: u32) -> u32 {
        pid_space::seen(&self.view, pid)
    }

    /// The name space of process numbers whose `/proc` it is.
    pub(super) fn view(&self) -> &Space {
        &self.view
    }

    /// What `look` takes from the process, if the caller may look into it: see [`Inspector::inspect`].
    pub(super) fn inspect<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        let process = self.process()?;
        let Some(caller) = calling_thread() else { return look() };
        let credentials = caller.credentials();
        Inspector::reading(&caller, &credentials).inspect(&process, look)?
    }

    /// The same if the caller may read and write the process's memory.
    pub(super) fn inspect_attaching<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        let process = self.process()?;
        let Some(caller) = calling_thread() else { return look() };
        let credentials = caller.credentials();
        Inspector::attaching_by_file(&caller, &credentials).inspect(&process, look)?
    }

    /// Who owns what is private to the process: root, when others may not look into it.
    pub(super) fn owner(&self) -> (u32, u32) {
        match self.process() {
            Ok(process) if is_dumpable(&process) => owner_of(&process),
            _ => (0, 0),
        }
    }

    /// Whose process it is: who owns the directories of its open files, which a process may enter itself also when others may not look into it. What is in
    /// them asks who looks.
    pub(super) fn process_owner(&self) -> (u32, u32) {
        self.process().map_or((0, 0), |process| owner_of(&process))
    }

    /// The inode number of the entry at a place of one of the process's directories below the first.
    pub(super) fn part_number(&self, directory: &str, place: u64) -> Result<u64> {
        let process = self.process()?;
        let own = number_of(&process, self.tid.unwrap_or(process.pid()), 0);
        // Mixed so that numbers of different directories are unlike; nothing depends on it.
        let salt =
            directory.bytes().fold(place, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte.into()));
        Ok(NUMBER_BASE | own.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 2)
    }
}

/// Whether the program lets itself be looked into (PR_SET_DUMPABLE).
fn is_dumpable(process: &Process) -> bool {
    process.is_dumpable.load(Ordering::Relaxed) == 1
}

/// What an entry is.
enum Kind {
    Text(fn(&Subject, &mut Text) -> Result<()>),
    Guarded(fn(&Subject, &mut Text) -> Result<()>),
    Knob(fn(&Subject, &mut Text) -> Result<()>, fn(&Subject, &[u8]) -> Result<()>),
    Object(fn(&Subject) -> Result<Arc<dyn FileOperations>>),
    Own(fn(&Subject, OpenFlags) -> Result<Arc<dyn FileOperations>>),
    Mounts(fn(&Subject, &mut Text) -> Result<()>),
    Place(fn(&Subject) -> Result<Path>),
    Directory(fn(&Subject) -> Result<Arc<dyn Directory>>),
}

struct Entry {
    name: &'static str,
    mode: u32,
    kind: Kind,
}

const fn text(name: &'static str, mode: u32, show: fn(&Subject, &mut Text) -> Result<()>) -> Entry {
    Entry { name, mode, kind: Kind::Text(show) }
}

/// A file of what others may not see: who may is checked when it is opened and again when it is read.
const fn guarded(name: &'static str, mode: u32, show: fn(&Subject, &mut Text) -> Result<()>) -> Entry {
    Entry { name, mode, kind: Kind::Guarded(show) }
}

/// A file that is not a text; who may look is checked when it is opened.
const fn object(
    name: &'static str,
    mode: u32,
    open: fn(&Subject) -> Result<Arc<dyn FileOperations>>,
) -> Entry {
    Entry { name, mode, kind: Kind::Object(open) }
}

/// A file that is not a plain text and asks by itself who opens it.
const fn own(name: &'static str, open: fn(&Subject, OpenFlags) -> Result<Arc<dyn FileOperations>>) -> Entry {
    Entry { name, mode: 0o644, kind: Kind::Own(open) }
}

/// A list of mounts, which can be polled.
const fn mounts_list(name: &'static str, show: fn(&Subject, &mut Text) -> Result<()>) -> Entry {
    Entry { name, mode: 0o444, kind: Kind::Mounts(show) }
}

const fn place(name: &'static str, place: fn(&Subject) -> Result<Path>) -> Entry {
    Entry { name, mode: 0o777, kind: Kind::Place(place) }
}

const fn directory(name: &'static str, mode: u32, open: fn(&Subject) -> Result<Arc<dyn Directory>>) -> Entry {
    Entry { name, mode, kind: Kind::Directory(open) }
}

/// All entries: first what only a thread's directory has, then what both have, last what only a process's has.
static ENTRIES: &[Entry] = &[
    text("children", 0o444, entries::children),
    text("arch_status", 0o444, entries::nothing),
    directory("attr", 0o555, attributes::directory),
    guarded("auxv", 0o400, entries::auxiliary_vector),
    text("cgroup", 0o444, entries::control_group),
    Entry {
        name: "clear_refs",
        mode: 0o200,
        kind: Kind::Knob(|_, _| Err(Error::Invalid), memory_files::clear_references),
    },
    text("cmdline", 0o444, entries::command_line),
    Entry { name: "comm", mode: 0o644, kind: Kind::Knob(entries::name, entries::set_name) },
    Entry {
        name: "coredump_filter",
        mode: 0o644,
        kind: Kind::Knob(entries::core_dump_filter, entries::set_core_dump_filter),
    },
    text("cpuset", 0o444, entries::processor_set),
    place("cwd", places::current_directory),
    guarded("environ", 0o400, entries::environment),
    place("exe", places::executable),
    directory("fd", 0o500, descriptors::links),
    directory("fdinfo", 0o555, descriptors::information),
    own("gid_map", user_maps::groups),
    text("io", 0o400, activity::transfers),
    text("limits", 0o444, entries::limits),
    text("loginuid", 0o444, entries::no_login),
    object("maps", 0o444, maps::maps),
    object("mem", 0o600, memory_files::bytes),
    mounts_list("mountinfo", mounts::mount_information),
    mounts_list("mounts", mounts::mounts),
    directory("net", 0o555, lists::network),
    directory("ns", 0o511, places::name_spaces),
    object("numa_maps", 0o444, maps::node_maps),
    text("oom_adj", 0o644, entries::old_oom_adjustment),
    text("oom_score", 0o444, entries::oom_score),
    Entry {
        name: "oom_score_adj",
        mode: 0o644,
        kind: Kind::Knob(entries::oom_adjustment, entries::set_oom_adjustment),
    },
    object("pagemap", 0o400, memory_files::page_map),
    text("personality", 0o400, activity::personality),
    own("projid_map", user_maps::projects),
    place("root", places::root),
    guarded("sched", 0o444, stat::scheduler_counts),
    text("schedstat", 0o444, stat::scheduling),
    text("sessionid", 0o444, entries::no_login),
    own("setgroups", user_maps::set_groups),
    object("smaps", 0o444, maps::detailed_maps),
    guarded("smaps_rollup", 0o444, maps::summed_maps),
    text("stack", 0o400, activity::kernel_stack),
    text("stat", 0o444, stat::stat),
    text("statm", 0o444, stat::memory_pages),
    text("status", 0o444, status::status),
    text("syscall", 0o400, activity::system_call),
    own("timens_offsets", time_offsets::open),
    own("uid_map", user_maps::users),
    text("wchan", 0o444, activity::wait_channel),
    text("autogroup", 0o644, entries::nothing),
    text("mountstats", 0o400, mounts::mount_statistics),
    directory("map_files", 0o500, map_files::links),
    directory("task", 0o555, threads),
    text("timers", 0o444, timers::timers),
    Entry {
        name: "timerslack_ns",
        mode: 0o666,
        kind: Kind::Knob(entries::timer_slack, entries::set_timer_slack),
    },
    // The last one: left out where locks are not counted.
    text("lcount", 0o444, entries::locks_taken),
];
/// Entries at the beginning that only threads have.
const ONLY_THREADS: usize = 1;
/// Entries at the end that only processes have.
const ONLY_PROCESSES: usize = 7;

struct TextFile {
    subject: Subject,
    entry: &'static Entry,
}

impl File for TextFile {
    fn show(&self, out: &mut Text) -> Result<()> {
        match self.entry.kind {
            Kind::Text(show) | Kind::Knob(show, _) | Kind::Mounts(show) => show(&self.subject, out),
            Kind::Guarded(show) => {
                *out = self.subject.inspect(|| {
                    let mut shown = Text::new();
                    show(&self.subject, &mut shown).map(|()| shown)
                })?;
                Ok(())
            }
            Kind::Object(_) | Kind::Own(_) | Kind::Place(_) | Kind::Directory(_) => Err(Error::Invalid),
        }
    }

    fn store(&self, bytes: &[u8]) -> Result<usize> {
        match self.entry.kind {
            Kind::Knob(_, store) => store(&self.subject, bytes).map(|()| bytes.len()),
            _ => Err(Error::Invalid),
        }
    }

    fn open(&self, _inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        match self.entry.kind {
            Kind::Own(open) => open(&self.subject, flags).map(Some),
            Kind::Guarded(_) => self.subject.inspect(|| Ok(None)),
            Kind::Object(open) => self.subject.inspect(|| open(&self.subject)).map(Some),
            Kind::Mounts(_) => {
                let file = TextFile { subject: self.subject.clone(), entry: self.entry };
                mounts::open(&self.subject, vfs::allocation::arc(file)?).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn owner(&self) -> Option<(u32, u32)> {
        Some(self.subject.owner())
    }
}

struct ProcessDirectory(Subject);

impl ProcessDirectory {
    fn number(&self, index: usize) -> Result<u64> {
        let process = self.0.process()?;
        let base = if self.0.is_thread() { THREAD_PLACES } else { 0 };
        Ok(number_of(&process, self.0.kernel_number()?, base + index as u64 + 1))
    }

    fn entries(&self) -> &'static [Entry] {
        match self.0.is_thread() {
            true => &ENTRIES[..ENTRIES.len() - ONLY_PROCESSES],
            false => &ENTRIES[ONLY_THREADS..ENTRIES.len() - usize::from(!sync::classes::COUNTING)],
        }
    }
}

fn number_of(process: &Process, number: u32, place: u64) -> u64 {
    let start = process.start_ns() >> START_UNIT_SHIFT & START_MASK;
    NUMBER_BASE | start << START_SHIFT | u64::from(number) << PID_SHIFT | place
}

/// The process whose directory is open, as long as it is there; `None` if something else is open. The directory's number tells: directories of threads, and what is
/// below a process's, have places other than 0.
pub(crate) fn of_directory(file: &OpenFile) -> Option<Result<Arc<Process>>> {
    let inode = file.inode();
    let number = inode.number;
    let is_process = inode.kind == FileKind::Directory
        && number & NUMBER_BASE != 0
        && number & ((1 << PID_SHIFT) - 1) == 0
        && inode.superblock().is_some_and(|superblock| superblock.file_system() == "proc");
    let pid = (number >> PID_SHIFT) as u32 & ((1 << (START_SHIFT - PID_SHIFT)) - 1);
    let same = |process: &Arc<Process>| number_of(process, pid, 0) == number;
    is_process.then(|| table::process_of(pid).filter(same).ok_or(Error::NoProcess))
}

/// User and group that own a process's nodes.
fn owner_of(process: &Process) -> (u32, u32) {
    process.look_at_credentials(|credentials| (credentials.user.effective, credentials.group.effective))
}

impl Directory for ProcessDirectory {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let entries = self.entries();
        let index = entries.iter().position(|entry| entry.name.as_bytes() == name).ok_or(Error::NotFound)?;
        let entry = &entries[index];
        let subject = self.0.clone();
        let body = match entry.kind {
            Kind::Text(_)
            | Kind::Guarded(_)
            | Kind::Knob(..)
            | Kind::Object(_)
            | Kind::Own(_)
            | Kind::Mounts(_) => Body::File(vfs::allocation::arc(TextFile { subject, entry })?),
            Kind::Place(place) => Body::Link(vfs::allocation::arc(PlaceLink { subject, place })?),
            Kind::Directory(open) => Body::Directory(open(&subject)?),
        };
        let (user, group) = self.0.owner();
        Ok(Node { number: self.number(index)?, mode: entry.mode, user, group, body })
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        for (index, entry) in self.entries().iter().enumerate().skip((position - FIRST_POSITION) as usize) {
            let kind = match entry.kind {
                Kind::Text(_)
                | Kind::Guarded(_)
                | Kind::Knob(..)
                | Kind::Object(_)
                | Kind::Own(_)
                | Kind::Mounts(_) => FileKind::Regular,
                Kind::Place(_) => FileKind::SymbolicLink,
                Kind::Directory(_) => FileKind::Directory,
            };
            if !sink.entry(entry.name.as_bytes(), self.number(index)?, kind, next + 1) {
                break;
            }
            next += 1;
        }
        Ok(next)
    }

    fn still_valid(&self, _name: &[u8], _number: u64) -> bool {
        self.0.process().is_ok()
    }

    fn owner(&self) -> Option<(u32, u32)> {
        self.0.process().ok().map(|process| owner_of(&process))
    }
}

fn directory_of(process: &Arc<Process>, tid: Option<u32>, view: &Space) -> Result<Node> {
    let subject = Subject { process: Arc::downgrade(process), tid, view: view.clone() };
    let directory: Arc<dyn Directory> = vfs::allocation::arc(ProcessDirectory(subject))?;
    let (user, group) = owner_of(process);
    let place = if tid.is_some() { THREAD_PLACES } else { 0 };
    let number = number_of(process, tid.unwrap_or(process.pid()), place);
    Ok(Node { number, mode: 0o555, user, group, body: Body::Directory(directory) })
}

struct Threads(Subject);

fn threads(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> = vfs::allocation::arc(Threads(subject.clone()))?;
    Ok(directory)
}

impl Directory for Threads {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let tid =
            core::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(Error::NotFound)?;
        let tid = pid_space::kernel(&self.0.view, tid).ok_or(Error::NotFound)?;
        let process = self.0.process()?;
        let exists = process.thread(tid).is_some() || (tid == process.pid() && process.leader_is_gone());
        if exists { directory_of(&process, Some(tid), &self.0.view) } else { Err(Error::NotFound) }
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        // The position after a thread is its number plus a constant, so that it survives the end of others.
        let from = (position - FIRST_POSITION) as u32;
        let process = self.0.process()?;
        let mut tids = Vec::new();
        for thread in process.threads().map_err(|_| Error::OutOfMemory)? {
            vfs::allocation::push(&mut tids, (self.0.seen(thread.tid()), thread.tid()))?;
        }
        if process.leader_is_gone() {
            vfs::allocation::push(&mut tids, (self.0.seen(process.pid()), process.pid()))?;
        }
        tids.retain(|(seen, _)| *seen >= from);
        sorting::sort(&mut tids);
        let mut next = position;
        for (seen, tid) in tids {
            let mut buffer = [0; 10];
            let name = vfs::text::digits(seen, &mut buffer);
            let after = u64::from(seen) + 1 + FIRST_POSITION;
            if !sink.entry(name, number_of(&process, tid, THREAD_PLACES), FileKind::Directory, after) {
                break;
            }
            next = after;
        }
        Ok(next)
    }

    fn still_valid(&self, name: &[u8], _number: u64) -> bool {
        self.lookup(name).is_ok()
    }
}

/// The processes for the root of /proc.
pub(super) struct Processes;

impl ProcessSource for Processes {
    fn process(&self, number: u32) -> Result<Node> {
        let process = table::process_of(number).ok_or(Error::NotFound)?;
        directory_of(&process, None, &None)
    }

    fn next(&self, from: u32) -> Option<(u32, u64)> {
        table::look_at_next_process(from, |process| number_of(process, process.pid(), 0))
    }

    fn of_caller(&self) -> Result<Option<Arc<dyn ProcessSource>>> {
        let Some(space) = calling_thread().and_then(|thread| thread.process().space().clone()) else {
            return Ok(None);
        };
        let source: Arc<dyn ProcessSource> = vfs::allocation::arc(Within(Some(space)))?;
        Ok(Some(source))
    }
}

/// The processes of a name space.
struct Within(Space);

impl ProcessSource for Within {
    fn process(&self, number: u32) -> Result<Node> {
        let number = pid_space::kernel(&self.0, number).ok_or(Error::NotFound)?;
        let process = table::process_of(number).ok_or(Error::NotFound)?;
        directory_of(&process, None, &self.0)
    }

    fn next(&self, from: u32) -> Option<(u32, u64)> {
        let mut from = from;
        loop {
            let (own, pid) = self.0.as_ref()?.next(from)?;
            // A number may be that of a thread, or of a group that is left.
            if let Some(process) = table::process(pid) {
                return Some((own, number_of(&process, pid, 0)));
            }
            from = own + 1;
        }
    }

    fn link_to_caller(&self, of_thread: bool) -> Result<Option<Node>> {
        let link = super::root::Caller { thread: of_thread, view: self.0.clone() };
        Ok(Some(Node::new(0o777, Body::Link(vfs::allocation::arc(link)?))))
    }
}
