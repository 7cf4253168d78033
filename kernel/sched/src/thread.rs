//! Threads: what they are, how they are made and looked at.
//!
//! Life: [`Builder::prepare`] allocates everything (so only it can fail) → [`NewThread::start`] puts it on a run
//! queue → it runs its body → it returns from the body or calls [`crate::exit_current`] → the CPU that switches away from it for
//! the last time frees its stack, and the last [`ThreadRef`] frees the rest.
//!
//! References: a started thread holds one reference to itself until it is dead and switched away from, so run queues,
//! timers and wakers of live threads use plain pointers. A sleeping thread costs its control block and one page of stack,
//! at whose top the user registers that only a user thread has are kept.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Deref};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use machine::address::UserAddr;
use machine::backtrace::Backtrace;
use machine::context::KernelContext;
use machine::cpu::{self, AtomicCpuSet, CpuId, CpuSet};
use machine::fault::Fault;
use machine::user::{DebugRegisters, Meter, UserContext, UserEvent, UserRegisters};
use machine::user_state::{self, UserState};
use machine::{interrupt, preempt, time};
use memory::OutOfMemory;
use memory::address_space::AddressSpace;
use memory::charge::Account;
use memory::kstack::{self, KernelStack, PinReason};
use sync::classes::ThreadLocks;
use sync::{Identifiers, Once, SpinLock};

use crate::cpu::{Cpu, REQUEST_RESCHEDULE, request};
use crate::io_context::{IoPriority, IoSlot};
use crate::placement::{self, WakeMode};
use crate::policy::{Nice, Policy};
use crate::run_queue::{Activation, Entity, Reservation};
use crate::space::SpaceSlot;
use crate::stack::Stack;
use crate::state::{RunState, StateWord};

/// A counted reference to a thread.
pub type ThreadRef = Arc<Thread>;

/// Bytes of a thread's name, as in Linux (15 and a terminator).
pub const NAME_BYTES: usize = 15;

/// The user registers that a program starts with.
static FRESH_STATE: UserState = UserState::new();

/// In [`Thread::attention`]: interruptible waits end, and user mode is left.
const ATTENTION: u8 = 1;
/// The same: user mode is left, but waits go on.
const LOOK: u8 = 2;

/// See [`Thread::user_cycles`].
const IN_USER: u64 = 1 << 63;

static IDS: Identifiers = Identifiers::new();

type Body = Box<dyn FnOnce() + Send>;

/// A kernel thread; a user thread is one whose body runs a user program.
pub struct Thread {
    /// Where it continues. Written by its CPU when it switches away; read by the CPU that switches to it.
    pub(crate) context: UnsafeCell<KernelContext>,
    pub(crate) state: StateWord,
    /// The CPU whose run queue it is or was last on. Written under that queue's lock, and under the former one's or `stays`.
    cpu: AtomicU32,
    /// Held with the lock of its CPU's queue: it is brought to no other CPU. Taken after the queue's lock.
    pub(crate) stays: SpinLock<()>,
    /// Whether a CPU executes it, until its state is saved. Written by that CPU under its queue's lock.
    pub(crate) on_cpu: AtomicBool,
    /// Sleeping locks that it holds, and who pays for its memory, while it does not run ([`preempt::luggage`]). Written by its CPU when it
    /// switches away, and before it starts.
    pub(crate) luggage: AtomicU32,
    /// What debug builds and those that count locks keep of them. Written by the thread.
    pub(crate) locks: ThreadLocks,
    /// `ATTENTION` and `LOOK`, or one of them.
    attention: AtomicU8,
    kill: AtomicBool,
    /// Whether it died by `abandon_current`: its stack is kept.
    abandoned: AtomicBool,
    /// Link in the list of abandoned threads that wait to be reported.
    next_abandoned: AtomicPtr<Thread>,
    pub(crate) entity: Entity,
    affinity: AtomicCpuSet,
    /// It stays on its CPU whatever its affinity says; see `bound`. Written by the thread itself.
    pub(crate) bound: AtomicBool,
    /// Likewise, until it ends. Written once, by the thread itself.
    pub(crate) bound_for_good: AtomicBool,
    /// `affinity` has changed since the thread looked at this. Set after the change by who makes it, taken back by the thread.
    pub(crate) affinity_changed: AtomicBool,
    /// User registers at the top of the stack; null for kernel threads. Set at creation.
    user_state: *mut UserState,
    /// 1 + the CPU that had the user registers last, 0 for none. Written by that CPU.
    registers_cpu: AtomicU32,
    pub(crate) space: SpaceSlot,
    /// Cycles spent in user mode; while it is there [`IN_USER`], and the cycle count at which it would have entered, had it been
    /// there without a break. One word, so that a reader sees each cycle once. Written by the thread with interrupts off, so that it is never
    /// switched away from while it counts: what others run meanwhile would be counted as its own.
    user_cycles: AtomicU64,
    id: u64,
    io: IoSlot,
    name: SpinLock<[u8; NAME_BYTES + 1]>,
    /// Registers of the program that it runs, for others to look at while it sleeps; null outside of [`Current::run_program`].
    /// Written by the thread.
    program: AtomicPtr<UserContext>,
    /// See [`Thread::set_personality`].
    personality: Once<Weak<dyn Any + Send + Sync>>,
    /// Taken by the thread when it starts.
    body: UnsafeCell<Option<Body>>,
    /// Taken by the CPU that switched away from it when it was dead.
    stack: UnsafeCell<Option<KernelStack>>,
}

