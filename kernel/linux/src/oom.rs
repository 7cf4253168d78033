//! What happens when memory runs out: those who use most of it are killed, with a report (`oom_score_adj` counts).
//!
//! # Who
//! A process's *score* is what its end would free: resident pages, page tables, and kernel memory for its threads, its open files and
//! the children that it did not wait for; plus its owner's adjustment in thousandths of memory.
//!
//! Many small processes can use up memory without any of them being big (a fork bomb); ending one of them would bring
//! nothing, and the biggest is then an innocent. So processes are also looked at by *job*: what one user runs in one process
//! group. A job of at least `JOB_MEMBERS_MIN` processes whose scores add up to `JOB_FACTOR` times the biggest process's
//! is killed as a whole. A group is killed under the lock of its list, under which fork adds children, so none escapes.
//!
//! Processes can leave their group, each one for itself, but not their ancestors: as a third they are looked at by `clan`, which is
//! chosen by the same measure, and before a job that is not half of it.
//!
//! The biggest job is found without allocating: `Heaviest` keeps a few candidates (Misra and Gries), among which is every
//! job with more than its share of the sum; a second look over the table gives their true sums.
//!
//! When an account of a control group is full, its processes are all that counts: the one with the highest score of them is killed, or with it all that end
//! together with it. See `in_account`.
//!
//! # When
//! One thread at a time decides (`BUSY`), the others wait for the outcome. It first waits for earlier victims: nobody else is
//! chosen while these give memory back or at least work on their ends (a thousand of them take their time), and only `PATIENCE_NS`
//! after the last sign of that the next one is. A thread that is about to end itself never waits here: it may use the reserve, or
//! fails, and so ends the sooner. Who decides gets most of its CPU meanwhile: a bomb's other processes all want it too.

mod clan;
mod in_account;

use core::sync::atomic::{AtomicBool, Ordering};

use memory::address_space::AddressSpace;
use memory::charge::Event;
use memory::oom::{Relief, Shortage};
use sched::{Nice, WaitQueue};

use crate::process::process::Process;
use crate::process::table::{self, Pid};
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use clan::Clan;

pub(crate) use clan::Notes;

const ADJUSTMENT_NEVER: i16 = -1000;
/// How long victims may give nothing back before others are chosen.
const PATIENCE_NS: u64 = 1_000_000_000;
const POLL_NS: u64 = 1_000_000;
/// So many more victims are looked at less often by `POLL_NS`: a look costs time that they need.
const VICTIMS_PER_POLL: u32 = 64;

/// Kernel memory of a thread (stack, scheduling and personality), of a process, and of one that was not waited for.
const THREAD_BYTES: u64 = 8192;
const PROCESS_BYTES: u64 = 8192;
const ZOMBIE_BYTES: u64 = 3072;

/// An open file with what belongs to it. One that is open in several processes counts in each: only the end of all frees it.
const FILE_BYTES: u64 = 512;

/// A job of fewer processes is no bomb.
const JOB_MEMBERS_MIN: u32 = 16;
/// How many times the biggest process a job must be.
const JOB_FACTOR: u64 = 4;
/// Candidates for the biggest job: any with more than a ninth of the sum is found.
const CANDIDATES: usize = 8;

/// Whether a thread is about to kill; others that run out of memory wait for what that brings.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Where they wait.
static DONE: WaitQueue = WaitQueue::new();

/// Registers the policy. Once, at start-up.
pub fn install() {
    memory::oom::set_policy(relieve);
    memory::oom::set_dying_check(is_dying);
}

/// What one user runs in one process group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Job {
    group: Pid,
    user: u32,
}

/// Candidates for the job with the greatest sum of scores, with a lower bound of the sum each.
#[derive(Default)]
struct Heaviest {
    candidates: [Option<(Job, u64)>; CANDIDATES],
}

impl Heaviest {
    /// Counts one member. Without room the weight is taken off all candidates alike, and the lightest makes room.
    fn add(&mut self, job: Job, weight: u64) {
        if let Some((_, sum)) = self.candidates.iter_mut().flatten().find(|(known, _)| *known == job) {
            *sum += weight;
            return;
        }
        let least = self.candidates.iter().map(|slot| slot.map_or(0, |(_, sum)| sum)).min().unwrap_or(0);
        let taken = weight.min(least);
        for slot in &mut self.candidates {
            *slot = slot.and_then(|(job, sum)| (sum > taken).then_some((job, sum - taken)));
        }
        if weight > taken
            && let Some(slot) = self.candidates.iter_mut().find(|slot| slot.is_none())
        {
            *slot = Some((job, weight - taken));
        }
    }
}

