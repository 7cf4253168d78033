//! Processes as control groups know them (crate `cgroup`), and standing still in a group that is frozen.

use alloc::sync::Arc;

use ::memory::charge;
use cgroup::{Group, Joined, Member, Membership, Programs};
use machine::cpu;
use vfs::{Credentials, Result};

use crate::errno::Errno;
use crate::fork::CloneFlags;
use crate::name_space::NameSpaces;
use crate::process::pid_space;
use crate::process::process::Process;
use crate::process::table::{self, Pid};
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;
use crate::terminal::calling_thread;

impl Member for Process {
    fn membership(&self) -> &Membership {
        &self.control_group
    }

    fn number(&self) -> u32 {
        seen_by_caller(self.pid())
    }

    fn each_thread(&self, each: &mut dyn FnMut(u32)) {
        for thread in self.threads.lock().iter() {
            each(seen_by_caller(thread.tid()));
        }
    }

    fn with_threads(&self, work: &mut dyn FnMut(u32)) {
        let threads = self.threads.lock();
        work(threads.len() as u32);
    }

    fn interrupt(&self) {
        for thread in self.threads.lock().iter() {
            thread.interrupt();
        }
        self.signal_event.wake_all();
    }

    fn kill(&self) {
        // By the table: a signal is sent to a process that others know.
        if let Some(process) = table::process(self.pid()).filter(|process| core::ptr::eq(&**process, self)) {
            kill(&process);
        } else {
            self.begin_exit(Signal::SIGKILL.number().into());
        }
    }

    fn set_processors(&self, group: Option<&Arc<sched::control::Group>>) -> Result<()> {
        for thread in self.threads().map_err(|_| vfs::Error::OutOfMemory)? {
            if let Some(thread) = thread.kernel_thread() {
                drop(thread.set_processor_group(group.cloned()));
            }
        }
        Ok(())
    }

    fn processor_time_ns(&self) -> (u64, u64) {
        self.cpu_time_ns()
    }
}

/// What the caller calls a process or thread; 0 for one that it can't name.
fn seen_by_caller(number: Pid) -> Pid {
    calling_thread().map_or(number, |caller| pid_space::seen(caller.process().space(), number))
}

fn kill(process: &Arc<Process>) {
    // Fails for want of memory only for signals that queue.
    let _ = send::to_process(process, SignalInformation::from_kernel(Signal::SIGKILL));
}

struct Answers;

impl Programs for Answers {
    fn find(&self, number: u32) -> Option<Arc<dyn Member>> {
        let number = match calling_thread() {
            Some(caller) => pid_space::kernel(caller.process().space(), number)?,
            None => number,
        };
        table::process_of(number).map(|process| -> Arc<dyn Member> { process })
    }

    fn caller(&self) -> Option<Arc<dyn Member>> {
        calling_thread().map(|thread| -> Arc<dyn Member> { thread.process().clone() })
    }

    fn of_root(&self, each: &mut dyn FnMut(&Arc<dyn Member>) -> Result<()>) -> Result<()> {
        let mut from = 0;
        while let Some(process) = table::next_process(from) {
            from = process.pid() + 1;
            if process.control_group.is_in_root() && !process.is_zombie() {
                let member: Arc<dyn Member> = process;
                each(&member)?;
            }
        }
        Ok(())
    }

    fn view(&self) -> Option<Arc<Group>> {
        NameSpaces::of_reader().groups.root()
    }

    fn is_in_first_space(&self) -> bool {
        NameSpaces::of_reader().groups.is_first()
    }

    fn credentials(&self) -> Option<Credentials> {
        calling_thread().map(|thread| thread.credentials().file.clone())
    }

    fn caller_is_wanted(&self) -> bool {
        sched::current().attention()
    }

    fn processor_time_ns(&self) -> (u64, u64) {
        let times = cpu::online().iter().map(sched::statistics::cpu_time);
        times.fold((0, 0), |sum, time| (sum.0 + time.user_ns, sum.1 + time.system_ns + time.softirq_ns))
    }
}

/// Makes the personality answer the groups. Once, at start-up.
pub(crate) fn register() {
    static ANSWERS: Answers = Answers;
    cgroup::set_programs(&ANSWERS);
    cgroup::register_accounts();
}

