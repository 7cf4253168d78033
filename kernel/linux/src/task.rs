//! The running thread's own view of itself, and its loop.
//!
//! A [`Task`] lives on the kernel stack of the thread it belongs to and nobody else can reach it; so a system call that only
//! concerns the caller (`getpid`, `getuid`, `rt_sigprocmask`, …) takes neither lock nor atomic. What others need to see is in
//! [`Thread`] and [`Process`].
//!
//! The loop: run user code; serve the call or the exception; if attention is wanted, [`deliver::before_user_mode`]; again. Sleeping
//! happens below a system call with little more than this struct on the stack, so that a sleeping thread fits into one page.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::ControlFlow;

use machine::user::{DebugRegisters, Exception, NO_CALL, UserContext, UserEvent};
use memory::address_space::AddressSpace;
use sched::current;
use vfs::{Capabilities, Descriptors};

use crate::abi::AlternateStack;
use crate::credentials::account::ProcessCharge;
use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult, register_of};
use crate::file::context::{FileSystemContext, FileSystemUse};
use crate::name_space::NameSpaces;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::signal::deliver;
use crate::signal::set::SignalSet;
use crate::user_pointer::UserPointer;

/// The last exception, for signal frames.
#[derive(Clone, Copy, Default, Debug)]
pub struct LastFault {
    /// Vector number.
    pub vector: u64,
    /// The CPU's error code.
    pub error_code: u64,
    /// CR2.
    pub address: u64,
}

/// How an interrupted wait goes on (restart_syscall(2)).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls that go on")]
pub enum Pause {
    /// Sleep until the deadline; what is left is written to `remaining`.
    Sleep { clock: crate::time::Clock, deadline_ns: u64, remaining: u64 },
    /// Wait on a futex until the deadline.
    Futex { address: u64, value: u32, shared: bool, bitset: u32, until: crate::time::Until },
    /// poll(2) until the deadline.
    Poll { list: u64, count: u32, deadline_ns: Option<u64> },
}

/// Registration of a restartable-sequence area.
#[derive(Clone, Copy, Default, Debug)]
pub struct SequenceArea {
    /// Its address; 0 when there is none.
    pub address: u64,
    /// Its size as registered.
    pub bytes: u32,
    /// What stands before every abort handler.
    pub signature: u32,
    /// The CPU number last written there.
    pub cpu: u32,
    /// How often the thread had been switched to when that was last looked at.
    pub switches: u64,
}

/// The running thread.
pub struct Task {
    /// Its user registers.
    pub user: UserContext,
    /// What others see of it.
    pub thread: Arc<Thread>,
    /// Its credentials.
    pub credentials: Arc<Credentials>,
    /// Its descriptors.
    pub files: Descriptors,
    /// Root, current directory, umask.
    pub file_system: Arc<FileSystemContext>,
    /// The name spaces that it is in, unless they are the first ones; that of mounts is where its paths begin.
    pub(crate) name_spaces: Option<Arc<NameSpaces>>,
    /// Its memory.
    pub address_space: Arc<AddressSpace>,
    /// The mask to return to when the current call ends.
    pub saved_mask: Option<SignalSet>,
    /// The way back to user mode must be the long one although no attention flag is set.
    pub needs_work: bool,
    /// sigaltstack.
    pub alternate_stack: AlternateStack,
    /// Where the child of clone(CLONE_CHILD_SETTID) finds its number.
    pub(crate) set_tid: u64,
    /// Its place in futex queues, made on its first wait.
    pub(crate) futex_waiter: Option<Arc<crate::futex::Waiter>>,
    /// What its polls wait with, made on the first.
    pub(crate) poll_waiter: Option<Arc<vfs::poll::PollWaiter>>,
    /// Its number among those that send each other messages, if it has one.
    pub(crate) ipc: Option<::ipc::Endpoint>,
    /// What it has for submitting to rings, made when it first does.
    pub(crate) submitter: Option<Arc<crate::io_ring::Submitter>>,
    /// Cleared, and its futex woken, when the thread ends.
    pub clear_tid: u64,
    /// Head of the robust futex list.
    pub robust_list: u64,
    /// rseq.
    pub sequence: SequenceArea,
    /// How an interrupted call goes on.
    pub paused: Option<Pause>,
    /// From which nodes its memory shall come.
    pub(crate) memory_policy: crate::memory_policy::MemoryPolicy,
    /// PR_SET_IO_FLUSHER
    pub(crate) is_io_flusher: bool,
    /// The last exception.
    pub last_fault: LastFault,
    pub(crate) exit_code: u32,
    /// The hardware breakpoints that its tracer has set, while it runs.
    pub(crate) debug_registers: Option<Box<DebugRegisters>>,
    /// Its trap flag is its tracer's, not the program's.
    pub(crate) is_stepping: bool,
    /// Who sees to it that its tracer is told of its call's end.
    pub(crate) call_end: crate::ptrace::calls::CallEnd,
}

