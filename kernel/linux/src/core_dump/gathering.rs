//! All threads of a process stop, and leave their registers to the one that writes them down.
//!
//! The *dumper*, a thread that takes a fatal signal, announces a gathering and kills the others. Each of them comes to it first thing on its way out
//! ([`attend`]), leaves its registers and waits: until then its memory is as it was. The dumper begins when all threads that are still listed have
//! come; threads that had passed the place before leave the list. When the dumper is done all go on and end.
//! Workers of submission rings just leave: a thread that has passed the place waits for its own.
//!
//! ```text
//! dumper:  announce ── wait for all ── write ── end ──> ends as well
//! others:            come ── wait for the end ──> end
//! ```
//!
//! SIGKILL ends the writing ([`Gathering::abort`]). Locking: `threads` of the gathering below `signals` and the list of threads of the process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use machine::user::UserContext;
use machine::user_state::IMAGE_BYTES;
use sched::current;
use sync::SpinLock;

use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::task::Task;

/// What a thread leaves.
pub(super) struct Presence {
    pub(super) thread: Arc<Thread>,
    pub(super) user: UserContext,
    pub(super) fs_base: u64,
    pub(super) gs_base: u64,
    /// The vector registers as the processor saves them.
    pub(super) image: Vec<u8>,
}

impl Presence {
    /// That of the running thread; `None` without memory for it.
    pub(super) fn of(task: &Task) -> Option<Presence> {
        let mut image = memory::fallible::try_vec_of(0, IMAGE_BYTES).ok()?;
        let bases = current().with_user_state(|state| {
            let saved = state.image();
            let length = saved.len().min(IMAGE_BYTES);
            image[..length].copy_from_slice(&saved[..length]);
            (state.fs_base(), state.gs_base())
        });
        let (fs_base, gs_base) = bases.unwrap_or_default();
        Some(Presence { thread: task.thread.clone(), user: task.user.clone(), fs_base, gs_base, image })
    }
}

/// See the theory of this file.
pub(crate) struct Gathering {
    dumper: Arc<Thread>,
    /// Those who have come, and how many came without memory to leave anything.
    present: SpinLock<(Vec<Presence>, usize)>,
    /// Release: the dumper is done. Acquire: those who wait for that.
    ended: AtomicBool,
}

impl Gathering {
    /// Announces a gathering to the other threads of the process, which is ending with this status. `None` if it is ending or replaced already, or there is no memory.
    pub(super) fn announce(task: &Task, status: u32) -> Option<Arc<Gathering>> {
        let process = task.process();
        let room = memory::fallible::try_vec(process.thread_count() + 8).ok()?;
        let gathering = memory::fallible::try_arc(Gathering {
            dumper: task.thread.clone(),
            present: SpinLock::named("threads at a core dump", (room, 0)),
            ended: AtomicBool::new(false),
        })
        .ok()?;
        {
            let mut signals = process.signals.lock();
            if signals.group_exit.is_some() || signals.executing {
                return None;
            }
            signals.group_exit = Some(status);
            signals.stop = crate::signal::shared::StopState::Running;
            *process.gathering.lock() = Some(gathering.clone());
            // Release: a thread that is killed, or sees this, finds the gathering.
            process.gathers.store(true, Ordering::Release);
            for thread in process.threads.lock().iter() {
                if !Arc::ptr_eq(thread, &task.thread) {
                    thread.kill();
                }
            }
        }
        process.signal_event.wake_all();
        Some(gathering)
    }

    /// Waits until the other threads have come, and takes what they have left.
    pub(super) fn wait_for_all(&self, process: &Process) -> Vec<Presence> {
        process.thread_event.wait_until(|| {
            let listed = process.thread_count();
            let present = self.present.lock();
            present.0.len() + present.1 + 1 >= listed
        });
        core::mem::take(&mut self.present.lock().0)
    }

    /// The dumper is done; the status says whether there is a dump.
    pub(super) fn end(&self, process: &Process, status: u32) {
        process.signals.lock().group_exit = Some(status);
        *process.gathering.lock() = None;
        self.ended.store(true, Ordering::Release);
        process.thread_event.wake_all();
    }

    /// SIGKILL has come: the dumper gives up.
    pub(crate) fn abort(&self) {
        self.dumper.kill();
    }
}

/// A thread that ends comes to the gathering of its process, if there is one, and stays until it ends.
pub(crate) fn attend(task: &Task) {
    let process = task.process();
    if process.gathers.load(Ordering::Acquire) {
        wait_at(task);
    }
}

#[cold]
#[inline(never)]
fn wait_at(task: &Task) {
    let process = task.process();
    let Some(gathering) = process.gathering.lock().clone() else { return };
    if Arc::ptr_eq(&gathering.dumper, &task.thread) {
        return;
    }
    let presence = Presence::of(task);
    let left_over = {
        let mut present = gathering.present.lock();
        match presence {
            Some(presence) if present.0.len() < present.0.capacity() => {
                present.0.push(presence);
                None
            }
            other => {
                present.1 += 1;
                other
            }
        }
    };
    drop(left_over);
    process.thread_event.wake_all();
    process.thread_event.wait_until(|| gathering.ended.load(Ordering::Acquire));
}