// SAFETY: the fields with interior mutability are atomics, locks, or have one accessor at a time by protocol:
// `context`, `stack` and what `user_state` points to belong to the CPU that executes or switches the thread (`on_cpu`
// and the run-queue lock hand them over), `body` to the thread itself.
unsafe impl Sync for Thread {}
// SAFETY: see above; nothing in a thread is bound to a CPU.
unsafe impl Send for Thread {}

/// What user registers a new thread has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserStart {
    /// None: a kernel thread.
    #[default]
    None,
    /// Those a program starts with.
    Fresh,
    /// A copy of the calling thread's (fork, clone).
    CopyOfCurrent,
}

/// What a new thread shall be.
#[derive(Clone)]
pub struct Builder {
    /// Its name; longer ones are cut.
    pub name: [u8; NAME_BYTES + 1],
    /// Pages its stack may grow to; 0 for the usual number.
    pub stack_pages: usize,
    /// Whether its stack has all its pages from the start.
    pub pinned_stack: bool,
    /// Whether [`Thread::set_stack_locked`] holds for it.
    pub locked_stack: bool,
    /// The CPUs it may run on.
    pub affinity: CpuSet,
    /// How it competes for them.
    pub policy: Policy,
    /// Its nice value.
    pub nice: Nice,
    /// Its user registers.
    pub user: UserStart,
    /// The FS base it starts with, if not the one that `user` says.
    pub fs_base: Option<u64>,
    /// Its address space, if it has one.
    pub address_space: Option<Arc<AddressSpace>>,
    /// What it gets of the calling thread's I/O context.
    pub io: IoStart,
}

/// What of the calling thread's I/O context a new thread has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoStart {
    /// Nothing.
    #[default]
    None,
    /// The priority, if one is set (fork).
    Priority,
    /// All: both are one for what shares out disks (CLONE_IO).
    Shared,
}

impl Builder {
    /// A kernel thread of that name with everything else as usual.
    pub fn new(name: &str) -> Self {
        Self {
            name: name_bytes(name.as_bytes()),
            stack_pages: 0,
            pinned_stack: false,
            locked_stack: false,
            affinity: CpuSet::ALL,
            policy: Policy::Normal,
            nice: Nice::default(),
            user: UserStart::None,
            fs_base: None,
            address_space: None,
            io: IoStart::None,
        }
    }

    /// Allocates the thread without starting it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn prepare(self, body: Body) -> Result<NewThread, OutOfMemory> {
        crate::start::ensure_started();
        self.allocate(body)
    }

    /// [`Builder::prepare`] while the scheduler is being started.
    pub(crate) fn allocate(self, body: Body) -> Result<NewThread, OutOfMemory> {
        let mut stack = Stack::allocate(self.stack_pages, self.pinned_stack)?;
        if self.policy.is_realtime() && kstack::pin_realtime() {
            stack.pin(PinReason::Realtime);
        }
        if self.locked_stack {
            stack.pin(PinReason::Locked);
        }
        let user_state = match self.user {
            UserStart::None => core::ptr::null_mut(),
            UserStart::Fresh => stack.place_user_state(&FRESH_STATE),
            UserStart::CopyOfCurrent => {
                let current = current();
                current.save_user_state();
                stack.place_user_state(current.user_state().unwrap_or(&FRESH_STATE))
            }
        };
        if let (Some(fs_base), false) = (self.fs_base, user_state.is_null()) {
            // SAFETY: the state was placed above, on a stack that nobody else knows of yet.
            unsafe { (*user_state).set_fs_base(fs_base) };
        }
        let id = IDS.take();
        let io = match self.io {
            IoStart::None => None,
            start => current().io.inherited(start == IoStart::Shared, id)?,
        };
        let entity = Entity::new(self.policy, self.nice);
        // Its program's group is that of the caller, for whom it works.
        if self.user != UserStart::None && !current().entity.group.is_empty() {
            // There was none: nothing to drop.
            drop(entity.group.replace(current().entity.group.get(&sync::rcu::read())));
        }
        // So is who pays for its memory.
        let payer = if self.user == UserStart::None { None } else { memory::charge::of_current() };
        let luggage = luggage_with(payer);
        let thread = Thread {
            context: UnsafeCell::new(KernelContext::default()),
            state: StateWord::new(),
            cpu: AtomicU32::new(cpu::current().index() as u32),
            stays: SpinLock::named("thread stays", ()),
            on_cpu: AtomicBool::new(false),
            luggage: AtomicU32::new(luggage),
            locks: ThreadLocks::new(),
            attention: AtomicU8::new(0),
            kill: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            next_abandoned: AtomicPtr::new(core::ptr::null_mut()),
            entity,
            affinity: AtomicCpuSet::new(self.affinity),
            bound: AtomicBool::new(false),
            bound_for_good: AtomicBool::new(false),
            affinity_changed: AtomicBool::new(false),
            user_state,
            registers_cpu: AtomicU32::new(0),
            space: SpaceSlot::new(self.address_space),
            user_cycles: AtomicU64::new(0),
            id,
            io: IoSlot::with(io),
            name: SpinLock::named("thread name", self.name),
            program: AtomicPtr::new(core::ptr::null_mut()),
            personality: Once::new(),
            body: UnsafeCell::new(Some(body)),
            stack: UnsafeCell::new(None),
        };
        let thread = crate::stack::try_arc(thread)?;
        // SAFETY: the stack's top is free below the user state, and lives until the thread is dead.
        let context =
            unsafe { KernelContext::new(stack.start(), thread_main, Arc::as_ptr(&thread) as usize) };
        // SAFETY: nobody else knows the thread yet.
        unsafe {
            *thread.context.get() = context;
            *thread.stack.get() = Some(stack.into_memory(thread.id, Arc::as_ptr(&thread) as u64));
        }
        Ok(NewThread(Some(thread)))
    }
}

