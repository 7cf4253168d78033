//! Filters of a thread: programs that decide about its calls, each with those that were installed before it. Filters are never taken away, and shared by
//! whom the thread made since.

use alloc::sync::Arc;

use memory::fallible;

use super::notifier::{Asked, Notifier};
use super::program::{DATA_WORDS, Program};
use crate::errno::Errno;
use crate::table;

/// Instructions of all filters of a thread together at most; each filter counts a few more than it has.
const INSTRUCTIONS_MAX: usize = 32768;
const FILTER_COST: usize = 4;
/// `AUDIT_ARCH_X86_64`.
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;

const WORD_BITS: usize = u64::BITS as usize;
/// Calls that are let through whatever their arguments, by number.
type Allowed = [u64; table::COUNT.div_ceil(WORD_BITS)];

/// What a filter says, the upper half. Of several filters the one that comes first here is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// The process ends.
    KillProcess,
    /// The thread ends.
    KillThread,
    /// SIGSYS.
    Trap,
    /// The call fails.
    Error,
    /// Another process decides.
    Notify,
    /// A tracer decides.
    Trace,
    /// The call is made, and told to the log.
    Log,
    /// The call is made.
    Allow,
}

impl Action {
    /// Its number; `None` for those that there are none of.
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(match number {
            0x8000_0000 => Self::KillProcess,
            0 => Self::KillThread,
            0x0003_0000 => Self::Trap,
            0x0005_0000 => Self::Error,
            0x7fc0_0000 => Self::Notify,
            0x7ff0_0000 => Self::Trace,
            0x7ffc_0000 => Self::Log,
            0x7fff_0000 => Self::Allow,
            _ => return None,
        })
    }
}

/// What is said of a call: what to do, and a number for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) action: Action,
    pub(super) data: u16,
}

impl Verdict {
    fn of(result: u32) -> Self {
        // What nobody knows is forbidden.
        Self { action: Action::of(result & 0xffff_0000).unwrap_or(Action::KillProcess), data: result as u16 }
    }
}

/// A filter with those before it.
pub(crate) struct Filter {
    program: Arc<Program>,
    allowed: Allowed,
    /// How many filters it is the last of, and what they cost together.
    count: usize,
    cost: usize,
    /// What it does is to be told to the log.
    is_logged: bool,
    /// Who is asked what it leaves open.
    asked: Option<Asked>,
    /// Whether it, or one before it, has somebody to be asked.
    has_listener: bool,
    previous: Option<Arc<Filter>>,
}

impl Filter {
    /// A program after other filters.
    ///
    /// # Errors
    /// ENOMEM, also for too many instructions.
    pub(super) fn new(
        program: Arc<Program>,
        previous: Option<Arc<Self>>,
        is_logged: bool,
        notifier: Option<Arc<Notifier>>,
    ) -> Result<Arc<Self>, Errno> {
        let (count, cost, before) = previous
            .as_ref()
            .map_or((0, 0, None), |previous| (previous.count, previous.cost, Some(&previous.allowed)));
        let cost = cost + program.len();
        if cost > INSTRUCTIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        let mut allowed = Allowed::default();
        for number in 0..table::COUNT {
            let (word, bit) = (number / WORD_BITS, 1 << (number % WORD_BITS));
            let may = before.is_none_or(|before| before[word] & bit != 0)
                && program
                    .run_for_number(number as u32, ARCHITECTURE)
                    .is_some_and(|result| Verdict::of(result).action == Action::Allow);
            allowed[word] |= if may { bit } else { 0 };
        }
        let filter = Self {
            program,
            allowed,
            count: count + 1,
            cost: cost + FILTER_COST,
            is_logged,
            has_listener: notifier.is_some()
                || previous.as_ref().is_some_and(|previous| previous.has_listener),
            asked: notifier.map(Asked::new),
            previous,
        };
        fallible::try_arc(filter).map_err(|_| Errno::ENOMEM)
    }

    /// The one that was installed as number `index`, from 0 on.
    pub(super) fn at(self: &Arc<Self>, index: usize) -> Option<&Arc<Self>> {
        core::iter::successors(Some(self), |filter| filter.previous.as_ref())
            .find(|filter| filter.count == index + 1)
    }

    /// Whether what it does is to be told to the log.
    pub(super) fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Who is asked what it leaves open.
    pub(super) fn notifier(&self) -> Option<&Arc<Notifier>> {
        self.asked.as_ref().map(|asked| &asked.0)
    }