/// Who is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offender {
    Process { pid: Pid, score: u64 },
    Job { job: Job, members: u32, score: u64 },
    Clan(Clan),
}

impl Offender {
    fn score(&self) -> u64 {
        match self {
            Offender::Process { score, .. } | Offender::Job { score, .. } => *score,
            Offender::Clan(clan) => clan.score,
        }
    }
}

/// Who of the biggest process and the biggest job.
fn decide(biggest: (Pid, u64), job: Option<(Job, u32, u64)>) -> Offender {
    let (pid, score) = biggest;
    match job {
        Some((job, members, sum)) if members >= JOB_MEMBERS_MIN && sum / JOB_FACTOR >= score => {
            Offender::Job { job, members, score: sum }
        }
        _ => Offender::Process { pid, score },
    }
}

/// Who of the one that was found so far and a clan. `score` is the biggest process's.
fn decide_on_clan(found: Offender, score: u64, clan: Option<Clan>) -> Offender {
    let twice_a_job = |clan: &Clan| match found {
        Offender::Job { score, .. } => clan.score / 2 >= score,
        _ => true,
    };
    match clan {
        Some(clan)
            if clan.members >= JOB_MEMBERS_MIN && clan.score / JOB_FACTOR >= score && twice_a_job(&clan) =>
        {
            Offender::Clan(clan)
        }
        _ => found,
    }
}

/// How much memory the end of the process would free, adjusted as its owner wished; `None` for those that must live or that
/// have been killed already. Called with the process's part of the table locked, so no further lock is waited for.
fn score_of(process: &Process, total: u64) -> Option<u64> {
    let adjustment = process.oom_adjustment.load(Ordering::Relaxed);
    if process.pid() == table::INIT
        || adjustment == ADJUSTMENT_NEVER
        || process.is_zombie()
        || is_victim(process)
    {
        return None;
    }
    let threads = process.threads.try_lock().map_or(1, |threads| threads.len() as u64);
    let children = process
        .children
        .try_lock()
        .map_or(0, |children| children.list.iter().filter(|child| child.is_zombie()).count() as u64);
    let kernel =
        PROCESS_BYTES + threads * THREAD_BYTES + children * ZOMBIE_BYTES + open_files(process) * FILE_BYTES;
    let used = process.look_at_address_space(AddressSpace::badness_bytes)? + kernel;
    let score = used.cast_signed() + i64::from(adjustment) * (total / 1000).cast_signed();
    Some(score.max(1).cast_unsigned())
}

/// Open files of the process's first thread, which mostly are those of all.
fn open_files(process: &Process) -> u64 {
    let Some(threads) = process.threads.try_lock() else { return 0 };
    let Some(shared) = threads.first().and_then(|thread| thread.shared.try_lock()) else { return 0 };
    shared.files.as_ref().map_or(0, |files| files.open_count() as u64)
}

fn is_victim(process: &Process) -> bool {
    process.oom_victim.load(Ordering::Relaxed)
}

fn job_of(process: &Process) -> Job {
    let user = process.threads.try_lock().and_then(|threads| {
        let shared = threads.first()?.shared.try_lock()?;
        Some(shared.credentials.user.real)
    });
    Job { group: process.group_id(), user: user.unwrap_or(u32::MAX) }
}

/// Frees memory by ending those who use most, of all processes or of those that pay with an account that is full.
pub fn relieve(shortage: Shortage) -> Relief {
    if is_dying() {
        return Relief::UseReserve;
    }
    let Some(_runs) = memory::kstack::begin_freeing(|| !BUSY.swap(true, Ordering::Acquire)) else {
        let deadline = machine::time::now_ns() + PATIENCE_NS;
        // A signal ends the wait early: it may be what makes the caller end, or give up.
        let _outcome = DONE.wait_interruptible_deadline(|| !BUSY.load(Ordering::Acquire), Some(deadline));
        return outcome(true);
    };
    let helped = {
        let _hurry = Hurry::begin();
        wait_for_victims(shortage) || is_over(shortage) || end_offender(shortage)
    };
    // Release: pairs with the Acquire above, so that the next one sees the victims as they are now.
    BUSY.store(false, Ordering::Release);
    DONE.wake_all();
    outcome(helped)
}

