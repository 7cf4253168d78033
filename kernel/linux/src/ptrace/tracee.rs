//! A traced thread as its tracer sees it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use machine::user::{DebugRegisters, NO_CALL, UserRegisters};
use machine::user_state::{IMAGE_BYTES, UserState};
use sched::{WaitQueue, current};
use sync::{SpinLock, SpinLockGuard};
use vfs::{Capabilities, UserSpace};

use super::options::{Course, Event, Options};
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::signal::information::{ChildEvent, SignalInformation};
use crate::signal::set::SignalSet;
use crate::task::{SequenceArea, Task};

pub(super) const RFLAGS_TRAP: u64 = 1 << 8;
/// What every program has set: interrupts, and the bit that is always one.
const RFLAGS_ALWAYS: u64 = 0x202;

/// What a tracee stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A signal that it is about to take.
    Signal,
    /// Its process is stopped.
    Group,
    /// A call begins.
    Entry,
    /// A call has ended.
    Exit,
    /// Something that the tracer asked to be told.
    Event(Event),
    /// It was told to stop, begins its life, or its process stops or goes on (`PTRACE_EVENT_STOP`).
    Trap,
    /// A handler is about to run, where a step was asked for.
    Handler,
}

/// A stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) reason: Reason,
    /// What waiting tells of it, without the lowest byte.
    pub(super) code: u32,
    /// As SIGCHLD tells it.
    pub(super) event: ChildEvent,
    /// `PTRACE_GETSIGINFO`.
    pub(super) information: Option<SignalInformation>,
    /// `PTRACE_GETEVENTMSG`.
    pub(super) message: u64,
}

bitflags::bitflags! {
    /// What the tracer has changed of a snapshot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Changes: u8 {
        const REGISTERS = 1;
        const IMAGE = 1 << 1;
        const MASK = 1 << 2;
    }
}

/// What a thread that stands has published of itself.
pub(super) struct Snapshot {
    pub(super) registers: UserRegisters,
    /// The call that it is in, or was in last.
    pub(super) call: u64,
    pub(super) fs_base: u64,
    pub(super) gs_base: u64,
    pub(super) mask: SignalSet,
    pub(super) sequence: SequenceArea,
    pub(super) image: [u8; IMAGE_BYTES],
    pub(super) changes: Changes,
}

/// What a tracer and its tracee share.
pub(super) struct State {
    /// Until the tracee is let go.
    pub(super) tracer: Option<Arc<Thread>>,
    /// What the tracer might do when it began.
    pub(super) tracer_credentials: Arc<Credentials>,
    pub(super) options: Options,
    /// It was attached to by `PTRACE_SEIZE`.
    pub(super) is_seized: bool,
    /// Why it stands, if it does.
    pub(super) stop: Option<Stop>,
    /// Its tracer is just being told.
    pub(super) is_telling: bool,
    /// Its tracer has waited for the stop.
    pub(super) is_reported: bool,
    /// It stands for its process's stop and the tracer is not interested (`PTRACE_LISTEN`).
    pub(super) is_listening: bool,
    /// That it may go on, and with which signal.
    pub(super) resumption: Option<u8>,
    /// Its tracer wants it to stop.
    pub(super) interrupt_wanted: bool,
    /// Its process was stopped or continued.
    pub(super) notice_wanted: bool,
    /// The stop of its process that the tracer has let it out of; see `ProcessSignals::stops`.
    pub(super) passed_stop: u32,
    pub(super) course: Course,
    /// How it ended.
    pub(super) ended: Option<u32>,
    /// Its hardware breakpoints, while it stands.
    pub(super) debug: Option<Box<DebugRegisters>>,
    pub(super) snapshot: Snapshot,
}

/// A thread that is traced.
pub(crate) struct Tracee {
    thread: Arc<Thread>,
    state: SpinLock<State>,
    /// It may go on, or shall look what it is to do.
    pub(super) event: WaitQueue,
}

/// What a process traces. Guarded by its lock.
#[derive(Default)]
pub(crate) struct Tracees {
    pub(super) list: Vec<Arc<Tracee>>,
    /// How many left the list, for those who look through it without holding the lock.
    pub(super) removals: u64,
}

