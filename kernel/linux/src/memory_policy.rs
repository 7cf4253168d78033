//! Memory policies (set_mempolicy(2), mbind(2)) on a machine with one node of memory.
//!
//! A policy says from which nodes pages shall come. There is one, so all that make sense come to the same; they are checked as on a machine with more,
//! and a thread's own is kept for who asks. What mbind(2) says of a range is not kept: nothing depends on it.

use machine::address::PAGE_SIZE;

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
        // The page must be there, or be brought.
        UserPointer::<u8>::new(address).read()?;
        (if flags & question::NODE != 0 { 0 } else { mode::DEFAULT }, 0)
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
    _task: &mut Task,
    start: u64,
    length: u64,
    number: u32,
    nodes: u64,
    most: u64,
    flags: u32,
) -> SysResult {
    /// `MPOL_MF_STRICT`, `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`
    const KNOWN: u32 = 1 | 2 | 4;
    let page = PAGE_SIZE as u64;
    if flags & !KNOWN != 0 || !start.is_multiple_of(page) {
        return Err(Errno::EINVAL);
    }
    policy(number, nodes, most)?;
    let end = length.checked_next_multiple_of(page).and_then(|length| start.checked_add(length));
    if end.is_none_or(|end| end > machine::address::USER_END as u64) {
        return Err(Errno::EINVAL);
    }
    Ok(0)
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