/// Credentials that a thread is about to have.
pub(crate) struct PreparedCredentials {
    pub(crate) new: Arc<Credentials>,
    /// What they count, if that is somebody else's account.
    charge: Option<Option<ProcessCharge>>,
}

/// Credentials that a thread had.
pub(crate) struct FormerCredentials {
    _credentials: [Arc<Credentials>; 2],
    _charge: Option<ProcessCharge>,
}

impl Task {
    /// Its process.
    pub fn process(&self) -> &Arc<Process> {
        self.thread.process()
    }

    /// Replaces its credentials.
    pub fn install_credentials(&mut self, new: Arc<Credentials>) {
        let prepared = self.prepare_credentials(new);
        drop(self.swap_credentials(prepared));
    }

    /// Does what comes before a change of its credentials, and may not be done under a lock.
    pub(crate) fn prepare_credentials(&mut self, new: Arc<Credentials>) -> PreparedCredentials {
        let changed_identity = new.user.effective != self.credentials.user.effective
            || new.group.effective != self.credentials.group.effective
            || new.file.user != self.credentials.file.user
            || new.file.group != self.credentials.file.group
            || !self.credentials.is_above(&new);
        if changed_identity {
            self.process().set_privileged_dumpable();
            self.process().kinship.lock().death_signal = 0;
        }
        // Who may lock memory without limit is known to the address space.
        if new.has(Capabilities::IPC_LOCK) != self.credentials.has(Capabilities::IPC_LOCK) {
            self.address_space.set_limits(crate::memory::limits_of(self.process(), &new));
        }
        let moved = !new.account.is_same(&self.credentials.account);
        let charge = moved.then(|| ProcessCharge::claim(&new.account, u64::MAX)).flatten();
        PreparedCredentials { new, charge: moved.then_some(charge) }
    }

    /// Makes prepared credentials its own. Returns the former ones, and what they counted.
    #[must_use]
    pub(crate) fn swap_credentials(&mut self, prepared: PreparedCredentials) -> FormerCredentials {
        let PreparedCredentials { new, charge } = prepared;
        let mut shared = self.thread.shared.lock();
        let former_charge = charge.and_then(|charge| core::mem::replace(&mut shared.charge, charge));
        let shared_former = core::mem::replace(&mut shared.credentials, new.clone());
        drop(shared);
        let own_former = core::mem::replace(&mut self.credentials, new);
        FormerCredentials { _credentials: [shared_former, own_former], _charge: former_charge }
    }

    /// Replaces its descriptors; closes the old ones if nobody else has them.
    pub fn replace_files(&mut self, new: Descriptors) {
        let table = Arc::clone(&new);
        let shared = self.thread.shared.lock().files.replace(table);
        let old = core::mem::replace(&mut self.files, new);
        drop((shared, old));
    }

    /// Replaces its root, current directory and umask.
    pub(crate) fn replace_file_system(&mut self, new: Arc<FileSystemContext>) {
        let shared = self.thread.shared.lock().file_system.replace(FileSystemUse::begin(new.clone()));
        let old = core::mem::replace(&mut self.file_system, new);
        drop((shared, old));
    }

