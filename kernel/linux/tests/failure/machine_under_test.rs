//! The kernel that the scenarios run on: one processor, a root file system with a program in it, the usual mounts.
//!
//! One host thread is its processor for the whole life of the test process, because statics of the kernel (process 1, the
//! table of processes, kernel threads) exist once. Tests hand their scenarios over to it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, Once};

use ::memory::fallible::{self, Failure};
use ::memory::frame::Purpose;
use ::memory::statistics;
use linux::process::{init, table};
use linux::start::Command;
use linux_raw_sys::general as abi;
use vfs::credentials::Credentials;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags};
use vfs::mount::{Mount, MountNamespace, MountSource};
use vfs::superblock::find_file_system;
use vfs::tree::OpenHow;
use vfs::walk::{FileSystemContext, PathContext};

use crate::children;
use crate::program::Program;

/// A scenario: what process 2 does.
pub(crate) type Scenario = fn(&mut Program<'_>);

/// Runs before the first one whose counts are compared: caches fill, tables get their first room.
const WARM_UPS: u32 = 3;
/// What is left behind once may be a cache that fills; a leak grows with each repetition.
const REPETITIONS: u32 = 3;
/// Virtual time in which everything that is still under way comes to its end.
const SETTLE_NS: u64 = 1_000_000_000;

type Job = Box<dyn FnOnce() + Send>;

static MACHINE: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = channel::<Job>();
    let work = move || {
        start();
        jobs.into_iter().for_each(|job| job());
    };
    std::thread::Builder::new().name("machine".into()).spawn(work).expect("a host thread");
    Mutex::new(sender)
});

/// Runs a scenario once for each of its failure points, of which there must be at least `points`.
pub(crate) fn exhaust(name: &'static str, points: u64, scenario: Scenario) {
    let (done, is_done) = channel();
    let job = move || {
        let outcome = catch_unwind(|| exhaust_here(name, scenario));
        done.send(outcome).expect("the test waits");
    };
    MACHINE.lock().expect("no test panics with it").send(Box::new(job)).expect("the machine runs");
    let outcome = is_done.recv().expect("the machine goes on");
    let found = outcome.unwrap_or_else(|payload| resume_unwind(payload));
    assert!(found >= points, "'{name}' passed only {found} failure points, not {points}");
}

fn exhaust_here(name: &'static str, scenario: Scenario) -> u64 {
    static FUTEXES: Once = Once::new();
    FUTEXES.call_once(|| live(None, wait_on_many_futexes));
    for _ in 0..WARM_UPS {
        live(None, scenario);
    }
    fallible::exhaust_from(name, |failure| {
        let mut before = Counts::now();
        let mut first = None;
        for _ in 0..REPETITIONS {
            first.get_or_insert(before);
            live(Some(failure), scenario);
            let after = Counts::now();
            if !after.exceed(&before) {
                return;
            }
            before = after;
        }
        panic!("{failure:?} at {:?} leaks: {first:?} became {before:?}", fallible::failed_at());
    })
}

/// Gives each bucket of the table of futexes the room that it keeps from its first waiter on: which buckets a scenario uses depends on where
/// the host's heap puts its objects.
fn wait_on_many_futexes(program: &mut Program) {
    const WORDS: u64 = 8192;
    const WAIT_PRIVATELY: u64 = 0x80;
    let words = program.must(abi::__NR_mmap, &[0, 4 * WORDS, 3, 0x22, u64::MAX, 0]);
    let time = program.words(&[0, 1]);
    for word in 0..WORDS {
        let outcome = program.call(abi::__NR_futex.into(), &[words + 4 * word, WAIT_PRIVATELY, 0, time]);
        assert_eq!(outcome, Err(linux::errno::Errno::ETIMEDOUT));
    }
}

/// One life of process 2.
fn live(failure: Option<Failure>, scenario: Scenario) {
    let context = FileSystemContext::initial(ROOT.lock().unwrap().clone().expect("started")).unwrap();
    let command = Command {
        arguments: Vec::new(),
        environment: Vec::new(),
        user: (0, 0),
        file_system: context,
        files: Vec::new(),
        terminal: None,
    };
    let process = linux::start::launch(command, move |mut task, _, _| {
        let mut program = Program::new(&mut task);
        let report = failure.map(Failure::arm);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _report = report;
            scenario(&mut program);
        }));
        if let Err(payload) = outcome {
            *PANIC.lock().unwrap() = Some(payload);
        }
        program.end();
        task.run();
    });
    drop(process.expect("nothing is injected yet"));
    settle();
    fallible::disarm();
    let payload = PANIC.lock().unwrap().take();
    if let Some(payload) = payload {
        resume_unwind(payload);
    }
}

