//! What others say to this module: where they are, and what they are about to do.

/// Softirqs begin to run on this CPU, with preemption off.
#[inline(always)]
pub fn enter_softirq() {
    #[cfg(any(debug_assertions, feature = "lcount"))]
    super::context::Context::enter_softirq();
}

/// This CPU's softirqs have run.
#[inline(always)]
pub fn leave_softirq() {
    #[cfg(any(debug_assertions, feature = "lcount"))]
    super::context::Context::leave_softirq();
}

/// The caller may sleep: it holds no spin lock, has not disabled preemption, and is no interrupt handler. Checked in debug
/// builds.
#[inline(always)]
pub fn may_sleep() {
    #[cfg(debug_assertions)]
    super::order::may_sleep(None);
}

/// The caller waits for other CPUs: it holds no spin lock. Checked in debug builds.
#[inline(always)]
pub fn may_call_remotely() {
    #[cfg(debug_assertions)]
    super::order::may_call_remotely();
}

/// The caller allocates: it holds no spin lock that keeps interrupts off. Checked in debug builds.
#[inline(always)]
pub fn may_allocate() {
    #[cfg(debug_assertions)]
    super::order::may_allocate();
}

/// Does something that stands for what another thread would do, for tests: what is taken meanwhile has no order.
pub fn without_order<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(debug_assertions)]
    return super::order::without(body);
    #[cfg(not(debug_assertions))]
    body()
}

/// The caller holds no lock. Checked in debug builds.
#[inline(always)]
pub fn nothing_held() {
    #[cfg(debug_assertions)]
    super::order::nothing_held();
}

/// Another thread runs on this CPU from now on.
#[inline(always)]
pub fn thread_switched() {
    #[cfg(feature = "lcount")]
    super::count::switched();
}

/// The running thread begins a system call.
#[inline(always)]
pub fn call_begins(number: u64) {
    #[cfg(feature = "lcount")]
    super::count::call_begins(number);
    let _ = number;
}

/// The running thread ends it, and holds no lock.
#[inline(always)]
pub fn call_ends() {
    #[cfg(feature = "lcount")]
    super::count::call_ends();
    nothing_held();
}