    /// The thread's life from its first user instruction to its end.
    pub fn run(mut self: Box<Self>) {
        let kernel = current();
        if self.set_tid != 0 {
            let _ = UserPointer::<u32>::new(self.set_tid).write(&self.seen_number(self.thread.tid()));
        }
        kernel.run_program(
            &mut *self,
            |task| &mut task.user,
            |task| {
                if kernel.must_look() || task.needs_work {
                    if task.work(None).is_err() {
                        return ControlFlow::Break(());
                    }
                    if task.debug_registers.is_some() {
                        task.run_watched();
                        return ControlFlow::Continue(());
                    }
                }
                match kernel.run_user(&mut task.user, task.sequence.switches) {
                    UserEvent::SystemCall => task.serve_call(),
                    UserEvent::Exception(exception) => task.serve_exception(exception),
                    UserEvent::Interrupted => {
                        task.user.call = NO_CALL;
                        reschedule();
                    }
                    UserEvent::Switched => crate::rseq::after_switch(task),
                }
                ControlFlow::Continue(())
            },
        );
        crate::core_dump::gathering::attend(&self);
        crate::exit::end_thread(self);
    }

    /// One turn of a program with hardware breakpoints. It has work to do before each, so that others need not ask whether they have some.
    #[inline(never)]
    fn run_watched(&mut self) {
        let Some(mut registers) = self.debug_registers.take() else { return };
        let event = current().run_user_watched(&mut self.user, self.sequence.switches, &mut registers);
        self.debug_registers = Some(registers);
        self.needs_work = true;
        match event {
            UserEvent::SystemCall => self.serve_call(),
            UserEvent::Exception(exception) => self.serve_exception(exception),
            UserEvent::Interrupted => self.user.call = NO_CALL,
            UserEvent::Switched => crate::rseq::after_switch(self),
        }
    }

    fn work(&mut self, restart: Option<Errno>) -> Result<(), deliver::MustExit> {
        self.needs_work = false;
        if current().must_look() {
            // A barrier of sequences has it looked at, though no other thread ran meanwhile.
            self.sequence.switches = u64::MAX;
        }
        deliver::before_user_mode(self, restart)
    }

    #[inline(always)]
    fn serve_call(&mut self) {
        let number = self.user.registers.rax;
        self.user.call = number;
        sync::classes::call_begins(number);
        let result = if self.thread.has_watched_calls() {
            crate::ptrace::calls::serve(self, number)
        } else {
            crate::table::dispatch(self, number)
        };
        sync::classes::call_ends();
        self.user.registers.rax = register_of(result);
        if let Err(errno) = result
            && errno.is_restart()
        {
            self.finish_interrupted(errno);
        }
    }

    /// An interrupted call: decide here, with the code at hand, how it goes on.
    #[inline(never)]
    fn finish_interrupted(&mut self, errno: Errno) {
        if self.work(Some(errno)).is_err() {
            self.needs_work = true;
        }
    }

    #[inline(never)]
    fn serve_exception(&mut self, exception: Exception) {
        self.user.call = NO_CALL;
        self.last_fault = LastFault {
            vector: exception.vector.into(),
            error_code: exception.error_code,
            address: exception.fault_address,
        };
        crate::exception::serve(self, &exception);
    }
}

/// Goes on with an interrupted wait.
pub fn resume(task: &mut Task, pause: Pause) -> SysResult {
    match pause {
        Pause::Sleep { clock, deadline_ns, remaining } => {
            crate::time::sleep::resume(task, clock, deadline_ns, remaining)
        }
        Pause::Futex { address, value, shared, bitset, until } => {
            crate::futex::resume(task, address, value, shared, bitset, until)
        }
        Pause::Poll { list, count, deadline_ns } => crate::file::poll::resume(task, list, count, deadline_ns),
    }
}

/// Within a wait that only the thread's death may end: forgets the attention of other signals, which stay pending and are seen on
/// the way back to user mode.
pub fn clear_attention_unless_killed(task: &mut Task) {
    task.needs_work = true;
    current().set_attention(false);
    if task.thread.is_killed() {
        current().set_attention(true);
    }
}

/// Lets another thread run if one should.
fn reschedule() {
    if machine::preempt::need_resched() {
        sched::schedule();
    }
}
