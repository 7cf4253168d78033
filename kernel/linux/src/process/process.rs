//! A process: what its threads share.
//!
//! States ([`State`]): *running* while a thread lives; *zombie* from the end of the last thread until the parent waits for it; *dead*
//! after that. Transitions are made in exit.rs and wait.rs; a zombie has given back all but this struct.
//!
//! Locking. No lock covers the whole tree. `kinship` (who is my parent) nests outside a parent's `children`; a child's state and
//! parent change under the child's `kinship`, so that of an exit and a reparenting at the same time exactly one tells the right
//! parent. `signals` nests outside `threads` and each thread's `pending`. Nothing is called with these locks held that sleeps.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memory::address_space::{AddressSpace, Hold};
use sched::WaitQueue;
use sync::SpinLock;
use sync::rcu::{self, ArcSlot};

use super::group::ProcessGroup;
use super::limits::{self, Limits, Resource};
use super::pid_space::Space;
use super::table::{INIT, Pid};
use super::thread::Thread;
use super::transfers::{Transferred, Transfers};
use crate::abi::{ResourceLimit, ResourceUsage};
use crate::core_dump::gathering::Gathering;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::file::asynchronous::Contexts;
use crate::ptrace::scope::Named;
use crate::ptrace::tracee::{Tracee, Tracees};
use crate::signal::actions::SignalActions;
use crate::signal::shared::ProcessSignals;
use crate::timer::ProcessTimers;

/// Where a process is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// It has threads.
    Running = 0,
    /// It ended and nobody waited for it yet.
    Zombie = 1,
    /// It was waited for.
    Dead = 2,
}

/// A process's place in the family tree; guarded by its `kinship` lock.
pub(crate) struct Kinship {
    pub(crate) parent: Option<Arc<Process>>,
    /// Signal for the parent at the end; 0 for none.
    pub(crate) exit_signal: u8,
    /// Signal for this process when its parent ends; 0 for none.
    pub(crate) death_signal: u8,
}

/// A process's children; guarded by its `children` lock.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) list: Vec<Arc<Process>>,
    /// How many left the list, for those who look through it without holding the lock.
    pub(crate) removals: u64,
    /// What those waited for had used.
    pub(crate) usage: ResourceUsage,
    /// The process has exited: no child may be added any more.
    pub(crate) closed: bool,
}

/// What a program was started as.
#[derive(Clone, Default)]
pub struct Executable {
    /// The file.
    pub file: Option<vfs::Path>,
    /// The name space of users in which it was started, or one above if the file could not be read there.
    pub(crate) space: vfs::UserSpace,
    /// Counts the programs of the process: see [`inspection`](crate::credentials::inspection).
    pub(crate) program: u64,
    /// Held so that nobody writes to the running file.
    pub(crate) guard: Option<Arc<crate::elf::ExecutableGuard>>,
    /// Where the arguments lie on the stack.
    pub arguments: (u64, u64),
    /// Where the environment lies.
    pub environment: (u64, u64),
    /// Where the auxiliary vector lies.
    pub auxiliary: (u64, u64),
    /// What is shown in its place.
    pub(crate) own_auxiliary: Option<Arc<AuxiliaryVector>>,
    /// Where code lies.
    pub code: (u64, u64),
    /// Where data lies.
    pub data: (u64, u64),
    /// Where the break started.
    pub start_break: u64,
    /// The first stack pointer.
    pub start_stack: u64,
}

/// Words of an auxiliary vector: as many as a program gets, the terminating pair included.
pub(crate) const AUXILIARY_WORDS: usize = 2 * crate::exec::AUXILIARY_PAIRS;

/// An auxiliary vector that a process says it has.
pub(crate) struct AuxiliaryVector([u64; AUXILIARY_WORDS]);

impl AuxiliaryVector {
    /// Whatever the last pair is, it becomes the one that ends the vector.
    pub(crate) fn new(mut words: [u64; AUXILIARY_WORDS]) -> AuxiliaryVector {
        words[AUXILIARY_WORDS - 2..].fill(0);
        AuxiliaryVector(words)
    }