/// The calling thread goes before others of its kind while this lives.
struct Hurry(Nice);

impl Hurry {
    fn begin() -> Hurry {
        let usual = sched::current().nice();
        sched::current().set_nice(Nice::MIN);
        Hurry(usual)
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        sched::current().set_nice(self.0);
    }
}

fn outcome(helped: bool) -> Relief {
    match (is_dying(), helped) {
        (true, _) => Relief::UseReserve,
        (false, true) => Relief::Retry,
        (false, false) => Relief::Hopeless,
    }
}

/// Whether the calling thread is marked to end: then it shall not wait for memory, its own is what is needed.
fn is_dying() -> bool {
    let thread = sched::current().personality().and_then(|object| object.downcast::<Thread>().ok());
    thread.is_some_and(|thread| thread.is_killed())
}

/// Chooses and kills; waits for the memory. False when nobody is left to choose.
fn end_offender(shortage: Shortage) -> bool {
    if let Shortage::Of(account) = shortage {
        return in_account::end_offender(account);
    }
    let total = crate::memory::totals().total_bytes;
    let Some(offender) = choose(total) else { return false };
    match offender {
        Offender::Process { pid, score } => end_process(pid, score),
        Offender::Job { job, members, score } => end_job(job, members, score),
        Offender::Clan(clan) => end_clan(&clan),
    }
    wait_for_victims(shortage);
    true
}

/// The biggest. Allocates nothing.
fn choose(total: u64) -> Option<Offender> {
    // Numbers, not references: under the table's lock none may turn out to be the last one.
    let mut biggest: Option<(Pid, u64)> = None;
    let mut heaviest = Heaviest::default();
    let (mut count, mut sum) = (0, 0);
    table::for_each_process(|process| {
        let Some(score) = score_of(process, total) else { return };
        count += 1;
        sum += score;
        if biggest.is_none_or(|(_, most)| score > most) {
            biggest = Some((process.pid(), score));
        }
        heaviest.add(job_of(process), score);
    });
    let mut sums = heaviest.candidates.map(|slot| slot.map(|(job, _)| (job, 0_u32, 0_u64)));
    table::for_each_process(|process| {
        let Some(score) = score_of(process, total) else { return };
        let job = job_of(process);
        if let Some((_, members, sum)) = sums.iter_mut().flatten().find(|(known, ..)| *known == job) {
            *members += 1;
            *sum += score;
        }
    });
    let job = sums.into_iter().flatten().max_by_key(|&(_, _, sum)| sum);
    let biggest = biggest?;
    let found = decide(biggest, job);
    // No clan is more than all.
    let may_be_clan = count >= JOB_MEMBERS_MIN && sum / 2 >= found.score();
    let clan = if may_be_clan { clan::find(|process| score_of(process, total)) } else { None };
    Some(decide_on_clan(found, biggest.1, clan))
}

fn end_process(pid: Pid, score: u64) {
    let Some(victim) = table::process_of(pid) else { return };
    let name = victim.name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    log::warn!(
        "Out of memory: killed process {pid} ({}), score {} KiB",
        alloc::string::String::from_utf8_lossy(&name[..length]),
        score / 1024,
    );
    kill(&victim);
    memory::oom::note_kills(1);
    if let Some(account) = victim.control_group.account() {
        account.number().tell();
    }
}

/// A child that has just become findable ends with its parent: whoever ended that one may have looked for children before. If
/// the child became findable after such a look, the locks of the table order the parent's mark before this one.
pub(crate) fn share_fate(parent: &Process, child: &alloc::sync::Arc<Process>) {
    if is_victim(parent) {
        kill(child);
    }
}

fn end_clan(clan: &Clan) {
    let killed = clan.end(|member| {
        let spared = member.oom_adjustment.load(Ordering::Relaxed) == ADJUSTMENT_NEVER || member.is_zombie();
        if !spared {
            kill(member);
        }
    });
    log::warn!(
        "Out of memory: killed {killed} processes that descend from {}, score {} KiB together",
        clan.head,
        clan.score / 1024,
    );
    memory::oom::note_kills(u64::from(killed));
}

