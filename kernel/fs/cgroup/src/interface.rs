//! The files of a group: names, modes, and what they show and take.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use memory::charge::Limit;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use crate::attach::{self, Opener};
use crate::controllers::{self, Controllers};
use crate::group::{Group, UNLIMITED};
use crate::notice::Notice;
use crate::number::{parse_int, parse_limit};
use crate::{
    accounts, directory, freezer, kill, pids, processor_time, processors, programs, transfers, tree,
};

type Show = fn(&Arc<Group>, &mut Text) -> Result<()>;
type Store = fn(&Arc<Group>, &Opener, &[u8]) -> Result<()>;

/// A file that groups have.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) mode: u32,
    /// The controller that it belongs to, or none.
    controller: Controllers,
    in_root: bool,
    /// Who is in a name space that begins at the group may write to it, also where name spaces are borders of delegation.
    pub(crate) is_delegated: bool,
    pub(crate) show: Option<Show>,
    pub(crate) store: Option<Store>,
    /// What tells of changes.
    pub(crate) notice: Option<fn(&Group) -> &Notice>,
}

impl Entry {
    const fn new(name: &'static str, controller: Controllers) -> Self {
        Self {
            name,
            mode: 0,
            controller,
            in_root: false,
            is_delegated: false,
            show: None,
            store: None,
            notice: None,
        }
    }

    const fn core(name: &'static str) -> Self {
        Self::new(name, Controllers::empty())
    }

    const fn in_root(mut self) -> Self {
        self.in_root = true;
        self
    }

    const fn delegated(mut self) -> Self {
        self.is_delegated = true;
        self
    }

    const fn shows(mut self, show: Show) -> Self {
        self.mode |= 0o444;
        self.show = Some(show);
        self
    }

    const fn takes(mut self, store: Store) -> Self {
        self.mode |= 0o200;
        self.store = Some(store);
        self
    }

    const fn tells(mut self, notice: fn(&Group) -> &Notice) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Whether a group has it now.
    pub(crate) fn is_shown(&self, group: &Group) -> bool {
        (self.in_root || !group.is_root()) && group.available().contains(self.controller)
    }
}

/// Place of `cgroup.procs`.
pub(crate) const PROCESSES: usize = 0;
/// Place of `cgroup.events`.
pub(crate) const EVENTS: usize = 1;
/// Place of `pids.events`.
pub(crate) const PIDS_EVENTS: usize = 2;
/// Place of `memory.events`.
pub(crate) const MEMORY_EVENTS: usize = 3;

const MIN: usize = Limit::Min as usize;
const LOW: usize = Limit::Low as usize;
const HIGH: usize = Limit::High as usize;
const MAX: usize = Limit::Max as usize;
const SWAP_HIGH: usize = Limit::SwapHigh as usize;
const SWAP_MAX: usize = Limit::SwapMax as usize;

/// A file of the controller `memory` that can be set.
const fn limit(name: &'static str, show: Show, store: Store) -> Entry {
    Entry::new(name, Controllers::MEMORY).shows(show).takes(store)
}

