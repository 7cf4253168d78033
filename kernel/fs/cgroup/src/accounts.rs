//! Accounts of groups, and the controller `memory`. What an account is, and what happens at its limits, is crate memory's ([`memory::charge`]); here are its
//! accounts, which exist while this controller or `io` is handed on, and the files that show them.
//!
//! A thread pays with its process's account: it has the same from its parent at first, and looks again on its way to user mode after its process, or the controller, was
//! moved. What was charged before stays where it is, as on Linux.

use alloc::sync::Arc;

use machine::address::PAGE_SIZE;
use memory::charge::{self, Account, AccountNumber, Event, Kind, Limit, UNLIMITED};
use memory::frame::Purpose;
use sync::rcu;
use vfs::text::Text;
use vfs::{Error, Result};

use crate::attach::Opener;
use crate::controllers::Controllers;
use crate::freezer;
use crate::group::Group;
use crate::interface::{self, line};
use crate::membership::Membership;
use crate::number::parse_int;
use crate::{programs, transfers, tree};

const PAGE: u64 = PAGE_SIZE as u64;

/// The account that members of a group pay with: its own, or the nearest above; none at the top.
fn of(group: &Group) -> Option<Account> {
    group.limited().find_map(|above| above.account.lock().clone())
}

/// A controller that needs an account is handed on to a group.
pub(crate) fn begin(group: &Arc<Group>) -> Result<()> {
    if group.account.lock().is_some() {
        return Ok(());
    }
    let above = group.parent.as_ref().and_then(|parent| of(parent));
    let new = Account::new(above.as_ref()).map_err(|_| Error::OutOfMemory)?;
    let former = group.account.lock().replace(new);
    drop(former);
    Ok(())
}

/// Controllers are taken from a group, which has those that are `left`.
pub(crate) fn forget(group: &Group, removed: Controllers, left: Controllers) {
    let Some(account) = group.account.lock().clone() else { return };
    if !left.intersects(Controllers::NEED_ACCOUNT) {
        return end(group);
    }
    if removed.contains(Controllers::MEMORY) {
        account.number().forget_limits();
    }
    if removed.contains(Controllers::IO) {
        transfers::forget(account.number());
    }
}

/// No controller that needs an account is left, or the group is removed: what is charged stays charged, to those above as well.
pub(crate) fn end(group: &Group) {
    let former = group.account.lock().take();
    if let Some(former) = &former {
        former.close();
        transfers::forget(former.number());
        former.bring_in_stocks();
    }
    drop(former);
}

/// Has all threads of a group and below look with whose account they pay; under the lock of the tree.
pub(crate) fn settle(group: &Arc<Group>) -> Result<()> {
    for group in freezer::subtree(group)? {
        freezer::members(&group)?.iter().for_each(|member| member.interrupt());
    }
    Ok(())
}

impl Membership {
    /// The account that its threads pay with.
    pub fn account(&self) -> Option<Account> {
        self.group().and_then(|group| of(&group))
    }

    /// Whether that is an account or one below it.
    pub fn pays_within(&self, account: AccountNumber) -> bool {
        let guard = rcu::read();
        let number = |group: &Group| group.account.lock().as_ref().map(Account::number);
        let own = self.group.peek(&guard).and_then(|group| group.limited().find_map(number));
        own.is_some_and(|own| own.is_within(account))
    }

    /// The topmost account up to that one whose processes are killed together, of those that it pays with.
    pub fn ends_together(&self, up_to: AccountNumber) -> Option<Account> {
        let group = self.group()?;
        let accounts = group.limited().filter_map(|above| above.account.lock().clone());
        accounts
            .filter(|account| account.number().is_within(up_to) && account.number().ends_together())
            .last()
    }
}

/// Has groups told of what happens to their accounts. Once, at start-up.
pub fn register_accounts() {
    charge::set_listener(|account| {
        let Some(group) = find(tree::root(), account) else { return };
        interface::report_change(&group, interface::MEMORY_EVENTS);
        group.memory_events.tell();
    });
}

/// The group below another one whose account it is.
fn find(top: &Arc<Group>, account: AccountNumber) -> Option<Arc<Group>> {
    let mut from = 0;
    while let Some(child) = top.next_child(from) {
        from = child.number + 1;
        let own = child.account.lock().as_ref().map(Account::number);
        match own {
            Some(own) if own == account => return Some(child),
            Some(own) if account.is_within(own) => return find(&child, account),
            _ => {}
        }
    }
    None
}

fn own(group: &Group) -> Result<Account> {
    group.account.lock().clone().ok_or(Error::NoDevice)
}

/// Bytes with a suffix, in whole pages; `max` is all.
fn parse_pages(text: &[u8]) -> Result<u64> {
    if text == b"max" {
        return Ok(UNLIMITED);
    }
    let (digits, shift) = match text.split_last() {
        Some((b'k' | b'K', digits)) => (digits, 10),
        Some((b'm' | b'M', digits)) => (digits, 20),
        Some((b'g' | b'G', digits)) => (digits, 30),
        Some((b't' | b'T', digits)) => (digits, 40),
        Some((b'p' | b'P', digits)) => (digits, 50),
        Some((b'e' | b'E', digits)) => (digits, 60),
        _ => (text, 0),
    };
    if !digits.first().is_some_and(u8::is_ascii_digit) {
        return Err(Error::Invalid);
    }
    match crate::number::parse(digits) {
        Ok(bytes) => Ok((bytes.unsigned_abs().saturating_mul(1 << shift)) / PAGE),
        // Beyond any memory.
        Err(Error::Range) => Ok(UNLIMITED),
        Err(error) => Err(error),
    }
}