fn end_job(job: Job, members: u32, score: u64) {
    log::warn!(
        "Out of memory: killed the {members} processes of user {} in group {}, score {} KiB together",
        job.user,
        job.group,
        score / 1024,
    );
    let Some(group) = table::group(job.group) else { return };
    let mut killed = 0;
    group.for_each(|member| {
        let spared = member.pid() == table::INIT
            || member.oom_adjustment.load(Ordering::Relaxed) == ADJUSTMENT_NEVER
            || member.is_zombie();
        if !spared && job_of(member) == job {
            kill(member);
            killed += 1;
        }
    });
    memory::oom::note_kills(killed);
}

fn kill(victim: &alloc::sync::Arc<Process>) {
    victim.oom_victim.store(true, Ordering::Relaxed);
    if let Some(account) = victim.control_group.account() {
        account.number().count(Event::Kill);
    }
    let _ = send::to_process(victim, SignalInformation::from_kernel(Signal::SIGKILL));
}

/// Whether there is memory again, given back by those whose end nobody waited for.
fn is_over(shortage: Shortage) -> bool {
    match shortage {
        Shortage::Machine => room(shortage) >= memory::statistics::memory().watermarks.high.cast_signed(),
        Shortage::Of(_) => room(shortage) > 0,
    }
}

/// Whether what a process has is of use.
fn concerns(shortage: Shortage, process: &Process) -> bool {
    match shortage {
        Shortage::Machine => true,
        Shortage::Of(account) => process.control_group.pays_within(account),
    }
}

/// How many victims have not given their memory back, and the CPU time that these have used.
fn living_victims(shortage: Shortage) -> (u32, u64) {
    let (mut count, mut used_ns) = (0, 0);
    table::for_each_process(|process| {
        if is_victim(process) && !process.is_zombie() && concerns(shortage, process) {
            count += 1;
            if let Some(threads) = process.threads.try_lock() {
                let kernel_threads = threads.iter().filter_map(|thread| thread.kernel_thread());
                used_ns += kernel_threads.map(|thread| thread.runtime().total_ns).sum::<u64>();
            }
        }
    });
    (count, used_ns)
}

/// Waits until all victims have given their memory back, or there is enough of it, or none came for long. Returns whether any
/// came. Ends at once when the caller dies too, perhaps as a thread of a victim: it ends sooner if its allocation fails.
fn wait_for_victims(shortage: Shortage) -> bool {
    let (mut left, mut used_ns) = living_victims(shortage);
    let mut most_free = room(shortage);
    let mut since_ns = machine::time::now_ns();
    let mut came = false;
    while left > 0 && !is_dying() && machine::time::now_ns() - since_ns < PATIENCE_NS {
        let poll_ns = POLL_NS * u64::from(1 + left / VICTIMS_PER_POLL);
        sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + poll_ns);
        let (free, (now_left, now_used_ns)) = (room(shortage), living_victims(shortage));
        if free > most_free || now_left < left {
            (most_free, since_ns, came) = (free.max(most_free), machine::time::now_ns(), true);
        } else if now_used_ns > used_ns {
            since_ns = machine::time::now_ns();
        }
        (left, used_ns) = (now_left, now_used_ns);
        if came && is_over(shortage) {
            break;
        }
    }
    came
}

/// Frames that can be had; negative where more was taken than may be.
fn room(shortage: Shortage) -> i64 {
    match shortage {
        Shortage::Machine => memory::statistics::memory().free_frames.cast_signed(),
        Shortage::Of(account) => account.room(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: u32) -> Job {
        Job { group: 1, user }
    }

    #[test]
    fn a_heavy_job_stays_a_candidate_among_many_light_ones() {
        let mut heaviest = Heaviest::default();
        for number in 0..1000 {
            heaviest.add(job(number), 5);
            heaviest.add(job(7777), 2);
        }
        assert!(heaviest.candidates.iter().flatten().any(|(found, _)| *found == job(7777)));
    }

    #[test]
    fn one_big_process_ends_alone() {
        let offender = decide((9, 4000), Some((job(1), 100, 10_000)));
        assert_eq!(offender, Offender::Process { pid: 9, score: 4000 });
        assert_eq!(decide((9, 4000), None), Offender::Process { pid: 9, score: 4000 });
    }

    #[test]
    fn many_small_processes_end_together() {
        let offender = decide((9, 400), Some((job(1), 100, 10_000)));
        assert_eq!(offender, Offender::Job { job: job(1), members: 100, score: 10_000 });
        assert_eq!(decide((9, 400), Some((job(1), 8, 10_000))), Offender::Process { pid: 9, score: 400 });
    }
}
