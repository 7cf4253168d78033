//! Timeouts, alone and of other requests.
//!
//! A timeout ends when its time is over, or when so many other requests have ended. Timeouts themselves are not counted.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use machine::time::now_ns;

use super::super::abi::{Entry, operation};
use super::super::cancel;
use super::super::execute;
use super::super::request::{Prepared, Request, Stage};
use super::Step;
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::time::clock;
use crate::user_pointer::UserPointer;

pub(super) const ABSOLUTE: u32 = 1;
const UPDATE: u32 = 2;
const BOOT_TIME: u32 = 4;
const REAL_TIME: u32 = 8;
const UPDATE_LINK: u32 = 16;
const SUCCEEDS: u32 = 32;
/// What makes a removal a change.
pub(super) const CHANGES: u32 = UPDATE | UPDATE_LINK;
/// Flags of a timeout.
pub(super) const KNOWN: u32 = ABSOLUTE | BOOT_TIME | REAL_TIME | SUCCEEDS;
/// Flags of a change of one.
pub(super) const UPDATE_KNOWN: u32 = ABSOLUTE | UPDATE | BOOT_TIME | REAL_TIME | UPDATE_LINK;

/// When a time that a program gave is over, on the monotonic clock.
pub(in super::super) fn deadline(ns: u64, flags: u32) -> u64 {
    match flags & (ABSOLUTE | REAL_TIME) {
        0 | REAL_TIME => now_ns().saturating_add(ns),
        ABSOLUTE => ns,
        _ => clock::realtime_to_monotonic(ns),
    }
}

/// A time in the program's memory.
pub(super) fn read_time(address: u64, flags: u32) -> Result<Prepared, Errno> {
    if flags & (BOOT_TIME | REAL_TIME) == BOOT_TIME | REAL_TIME {
        return Err(Errno::EINVAL);
    }
    let time: Timespec = UserPointer::new(address).read()?;
    Ok(Prepared::Time(time.to_ns().ok_or(Errno::EINVAL)?, flags))
}

/// Whether the end of a timeout by its time is no failure.
pub(in super::super) fn is_success(entry: &Entry, value: i32) -> bool {
    entry.operation == operation::TIMEOUT
        && entry.operation_flags & SUCCEEDS != 0
        && value == -i32::from(Errno::ETIME.number())
}

/// Arms a timeout; or it was told of, and is over.
pub(super) fn perform(request: &Arc<Request>, told: bool) -> Step {
    // One whose turn has come late is handed over like one that was told of, but has no timer yet.
    if told && request.changing.lock().timer.is_some() {
        stop_counting(request);
        let errno = match request.entry.operation {
            operation::LINK_TIMEOUT => execute::time_is_over(request),
            _ => Errno::ETIME,
        };
        return Step::Done(Err(errno), 0);
    }
    let Prepared::Time(ns, flags) = request.prepared else { return Step::Done(Err(Errno::EINVAL), 0) };
    let timer = match request.make_timer() {
        Ok(timer) => timer,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    request.left.store(true, Ordering::Relaxed);
    let ring = &request.ring;
    let count = request.entry.offset as u32;
    if count > 0 {
        let target = ring.completions.counted().wrapping_add(count);
        request.changing.lock().target = Some(target);
        ring.counting.fetch_add(1, Ordering::AcqRel);
    }
    request.arm_timer(&timer, deadline(ns, flags));
    if request.is_cancelled() && request.take(Stage::Armed) {
        stop_counting(request);
        return Step::Done(Err(Errno::ECANCELED), 0);
    }
    // What ended between the look at the count and arming is counted now.
    if count > 0 {
        end_counted(request);
    }
    Step::Kept
}

fn stop_counting(request: &Request) {
    if request.changing.lock().target.take().is_some() {
        request.ring.counting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request has ended: timeouts that waited for a number of them may end.
pub(in super::super) fn count_completion(request: &Arc<Request>) {
    let is_timeout = matches!(request.entry.operation, operation::TIMEOUT | operation::LINK_TIMEOUT);
    if is_timeout {
        stop_counting(request);
        return;
    }
    request.ring.completions.count();
    end_counted(request);
}

fn end_counted(request: &Request) {
    let ring = &request.ring;
    while ring.counting.load(Ordering::Acquire) > 0 {
        let counted = ring.completions.counted();
        let is_over = |request: &Request| {
            let target = request.changing.lock().target;
            request.is_at(Stage::Armed)
                && target.is_some_and(|target| counted.wrapping_sub(target) as i32 >= 0)
        };
        let Some((over, _)) = ring.find(0, is_over) else { return };
        if over.take(Stage::Armed) {
            stop_counting(&over);
            execute::finish_and_hand_over(&over, Ok(0));
        }
    }
}

/// Ends a timeout before its time, or gives it another time.
pub(super) fn remove(request: &Arc<Request>) -> SysResult {
    let entry = &request.entry;
    let kind = match entry.operation_flags & UPDATE_LINK {
        0 => operation::TIMEOUT,
        _ => operation::LINK_TIMEOUT,
    };
    let meant = |other: &Request| {
        other.entry.operation == kind && !other.is_at(Stage::Held) && other.user_data() == entry.address
    };
    let (found, _) = request.ring.find(0, meant).ok_or(Errno::ENOENT)?;
    let Prepared::Time(ns, flags) = request.prepared else {
        return match cancel::cancel(&found) {
            cancel::Taken::Back => Ok(0),
            cancel::Taken::Running | cancel::Taken::Held => Err(Errno::EALREADY),
        };
    };
    if !found.take(Stage::Armed) {
        return Err(Errno::EALREADY);
    }
    let timer = found.changing.lock().timer.clone();
    match timer {
        Some(timer) => {
            timer.cancel();
            found.arm_timer(&timer, deadline(ns, flags));
        }
        None => found.put(Stage::Armed),
    }
    // Cancelled meanwhile: nobody else ends it.
    if found.is_cancelled() && found.take(Stage::Armed) {
        execute::finish_and_hand_over(&found, Err(Errno::ECANCELED));
    }
    Ok(0)
}