/// What a thread without locks takes along.
fn luggage_with(payer: Option<Account>) -> u32 {
    u32::from(payer.map_or(0, Account::into_number)) << u16::BITS
}

/// Makes and starts a thread.
///
/// # Errors
/// [`OutOfMemory`].
pub fn spawn(builder: Builder, body: Body) -> Result<ThreadRef, OutOfMemory> {
    Ok(builder.prepare(body)?.start())
}

/// A name that ends in a number below 100.
pub(crate) fn numbered_name(prefix: &str, number: usize) -> [u8; NAME_BYTES + 1] {
    let mut bytes = name_bytes(prefix.as_bytes());
    let digits = [(number / 10 % 10) as u8 + b'0', (number % 10) as u8 + b'0'];
    let digits = if number < 10 { &digits[1..] } else { &digits[..] };
    bytes[prefix.len()..prefix.len() + digits.len()].copy_from_slice(digits);
    bytes
}

fn name_bytes(name: &[u8]) -> [u8; NAME_BYTES + 1] {
    let mut bytes = [0; NAME_BYTES + 1];
    let length = name.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&name[..length]);
    bytes
}

/// A thread that has everything it needs and has not started. If it is dropped, what its body owns goes with it, even
/// where that leads back to the thread.
pub struct NewThread(Option<ThreadRef>);

impl NewThread {
    const PRESENT: &str = "only its end takes the thread out";

    /// The thread.
    pub fn thread(&self) -> &ThreadRef {
        self.0.as_ref().expect(Self::PRESENT)
    }

    /// The thread as a CPU's idle thread, which is never on a run queue.
    pub(crate) fn into_idle(mut self) -> ThreadRef {
        self.0.take().expect(Self::PRESENT)
    }

    /// Lets it run.
    pub fn start(mut self) -> ThreadRef {
        let thread = self.0.take().expect(Self::PRESENT);
        // The reference that the thread holds to itself; released in `Thread::finish`.
        let _ = Arc::into_raw(thread.clone());
        let _preemption = preempt::disable();
        crate::statistics::count_fork();
        placement::enqueue(&thread, Activation::New, false);
        thread
    }
}

impl Drop for NewThread {
    fn drop(&mut self) {
        let Some(thread) = self.0.take() else { return };
        // SAFETY: only the thread itself takes its body, when it runs; this one never will.
        drop(unsafe { (*thread.body.get()).take() });
        drop(thread.space.take());
    }
}

/// First function of every thread, reached by its first switch: interrupts are off, preemption count 1.
extern "C" fn thread_main(argument: usize) -> ! {
    crate::dispatch::finish_first_switch();
    let thread = argument as *const Thread;
    // SAFETY: the running thread is alive, and only it takes its body, once.
    let body = unsafe { (*(*thread).body.get()).take() };
    let body = body.expect("a thread starts once");
    crate::start::run_body(body);
    crate::exit_current()
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.set_payer(None);
    }
}