impl Tracee {
    /// A tracee that is not listed anywhere.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(
        thread: &Arc<Thread>,
        tracer: &Arc<Thread>,
        tracer_credentials: Arc<Credentials>,
        options: Options,
        is_seized: bool,
    ) -> Result<Arc<Tracee>, Errno> {
        let snapshot = Snapshot {
            registers: UserRegisters::default(),
            call: NO_CALL,
            fs_base: 0,
            gs_base: 0,
            mask: SignalSet::EMPTY,
            sequence: SequenceArea::default(),
            image: [0; IMAGE_BYTES],
            changes: Changes::empty(),
        };
        let state = State {
            tracer: Some(tracer.clone()),
            tracer_credentials,
            options,
            is_seized,
            stop: None,
            is_telling: false,
            is_reported: false,
            is_listening: false,
            resumption: None,
            interrupt_wanted: false,
            notice_wanted: false,
            passed_stop: 0,
            course: Course::Free,
            ended: None,
            debug: None,
            snapshot,
        };
        let tracee = Tracee { thread: thread.clone(), state: SpinLock::new(state), event: WaitQueue::new() };
        memory::fallible::try_arc(tracee).map_err(|_| Errno::ENOMEM)
    }

    pub(super) fn lock(&self) -> SpinLockGuard<'_, State> {
        self.state.lock()
    }

    /// The thread.
    pub(super) fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }

    /// Its process.
    pub(super) fn process(&self) -> &Arc<Process> {
        self.thread.process()
    }

    /// Whether it is the leader of its process.
    pub(super) fn is_leader(&self) -> bool {
        self.thread.tid() == self.process().pid()
    }

    /// Its tracer, until it is let go.
    pub(crate) fn tracer(&self) -> Option<Arc<Thread>> {
        self.lock().tracer.clone()
    }

    /// Whether its tracer is none, or could look into everybody in that name space of users when it began: then execve may give the tracee privileges there.
    pub(crate) fn may_gain_privileges(&self, space: &UserSpace) -> bool {
        let state = self.lock();
        state.tracer.is_none() || state.tracer_credentials.has_in(space, Capabilities::SYS_PTRACE)
    }

    /// Whether filters have no effect on it.
    pub(super) fn suspends_filters(&self) -> bool {
        let state = self.lock();
        state.tracer.is_some() && state.options.contains(Options::SUSPEND_SECCOMP)
    }

    /// Whether its tracer decides where filters ask it to.
    pub(super) fn is_told_of_filters(&self) -> bool {
        let state = self.lock();
        state.tracer.is_some() && state.options.contains(Options::SECCOMP)
    }

    /// The running tracee is going to tell whether its process is stopped. Whoever calls this looks at that with the same hold of the lock of the
    /// process's signals: a SIGCONT that comes after the look is to be told of by a further trap, also if it comes before the tracee stands.
    pub(crate) fn tells_of_now(&self) {
        self.lock().notice_wanted = false;
    }

    /// SIGCONT was sent to its process: a tracee that was seized tells. With the lock of the process's signals held.
    pub(crate) fn note_continued(&self) {
        {
            let mut state = self.lock();
            state.notice_wanted = state.is_seized;
        }
        self.event.wake_all();
    }
}

impl State {
    /// Whether its tracer could make requests that want it to stand.
    pub(super) fn stands(&self) -> bool {
        self.stop.is_some() && !self.is_listening && self.resumption.is_none()
    }

    /// Whether it shall stop at the next opportunity.
    pub(super) fn wants_trap(&self) -> bool {
        self.tracer.is_some() && (self.interrupt_wanted || self.notice_wanted)
    }

    /// The running thread publishes its registers.
    pub(super) fn publish(&mut self, task: &mut Task) {
        task.end_step();
        let snapshot = &mut self.snapshot;
        snapshot.registers = task.user.registers;
        snapshot.registers.rflags |= RFLAGS_ALWAYS;
        snapshot.call = task.user.call;
        snapshot.mask = task.saved_mask.unwrap_or(task.thread.blocked());
        snapshot.sequence = task.sequence;
        snapshot.changes = Changes::empty();
        self.debug = task.debug_registers.take();
        current().with_user_state(|state| {
            let image = state.image();
            snapshot.image[..image.len()].copy_from_slice(image);
            (snapshot.fs_base, snapshot.gs_base) = (state.fs_base(), state.gs_base());
        });
    }

    /// The running thread takes its registers back, as they are now. Returns its mask, if that was changed.
    pub(super) fn take_back(&mut self, task: &mut Task) -> Option<SignalSet> {
        let is_traced = self.tracer.is_some();
        let snapshot = &self.snapshot;
        if snapshot.changes.contains(Changes::REGISTERS) {
            task.user.registers = snapshot.registers;
            task.user.call = snapshot.call;
        }
        if snapshot.changes.intersects(Changes::REGISTERS | Changes::IMAGE) {
            current().with_user_state(|state| {
                state.set_fs_base(snapshot.fs_base);
                state.set_gs_base(snapshot.gs_base);
                if snapshot.changes.contains(Changes::IMAGE) {
                    let taken = state.set_image(&snapshot.image[..UserState::image_bytes()]);
                    debug_assert!(taken.is_ok(), "the image was checked when it was changed");
                }
            });
        }
        task.debug_registers = self.debug.take().filter(|_| is_traced);
        if task.debug_registers.is_some() {
            task.needs_work = true;
        }
        if is_traced && self.course.steps() {
            task.begin_step();
        }
        snapshot.changes.contains(Changes::MASK).then_some(snapshot.mask)
    }
}

impl Task {
    /// The trap flag makes the next instruction the last one, unless the program has set it itself.
    pub(super) fn begin_step(&mut self) {
        if self.user.registers.rflags & RFLAGS_TRAP == 0 {
            self.user.registers.rflags |= RFLAGS_TRAP;
            self.is_stepping = true;
        }
    }

    /// Takes a trap flag back that the program has not set itself; returns whether there was one.
    pub(crate) fn end_step(&mut self) -> bool {
        let was_stepping = core::mem::take(&mut self.is_stepping);
        if was_stepping {
            self.user.registers.rflags &= !RFLAGS_TRAP;
        }
        was_stepping
    }
}

impl Thread {
    /// As what it is traced, if it is.
    pub(crate) fn tracee(&self) -> Option<Arc<Tracee>> {
        if self.is_traced() { self.trace.lock().clone() } else { None }
    }

    /// Who traces it.
    pub(crate) fn tracer(&self) -> Option<Arc<Thread>> {
        self.tracee().and_then(|tracee| tracee.tracer())
    }
}

impl Process {
    /// Who traces its leader, also when that has ended.
    pub(crate) fn tracer_of_leader(&self) -> Option<Arc<Thread>> {
        // Acquire: who finds that its tracer has given it back finds the parent being told. Who must not miss a tracer holds `kinship`.
        if !self.is_leader_traced.load(Ordering::Acquire) {
            return None;
        }
        let ended = self.traced_end.lock().clone();
        ended.or_else(|| self.thread(self.pid()).and_then(|thread| thread.tracee()))?.tracer()
    }
}