    /// Whether it, or one before it, has somebody to be asked.
    pub(super) fn has_listener(&self) -> bool {
        self.has_listener
    }

    /// Its program.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// How many filters there are with it.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether calls with this number are let through whatever their arguments.
    pub(super) fn allows_any(&self, number: u64) -> bool {
        self.allowed
            .get(number as usize / WORD_BITS)
            .is_some_and(|word| word >> (number as usize % WORD_BITS) & 1 != 0)
    }

    /// What all say of a call, and which one it was.
    pub(super) fn judge(&self, data: &[u32; DATA_WORDS]) -> (Verdict, &Self) {
        let mut verdict = Verdict::of(self.program.run(data));
        let mut judge = self;
        for filter in core::iter::successors(self.previous.as_ref(), |filter| filter.previous.as_ref()) {
            let other = Verdict::of(filter.program.run(data));
            if other.action < verdict.action {
                (verdict, judge) = (other, filter);
            }
        }
        (verdict, judge)
    }

    /// Whether it is `other`, or one of those before that.
    pub(super) fn is_before(&self, other: &Arc<Self>) -> bool {
        core::iter::successors(Some(other), |filter| filter.previous.as_ref())
            .any(|filter| core::ptr::eq(&**filter, self))
    }
}

impl Drop for Filter {
    /// One after the other: a thread may have thousands.
    fn drop(&mut self) {
        let mut previous = self.previous.take();
        while let Some(mut filter) = previous.and_then(Arc::into_inner) {
            previous = filter.previous.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::FilterInstruction as Instruction;
    use alloc::vec;

    const fn returns(constant: u32) -> Instruction {
        Instruction { code: 0x06, if_true: 0, if_false: 0, constant }
    }

    fn chain(results: &[u32]) -> Arc<Filter> {
        let mut last = None;
        for result in results {
            let program = Arc::new(Program::new(vec![returns(*result)]).expect("it is sound"));
            last = Some(Filter::new(program, last, false, None).expect("there is memory"));
        }
        last.expect("there is one")
    }

    #[test]
    fn the_strictest_counts_and_of_equals_the_last() {
        let data = [0; DATA_WORDS];
        let judge = |results: &[u32]| chain(results).judge(&data).0;
        assert_eq!(judge(&[0x7fff_0000]), Verdict { action: Action::Allow, data: 0 });
        assert_eq!(judge(&[0x0005_0001, 0x7fff_0000]), Verdict { action: Action::Error, data: 1 });
        assert_eq!(judge(&[0x0005_0001, 0x0005_0002]), Verdict { action: Action::Error, data: 2 });
        assert_eq!(judge(&[0x8000_0000, 0, 0x0003_0000]).action, Action::KillProcess);
        assert_eq!(judge(&[0x7ffc_0000, 0x7fff_0000]).action, Action::Log);
        assert_eq!(judge(&[0x1234_0000]).action, Action::KillProcess);
    }

    #[test]
    fn what_all_allow_is_known() {
        assert!(chain(&[0x7fff_0000, 0x7fff_0000]).allows_any(3));
        assert!(!chain(&[0x7fff_0000, 0x7ffc_0000, 0x7fff_0000]).allows_any(3));
        assert!(!chain(&[0x7fff_0000]).allows_any(table::COUNT as u64 + 1000));
        assert!(!chain(&[0x7fff_0000]).allows_any(u64::MAX));
    }

    #[test]
    fn filters_are_too_many_some_time_and_go_one_after_the_other() {
        let mut last: Option<Arc<Filter>> = None;
        let made = loop {
            let program = Arc::new(Program::new(vec![returns(0x7fff_0000)]).expect("it is sound"));
            match Filter::new(program, last.clone(), false, None) {
                Ok(filter) => last = Some(filter),
                Err(errno) => break errno,
            }
        };
        assert_eq!(made, Errno::ENOMEM);
        let last = last.expect("some were made");
        assert_eq!(last.count(), (INSTRUCTIONS_MAX - 1) / (FILTER_COST + 1) + 1);
        let first = core::iter::successors(Some(&last), |filter| filter.previous.as_ref())
            .last()
            .expect("it is itself");
        assert!(first.is_before(&last) && !last.is_before(&first.clone()));
    }
}
