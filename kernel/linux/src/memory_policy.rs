//! Memory policies (set_mempolicy(2), mbind(2)) on a machine with one node of memory.
//!
//! A policy says from which nodes pages shall come. There is one, so all that make sense come to the same; they are checked as on a machine with more,
//! and kept for who asks: a thread's own, and what mbind(2) says of a range, as a number among the properties of its regions.

use core::fmt::Write;

use machine::address::{PAGE_SIZE, UserAddr};
use memory::address_space::MapError;
use memory::region::Region;
use vfs::Capabilities;

use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Kinds of policies.
mod mode {
    pub(super) const DEFAULT: u32 = 0;
    pub(super) const PREFERRED: u32 = 1;
    pub(super) const BIND: u32 = 2;
    pub(super) const INTERLEAVE: u32 = 3;
    pub(super) const LOCAL: u32 = 4;
    pub(super) const PREFERRED_MANY: u32 = 5;
    pub(super) const STATIC_NODES: u32 = 1 << 15;
    pub(super) const RELATIVE_NODES: u32 = 1 << 14;
    pub(super) const BALANCING: u32 = 1 << 13;
    pub(super) const FLAGS: u32 = STATIC_NODES | RELATIVE_NODES | BALANCING;
}

/// What get_mempolicy(2) is asked for.
mod question {
    pub(super) const NODE: u64 = 1;
    pub(super) const ADDRESS: u64 = 2;
    pub(super) const ALLOWED: u64 = 4;
}

/// Bits of a set of nodes at most.
const NODE_BITS_MAX: u64 = PAGE_SIZE as u64 * 8;
/// The only node.
const ALL_NODES: u64 = 1;
/// Pages of one call of move_pages(2) at most, as many as an address space can have.
const PAGES_MAX: u64 = 1 << 35;

/// A thread's policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryPolicy {
    mode: u32,
    nodes: u64,
}

impl MemoryPolicy {
    const STATIC: u8 = 1 << 3;
    const RELATIVE: u8 = 1 << 4;
    const BALANCING: u8 = 1 << 5;

    /// The number that stands for it among the properties of a region; 0 for the default.
    fn number(self) -> u8 {
        let kind = (self.mode & !mode::FLAGS) as u8;
        let flags = [
            (mode::STATIC_NODES, Self::STATIC),
            (mode::RELATIVE_NODES, Self::RELATIVE),
            (mode::BALANCING, Self::BALANCING),
        ];
        flags.iter().filter(|(flag, _)| self.mode & flag != 0).fold(kind, |number, (_, bit)| number | bit)
    }

    /// The policy of a region.
    pub(crate) fn of(region: &Region) -> MemoryPolicy {
        let number = region.flags().policy();
        let mut mode = u32::from(number & 7);
        let nodes = if matches!(mode, mode::DEFAULT | mode::LOCAL) { 0 } else { ALL_NODES };
        for (flag, bit) in [
            (mode::STATIC_NODES, Self::STATIC),
            (mode::RELATIVE_NODES, Self::RELATIVE),
            (mode::BALANCING, Self::BALANCING),
        ] {
            if number & bit != 0 {
                mode |= flag;
            }
        }
        MemoryPolicy { mode, nodes }
    }

    /// Writes it as `/proc/PID/numa_maps` does.
    pub(crate) fn write(self, out: &mut dyn Write) {
        const NAMES: [&str; 6] = ["default", "prefer", "bind", "interleave", "local", "prefer (many)"];
        let kind = self.mode & !mode::FLAGS;
        let _ = out.write_str(NAMES.get(kind as usize).copied().unwrap_or_default());
        if self.mode & mode::FLAGS != 0 {
            let _ = out.write_str("=");
        }
        if self.mode & mode::STATIC_NODES != 0 {
            let _ = out.write_str("static");
        } else if self.mode & mode::RELATIVE_NODES != 0 {
            let _ = out.write_str("relative");
        }
        if self.nodes != 0 {
            let _ = out.write_str(":0");
        }
    }
}