    /// All of it.
    pub(crate) fn words(&self) -> [u64; AUXILIARY_WORDS] {
        self.0
    }

    /// What is shown of it: up to the pair that ends it.
    pub(crate) fn shown(&self) -> &[u64] {
        let pairs = self.0.chunks_exact(2).position(|pair| pair[0] == 0).unwrap_or(0) + 1;
        &self.0[..2 * pairs]
    }
}

/// Sums of what the ended threads of a process had used. Changed and read with the list of threads locked, so relaxed.
#[derive(Default)]
pub(crate) struct EndedThreads {
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    faults: AtomicU64,
    voluntary_switches: AtomicU64,
    preemptions: AtomicU64,
    /// Also of children that were waited for.
    transfers: Transfers,
    /// The CPU times that were told last, of all threads.
    user_told_ns: AtomicU64,
    system_told_ns: AtomicU64,
}

impl EndedThreads {
    /// Adds a thread that has just left its process.
    pub(crate) fn add(&self, thread: &Thread) {
        if let Some(kernel) = thread.kernel_thread() {
            let runtime = kernel.runtime();
            self.user_ns.fetch_add(runtime.user_ns, Ordering::Relaxed);
            self.system_ns.fetch_add(runtime.system_ns(), Ordering::Relaxed);
            self.voluntary_switches.fetch_add(kernel.voluntary_switches(), Ordering::Relaxed);
            self.preemptions.fetch_add(kernel.preemptions(), Ordering::Relaxed);
        }
        self.faults.fetch_add(thread.faults(), Ordering::Relaxed);
        self.transfers.add(thread.transfers.values());
    }
}

/// A process; in cache lines of its own.
#[repr(align(64))]
pub struct Process {
    pid: Pid,
    /// The name space of process numbers that it is in, all its life.
    space: Space,
    /// It is the init of its name space, and takes no signals that it has no handlers for. Ends with a fault.
    pub(crate) is_protected: AtomicBool,
    start_ns: u64,
    state: AtomicU8,
    // The parent's number, for getppid without a lock; written under `kinship`.
    parent_pid: AtomicU32,
    pub(crate) kinship: SpinLock<Kinship>,
    /// How many changes of its state its parent is being told at this moment: see [`Process::begin_telling`].
    telling: AtomicU32,
    pub(crate) children: SpinLock<Children>,
    /// Woken when a child changes state.
    pub(crate) child_event: WaitQueue,
    pub(crate) threads: SpinLock<Vec<Arc<Thread>>>,
    /// Woken when a thread ends (execve waits to be alone).
    pub(crate) thread_event: WaitQueue,
    pub(crate) signals: SpinLock<ProcessSignals>,
    /// Woken when a signal is sent (signalfd) and when a stopped process continues.
    pub(crate) signal_event: WaitQueue,
    /// Notified when a signal is sent (polled signalfds).
    pub(crate) signal_pollers: vfs::PollList,
    pub(crate) actions: SpinLock<Arc<SignalActions>>,
    address_space: SpinLock<Option<Hold>>,
    group: ArcSlot<ProcessGroup>,
    /// Where it is among control groups.
    pub(crate) control_group: cgroup::Membership,
    /// Where it is in its group's list, as far as it is known.
    place_in_group: AtomicUsize,
    limits: SpinLock<Limits>,
    /// The soft ones again, for those who only look: at every write. Written under `limits`.
    soft_limits: [AtomicU64; limits::COUNT],
    /// Held while execve replaces program, memory and credentials, so that they belong together for who looks at them with it held.
    pub(crate) executable: SpinLock<Executable>,
    pub(crate) timers: ProcessTimers,
    /// What asynchronous transfers are submitted to.
    pub(crate) contexts: Contexts,
    /// Status as wait4 reports it; written before the state becomes zombie.
    pub(crate) exit_status: AtomicU32,
    pub(crate) usage_of_ended: SpinLock<ResourceUsage>,
    /// What threads that have left had used; goes with `threads`.
    pub(crate) ended: EndedThreads,
    pub(crate) did_exec: AtomicBool,
    /// Its threads that send messages from now on stay on their CPUs; see `ipc`.
    pub(crate) ipc_partitioned: AtomicBool,
    pub(crate) is_subreaper: AtomicBool,
    pub(crate) is_dumpable: AtomicU8,
    pub(crate) oom_adjustment: core::sync::atomic::AtomicI16,
    /// The out-of-memory policy has killed it.
    pub(crate) oom_victim: AtomicBool,
    /// Its parent is not who made it. Written by who reparents it.
    pub(crate) is_orphan: AtomicBool,
    pub(crate) clan: crate::oom::Notes,
    pub(crate) membarrier: AtomicU32,
    /// Where its threads come together to be dumped. Goes below `signals`.
    pub(crate) gathering: SpinLock<Option<Arc<Gathering>>>,
    /// There is or was a gathering.
    pub(crate) gathers: AtomicBool,
    /// What a dump has of its memory: `/proc/PID/coredump_filter`.
    pub(crate) core_filter: AtomicU32,
    pub(crate) vfork_release: SpinLock<Option<Arc<sched::Completion>>>,
    /// The thread that made it: of its parent, or of the parent's when that was asked for.
    pub(crate) maker: AtomicU32,
    /// Whom it lets trace it.
    pub(crate) named_tracer: SpinLock<Named>,
    /// The threads of others that its threads trace.
    pub(crate) tracees: SpinLock<Tracees>,
    /// Whether it has ever traced one: then `tracees` is worth a look.
    pub(crate) traces: AtomicBool,
    /// Whether its leader is traced, or was when it ended and its tracer is to hear of the process's end. Set to false with `kinship` locked, once it has ended.
    pub(crate) is_leader_traced: AtomicBool,
    /// As what its leader was traced when it ended.
    pub(crate) traced_end: SpinLock<Option<Arc<Tracee>>>,
    /// Notified when the process becomes a zombie (pidfd).
    pub(crate) end_pollers: vfs::PollList,
    /// Identity at the end, for those who ask about a zombie.
    pub(crate) last_name: SpinLock<[u8; super::thread::NAME_BYTES]>,
    pub(crate) last_credentials: SpinLock<Arc<Credentials>>,
}