/// What a scenario panicked with.
static PANIC: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

/// Waits for the end of all that is under way and empties all caches.
fn settle() {
    sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + SETTLE_NS);
    let failed_at = fallible::failed_at();
    assert!(table::process(init::COMMAND).is_none(), "process 2 has not ended; {failed_at:?} failed");
    vfs::dentry::shrink(usize::MAX);
    for _ in 0..100 {
        {
            let _pinned = machine::preempt::disable();
            sync::rcu::invoke(u32::MAX);
            if sync::rcu::pending() == 0 {
                break;
            }
        }
        sync::rcu::synchronize();
    }
    sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + SETTLE_NS);
}

/// What there is of everything.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    /// Frames by purpose.
    frames: [u64; Purpose::COUNT],
    /// Heap objects.
    objects: i64,
    threads: u32,
    processes: usize,
    /// Cached directory entries.
    entries: u64,
}

impl Counts {
    fn now() -> Counts {
        let used = statistics::memory();
        Counts {
            frames: Purpose::ALL.map(|purpose| used.used(purpose)),
            threads: table::thread_count(),
            processes: table::processes().expect("nothing is injected").len(),
            entries: vfs::dentry::cached_entries(),
            objects: fallible::live_objects(),
        }
    }

    /// Whether there is more of anything.
    fn exceed(&self, before: &Counts) -> bool {
        self.frames.iter().zip(&before.frames).any(|(now, before)| now > before)
            || self.objects > before.objects
            || self.threads > before.threads
            || self.processes > before.processes
            || self.entries > before.entries
    }
}

static ROOT: Mutex<Option<Arc<MountNamespace>>> = Mutex::new(None);

struct Ended;

impl init::EndOfCommand for Ended {
    fn command_ended(&self, _status: u32) {}

    fn machine_ended(&self, how: init::MachineEnd) -> ! {
        panic!("no scenario ends the machine: {how:?}");
    }
}

/// Start-up as the kernel binary does it.
fn start() {
    sched::current();
    vfs::superblock::register_file_system(&tmpfs::TMPFS);
    devfs::register(linux::random::fill);
    vfs::initialize();
    vfs::superblock::register_file_system(&procfs::PROCFS);
    vfs::superblock::register_file_system(&sysfs::SYSFS);
    devpts::register();
    cgroup::register();
    console::nodes::register(devpts::find);
    linux::proc::register_devices();
    linux::start::initialize(&Ended).expect("memory");
    fill_process_table();
    machine::hosted_user::set_script(Box::new(children::play));
    *ROOT.lock().unwrap() = Some(root_file_system().expect("memory"));
}

/// Gives each part of the process table the room it gets with its first process.
fn fill_process_table() {
    let numbers: Vec<_> = (0..1000).map(|_| table::ReservedPid::allocate().expect("numbers")).collect();
    drop(numbers);
}

fn root_file_system() -> vfs::Result<Arc<MountNamespace>> {
    let superblock = tmpfs::new_instance("rootfs", 0o755)?;
    let root = superblock.root().clone();
    let namespace = MountNamespace::new(Mount::new(superblock, root, b"rootfs", MountFlags::empty())?)?;
    let context = FileSystemContext::initial(namespace.clone())?;
    let places = context.places();
    let credentials = Credentials::root();
    let walk = PathContext { places: &places, credentials: &credentials, umask: 0 };
    for (kind, place) in [("devtmpfs", "dev"), ("proc", "proc"), ("sysfs", "sys"), ("devpts", "dev/pts")] {
        if place != "dev/pts" || walk.walk(&places.root, b"dev/pts", LookupFlags::DIRECTORY).is_err() {
            walk.make_directory(&places.root, place.as_bytes(), 0o755)?;
        }
        let target = walk.walk(&places.root, place.as_bytes(), LookupFlags::DIRECTORY)?;
        let source = MountSource::New {
            file_system: find_file_system(kind.as_bytes())?,
            source: b"none",
            options: b"",
        };
        namespace.mount(source, &target, MountFlags::empty())?;
    }
    walk.make_directory(&places.root, b"tmp", 0o777)?;
    let flags = OpenFlags::CREATE | OpenFlags::WRITE_ONLY;
    for (name, bytes) in [(&b"program"[..], children::executable()), (b"script", b"#!/program x\n".to_vec())]
    {
        let how = OpenHow { flags, mode: 0o755, resolve: LookupFlags::empty() };
        let file = walk.open(&places.root, name, &how)?;
        file.write(&mut ::memory::buffer::Source::kernel(&bytes))?;
    }
    Ok(namespace)
}