/// All files.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry::core("cgroup.procs").in_root().shows(processes).takes(attach::move_process).delegated(),
    Entry::core("cgroup.events").shows(events).tells(|group| &group.events),
    Entry::new("pids.events", Controllers::PIDS).shows(pids_events).tells(|group| &group.pids.events),
    Entry::new("memory.events", Controllers::MEMORY)
        .shows(accounts::show_events::<false>)
        .tells(|group| &group.memory_events),
    Entry::core("cgroup.type").shows(kind).takes(set_kind),
    Entry::core("cgroup.threads").in_root().shows(threads).takes(attach::move_thread).delegated(),
    Entry::core("cgroup.controllers").in_root().shows(|group, out| {
        group.available().show(out);
        Ok(())
    }),
    Entry::core("cgroup.subtree_control")
        .in_root()
        .shows(|group, out| {
            group.enabled().show(out);
            Ok(())
        })
        .takes(|group, _, line| controllers::change(group, line))
        .delegated(),
    Entry::core("cgroup.max.descendants")
        .in_root()
        .shows(|group, out| show_maximum(&group.descendants_max, out))
        .takes(|group, _, text| set_maximum(group, &group.descendants_max, text)),
    Entry::core("cgroup.max.depth")
        .in_root()
        .shows(|group, out| show_maximum(&group.depth_max, out))
        .takes(|group, _, text| set_maximum(group, &group.depth_max, text)),
    Entry::core("cgroup.stat").in_root().shows(statistics),
    Entry::core("cgroup.freeze")
        .shows(|group, out| {
            line(out, format_args!("{}", u32::from(group.freezer.is_wanted())));
            Ok(())
        })
        .takes(set_freeze),
    Entry::core("cgroup.kill").takes(set_kill),
    Entry::core("cpu.stat").in_root().shows(processor_statistics),
    Entry::new("cpu.weight", Controllers::CPU).shows(processors::show_weight).takes(processors::set_weight),
    Entry::new("cpu.weight.nice", Controllers::CPU).shows(processors::show_nice).takes(processors::set_nice),
    Entry::new("cpu.max", Controllers::CPU).shows(processors::show_quota).takes(processors::set_quota),
    Entry::new("io.max", Controllers::IO).shows(transfers::show_maximum).takes(transfers::set_maximum),
    Entry::new("io.stat", Controllers::IO).in_root().shows(transfers::show_statistics),
    Entry::new("memory.current", Controllers::MEMORY).shows(accounts::show_current),
    Entry::new("memory.peak", Controllers::MEMORY).shows(accounts::show_peak),
    limit("memory.min", accounts::show_limit::<MIN>, accounts::set_limit::<MIN>),
    limit("memory.low", accounts::show_limit::<LOW>, accounts::set_limit::<LOW>),
    limit("memory.high", accounts::show_limit::<HIGH>, accounts::set_limit::<HIGH>),
    limit("memory.max", accounts::show_limit::<MAX>, accounts::set_limit::<MAX>),
    Entry::new("memory.events.local", Controllers::MEMORY).shows(accounts::show_events::<true>),
    Entry::new("memory.stat", Controllers::MEMORY).in_root().shows(accounts::show_statistics),
    limit("memory.oom.group", accounts::show_oom_group, accounts::set_oom_group).delegated(),
    Entry::new("memory.reclaim", Controllers::MEMORY).in_root().takes(accounts::reclaim).delegated(),
    Entry::new("memory.swap.current", Controllers::MEMORY).shows(accounts::show_nothing),
    limit("memory.swap.high", accounts::show_limit::<SWAP_HIGH>, accounts::set_limit::<SWAP_HIGH>),
    limit("memory.swap.max", accounts::show_limit::<SWAP_MAX>, accounts::set_limit::<SWAP_MAX>),
    Entry::new("memory.swap.events", Controllers::MEMORY).shows(accounts::show_swap_events),
    Entry::new("pids.current", Controllers::PIDS).shows(|group, out| {
        line(out, format_args!("{}", group.pids.current()));
        Ok(())
    }),
    Entry::new("pids.max", Controllers::PIDS)
        .shows(|group, out| {
            show_limit(group.pids.max(), out);
            Ok(())
        })
        .takes(set_pids_max),
];

/// What a file shows has changed: who watches it is told.
pub(crate) fn report_change(group: &Group, place: usize) {
    if vfs::inotify::active()
        && let Some(file) = directory::known(group, place as u8 + 1)
    {
        vfs::inotify::report_changed_contents(&file);
    }
}

/// A line. A text remembers when memory ran out.
pub(crate) fn line(out: &mut Text, arguments: core::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments).and_then(|()| out.write_str("\n"));
}

fn show_limit(limit: Option<u64>, out: &mut Text) {
    match limit {
        Some(limit) => line(out, format_args!("{limit}")),
        None => line(out, format_args!("max")),
    }
}