fn show_pages(out: &mut Text, pages: u64) {
    match pages {
        UNLIMITED => line(out, format_args!("max")),
        pages => line(out, format_args!("{}", pages.saturating_mul(PAGE))),
    }
}

pub(crate) fn show_current(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    show_pages(out, own(group)?.number().usage());
    Ok(())
}

pub(crate) fn show_peak(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    show_pages(out, own(group)?.number().peak());
    Ok(())
}

pub(crate) fn show_limit<const LIMIT: usize>(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    show_pages(out, own(group)?.number().limit(Limit::ALL[LIMIT]));
    Ok(())
}

pub(crate) fn set_limit<const LIMIT: usize>(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let pages = parse_pages(text)?;
    let account = own(group)?;
    let limit = Limit::ALL[LIMIT];
    account.number().set_limit(limit, pages);
    if matches!(limit, Limit::Max | Limit::High) {
        charge::shrink(account.number(), limit, &|| !programs::caller_is_wanted());
    }
    Ok(())
}

/// `memory.swap.current`: there is no swap.
pub(crate) fn show_nothing(_group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("0"));
    Ok(())
}

/// `memory.swap.events`.
pub(crate) fn show_swap_events(_group: &Arc<Group>, out: &mut Text) -> Result<()> {
    for name in ["high", "max", "fail"] {
        line(out, format_args!("{name} 0"));
    }
    Ok(())
}

pub(crate) fn show_events<const OWN: bool>(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    const NAMES: [(&str, Event); charge::EVENTS] = [
        ("low", Event::Low),
        ("high", Event::High),
        ("max", Event::Max),
        ("oom", Event::OutOfMemory),
        ("oom_kill", Event::Kill),
        ("oom_group_kill", Event::GroupKill),
    ];
    let account = own(group)?;
    for (name, event) in NAMES {
        let (alone, all) = account.number().events(event);
        line(out, format_args!("{name} {}", if OWN { alone } else { all }));
    }
    Ok(())
}

pub(crate) fn show_oom_group(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("{}", u32::from(own(group)?.number().ends_together())));
    Ok(())
}

pub(crate) fn set_oom_group(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let together = match parse_int(text)? {
        0 => false,
        1 => true,
        _ => return Err(Error::Invalid),
    };
    own(group)?.number().set_ends_together(together);
    Ok(())
}

/// Writes to `memory.reclaim`: EAGAIN if less was found than asked for.
pub(crate) fn reclaim(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    const ROUNDS_MAX: u32 = 16;
    let wanted = parse_pages(text)?;
    let mut left = wanted;
    for _ in 0..ROUNDS_MAX {
        if left == 0 {
            return Ok(());
        }
        let goal = usize::try_from(left).unwrap_or(usize::MAX);
        let freed = match own(group) {
            Ok(account) => charge::reclaim(account.number(), goal),
            Err(_) if group.is_root() => memory::reclaim::reclaim_now(goal),
            Err(error) => return Err(error),
        };
        if freed == 0 || programs::caller_is_wanted() {
            break;
        }
        left = left.saturating_sub(freed as u64);
    }
    if left == 0 { Ok(()) } else { Err(Error::WouldBlock) }
}

/// `memory.stat`: what is known for certain.
pub(crate) fn show_statistics(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let account = match own(group) {
        Ok(account) => Some(account.number()),
        Err(_) if group.is_root() => None,
        Err(error) => return Err(error),
    };
    let machine = memory::statistics::memory();
    let pages = |kind: Kind, purpose: Purpose| {
        account.map_or_else(|| machine.used(purpose), |account| account.of_kind(kind))
    };
    let shared = pages(Kind::SharedMemory, Purpose::Shmem);
    let tables = pages(Kind::Table, Purpose::PageTable);
    let files = pages(Kind::File, Purpose::FileCache);
    let anonymous = pages(Kind::Anonymous, Purpose::Anonymous);
    let rows = [
        ("anon", anonymous),
        ("file", files + shared),
        ("kernel", tables + pages(Kind::Kernel, Purpose::Pipe)),
        ("pagetables", tables),
        ("shmem", shared),
    ];
    for (name, pages) in rows {
        line(out, format_args!("{name} {}", pages * PAGE));
    }
    if let Some(account) = account {
        line(out, format_args!("pgsteal {}", account.reclaimed()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_whole_pages() {
        assert_eq!(parse_pages(b"max"), Ok(UNLIMITED));
        assert_eq!(parse_pages(b"8191"), Ok(1));
        assert_eq!(parse_pages(b"1M"), Ok(256));
        assert_eq!(parse_pages(b"0x10k"), Ok(4));
        assert_eq!(parse_pages(b"99999999999999999999"), Ok(UNLIMITED));
        for wrong in [&b"-1"[..], b"", b"M", b"1MM", b"1 M", b"+1"] {
            assert_eq!(parse_pages(wrong), Err(Error::Invalid), "{wrong:?}");
        }
    }

    #[test]
    fn an_account_is_found_by_its_number_at_any_depth() {
        let make = |parent: &Arc<Group>, name: &[u8]| {
            let group = tree::make(parent, name, (0, 0), |group| Ok(group.clone())).expect("memory");
            begin(&group).expect("memory");
            group
        };
        let outer = make(tree::root(), b"accounts");
        let inner = make(&outer, b"inner");
        let account = own(&inner).expect("it has one");
        assert!(account.number().is_within(own(&outer).expect("it has one").number()));
        assert!(find(tree::root(), account.number()).is_some_and(|found| Arc::ptr_eq(&found, &inner)));
        tree::remove(&inner).expect("empty");
        assert!(own(&inner).is_err() && find(tree::root(), account.number()).is_none());
        tree::remove(&outer).expect("empty");
    }
}
