//! The directory of a process or thread: names, kinds, and who may look.
//!
//! A node holds a weak reference: it keeps no zombie alive, and reading it after the process's end is ESRCH. What others may not
//! see (memory maps, environment, descriptors) is checked when it is read, by the rule of ptrace(2).

use alloc::sync::{Arc, Weak};

use procfs::ProcessSource;
use vfs::generated::{Body, Directory, File, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{Error, Path, Result};

use super::{descriptors, entries, maps, mounts};
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::terminal::calling_thread;

/// Inode numbers of processes' nodes: above those that fixed nodes get, the process's number, the place in its directory.
const NUMBER_BASE: u64 = 1 << 40;
const NUMBER_SHIFT: u32 = 8;

/// Whose node it is.
#[derive(Clone)]
pub(super) struct Subject {
    process: Weak<Process>,
    /// The thread, in `task` directories.
    tid: Option<u32>,
}

impl Subject {
    /// The process.
    pub(super) fn process(&self) -> Result<Arc<Process>> {
        self.process.upgrade().ok_or(Error::NoProcess)
    }

    /// The thread: the one of the directory, or the process's leader.
    pub(super) fn thread(&self) -> Result<Arc<Thread>> {
        let process = self.process()?;
        match self.tid {
            Some(tid) => {
                process.threads().into_iter().find(|thread| thread.tid() == tid).ok_or(Error::NoProcess)
            }
            None => process.representative().ok_or(Error::NoProcess),
        }
    }

    /// Whether it is one thread's directory.
    pub(super) fn is_thread(&self) -> bool {
        self.tid.is_some()
    }

    /// Fails unless the caller may look into the process.
    pub(super) fn check_access(&self) -> Result<()> {
        let process = self.process()?;
        let Some(caller) = calling_thread() else { return Ok(()) };
        let same = Arc::ptr_eq(caller.process(), &process);
        if same || caller.credentials().may_inspect(&process.credentials()) {
            Ok(())
        } else {
            Err(Error::AccessDenied)
        }
    }
}

/// What an entry is.
enum Kind {
    Text(fn(&Subject, &mut Text) -> Result<()>),
    Knob(fn(&Subject, &mut Text) -> Result<()>, fn(&Subject, &[u8]) -> Result<()>),
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

/// All entries of a process's directory; the last one only of a process's own.
static ENTRIES: &[Entry] = &[
    text("auxv", 0o400, entries::auxiliary_vector),
    text("cgroup", 0o444, entries::control_group),
    text("cmdline", 0o444, entries::command_line),
    Entry { name: "comm", mode: 0o644, kind: Kind::Knob(entries::name, entries::set_name) },
    Entry { name: "cwd", mode: 0o777, kind: Kind::Place(entries::current_directory) },
    text("environ", 0o400, entries::environment),
    Entry { name: "exe", mode: 0o777, kind: Kind::Place(entries::executable) },
    Entry { name: "fd", mode: 0o500, kind: Kind::Directory(descriptors::links) },
    Entry { name: "fdinfo", mode: 0o555, kind: Kind::Directory(descriptors::information) },
    text("limits", 0o444, entries::limits),
    text("maps", 0o444, maps::maps),
    text("mountinfo", 0o444, mounts::mount_information),
    text("mounts", 0o444, mounts::mounts),
    text("oom_score", 0o444, entries::oom_score),
    Entry {
        name: "oom_score_adj",
        mode: 0o644,
        kind: Kind::Knob(entries::oom_adjustment, entries::set_oom_adjustment),
    },
    Entry { name: "root", mode: 0o777, kind: Kind::Place(entries::root) },
    text("smaps", 0o444, maps::detailed_maps),
    text("stat", 0o444, entries::stat),
    text("statm", 0o444, maps::memory_pages),
    text("status", 0o444, entries::status),
    text("wchan", 0o444, entries::wait_channel),
    Entry { name: "task", mode: 0o555, kind: Kind::Directory(threads) },
];

struct TextFile {
    subject: Subject,
    entry: &'static Entry,
}

impl File for TextFile {
    fn show(&self, out: &mut Text) -> Result<()> {
        if self.entry.mode & 0o044 == 0 {
            self.subject.check_access()?;
        }
        match self.entry.kind {
            Kind::Text(show) | Kind::Knob(show, _) => show(&self.subject, out),
            _ => Err(Error::Invalid),
        }
    }

    fn store(&self, bytes: &[u8]) -> Result<usize> {
        match self.entry.kind {
            Kind::Knob(_, store) => store(&self.subject, bytes).map(|()| bytes.len()),
            _ => Err(Error::Invalid),
        }
    }
}

struct PlaceLink {
    subject: Subject,
    place: fn(&Subject) -> Result<Path>,
}

impl Link for PlaceLink {
    fn target(&self) -> Result<LinkTarget> {
        self.subject.check_access()?;
        (self.place)(&self.subject).map(LinkTarget::Jump)
    }
}

struct ProcessDirectory(Subject);

impl ProcessDirectory {
    fn number(&self, index: usize) -> u64 {
        let pid = self.0.tid.or(self.0.process.upgrade().map(|process| process.pid())).unwrap_or(0);
        number_of(pid, index as u64 + 1)
    }

    fn entries(&self) -> &'static [Entry] {
        if self.0.is_thread() { &ENTRIES[..ENTRIES.len() - 1] } else { ENTRIES }
    }
}

fn number_of(pid: u32, place: u64) -> u64 {
    NUMBER_BASE + (u64::from(pid) << NUMBER_SHIFT) + place
}

/// User and group that own a process's nodes.
fn owner_of(process: &Process) -> (u32, u32) {
    let credentials = process.credentials();
    (credentials.user.effective, credentials.group.effective)
}

impl Directory for ProcessDirectory {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let process = self.0.process()?;
        let entries = self.entries();
        let index = entries.iter().position(|entry| entry.name.as_bytes() == name).ok_or(Error::NotFound)?;
        let entry = &entries[index];
        let subject = self.0.clone();
        let body = match entry.kind {
            Kind::Text(_) | Kind::Knob(..) => Body::File(vfs::allocation::arc(TextFile { subject, entry })?),
            Kind::Place(place) => Body::Link(vfs::allocation::arc(PlaceLink { subject, place })?),
            Kind::Directory(open) => Body::Directory(open(&subject)?),
        };
        let (user, group) = owner_of(&process);
        Ok(Node { number: self.number(index), mode: entry.mode, user, group, body })
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        for (index, entry) in self.entries().iter().enumerate().skip((position - FIRST_POSITION) as usize) {
            let kind = match entry.kind {
                Kind::Text(_) | Kind::Knob(..) => vfs::FileKind::Regular,
                Kind::Place(_) => vfs::FileKind::SymbolicLink,
                Kind::Directory(_) => vfs::FileKind::Directory,
            };
            if !sink.entry(entry.name.as_bytes(), self.number(index), kind, next + 1) {
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

fn directory_of(process: &Arc<Process>, tid: Option<u32>) -> Option<Node> {
    let subject = Subject { process: Arc::downgrade(process), tid };
    let directory: Arc<dyn Directory> = vfs::allocation::arc(ProcessDirectory(subject)).ok()?;
    let (user, group) = owner_of(process);
    let number = number_of(tid.unwrap_or(process.pid()), u64::from(tid.is_some()) * 128);
    Some(Node { number, mode: 0o555, user, group, body: Body::Directory(directory) })
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
        let process = self.0.process()?;
        let exists = process.threads().iter().any(|thread| thread.tid() == tid);
        if exists {
            directory_of(&process, Some(tid)).ok_or(Error::OutOfMemory)
        } else {
            Err(Error::NotFound)
        }
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        // The position after a thread is its number plus a constant, so that it survives the end of others.
        let from = (position - FIRST_POSITION) as u32;
        let mut tids: smallvec::SmallVec<[u32; 8]> = self
            .0
            .process()?
            .threads()
            .iter()
            .map(|thread| thread.tid())
            .filter(|tid| *tid >= from)
            .collect();
        tids.sort_unstable();
        let mut next = position;
        for tid in tids {
            let name = alloc::format!("{tid}");
            let after = u64::from(tid) + 1 + FIRST_POSITION;
            if !sink.entry(name.as_bytes(), number_of(tid, 128), vfs::FileKind::Directory, after) {
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
    fn process(&self, number: u32) -> Option<Node> {
        let process = table::process_of(number)?;
        directory_of(&process, None)
    }

    fn next(&self, from: u32) -> Option<(u32, u64)> {
        let mut lowest: Option<u32> = None;
        table::for_each_process(|process| {
            let pid = process.pid();
            if pid >= from && lowest.is_none_or(|lowest| pid < lowest) {
                lowest = Some(pid);
            }
        });
        lowest.map(|pid| (pid, number_of(pid, 0)))
    }
}
