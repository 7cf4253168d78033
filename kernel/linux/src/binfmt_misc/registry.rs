//! The rules that count, the newest first.
//!
//! Locking: the list's spin lock, for a look through it; what is taken from it is dropped afterwards. Whether there are rules at all says a word beside it, so that
//! machines without any pay a load for each program.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sync::SpinLock;
use vfs::{Error, Result};

use super::rule::Rule;

static RULES: SpinLock<Vec<Arc<Rule>>> = SpinLock::named("formats of programs", Vec::new());
/// How many there are; written with the list locked.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether any of them counts.
static ENABLED: AtomicBool = AtomicBool::new(true);

/// The rule for a file that begins so, and was named so.
pub(crate) fn find(head: &[u8], name: &[u8]) -> Option<Arc<Rule>> {
    // Relaxed: says nothing about other data.
    if COUNT.load(Ordering::Relaxed) == 0 || !ENABLED.load(Ordering::Relaxed) {
        return None;
    }
    RULES.lock().iter().find(|rule| rule.matches(head, name)).cloned()
}

/// Adds a rule.
///
/// # Errors
/// EEXIST, ENOMEM.
pub(super) fn add(rule: Arc<Rule>) -> Result<()> {
    loop {
        let mut rules = RULES.lock();
        if rules.iter().any(|known| known.name == rule.name) {
            return Err(Error::Exists);
        }
        if rules.len() < rules.capacity() {
            rules.insert(0, rule);
            COUNT.store(rules.len(), Ordering::Relaxed);
            return Ok(());
        }
        let wanted = rules.len() + 8;
        drop(rules);
        let mut larger = memory::fallible::try_vec(wanted).map_err(|_| Error::OutOfMemory)?;
        let mut rules = RULES.lock();
        if rules.len() < wanted {
            larger.append(&mut rules);
            core::mem::swap(&mut *rules, &mut larger);
        }
        drop(rules);
        drop(larger);
    }
}

/// Takes a rule out; one that is not there any more is no error.
pub(super) fn remove(rule: &Arc<Rule>) {
    let removed = {
        let mut rules = RULES.lock();
        let index = rules.iter().position(|known| Arc::ptr_eq(known, rule));
        let removed = index.map(|index| rules.remove(index));
        COUNT.store(rules.len(), Ordering::Relaxed);
        removed
    };
    drop(removed);
}

/// Takes all rules out.
pub(super) fn remove_all() {
    let removed = {
        let mut rules = RULES.lock();
        COUNT.store(0, Ordering::Relaxed);
        core::mem::take(&mut *rules)
    };
    drop(removed);
}

/// The rule of that name.
pub(super) fn named(name: &[u8]) -> Option<Arc<Rule>> {
    RULES.lock().iter().find(|rule| rule.name == name).cloned()
}

/// The rule at a place in the list, by the order of their numbers: the first one with a number from `from` on.
pub(super) fn next(from: u64) -> Option<Arc<Rule>> {
    let rules = RULES.lock();
    rules.iter().filter(|rule| rule.number >= from).min_by_key(|rule| rule.number).cloned()
}

/// Whether any rule counts.
pub(super) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Sets that.
pub(super) fn enable(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}