/// Reads a set of nodes.
///
/// # Errors
/// EINVAL for nodes that there can't be, EFAULT.
fn read_nodes(pointer: u64, most: u64) -> Result<u64, Errno> {
    let bits = most.saturating_sub(1);
    if bits == 0 || pointer == 0 {
        return Ok(0);
    }
    if bits > NODE_BITS_MAX {
        return Err(Errno::EINVAL);
    }
    let list = UserPointer::<u64>::new(pointer);
    let mut nodes = 0;
    for index in 0..bits.div_ceil(64) {
        let mut word = list.add(index as usize).read()?;
        let rest = bits - index * 64;
        if rest < 64 {
            word &= (1 << rest) - 1;
        }
        match index {
            0 => nodes = word,
            _ if word != 0 => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    Ok(nodes)
}

/// Writes a set of nodes, and zeros as far as there is room.
fn write_nodes(pointer: u64, most: u64, nodes: u64) -> Result<(), Errno> {
    let list = UserPointer::<u64>::new(pointer);
    for index in 0..most.saturating_sub(1).div_ceil(64) as usize {
        list.add(index).write(&if index == 0 { nodes } else { 0 })?;
    }
    Ok(())
}

/// Checks a policy.
fn policy(number: u32, pointer: u64, most: u64) -> Result<MemoryPolicy, Errno> {
    let (kind, flags) = (number & !mode::FLAGS, number & mode::FLAGS);
    if kind > mode::PREFERRED_MANY
        || flags & mode::STATIC_NODES != 0 && flags & mode::RELATIVE_NODES != 0
        || flags & mode::BALANCING != 0 && kind != mode::BIND
    {
        return Err(Errno::EINVAL);
    }
    let given = read_nodes(pointer, most)?;
    let nodes = given & ALL_NODES;
    let makes_sense = match kind {
        mode::DEFAULT => given == 0 && flags == 0,
        mode::LOCAL => given == 0 && flags & (mode::STATIC_NODES | mode::RELATIVE_NODES) == 0,
        mode::PREFERRED if given == 0 => flags == 0,
        _ => nodes != 0,
    };
    if !makes_sense {
        return Err(Errno::EINVAL);
    }
    let local = kind == mode::PREFERRED && given == 0;
    Ok(MemoryPolicy { mode: if local { mode::LOCAL } else { number }, nodes })
}

/// Sets the thread's policy.
pub(crate) fn set_mempolicy(task: &mut Task, number: u32, nodes: u64, most: u64) -> SysResult {
    task.memory_policy = policy(number, nodes, most)?;
    Ok(0)
}

/// Tells a policy, or where a page is.
pub(crate) fn get_mempolicy(
    task: &mut Task,
    out_mode: u64,
    out_nodes: u64,
    most: u64,
    address: u64,
    flags: u64,
) -> SysResult {
    let known = question::NODE | question::ADDRESS | question::ALLOWED;
    let nodes_fit = out_nodes == 0 || most > ALL_NODES;
    if flags & !known != 0 || !nodes_fit {
        return Err(Errno::EINVAL);
    }
    let own = task.memory_policy;
    let (value, nodes) = if flags & question::ALLOWED != 0 {
        if flags & (question::NODE | question::ADDRESS) != 0 {
            return Err(Errno::EINVAL);
        }
        (mode::DEFAULT, ALL_NODES)
    } else if flags & question::ADDRESS != 0 {
        let region = region_of(task, address).ok_or(Errno::EFAULT)?;
        let policy = MemoryPolicy::of(&region);
        if flags & question::NODE == 0 {
            (policy.mode, policy.nodes)
        } else {
            // The page must be there, or be brought.
            UserPointer::<u8>::new(address).read()?;
            (0, policy.nodes)
        }
    } else if address != 0 {
        return Err(Errno::EINVAL);
    } else if flags & question::NODE != 0 {
        // The node from which an interleaving thread gets its next page.
        if own.mode & !mode::FLAGS != mode::INTERLEAVE {
            return Err(Errno::EINVAL);
        }
        (0, own.nodes)
    } else {
        (own.mode, own.nodes)
    };
    UserPointer::<u32>::new(out_mode).write_if_given(&value)?;
    if out_nodes != 0 {
        write_nodes(out_nodes, most, nodes)?;
    }
    Ok(0)
}

/// Says from which nodes the pages of a range shall come.
pub(crate) fn mbind(
    task: &mut Task,
    start: u64,
    length: u64,
    number: u32,
    nodes: u64,
    most: u64,
    flags: u32,
) -> SysResult {
    /// `MPOL_MF_STRICT`, `MPOL_MF_MOVE`
    const KNOWN: u32 = 1 | 2;
    const MOVE_ALL: u32 = 4;
    if flags & !(KNOWN | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !task.credentials.has(Capabilities::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let end = end_of(start, length)?;
    let policy = policy(number, nodes, most)?;
    if end == start {
        return Ok(0);
    }
    let is_default = policy.mode == mode::DEFAULT;
    match coverage(task, start, end) {
        Coverage::Whole => {}
        Coverage::Part if is_default => {}
        _ => return Err(Errno::EFAULT),
    }
    let number = policy.number();
    match task.address_space.set_policies(UserAddr::new(start), end - start, |_| Ok(Some(number))) {
        // Only the default goes over holes.
        Err(MapError::OutOfMemory) if is_default => Ok(0),
        result => result.map(|()| 0).map_err(crate::memory::errno_of),
    }
}

/// Says which of the nodes of a range's policy is to be preferred: there is one.
pub(crate) fn set_mempolicy_home_node(
    task: &mut Task,
    start: u64,
    length: u64,
    node: u64,
    flags: u64,
) -> SysResult {
    if !start.is_multiple_of(PAGE_SIZE as u64) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL);
    }
    let end = end_of(start, length)?;
    if end == start {
        return Ok(0);
    }
    let mut result = Err(Errno::ENOENT);
    let mut address = start;
    while let Some(region) = task.address_space.region_at_or_after(UserAddr::new(address))
        && region.start() < end
    {
        match MemoryPolicy::of(&region).mode & !mode::FLAGS {
            mode::DEFAULT => {}
            mode::BIND | mode::PREFERRED_MANY => result = Ok(0),
            _ => return Err(Errno::EOPNOTSUPP),
        }
        address = region.end();
    }
    result
}

/// The end of a range of whole pages.
fn end_of(start: u64, length: u64) -> Result<u64, Errno> {
    let page = PAGE_SIZE as u64;
    if !start.is_multiple_of(page) {
        return Err(Errno::EINVAL);
    }
    let length = length.checked_next_multiple_of(page).ok_or(Errno::EINVAL)?;
    start.checked_add(length).ok_or(Errno::EINVAL)
}

/// How much of a range is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coverage {
    Nothing,
    Part,
    Whole,
}

fn coverage(task: &Task, start: u64, end: u64) -> Coverage {
    let (mut address, mut has_hole, mut is_mapped) = (start, false, false);
    while address < end {
        let next = task.address_space.region_at_or_after(UserAddr::new(address));
        let Some(region) = next.filter(|region| region.start() < end) else {
            has_hole = true;
            break;
        };
        has_hole |= region.start() > address;
        is_mapped = true;
        address = region.end();
    }
    match (is_mapped, has_hole) {
        (false, _) => Coverage::Nothing,
        (true, true) => Coverage::Part,
        (true, false) => Coverage::Whole,
    }
}

/// The region that contains an address.
fn region_of(task: &Task, address: u64) -> Option<Region> {
    let found = task.address_space.region_at_or_after(UserAddr::new(address))?;
    (found.start() <= address).then_some(found)
}

/// Moves a process's pages from nodes to others: none has to.
pub(crate) fn migrate_pages(task: &mut Task, pid: i32, most: u64, from: u64, to: u64) -> SysResult {
    read_nodes(from, most)?;
    let to = read_nodes(to, most)?;
    check_target(task, pid)?;
    if to & ALL_NODES == 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// Whether the caller means itself.
fn is_own(task: &Task, pid: i32) -> bool {
    pid == 0 || pid as u32 == task.seen_number(task.process().pid())
}

/// Whether the caller may move a process's pages.
fn check_target(task: &Task, pid: i32) -> Result<(), Errno> {
    if is_own(task, pid) {
        return Ok(());
    }
    let process = task.find_process(pid as u32).ok_or(Errno::ESRCH)?;
    Inspector::calling(task).inspect(&process, || ())?;
    Ok(())
}

/// Says where pages are, or moves them: to the only node.
pub(crate) fn move_pages(
    task: &mut Task,
    pid: i32,
    count: u64,
    pages: u64,
    nodes: u64,
    status: u64,
    flags: u32,
) -> SysResult {
    /// `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`
    const KNOWN: u32 = 2 | 4;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    check_target(task, pid)?;
    if count > PAGES_MAX {
        return Err(Errno::E2BIG);
    }
    let is_own = is_own(task, pid);
    for index in 0..count as usize {
        // Other signals wait: who moves pages is not told of them.
        if sched::current().is_killed() {
            return Err(Errno::EINTR);
        }
        let page: u64 = UserPointer::new(pages).add(index).read()?;
        if nodes != 0 && UserPointer::<i32>::new(nodes).add(index).read()? != 0 {
            return Err(Errno::ENODEV);
        }
        let is_there = is_own && UserPointer::<u8>::new(page).read().is_ok();
        let answer = if is_there { 0 } else { -i32::from(Errno::EFAULT.number()) };
        UserPointer::<i32>::new(status).add(index).write(&answer)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_number_below_64() {
        for kind in mode::DEFAULT..=mode::PREFERRED_MANY {
            for flags in [0, mode::STATIC_NODES, mode::RELATIVE_NODES, mode::STATIC_NODES | mode::BALANCING] {
                let policy = MemoryPolicy { mode: kind | flags, nodes: ALL_NODES };
                assert!(policy.number() < 64, "{kind} {flags:#x}");
            }
        }
        assert_eq!(MemoryPolicy::default().number(), 0);
    }

    #[test]
    fn policies_are_written_as_linux_does() {
        for (mode, nodes, expected) in [
            (mode::DEFAULT, 0, "default"),
            (mode::LOCAL, 0, "local"),
            (mode::BIND, 1, "bind:0"),
            (mode::BIND | mode::STATIC_NODES, 1, "bind=static:0"),
            (mode::INTERLEAVE | mode::RELATIVE_NODES, 1, "interleave=relative:0"),
            (mode::PREFERRED_MANY, 1, "prefer (many):0"),
        ] {
            let mut text = alloc::string::String::new();
            MemoryPolicy { mode, nodes }.write(&mut text);
            assert_eq!(text, expected);
        }
    }
}