/// The members' numbers as the caller counts, ascending.
fn numbers(group: &Arc<Group>, mut each: impl FnMut(&dyn crate::Member, &mut Vec<u32>)) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut add = |member: &dyn crate::Member| {
        allocation::reserve(&mut found, 1)?;
        each(member, &mut found);
        Ok(())
    };
    if group.is_root() {
        programs::get().map_or(Ok(()), |programs| programs.of_root(&mut |member| add(&**member)))?;
    } else {
        freezer::members(group)?.iter().try_for_each(|member| add(&**member))?;
    }
    sorting::sort(&mut found);
    Ok(found)
}

fn processes(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let found = numbers(group, |member, found| found.push(member.number()))?;
    found.iter().for_each(|number| line(out, format_args!("{number}")));
    Ok(())
}

fn threads(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let mut failed = Ok(());
    let found = numbers(group, |member, found| {
        member.each_thread(&mut |number| {
            if let Err(error) = allocation::push(found, number) {
                failed = Err(error);
            }
        });
    })?;
    failed?;
    found.iter().for_each(|number| line(out, format_args!("{number}")));
    Ok(())
}

fn events(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("populated {}", u32::from(group.is_populated())));
    line(out, format_args!("frozen {}", u32::from(group.freezer.is_frozen())));
    Ok(())
}

/// There are no threaded groups.
fn kind(_group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("domain"));
    Ok(())
}

fn set_kind(_group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    Err(if text == b"threaded" { Error::NotSupported } else { Error::Invalid })
}

fn show_maximum(maximum: &AtomicU32, out: &mut Text) -> Result<()> {
    let maximum = maximum.load(Ordering::Relaxed);
    show_limit((maximum != UNLIMITED).then_some(maximum.into()), out);
    Ok(())
}

fn set_maximum(group: &Arc<Group>, maximum: &AtomicU32, text: &[u8]) -> Result<()> {
    let wanted = match text {
        b"max" => UNLIMITED,
        text => u32::try_from(parse_int(text)?).map_err(|_| Error::Range)?,
    };
    let _tree = tree::lock(group)?;
    maximum.store(wanted, Ordering::Relaxed);
    Ok(())
}

fn statistics(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("nr_descendants {}", group.descendants.load(Ordering::Relaxed)));
    line(out, format_args!("nr_dying_descendants {}", group.dying.load(Ordering::Relaxed)));
    Ok(())
}

fn set_freeze(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    match parse_int(text)? {
        0 => freezer::set(group, false),
        1 => freezer::set(group, true),
        _ => Err(Error::Range),
    }
}

fn set_kill(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    match parse_int(text)? {
        1 => kill::kill(group),
        _ => Err(Error::Range),
    }
}

fn processor_statistics(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    const NS_PER_US: u64 = 1000;
    let (user, system) = processor_time::of(group)?;
    line(out, format_args!("usage_usec {}", (user + system) / NS_PER_US));
    line(out, format_args!("user_usec {}", user / NS_PER_US));
    line(out, format_args!("system_usec {}", system / NS_PER_US));
    processors::show_statistics(group, out);
    Ok(())
}

fn pids_events(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("max {}", group.pids.denied()));
    Ok(())
}

fn set_pids_max(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let limit = parse_limit(text)?;
    if limit.is_some_and(|limit| limit > pids::LIMIT_MAX) {
        return Err(Error::Invalid);
    }
    group.pids.set_max(limit);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_they_are_looked_for() {
        assert_eq!(ENTRIES[PROCESSES].name, "cgroup.procs");
        assert_eq!(ENTRIES[EVENTS].name, "cgroup.events");
        assert_eq!(ENTRIES[PIDS_EVENTS].name, "pids.events");
        assert_eq!(ENTRIES[MEMORY_EVENTS].name, "memory.events");
        // Their places are a part of inode numbers, with the directory's.
        assert!(ENTRIES.len() < usize::from(u8::MAX));
    }
}
