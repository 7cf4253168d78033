//! What only the personality knows: processes, and who calls.

use alloc::sync::Arc;

use machine::set_once::SetOnce;
use vfs::{Credentials, Result};

use crate::group::Group;
use crate::membership::Member;

/// The personality's answers.
pub trait Programs: Send + Sync {
    /// The process that has a thread with this number, as the caller counts.
    fn find(&self, number: u32) -> Option<Arc<dyn Member>>;

    /// The calling process; none in threads of the kernel's own.
    fn caller(&self) -> Option<Arc<dyn Member>>;

    /// Calls for each process that was never moved out of the root group.
    ///
    /// # Errors
    /// `ENOMEM`, and what `each` says.
    fn of_root(&self, each: &mut dyn FnMut(&Arc<dyn Member>) -> Result<()>) -> Result<()>;

    /// The root of the caller's name space of groups, unless that is the root of all.
    fn view(&self) -> Option<Arc<Group>>;

    /// Whether the caller is in the first name space of groups: another one may begin at the root of all, too.
    fn is_in_first_space(&self) -> bool;

    /// The caller's credentials.
    fn credentials(&self) -> Option<Credentials>;

    /// Whether the caller has something else to do, as to end.
    fn caller_is_wanted(&self) -> bool;

    /// Processor time of everything that ran since the start, in user mode and in the kernel.
    fn processor_time_ns(&self) -> (u64, u64);
}

static PROGRAMS: SetOnce<&'static dyn Programs> = SetOnce::new();

/// Registers the answers. Once, at start-up.
pub fn set_programs(programs: &'static dyn Programs) {
    PROGRAMS.set(programs);
}

/// The answers; none before the personality has started, when there is nobody who could ask.
pub(crate) fn get() -> Option<&'static dyn Programs> {
    PROGRAMS.get()
}

/// Whether the caller has something else to do.
pub(crate) fn caller_is_wanted() -> bool {
    get().is_some_and(|programs| programs.caller_is_wanted())
}

/// Whether the caller is in the first name space of groups.
pub(crate) fn is_in_first_space() -> bool {
    get().is_none_or(|programs| programs.is_in_first_space())
}

/// Where the caller's tree begins.
pub(crate) fn view() -> Arc<Group> {
    get().and_then(|programs| programs.view()).unwrap_or_else(|| crate::tree::root().clone())
}