impl Thread {
    /// A thread for the context that the caller is already in: a CPU's boot stack, a test.
    pub(crate) fn adopt_current(name: &str, affinity: CpuSet) -> ThreadRef {
        Arc::new(Thread {
            context: UnsafeCell::new(KernelContext::default()),
            state: StateWord::running(),
            cpu: AtomicU32::new(cpu::current().index() as u32),
            stays: SpinLock::named("thread stays", ()),
            on_cpu: AtomicBool::new(true),
            luggage: AtomicU32::new(0),
            locks: ThreadLocks::new(),
            attention: AtomicU8::new(0),
            kill: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            next_abandoned: AtomicPtr::new(core::ptr::null_mut()),
            entity: Entity::new(Policy::Normal, Nice::default()),
            affinity: AtomicCpuSet::new(affinity),
            bound: AtomicBool::new(false),
            bound_for_good: AtomicBool::new(false),
            affinity_changed: AtomicBool::new(false),
            user_state: core::ptr::null_mut(),
            registers_cpu: AtomicU32::new(0),
            space: SpaceSlot::new(None),
            user_cycles: AtomicU64::new(0),
            id: IDS.take(),
            io: IoSlot::default(),
            name: SpinLock::named("thread name", name_bytes(name.as_bytes())),
            program: AtomicPtr::new(core::ptr::null_mut()),
            personality: Once::new(),
            body: UnsafeCell::new(None),
            stack: UnsafeCell::new(None),
        })
    }

    /// A number that no other thread has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whose its transfers are: see [`crate::io_context`].
    pub fn io_owner(&self) -> u64 {
        self.io.owner(self.id)
    }

    /// The I/O priority that was set for it or inherited.
    pub fn io_priority(&self) -> IoPriority {
        self.io.priority()
    }

    /// How urgent its transfers are, whether that was set or not.
    pub fn effective_io_priority(&self) -> IoPriority {
        let set = self.io.priority();
        if set.is_set() { set } else { IoPriority::of(self.policy(), self.nice()) }
    }

