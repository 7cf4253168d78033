//! Clans: a process and all that descend from it, as far as the processes between live. What a fork bomb is whose processes leave
//! the group that they were started in.
//!
//! # Whose clan it is
//! Everybody descends from process 1, so the question is how far down to go. The search follows the children whose clans have
//! most members. It goes on while one child's clan is nearly all of its parent's: between a shell and the bomb that it
//! started the bomb's first process is such a child, but below that one there is none, for everybody there forks. It also stops
//! before it would leave half of what it has found: in a long line of processes that each forked once there is always such a child.
//!
//! Who inherits orphans (process 1, subreapers) is no ancestor of theirs. There either the heaviest child is followed, or, if the
//! others together have more members than it, these are the clan: orphans about as old as most of them are, so that a
//! service that was started long before lives on.
//!
//! # Cost
//! Nothing is allocated: each process has a word for the number of its clan's members, and one for the mark of those that are to end.
//! Finding a clan looks a few times at each process and all its ancestors. One thread at a time does it (`super::BUSY`).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process::process::Process;
use crate::process::table::{self, Pid};
use crate::process::{init, table::INIT};

/// Of a process's clan one child's must be more than this part for the search to go on there: three quarters.
const NEARLY_ALL: (u64, u64) = (3, 4);
/// Ancestors that are looked at; only a line of more would end in pieces.
const ANCESTORS_MAX: u32 = 4096;
/// Looks for processes that were being made when their parents were marked.
const LATE_ROUNDS_MAX: u32 = 20;
/// A process may take so long from its first sign of life to its place in the table.
const BIRTH_NS: u64 = 100_000_000;

/// What the search notes about a process. Relaxed everywhere: one thread at a time searches.
#[derive(Default)]
pub(crate) struct Notes {
    /// The search's number in the upper half, members of the process's clan in the lower one.
    members: AtomicU64,
    /// The number of the search that it shall end by.
    marked: AtomicU32,
}

/// Numbers the searches, so that old notes need no cleaning. Begins at 1: fresh notes belong to no search.
static SEARCHES: AtomicU32 = AtomicU32::new(1);

/// A clan whose members are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clan {
    search: u32,
    /// The process that all descend from, or the one that has inherited them.
    pub(super) head: Pid,
    pub(super) members: u32,
    pub(super) score: u64,
    /// When its members were marked.
    marked_ns: u64,
}

/// Who is at the head of a clan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// All who descend from the process, and itself.
    Descendants(Pid),
    /// The orphans that the process has inherited since then, with all who descend from these.
    Orphans { heir: Pid, since_ns: u64 },
}

impl Process {
    fn clan_members(&self, search: u32) -> u64 {
        let word = self.clan.members.load(Ordering::Relaxed);
        if (word >> 32) as u32 == search { word & u64::from(u32::MAX) } else { 0 }
    }

    fn count_clan_member(&self, search: u32) {
        let members = self.clan_members(search) + 1;
        self.clan.members.store(u64::from(search) << 32 | members, Ordering::Relaxed);
    }

    fn is_marked(&self, search: u32) -> bool {
        self.clan.marked.load(Ordering::Relaxed) == search
    }

    fn mark(&self, search: u32) {
        self.clan.marked.store(search, Ordering::Relaxed);
    }

    /// Whether its children may be others' orphans.
    fn inherits(&self) -> bool {
        self.pid() == INIT || self.is_subreaper.load(Ordering::Relaxed)
    }

    fn is_orphan(&self) -> bool {
        self.is_orphan.load(Ordering::Relaxed)
    }
}

/// Calls for each process but the first, outside of all locks. Of those that are made meanwhile it may miss some.
fn each_process(mut visit: impl FnMut(&Arc<Process>)) {
    let mut left = 2 * table::thread_count();
    let mut from = INIT + 1;
    while left > 0
        && let Some(process) = table::next_process(from)
    {
        visit(&process);
        from = process.pid() + 1;
        left -= 1;
    }
}

/// The process and its ancestors but the first process, from the inside outwards.
fn line_of(process: &Arc<Process>) -> impl Iterator<Item = Arc<Process>> {
    let mut next = Some(process.clone());
    core::iter::from_fn(move || {
        let current = next.take()?;
        next = Some(current.parent_pid()).filter(|&pid| pid > INIT).and_then(table::process);
        Some(current)
    })
    .take(ANCESTORS_MAX as usize)
}

/// What is known of the children of a process.
#[derive(Clone, Default)]
struct Offspring {
    /// The child with the greatest clan, and its members.
    heaviest: Option<(Arc<Process>, u64)>,
    /// Members of the clans of orphans that it has inherited, without the heaviest child's.
    orphans: u64,
}

fn offspring_of(process: &Process, search: u32) -> Offspring {
    let mut found = Offspring::default();
    let mut all_orphans = 0;
    let children = process.children.lock();
    for child in &children.list {
        let members = child.clan_members(search);
        all_orphans += if child.is_orphan() { members } else { 0 };
        if found.heaviest.as_ref().is_none_or(|&(_, most)| members > most) {
            // A child in the list has a reference there: the one replaced is not the last.
            found.heaviest = Some((child.clone(), members));
        }
    }
    drop(children);
    let own =
        found.heaviest.as_ref().filter(|(child, _)| child.is_orphan()).map_or(0, |&(_, members)| members);
    found.orphans = all_orphans - own;
    found
}