/// The group that clone3 shall make the child in.
///
/// # Errors
/// `EBADF` for what is no directory of a group; what [`cgroup::check_target`] says.
pub(crate) fn wanted(task: &Task, flags: CloneFlags, descriptor: u64) -> Result<Option<Arc<Group>>, Errno> {
    if !flags.contains(CloneFlags::INTO_CGROUP) {
        return Ok(None);
    }
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EINVAL)?;
    let file = task.files.get(u32::try_from(descriptor).map_err(|_| Errno::EBADF)?)?;
    let group = cgroup::group_of_directory(file.inode()).ok_or(Errno::EBADF)?;
    cgroup::check_target(&group)?;
    Ok(Some(group))
}

/// Puts a new process into its group, before others can find it. Whether it must be killed as soon as they can.
///
/// # Errors
/// `EAGAIN` where a limit is reached; `ENODEV` and `EBUSY` for the group that was asked for; `ENOMEM`.
pub(crate) fn join(
    parent: &Process,
    child: &Arc<Process>,
    wanted: Option<&Arc<Group>>,
) -> Result<bool, Errno> {
    if parent.control_group.is_in_root() && wanted.is_none() {
        return Ok(false);
    }
    let member: Arc<dyn Member> = child.clone();
    match parent.control_group.join(&member, wanted) {
        Joined::Yes => Ok(false),
        Joined::ToBeKilled => Ok(true),
        Joined::Full => Err(Errno::EAGAIN),
        Joined::Removed => Err(Errno::ENODEV),
        Joined::Busy => Err(Errno::EBUSY),
        Joined::NoMemory => Err(Errno::ENOMEM),
    }
}

/// A new thread, which others can find by now, competes and pays where its process does: that may have been moved while the thread was made. Before
/// it starts.
#[inline]
pub(crate) fn settle(thread: &Thread) {
    let kernel = thread.kernel_thread();
    let membership = &thread.process().control_group;
    if let Some(kernel) = kernel
        && (kernel.has_processor_group() || !membership.is_in_root() || machine::preempt::payer() != 0)
    {
        drop(kernel.set_processor_group(membership.processors()));
        kernel.set_payer(membership.account());
    }
}

/// On the way to user mode: the thread pays with its process's account, which may be another one since the process or the account was moved.
#[inline]
pub(crate) fn settle_payer(task: &Task) {
    let membership = &task.process().control_group;
    if machine::preempt::payer() != 0 || !membership.is_in_root() {
        let account = membership.account();
        if !charge::is_of_current(account.as_ref()) {
            drop(charge::pay_with(account));
        }
    }
}

/// On the way to user mode: makes room in an account that has more than its higher mark, or sleeps for a while.
#[inline]
pub(crate) fn pause_beyond_mark() {
    if machine::preempt::payer() != 0
        && let Some(pause_ns) = charge::pause_ns()
    {
        // Who is wanted for something else goes on: he comes by here again.
        let _outcome = sched::timer::sleep_until(machine::time::now_ns() + pause_ns);
    }
}

/// Ends a child that was forked into a group all of which is being killed.
pub(crate) fn kill_newcomer(process: &Arc<Process>) {
    kill(process);
}

/// Parks the thread while its group is frozen; returns whether it was.
pub(crate) fn park_if_frozen(task: &Task) -> bool {
    let process = task.process();
    if !process.control_group.freezes() {
        return false;
    }
    let park = |parks| {
        let threads = process.threads.lock();
        process.control_group.park(parks);
        drop(threads);
        process.control_group.look_at_freezer();
    };
    park(true);
    process.signal_event.wait_until(|| task.thread.is_killed() || !process.control_group.freezes());
    park(false);
    true
}

/// `/proc/PID/cgroup` as the caller sees it.
pub(crate) fn show(process: &Process, out: &mut vfs::text::Text) -> Result<()> {
    let root = cgroup::root().clone();
    let view = NameSpaces::of_reader().groups.root().unwrap_or_else(|| root.clone());
    let group = process.control_group.group().unwrap_or(root);
    out.push_bytes(b"0::");
    cgroup::write_path(&group, &view, out)?;
    out.push_bytes(b"\n");
    Ok(())
}

/// `/proc/cgroups`: controllers, none of which is in a hierarchy of its own.
pub(crate) fn show_controllers(out: &mut vfs::text::Text) -> Result<()> {
    use core::fmt::Write;
    let _ = out.write_str("#subsys_name\thierarchy\tnum_cgroups\tenabled\n");
    for name in cgroup::controller_names() {
        let _ = writeln!(out, "{name}\t0\t{}\t1", cgroup::count());
    }
    Ok(())
}

impl From<cgroup::Full> for Errno {
    fn from(_: cgroup::Full) -> Errno {
        Errno::EAGAIN
    }
}
