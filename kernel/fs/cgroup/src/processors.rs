//! The controller `cpu`: weights, and quotas of processor time. What they mean is the scheduler's ([`sched::control`]); here are its groups, which
//! exist while the controller is handed on, and the threads that are in them.

use alloc::sync::Arc;
use core::fmt::Write;

use sched::control::{self, Group as ProcessorGroup};
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use crate::attach::Opener;
use crate::freezer;
use crate::group::Group;
use crate::interface::line;
use crate::number::{parse, parse_int, parse_limit};

const NS_PER_US: u64 = 1000;
/// The least quota and period.
const LEAST_US: u64 = 1000;
/// The longest period.
const PERIOD_US_MAX: u64 = 1_000_000;
/// Weights that can be set.
const WEIGHTS: core::ops::RangeInclusive<i64> = 1..=10_000;

/// The group that threads of a group compete in: its own, or the nearest above; none at the top.
pub(crate) fn of(group: &Group) -> Option<Arc<ProcessorGroup>> {
    group.limited().find_map(|above| above.processors.lock().clone())
}

/// The controller is handed on to a group.
pub(crate) fn begin(group: &Arc<Group>) -> Result<()> {
    let above = group.parent.as_ref().and_then(|parent| of(parent));
    let new = allocation::arc(ProcessorGroup::new(above))?;
    let former = group.processors.lock().replace(new);
    drop(former);
    Ok(())
}

/// Brings all threads of a group and below to where they compete now; under the lock of the tree.
pub(crate) fn settle(group: &Arc<Group>) -> Result<()> {
    for group in freezer::subtree(group)? {
        let processors = of(&group);
        for member in freezer::members(&group)? {
            member.set_processors(processors.as_ref())?;
        }
    }
    Ok(())
}

fn own(group: &Group) -> Result<Arc<ProcessorGroup>> {
    group.processors.lock().clone().ok_or(Error::NoDevice)
}

pub(crate) fn show_weight(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("{}", own(group)?.weight()));
    Ok(())
}

pub(crate) fn set_weight(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let weight = parse(text)?;
    if !WEIGHTS.contains(&weight) {
        return Err(Error::Range);
    }
    own(group)?.set_weight(weight as u32);
    Ok(())
}

pub(crate) fn show_nice(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    line(out, format_args!("{}", control::nice_of_weight(own(group)?.weight())));
    Ok(())
}

pub(crate) fn set_nice(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let weight = control::weight_of_nice(parse_int(text)?).ok_or(Error::Range)?;
    own(group)?.set_weight(weight);
    Ok(())
}

pub(crate) fn show_quota(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let (quota_ns, period_ns) = own(group)?.quota_ns();
    let _ = match quota_ns {
        Some(quota_ns) => write!(out, "{}", quota_ns / NS_PER_US),
        None => out.write_str("max"),
    };
    line(out, format_args!(" {}", period_ns / NS_PER_US));
    Ok(())
}

pub(crate) fn set_quota(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let group = own(group)?;
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let quota_us = parse_limit(words.next().ok_or(Error::Invalid)?)?;
    let period_us = match words.next() {
        Some(word) => parse_limit(word)?.ok_or(Error::Invalid)?,
        None => group.quota_ns().1 / NS_PER_US,
    };
    let longest_us = u64::MAX / NS_PER_US / 2;
    if !(LEAST_US..=PERIOD_US_MAX).contains(&period_us)
        || quota_us.is_some_and(|quota| !(LEAST_US..=longest_us).contains(&quota))
    {
        return Err(Error::Invalid);
    }
    group.set_quota_ns(quota_us.map(|quota| quota * NS_PER_US), period_us * NS_PER_US);
    Ok(())
}

/// What `cpu.stat` says beyond processor time.
pub(crate) fn show_statistics(group: &Group, out: &mut Text) {
    let Some(group) = group.processors.lock().clone() else { return };
    let statistics = group.quota_statistics();
    line(out, format_args!("nr_periods {}", statistics.periods));
    line(out, format_args!("nr_throttled {}", statistics.held));
    line(out, format_args!("throttled_usec {}", statistics.held_ns / NS_PER_US));
}