/// Whether the search goes on from a clan of `members`, of `most` where it began, to a child's of `heaviest`.
fn goes_on(members: u64, most: u64, heaviest: u64) -> bool {
    heaviest * NEARLY_ALL.1 >= members * NEARLY_ALL.0 && heaviest * 2 >= most
}

/// Goes down from the first process.
fn extent(search: u32) -> Option<Extent> {
    let mut head = init::process();
    let mut most = None;
    loop {
        let offspring = offspring_of(&head, search);
        let (heaviest, members) = match offspring.heaviest {
            Some((child, members)) if members > 0 => (child, members),
            _ if head.pid() == INIT => return None,
            _ => return Some(Extent::Descendants(head.pid())),
        };
        if head.inherits() && offspring.orphans > members {
            let since_ns = since_when(&head, search);
            return Some(Extent::Orphans { heir: head.pid(), since_ns });
        }
        let own = head.clan_members(search);
        if !head.inherits() && !goes_on(own, *most.get_or_insert(own), members) {
            return Some(Extent::Descendants(head.pid()));
        }
        head = heaviest;
    }
}

/// The orphan, among those that a process has inherited, that a process descends from.
fn orphan_above(process: &Arc<Process>, heir: Pid) -> Option<Arc<Process>> {
    line_of(process).find(|ancestor| ancestor.parent_pid() == heir).filter(|top| top.is_orphan())
}

/// From when on most of the orphans' clans began, with those that were no more than some times as old as most.
fn since_when(heir: &Process, search: u32) -> u64 {
    let now_ns = machine::time::now_ns();
    let mut ages = [0_u32; 64];
    let mut count = 0;
    each_process(|process| {
        if process.clan_members(search) > 0 && orphan_above(process, heir.pid()).is_some() {
            ages[age_class(now_ns - process.start_ns().min(now_ns))] += 1;
            count += 1;
        }
    });
    let mut younger = 0;
    let median = ages.iter().position(|&number| {
        younger += number;
        younger * 2 >= count
    });
    // Two classes above that of the median: at least twice, at most four times as old.
    now_ns.saturating_sub(1 << (median.unwrap_or(0) + 2).min(62))
}

fn age_class(age_ns: u64) -> usize {
    age_ns.max(1).ilog2() as usize
}

fn belongs(process: &Arc<Process>, extent: Extent) -> bool {
    match extent {
        Extent::Descendants(head) => line_of(process).any(|ancestor| ancestor.pid() == head),
        Extent::Orphans { heir, since_ns } => {
            process.start_ns() >= since_ns && orphan_above(process, heir).is_some()
        }
    }
}

/// The clan that may be a bomb. `score` says what the end of a process would bring, if it may end.
#[inline(never)]
pub(super) fn find(score: impl Fn(&Process) -> Option<u64>) -> Option<Clan> {
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed);
    each_process(|process| {
        if score(process).is_some() {
            line_of(process).for_each(|ancestor| ancestor.count_clan_member(search));
        }
    });
    let extent = extent(search)?;
    let head = match extent {
        Extent::Descendants(head) | Extent::Orphans { heir: head, .. } => head,
    };
    let mut clan = Clan { search, head, members: 0, score: 0, marked_ns: machine::time::now_ns() };
    each_process(|process| {
        if let Some(score) = score(process)
            && belongs(process, extent)
        {
            process.mark(search);
            clan.members += 1;
            clan.score += score;
        }
    });
    Some(clan)
}

impl Clan {
    /// Calls `kill` for each member, also those that were born meanwhile. Returns how many there were.
    #[inline(never)]
    pub(super) fn end(&self, kill: impl Fn(&Arc<Process>)) -> u32 {
        let mut killed = 0;
        each_process(|process| {
            if process.is_marked(self.search) {
                kill(process);
                killed += 1;
            }
        });
        for _ in 0..LATE_ROUNDS_MAX {
            let before = killed;
            each_process(|process| {
                if !process.is_marked(self.search) && self.was_born_late(process) {
                    process.mark(self.search);
                    kill(process);
                    killed += 1;
                }
            });
            if killed == before {
                break;
            }
        }
        killed
    }

    /// Whether a process without a mark has a parent with one, or was just made by one that is gone.
    fn was_born_late(&self, process: &Process) -> bool {
        let parent_is_marked =
            table::process(process.parent_pid()).is_some_and(|parent| parent.is_marked(self.search));
        parent_is_marked || process.is_orphan() && process.start_ns() + BIRTH_NS > self.marked_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_where_everybody_forks() {
        // A shell with a bomb and three others; the bomb's first process, with a child that has half of it.
        assert!(goes_on(1004, 1004, 1000));
        assert!(!goes_on(1000, 1004, 510));
        // Most of what there is are others.
        assert!(!goes_on(1000, 1000, 600));
    }

    #[test]
    fn in_a_long_line_at_least_half_is_found() {
        let (mut members, most) = (1000, 1000);
        while goes_on(members, most, members - 1) {
            members -= 1;
        }
        assert_eq!(members, 500);
    }

    #[test]
    fn ages_of_one_class_differ_by_less_than_twice() {
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(age_class), [0, 0, 1, 1, 2, 63]);
    }
}