    /// Sets the I/O priority of the thread and of all who share its I/O context.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn set_io_priority(&self, priority: IoPriority) -> Result<(), OutOfMemory> {
        self.io.set_priority(self.id, priority)
    }

    /// Connects it with what the layer above knows it as, for calls from below that arrive without a context (a
    /// terminal that asks who is calling). Only the first connection counts; it does not keep the object alive.
    pub fn set_personality(&self, object: Weak<dyn Any + Send + Sync>) {
        self.personality.call_once(|| object);
    }

    /// What the layer above knows it as.
    pub fn personality(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.personality.get()?.upgrade()
    }

    /// Its name, without the padding.
    pub fn name(&self) -> ThreadName {
        ThreadName(*self.name.lock())
    }

    /// Its name, unless somebody is changing it.
    pub(crate) fn try_name(&self) -> Option<ThreadName> {
        self.name.try_lock().map(|name| ThreadName(*name))
    }

    /// Renames it; longer names are cut.
    pub fn set_name(&self, name: &[u8]) {
        *self.name.lock() = name_bytes(name);
    }

    /// Wakes it if it sleeps; returns whether it did.
    #[inline]
    pub fn wake(&self) -> bool {
        placement::wake(self, WakeMode::default())
    }

    /// Like [`Thread::wake`] by a thread that is about to sleep itself.
    #[inline]
    pub fn wake_synchronous(&self) -> bool {
        placement::wake(self, WakeMode { synchronous: true, ..WakeMode::default() })
    }

    /// Sets or clears the thread's attention flag. While it is set, interruptible waits end with
    /// [`crate::Interrupted`] and user mode is left (a signal is pending, the thread shall stop or die).
    pub fn set_attention(&self, wanted: bool) {
        // SeqCst: pairs with the look at the flag after `StateWord::prepare`.
        // `LOOK` goes with it: whoever takes the flag back looks at all there is to do, or sees to it that the thread does.
        self.attention.store(if wanted { ATTENTION } else { 0 }, Ordering::SeqCst);
        if wanted {
            let _preemption = preempt::disable();
            placement::wake(self, WakeMode { interruptible_only: true, ..WakeMode::default() });
            if self.on_cpu.load(Ordering::SeqCst) && self.cpu() != cpu::current() {
                // It may be in user mode: the interrupt makes it look.
                request(self.cpu(), REQUEST_RESCHEDULE);
            }
        }
    }

    /// Has a running thread that its CPU has just interrupted or is switching look before it goes on in user mode. Its waits in the kernel are none of its
    /// group's, or its reservation's, business: they go on.
    pub(crate) fn note_held_back(&self) {
        self.attention.fetch_or(LOOK, Ordering::SeqCst);
    }

    /// Has the program whose thread runs on this CPU look at what it has to do before it goes on; nothing when no program does. For functions that
    /// are called on other CPUs: it wakes nobody.
    pub fn disturb_program() {
        let running = current();
        if !running.user_state.is_null() {
            running.note_held_back();
        }
    }

    /// Sets who pays for the memory of a thread that was not started yet.
    pub fn set_payer(&self, payer: Option<Account>) {
        let former = self.luggage.swap(luggage_with(payer), Ordering::Relaxed);
        drop(Account::from_number((former >> u16::BITS) as u16));
    }

    /// Whether the attention flag is set.
    #[inline(always)]
    pub fn attention(&self) -> bool {
        self.attention.load(Ordering::SeqCst) & ATTENTION != 0
    }

    /// Whether it has to look at something before it goes on in user mode: the attention flag is set, or it is held back.
    #[inline(always)]
    pub fn must_look(&self) -> bool {
        self.attention.load(Ordering::SeqCst) != 0
    }

    /// Marks it to end as soon as it is about to return to user mode. Uninterruptible waits are not cut short.
    pub fn kill(&self) {
        self.kill.store(true, Ordering::Relaxed);
        self.set_attention(true);
    }

    /// Whether it should run even if that takes the last memory: it ends, or works for the kernel.
    pub(crate) fn frees_memory(&self) -> bool {
        self.user_state.is_null() || self.is_killed()
    }

    /// Whether it is marked to end.
    pub fn is_killed(&self) -> bool {
        self.kill.load(Ordering::Relaxed)
    }

    /// What it is doing.
    pub fn state(&self) -> RunState {
        self.state.get()
    }

    /// The CPU it runs or ran last on.
    #[inline(always)]
    pub fn cpu(&self) -> CpuId {
        CpuId::from_index(self.cpu.load(Ordering::Relaxed) as usize)
    }

    /// The caller has claimed the thread, has this CPU's queue locked and is about to put it there. The lock of the queue where it was
    /// keeps nobody from that, so who changes the thread under that one is waited for; on the same CPU the queue's lock does.
    #[inline(always)]
    pub(crate) fn enter_cpu(&self, cpu: CpuId) {
        if self.cpu() != cpu {
            let _stays = self.stays.lock();
            self.set_cpu(cpu);
        }
    }

    /// For a thread that is in a queue: under the locks of that queue and of the one that it goes to.
    #[inline(always)]
    pub(crate) fn set_cpu(&self, cpu: CpuId) {
        self.cpu.store(cpu.index() as u32, Ordering::Relaxed);
    }

    /// The CPUs it may run on.
    pub fn affinity(&self) -> CpuSet {
        self.affinity.load(Ordering::Relaxed)
    }

    /// Restricts it to these CPUs; when this returns it runs on no other one. A set without any online CPU leaves
    /// the thread where it can run.
    pub fn set_affinity(&self, cpus: CpuSet) {
        self.affinity.store(cpus, Ordering::SeqCst);
        self.affinity_changed.store(true, Ordering::SeqCst);
        crate::balance::enforce_affinity(self);
    }

    /// How it competes for its CPU, unless others lend it urgency.
    pub fn policy(&self) -> Policy {
        self.entity.own_policy()
    }

    /// Changes how it competes, but not to a reservation. The stack of a real-time thread has all its pages: page faults would delay it.
    pub fn set_policy(&self, policy: Policy) {
        debug_assert_ne!(policy, Policy::Deadline, "see `reserve`");
        if let Some(former) = self.apply_policy(policy, None) {
            crate::admission::give_back(former);
        }
    }

    /// Changes how it competes, with the terms of a reservation or without. Returns the reservation that it had.
    pub(crate) fn apply_policy(&self, policy: Policy, terms: Option<Reservation>) -> Option<Reservation> {
        let mut pinned = false;
        let mut former = None;
        crate::balance::change_entity(self, |entity| {
            former = (entity.own_policy() == Policy::Deadline).then(|| entity.reservation());
            if former.is_some() || terms.is_some() {
                entity.set_terms(policy, entity.own_nice(), terms);
            } else {
                entity.set_policy(policy, entity.own_nice());
            }
            pinned =
                self.pin_stack_locked(PinReason::Realtime, policy.is_realtime() && kstack::pin_realtime());
        });
        if pinned {
            kstack::settle_pins();
        }
        former
    }

    /// Has all pages of its stack mapped and kept (its process has locked its memory), or no longer.
    pub fn set_stack_locked(&self, locked: bool) {
        let mut pinned = false;
        crate::balance::change_entity(self, |_| pinned = self.pin_stack_locked(PinReason::Locked, locked));
        if pinned {
            kstack::settle_pins();
        }
    }

    /// Pins the stack or lets it go, with the thread's run queue locked: a thread that is not dead then cannot finish
    /// meanwhile. Returns whether pages may be missing.
    fn pin_stack_locked(&self, reason: PinReason, pinned: bool) -> bool {
        if self.state.is_dead() {
            return false;
        }
        // SAFETY: the stack is taken out only after a switch under the queue's lock, when the thread is dead.
        let Some(stack) = (unsafe { (*self.stack.get()).as_ref() }) else { return false };
        stack.set_pinned(reason, pinned);
        pinned
    }

    /// Its nice value.
    pub fn nice(&self) -> Nice {
        self.entity.own_nice()
    }

    /// Changes its nice value.
    pub fn set_nice(&self, nice: Nice) {
        crate::balance::change_entity(self, |entity| entity.set_policy(entity.own_policy(), nice));
    }

    /// The CPU time it has used. Of another thread too it never runs backwards, nor ahead of the clock.
    pub fn runtime(&self) -> Runtime {
        // Before the whole, of which it is a part.
        let user_ns = crate::statistics::cycles_to_ns(self.user_cycles());
        let total_ns = crate::balance::runtime_ns(self);
        Runtime { total_ns, user_ns: user_ns.min(total_ns) }
    }

    /// How long a real-time thread without a reservation has run since it slept last; `None` for others.
    pub fn realtime_since_sleep_ns(&self) -> Option<u64> {
        let is_it = matches!(self.policy(), Policy::Fifo(_) | Policy::RoundRobin(_));
        let ran_ns = is_it.then(|| crate::balance::runtime_ns(self))?;
        Some(ran_ns.saturating_sub(self.entity.slept_at_ns()))
    }

    /// What the thread does in the kernel: where it sleeps, or, if it is the calling one, where it is. `None` while it runs or wants
    /// to.
    #[inline(never)]
    pub fn observe(&self) -> Option<Observation> {
        if core::ptr::eq(self, &raw const *current()) {
            return Some(self.observe_from(&Backtrace::here()));
        }
        crate::placement::while_asleep(self, || {
            // SAFETY: only a CPU that switches to the thread or away from it writes the context, and it is kept asleep.
            self.observe_from(&Backtrace::of_suspended(unsafe { &*self.context.get() }))
        })
    }

    /// The thread is the calling one, or kept asleep.
    fn observe_from(&self, backtrace: &Backtrace) -> Observation {
        let mut calls = Calls::default();
        for address in backtrace.addresses().take(CALLS_MAX) {
            calls.addresses[calls.count] = address;
            calls.count += 1;
        }
        let program = self.program.load(Ordering::Relaxed);
        // SAFETY: the pointer is there only while `run_program` has the program borrowed; the thread, which alone could end
        // that, is here or kept asleep. Volatile, for a reference may be known to code that is suspended; what that code
        // keeps elsewhere meanwhile is not seen.
        let program = (!program.is_null()).then(|| unsafe {
            let registers = (&raw const (*program).registers).read_volatile();
            ((&raw const (*program).call).read_volatile(), registers)
        });
        Observation { calls, program }
    }

    /// Whether its time counts as time in user mode.
    pub(crate) fn counts_user_time(&self) -> bool {
        self.user_cycles.load(Ordering::Relaxed) & IN_USER != 0
    }

    fn user_cycles(&self) -> u64 {
        let word = self.user_cycles.load(Ordering::Relaxed);
        if word & IN_USER == 0 {
            return word;
        }
        // Signed in 63 bits: another processor's count may be a little ahead of this one's.
        let cycles = (time::cycles().wrapping_sub(word) << 1).cast_signed() >> 1;
        cycles.max(0).cast_unsigned()
    }

    /// How often it lost its CPU though it could have gone on.
    pub fn preemptions(&self) -> u64 {
        self.entity.preemptions.load(Ordering::Relaxed)
    }

    /// How often it was switched to, and how often another thread came before it then. The one that runs has been switched to once more than away from.
    pub fn voluntary_switches(&self) -> u64 {
        self.switches().saturating_sub(self.preemptions() + 1)
    }

    /// How often it was switched to.
    pub fn switches(&self) -> u64 {
        self.entity.switches.load(Ordering::Relaxed)
    }

    /// Its address space, if it has one.
    pub fn address_space(&self) -> Option<Arc<AddressSpace>> {
        self.space.get()
    }

    /// Stores the user registers of the thread that this CPU is about to stop executing. Interrupts are off.
    #[inline(always)]
    pub(crate) fn leave_registers(&self) {
        if !self.user_state.is_null() {
            // SAFETY: the state belongs to the thread that this CPU executes; interrupts are off.
            unsafe { (*self.user_state).save() };
        }
    }

    /// Loads the user registers of the thread that this CPU is about to execute, unless they are still there. Interrupts are
    /// off.
    #[inline(always)]
    pub(crate) fn enter_registers(&self, cpu: &Cpu) {
        if self.user_state.is_null() {
            return;
        }
        let this = cpu::current().index() as u32 + 1;
        let owner = core::ptr::from_ref(self).cast_mut();
        // Both must agree: the CPU may have had another thread's since, the thread another CPU.
        if cpu.registers_owner.load(Ordering::Relaxed) != owner
            || self.registers_cpu.load(Ordering::Relaxed) != this
        {
            cpu.registers_owner.store(owner, Ordering::Relaxed);
            self.registers_cpu.store(this, Ordering::Relaxed);
            // SAFETY: the state belongs to the thread that this CPU is about to execute; interrupts are off.
            unsafe { (*self.user_state).restore() };
        }
    }

    /// Marks the running thread as one that stops where it is.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next_abandoned(&self, next: *mut Thread) {
        self.next_abandoned.store(next, Ordering::Relaxed);
    }

    pub(crate) fn next_abandoned(&self) -> *mut Thread {
        self.next_abandoned.load(Ordering::Relaxed)
    }

    /// Gives up what an abandoned thread owns, except its stack: other threads' lists may point into it.
    pub(crate) fn finish_abandoned(self: &Arc<Self>) {
        debug_assert!(self.is_abandoned(), "other threads finish themselves");
        while self.on_cpu.load(Ordering::Acquire) {
            cpu::relax();
        }
        drop(self.space.take());
        // SAFETY: the thread is dead and runs nowhere; this takes the place of `finish`, which skips abandoned threads.
        unsafe {
            core::mem::forget((*self.stack.get()).take());
            drop(Arc::from_raw(Arc::as_ptr(self)));
        }
    }

    /// Its kernel stack; None for start-up code.
    ///
    /// # Safety
    /// The caller's CPU is about to switch to the thread or has just switched away from it.
    #[inline(always)]
    pub(crate) unsafe fn stack(&self) -> Option<&KernelStack> {
        // SAFETY: the stack is taken out only by the CPU that switched away from the dead thread, which is the caller.
        unsafe { (*self.stack.get()).as_ref() }
    }

    /// The thread is dead and no CPU executes it: frees its stack and drops the reference it holds to itself.
    ///
    /// # Safety
    /// Called once, by the CPU that switched away from the dead thread.
    pub(crate) unsafe fn finish(thread: *const Thread) {
        // SAFETY: the self-reference made in `NewThread::start` is still there; nobody executes on the stack.
        unsafe {
            drop((*(*thread).stack.get()).take());
            drop(Arc::from_raw(thread));
        }
    }
}

