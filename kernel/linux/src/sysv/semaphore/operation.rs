//! Operations on several semaphores of a set: all of them are done, in their order, or none (semop(2)).

use super::limits::{ADJUSTMENT_MAX, VALUE_MAX};
use crate::abi::SemaphoreOperation;
use crate::errno::Errno;
use crate::process::table::Pid;

const NO_WAIT: i16 = 0o4000;
const UNDO: i16 = 0o1_0000;

/// A semaphore.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Semaphore {
    /// 0 to [`VALUE_MAX`].
    pub(super) value: u16,
    /// Who operated on it last.
    pub(super) process: Pid,
}

/// Why operations are not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The operation in this place has to wait.
    Blocked(usize),
    Error(Errno),
}

impl SemaphoreOperation {
    pub(super) fn index(&self) -> usize {
        self.semaphore.into()
    }

    /// Whether it is taken back when the process ends.
    pub(super) fn is_undone(&self) -> bool {
        self.flags & UNDO != 0
    }
}

/// Whether any of them changes a value.
pub(super) fn alters(operations: &[SemaphoreOperation]) -> bool {
    operations.iter().any(|operation| operation.change != 0)
}

/// Does the operations for a process, or nothing. `adjustments` are the process's, if any operation is undone at its end.
///
/// # Errors
/// See [`Refusal`]: ERANGE for values that there can't be, EAGAIN for what would block but shall not.
pub(super) fn perform(
    operations: &[SemaphoreOperation],
    semaphores: &mut [Semaphore],
    mut adjustments: Option<&mut [i16]>,
    process: Pid,
) -> Result<(), Refusal> {
    for (place, operation) in operations.iter().enumerate() {
        if let Err(refusal) = step(place, operation, semaphores, adjustments.as_deref_mut()) {
            for done in operations[..place].iter().rev() {
                take_back(done, semaphores, adjustments.as_deref_mut());
            }
            return Err(refusal);
        }
    }
    for operation in operations {
        semaphores[operation.index()].process = process;
    }
    Ok(())
}

fn step(
    place: usize,
    operation: &SemaphoreOperation,
    semaphores: &mut [Semaphore],
    adjustments: Option<&mut [i16]>,
) -> Result<(), Refusal> {
    let semaphore = &mut semaphores[operation.index()];
    let change = i32::from(operation.change);
    let value = i32::from(semaphore.value) + change;
    if value < 0 || change == 0 && value != 0 {
        let waits = operation.flags & NO_WAIT == 0;
        return Err(if waits { Refusal::Blocked(place) } else { Refusal::Error(Errno::EAGAIN) });
    }
    if value > VALUE_MAX {
        return Err(Refusal::Error(Errno::ERANGE));
    }
    if let Some(adjustments) = adjustments.filter(|_| operation.is_undone()) {
        let adjustment = i32::from(adjustments[operation.index()]) - change;
        if !(-ADJUSTMENT_MAX - 1..=ADJUSTMENT_MAX).contains(&adjustment) {
            return Err(Refusal::Error(Errno::ERANGE));
        }
        adjustments[operation.index()] = adjustment as i16;
    }
    semaphore.value = value as u16;
    Ok(())
}

fn take_back(operation: &SemaphoreOperation, semaphores: &mut [Semaphore], adjustments: Option<&mut [i16]>) {
    let index = operation.index();
    semaphores[index].value = (i32::from(semaphores[index].value) - i32::from(operation.change)) as u16;
    if let Some(adjustments) = adjustments.filter(|_| operation.is_undone()) {
        adjustments[index] = (i32::from(adjustments[index]) + i32::from(operation.change)) as i16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(semaphore: u16, change: i16, flags: i16) -> SemaphoreOperation {
        SemaphoreOperation { semaphore, change, flags }
    }

    fn semaphores(values: &[u16]) -> alloc::vec::Vec<Semaphore> {
        values.iter().map(|&value| Semaphore { value, process: 1 }).collect()
    }

    fn values(semaphores: &[Semaphore]) -> alloc::vec::Vec<u16> {
        semaphores.iter().map(|semaphore| semaphore.value).collect()
    }

    #[test]
    fn all_is_done_in_order_or_nothing() {
        let mut set = semaphores(&[1, 0, 5]);
        let all = [operation(0, -1, 0), operation(0, 0, 0), operation(1, 2, 0), operation(1, -1, 0)];
        assert_eq!(perform(&all, &mut set, None, 7), Ok(()));
        assert_eq!(values(&set), [0, 1, 5]);
        assert_eq!([set[0].process, set[1].process, set[2].process], [7, 7, 1]);
        let all = [operation(2, -3, UNDO), operation(1, 1, UNDO), operation(0, -1, 0)];
        let mut adjustments = [10, 20, 30];
        assert_eq!(perform(&all, &mut set, Some(&mut adjustments), 8), Err(Refusal::Blocked(2)));
        assert_eq!((values(&set).as_slice(), adjustments), (&[0, 1, 5][..], [10, 20, 30]));
        assert_eq!(set[2].process, 1);
    }

    #[test]
    fn values_and_adjustments_have_their_range() {
        let mut set = semaphores(&[32767, 1]);
        let over = Err(Refusal::Error(Errno::ERANGE));
        assert_eq!(perform(&[operation(1, -1, 0), operation(0, 1, 0)], &mut set, None, 1), over);
        assert_eq!(values(&set), [32767, 1]);
        let mut adjustments = [32767, -32768];
        assert_eq!(perform(&[operation(0, -1, UNDO)], &mut set, Some(&mut adjustments), 1), over);
        assert_eq!(perform(&[operation(1, 1, UNDO)], &mut set, Some(&mut adjustments), 1), over);
        assert_eq!(perform(&[operation(1, 1, 0)], &mut set, Some(&mut adjustments), 1), Ok(()));
        assert_eq!(adjustments, [32767, -32768]);
    }

    #[test]
    fn what_would_wait_says_so_at_once_if_it_shall() {
        let mut set = semaphores(&[1]);
        let blocked = perform(&[operation(0, 0, 0)], &mut set, None, 1);
        assert_eq!(blocked, Err(Refusal::Blocked(0)));
        let refused = perform(&[operation(0, -2, NO_WAIT)], &mut set, None, 1);
        assert_eq!(refused, Err(Refusal::Error(Errno::EAGAIN)));
    }
}