/// What a new process gets from its parent.
pub(crate) struct Inheritance {
    pub(crate) pid: Pid,
    pub(crate) space: Space,
    pub(crate) parent: Option<Arc<Process>>,
    pub(crate) exit_signal: u8,
    pub(crate) group: Arc<ProcessGroup>,
    pub(crate) actions: Arc<SignalActions>,
    pub(crate) address_space: Option<Arc<AddressSpace>>,
    pub(crate) limits: Limits,
    pub(crate) executable: Executable,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) name: [u8; super::thread::NAME_BYTES],
}

impl Process {
    pub(crate) fn new(from: Inheritance) -> Process {
        Process {
            pid: from.pid,
            is_protected: AtomicBool::new(
                from.space.as_ref().is_some_and(|space| space.own(from.pid) == INIT),
            ),
            space: from.space,
            start_ns: machine::time::now_ns(),
            state: AtomicU8::new(State::Running as u8),
            telling: AtomicU32::new(0),
            parent_pid: AtomicU32::new(from.parent.as_ref().map_or(0, |parent| parent.pid)),
            kinship: SpinLock::new(Kinship {
                parent: from.parent,
                exit_signal: from.exit_signal,
                death_signal: 0,
            }),
            children: SpinLock::new(Children::default()),
            child_event: WaitQueue::new(),
            threads: SpinLock::new(Vec::new()),
            thread_event: WaitQueue::new(),
            signals: SpinLock::new(ProcessSignals::new()),
            signal_event: WaitQueue::new(),
            signal_pollers: vfs::PollList::new(),
            actions: SpinLock::new(from.actions),
            address_space: SpinLock::new(from.address_space.map(Hold::new)),
            group: ArcSlot::new(from.group),
            control_group: cgroup::Membership::new(),
            place_in_group: AtomicUsize::new(0),
            limits: SpinLock::new(from.limits),
            soft_limits: from.limits.map(|limit| AtomicU64::new(limit.current)),
            executable: SpinLock::new(from.executable),
            timers: ProcessTimers::new(),
            contexts: Contexts::new(),
            exit_status: AtomicU32::new(0),
            usage_of_ended: SpinLock::new(ResourceUsage::default()),
            ended: EndedThreads::default(),
            did_exec: AtomicBool::new(false),
            ipc_partitioned: AtomicBool::new(false),
            is_subreaper: AtomicBool::new(false),
            is_dumpable: AtomicU8::new(1),
            oom_adjustment: core::sync::atomic::AtomicI16::new(0),
            oom_victim: AtomicBool::new(false),
            is_orphan: AtomicBool::new(false),
            clan: crate::oom::Notes::default(),
            membarrier: AtomicU32::new(0),
            gathering: SpinLock::named("core dump of a process", None),
            gathers: AtomicBool::new(false),
            core_filter: AtomicU32::new(crate::core_dump::FILTER_DEFAULT),
            vfork_release: SpinLock::new(None),
            maker: AtomicU32::new(0),
            named_tracer: SpinLock::named("named tracer of a process", Named::default()),
            tracees: SpinLock::new(Tracees::default()),
            traces: AtomicBool::new(false),
            is_leader_traced: AtomicBool::new(false),
            traced_end: SpinLock::named("traced end of a process", None),
            end_pollers: vfs::PollList::new(),
            last_name: SpinLock::named("last name of a process", from.name),
            last_credentials: SpinLock::new(from.credentials),
        }
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it is the one with whose end that of its name space begins.
    pub(crate) fn is_init_of_space(self: &Arc<Self>) -> bool {
        let init = self.space.as_ref().and_then(|space| space.init());
        init.is_some_and(|init| Arc::ptr_eq(&init, self))
    }

    /// The name space of process numbers that it is in.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// When it was made, since boot.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Where it is in its life.
    pub fn state(&self) -> State {
        // Acquire: pairs with the Release in set_state; who sees a zombie sees its status.
        match self.state.load(Ordering::Acquire) {
            0 => State::Running,
            1 => State::Zombie,
            _ => State::Dead,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Of two waiters, lets one take the zombie.
    pub(crate) fn claim_zombie(&self) -> bool {
        let (zombie, dead) = (State::Zombie as u8, State::Dead as u8);
        self.state.compare_exchange(zombie, dead, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Before a change of the state becomes visible that the parent is told by a signal. Until [`Process::end_telling`] who waits for
    /// the change finds it in the making: who has waited for a child finds its SIGCHLD pending, and a handler of SIGCHLD finds the
    /// child that it was sent for.
    pub(crate) fn begin_telling(&self) {
        // Relaxed: what publishes the change is a Release or an unlock.
        self.telling.fetch_add(1, Ordering::Relaxed);
    }

    /// The signal has been sent.
    pub(crate) fn end_telling(&self) {
        let parent = {
            // Whoever takes the child from now on waits for this lock before the parent is forgotten: those who have found the change in the
            // making are woken in any case.
            let kinship = self.kinship.lock();
            // Release: pairs with the Acquire in `is_telling`.
            self.telling.fetch_sub(1, Ordering::Release);
            kinship.parent.clone()
        };
        if let Some(parent) = parent {
            parent.child_event.wake_all();
        }
    }

    /// Whether the parent is just being told of a change that the caller has seen.
    pub(crate) fn is_telling(&self) -> bool {
        self.telling.load(Ordering::Acquire) != 0
    }

    /// Whether it has ended.
    pub fn is_zombie(&self) -> bool {
        self.state() != State::Running
    }

    /// The parent's number; 0 for the first process.
    pub fn parent_pid(&self) -> Pid {
        self.parent_pid.load(Ordering::Relaxed)
    }

    /// The parent.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.kinship.lock().parent.clone()
    }

    /// Changes the parent; called with `kinship` held.
    pub(crate) fn set_parent(&self, kinship: &mut Kinship, parent: &Arc<Process>) -> Option<Arc<Process>> {
        self.parent_pid.store(parent.pid, Ordering::Relaxed);
        kinship.parent.replace(parent.clone())
    }

    /// Its group.
    pub fn group(&self) -> Arc<ProcessGroup> {
        self.group.get(&rcu::read()).expect("a process is always in a group")
    }

    /// What a look at its group says. The look must not sleep.
    pub(crate) fn look_at_group<R>(&self, look: impl FnOnce(&ProcessGroup) -> R) -> R {
        self.group.peek(&rcu::read()).map(look).expect("a process is always in a group")
    }

    /// The number of its process group.
    pub(crate) fn group_id(&self) -> Pid {
        self.look_at_group(ProcessGroup::id)
    }

    /// The number of its session.
    pub(crate) fn session_id(&self) -> Pid {
        self.look_at_group(|group| group.session().id())
    }

    /// Where it is in its group's list, as far as it is known.
    pub(super) fn place_in_group(&self) -> usize {
        self.place_in_group.load(Ordering::Relaxed)
    }

    /// Relaxed: written and read under the lock of a group's list.
    pub(super) fn note_place_in_group(&self, place: usize) {
        self.place_in_group.store(place, Ordering::Relaxed);
    }

    pub(crate) fn replace_group(&self, group: Arc<ProcessGroup>) {
        drop(self.group.replace(Some(group)));
    }

    /// It has gained privileges, or others may not see its program: how it can be dumped says the system.
    pub(crate) fn set_privileged_dumpable(&self) {
        self.is_dumpable.store(crate::core_dump::pattern::privileged() as u8, Ordering::Relaxed);
    }

    /// Its dispositions.
    #[inline(always)]
    pub fn actions(&self) -> Arc<SignalActions> {
        self.actions.lock().clone()
    }

    /// Its memory, until it ends.
    pub fn address_space(&self) -> Option<Arc<AddressSpace>> {
        self.address_space.lock().as_deref().cloned()
    }

    /// What a look at its memory says, until it ends. The look must not sleep.
    pub(crate) fn look_at_address_space<R>(&self, look: impl FnOnce(&AddressSpace) -> R) -> Option<R> {
        self.address_space.lock().as_deref().map(|space| look(space))
    }

    /// Gives it other memory, or none when it ends. What is returned ends the former memory's mappings if it is the last hold: drop it after other
    /// references.
    #[must_use]
    pub(crate) fn replace_address_space(&self, space: Option<Arc<AddressSpace>>) -> Option<Hold> {
        core::mem::replace(&mut *self.address_space.lock(), space.map(Hold::new))
    }

    /// The soft limit on a resource.
    pub fn limit(&self, resource: Resource) -> u64 {
        self.soft_limits[resource as usize].load(Ordering::Relaxed)
    }

    /// Both limits; the number was checked.
    pub fn limit_pair(&self, resource: usize) -> ResourceLimit {
        self.limits.lock()[resource]
    }

    /// Changes a limit to what `change` makes of it; returns what it was.
    ///
    /// # Errors
    /// What `change` says: then nothing changes.
    pub(crate) fn change_limit<E>(
        &self,
        resource: usize,
        change: impl FnOnce(ResourceLimit) -> Result<ResourceLimit, E>,
    ) -> Result<ResourceLimit, E> {
        let mut limits = self.limits.lock();
        let before = limits[resource];
        limits[resource] = change(before)?;
        self.soft_limits[resource].store(limits[resource].current, Ordering::Relaxed);
        Ok(before)
    }

    /// All limits.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Its threads now.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn threads(&self) -> Result<Vec<Arc<Thread>>, Errno> {
        let mut found = Vec::new();
        let threads = self.threads.lock();
        memory::fallible::try_reserve(&mut found, threads.len()).map_err(|_| Errno::ENOMEM)?;
        found.extend(threads.iter().cloned());
        Ok(found)
    }

    /// Its thread with this number.
    pub fn thread(&self, tid: Pid) -> Option<Arc<Thread>> {
        self.threads.lock().iter().find(|thread| thread.tid() == tid).cloned()
    }

    /// How many threads it has.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().len()
    }

    /// The thread that is asked about the whole process: the leader while it lives, else any.
    pub fn representative(&self) -> Option<Arc<Thread>> {
        let threads = self.threads.lock();
        threads.iter().find(|thread| thread.tid() == self.pid).or(threads.first()).cloned()
    }

    /// The name of its leader, or the last it had.
    pub fn name(&self) -> [u8; super::thread::NAME_BYTES] {
        match self.representative() {
            Some(thread) => thread.name(),
            None => *self.last_name.lock(),
        }
    }

    /// The credentials of its leader, or the last it had.
    pub fn credentials(&self) -> Arc<Credentials> {
        match self.representative() {
            Some(thread) => thread.credentials(),
            None => self.last_credentials.lock().clone(),
        }
    }

    /// What a look at [`Self::credentials`] says, without a reference to them. The look must not sleep or take locks.
    pub(crate) fn look_at_credentials<R>(&self, look: impl FnOnce(&Credentials) -> R) -> R {
        let threads = self.threads.lock();
        match threads.iter().find(|thread| thread.tid() == self.pid).or(threads.first()) {
            Some(thread) => look(&thread.shared.lock().credentials),
            None => {
                drop(threads);
                look(&self.last_credentials.lock())
            }
        }
    }

    /// CPU time of all its threads, in user mode and in the kernel. Neither is ever less than what somebody was told before.
    pub fn cpu_time_ns(&self) -> (u64, u64) {
        let threads = self.threads.lock();
        let ended = &self.ended;
        let mut user = ended.user_ns.load(Ordering::Relaxed);
        let mut total = user + ended.system_ns.load(Ordering::Relaxed);
        for thread in threads.iter().filter_map(|thread| thread.kernel_thread()) {
            let runtime = thread.runtime();
            user += runtime.user_ns;
            total += runtime.total_ns;
        }
        // Of a thread that runs, the parts are not read at quite the same time: the sum is right, and the border between them
        // moves upwards only.
        let system_told = ended.system_told_ns.load(Ordering::Relaxed);
        let user =
            user.max(ended.user_told_ns.load(Ordering::Relaxed)).min(total.saturating_sub(system_told));
        let system = total - user;
        ended.user_told_ns.store(user, Ordering::Relaxed);
        ended.system_told_ns.store(system, Ordering::Relaxed);
        (user, system)
    }

    /// Page faults of all its threads.
    pub(crate) fn faults(&self) -> u64 {
        let threads = self.threads.lock();
        let living: u64 = threads.iter().map(|thread| thread.faults()).sum();
        living + self.ended.faults.load(Ordering::Relaxed)
    }

    /// How often its threads have given up a processor, and have lost it.
    pub(crate) fn switches(&self) -> (u64, u64) {
        let threads = self.threads.lock();
        let ended = &self.ended;
        let mut sum =
            (ended.voluntary_switches.load(Ordering::Relaxed), ended.preemptions.load(Ordering::Relaxed));
        for kernel in threads.iter().filter_map(|thread| thread.kernel_thread()) {
            sum.0 += kernel.voluntary_switches();
            sum.1 += kernel.preemptions();
        }
        sum
    }

    /// What all its threads, and the children that it has waited for, have read and written.
    pub(crate) fn transferred(&self) -> Transferred {
        let threads = self.threads.lock();
        let mut sum = self.ended.transfers.values();
        threads.iter().for_each(|thread| sum += thread.transfers.values());
        sum
    }

    /// Adds what a child that was waited for has read and written.
    pub(crate) fn add_transferred(&self, child: Transferred) {
        let _threads = self.threads.lock();
        self.ended.transfers.add(child);
    }

    /// The leader has ended before the other threads: it stays visible as a zombie.
    pub(crate) fn leader_is_gone(&self) -> bool {
        let threads = self.threads.lock();
        !threads.is_empty() && threads.iter().all(|thread| thread.tid() != self.pid)
    }

    /// How many threads are shown: a leader that ended first counts until the process ends.
    pub(crate) fn visible_threads(&self) -> usize {
        self.thread_count() + usize::from(self.leader_is_gone())
    }
}