impl core::fmt::Debug for Thread {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Thread")
            .field("id", &self.id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// CPU time of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// All of it.
    pub total_ns: u64,
    /// The part in user mode.
    pub user_ns: u64,
}

impl Runtime {
    /// The part in the kernel.
    pub fn system_ns(&self) -> u64 {
        self.total_ns - self.user_ns
    }
}

/// Most calls that [`Thread::observe`] lists.
const CALLS_MAX: usize = 32;

/// Code addresses on a stack, innermost first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    addresses: [usize; CALLS_MAX],
    count: usize,
}

impl Calls {
    /// The addresses: where each call returns to.
    pub fn addresses(&self) -> &[usize] {
        &self.addresses[..self.count]
    }
}

/// What a thread is doing in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The calls on its kernel stack.
    pub calls: Calls,
    /// The number of the system call that its program is in, or [`machine::user::NO_CALL`], and the program's registers.
    pub program: Option<(u64, UserRegisters)>,
}

/// Ends the visibility of a program's registers.
struct HiddenAtEnd<'a>(&'a Current);

impl Drop for HiddenAtEnd<'_> {
    fn drop(&mut self) {
        // Relaxed: who looks has seen the thread go to sleep after this.
        self.0.program.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// A thread's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ThreadName([u8; NAME_BYTES + 1]);

impl ThreadName {
    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        &self.0[..length]
    }
}

