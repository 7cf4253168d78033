//! Killing for an account that is full: the process that pays with it, or with one below, whose end frees most; adjustments count in thousandths of what the account may
//! have. Where its group says so (`memory.oom.group`), the topmost such group up to the account's own, all processes of that group are killed, but for those that must never be.

use core::sync::atomic::Ordering;

use memory::charge::{AccountNumber, Event, Limit};
use memory::oom::Shortage;

use super::{ADJUSTMENT_NEVER, end_process, kill, score_of, wait_for_victims};
use crate::process::table::{self, Pid};

/// Chooses and kills; waits for the memory. False when nobody is left to choose.
pub(super) fn end_offender(account: AccountNumber) -> bool {
    let total = account.limit(Limit::Max).saturating_mul(machine::address::PAGE_SIZE as u64);
    let total = total.min(crate::memory::totals().total_bytes);
    let mut biggest: Option<(Pid, u64)> = None;
    table::for_each_process(|process| {
        let Some(score) = score_of(process, total) else { return };
        if process.control_group.pays_within(account) && biggest.is_none_or(|(_, most)| score > most) {
            biggest = Some((process.pid(), score));
        }
    });
    let Some((pid, score)) = biggest else { return false };
    let together = table::process_of(pid).and_then(|victim| victim.control_group.ends_together(account));
    end_process(pid, score);
    if let Some(together) = together {
        together.number().note(Event::GroupKill);
        end_all(together.number());
    }
    wait_for_victims(Shortage::Of(account));
    true
}

/// Kills all that pay with an account or with one below.
fn end_all(account: AccountNumber) {
    let mut from = 0;
    while let Some(process) = table::next_process(from) {
        from = process.pid() + 1;
        let spared = process.pid() == table::INIT
            || process.oom_adjustment.load(Ordering::Relaxed) == ADJUSTMENT_NEVER
            || process.is_zombie()
            || super::is_victim(&process);
        if !spared && process.control_group.pays_within(account) {
            kill(&process);
            memory::oom::note_kills(1);
        }
    }
}