impl core::fmt::Debug for ThreadName {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{:?}", alloc::string::String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The running thread, for itself: no reference is counted, and it cannot be given to another thread.
#[derive(Clone, Copy)]
pub struct Current {
    thread: *const Thread,
    _not_send: PhantomData<*mut ()>,
}

/// The running thread.
#[inline(always)]
pub fn current() -> Current {
    let word = cpu::thread_word();
    #[cfg(not(target_os = "none"))]
    let word = if word == 0 { crate::start::adopt_host_thread() } else { word };
    debug_assert_ne!(word, 0, "the scheduler has been started on this CPU");
    Current { thread: word as *const Thread, _not_send: PhantomData }
}

impl Deref for Current {
    type Target = Thread;
    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: the running thread holds a reference to itself, and `Current` never leaves it.
        unsafe { &*self.thread }
    }
}

impl Meter for Current {
    /// What the thread had spent in user mode, and when this stay began.
    type Begun = (u64, u64);

    #[inline(always)]
    fn begin(&self) -> (u64, u64) {
        let before = self.user_cycles.load(Ordering::Relaxed);
        let start = time::cycles();
        self.user_cycles.store(start.wrapping_sub(before) | IN_USER, Ordering::Relaxed);
        (before, start)
    }

    #[inline(always)]
    fn end(&self, (before, start): (u64, u64), cycles: u64) {
        let spent = cycles.wrapping_sub(start);
        self.user_cycles.store(before.wrapping_add(spent) & !IN_USER, Ordering::Relaxed);
        let cpu = Cpu::of(cpu::current());
        cpu.user_cycles.store(cpu.user_cycles.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
    }
}

impl Current {
    /// A counted reference to the running thread.
    pub fn to_ref(&self) -> ThreadRef {
        // SAFETY: every thread lives in an Arc, and the running one is alive.
        unsafe {
            Arc::increment_strong_count(self.thread);
            Arc::from_raw(self.thread)
        }
    }

    /// Runs the thread's user program until it needs the kernel, and accounts its time. After [`UserEvent::Interrupted`] other
    /// threads have run, or the attention flag is set: user mode was left for the kernel's reasons. It is not entered, also not again, when the
    /// thread was switched to since the caller has seen `switches` ([`Thread::switches`]).
    #[inline]
    pub fn run_user(&self, context: &mut UserContext, switches: u64) -> UserEvent {
        let event = context.run(&self.attention, || self.switches() != switches, self);
        if event == UserEvent::Interrupted && preempt::need_resched() {
            crate::dispatch::preempt_hook();
        }
        event
    }

    /// As [`Current::run_user`], with debug registers of the program's own.
    #[inline(never)]
    pub fn run_user_watched(
        &self,
        context: &mut UserContext,
        switches: u64,
        registers: &mut DebugRegisters,
    ) -> UserEvent {
        let event = context.run_watched(&self.attention, || self.switches() != switches, self, registers);
        if event == UserEvent::Interrupted && preempt::need_resched() {
            crate::dispatch::preempt_hook();
        }
        event
    }

    /// Calls `turn` until it breaks. The registers of the program that `context` names can be looked at from outside meanwhile
    /// ([`Thread::observe`]).
    #[inline(always)]
    pub fn run_program<P>(
        &self,
        program: &mut P,
        context: impl FnOnce(&mut P) -> &mut UserContext,
        mut turn: impl FnMut(&mut P) -> ControlFlow<()>,
    ) {
        self.program.store(context(program), Ordering::Relaxed);
        // However the loop ends, nobody looks after it.
        let _hidden_at_end = HiddenAtEnd(self);
        while turn(program).is_continue() {}
    }

    /// Whether [`Thread::set_stack_locked`] holds for it.
    pub fn stack_is_locked(&self) -> bool {
        // SAFETY: the running thread has its stack.
        unsafe { self.stack() }.is_some_and(|stack| stack.is_pinned_for(PinReason::Locked))
    }

    fn save_user_state(&self) {
        if !self.user_state.is_null() {
            let _interrupts = interrupt::disable();
            // SAFETY: the state belongs to the running thread, which is the caller.
            unsafe { (*self.user_state).save() };
        }
    }

    fn user_state(&self) -> Option<&UserState> {
        // SAFETY: the state belongs to the running thread, which is the caller; it lives as long as the stack.
        unsafe { self.user_state.as_ref() }
    }

    /// Lets the closure see and change the thread's user registers: what the CPU holds is stored first and loaded
    /// after. None for kernel threads. The closure must not sleep.
    pub fn with_user_state<R>(&self, change: impl FnOnce(&mut UserState) -> R) -> Option<R> {
        if self.user_state.is_null() {
            return None;
        }
        let _interrupts = interrupt::disable();
        // SAFETY: the state belongs to the running thread, which is the caller, and interrupts are off.
        let state = unsafe { &mut *self.user_state };
        state.save();
        let result = change(state);
        state.restore();
        Some(result)
    }

    /// Writes the thread's vector registers to its program's memory; see [`machine::user_state::save_to_user`]. While it
    /// runs, also in the kernel, the CPU holds them.
    ///
    /// # Errors
    /// [`Fault`] when the memory can't be written, and for kernel threads.
    pub fn save_registers_to_user(&self, to: UserAddr) -> Result<(), Fault> {
        if self.user_state.is_null() { Err(Fault) } else { user_state::save_to_user(to) }
    }

    /// Loads the thread's vector registers from its program's memory; see [`machine::user_state::load_from_user`].
    ///
    /// # Errors
    /// [`Fault`] when the memory can't be read or does not hold valid registers, and for kernel threads.
    pub fn load_registers_from_user(&self, from: UserAddr) -> Result<(), Fault> {
        if self.user_state.is_null() { Err(Fault) } else { user_state::load_from_user(from) }
    }

    /// Replaces the thread's address space; the old one is dropped by the caller.
    pub fn set_address_space(&self, space: Option<Arc<AddressSpace>>) -> Option<Arc<AddressSpace>> {
        self.space.replace_current(space)
    }
}
