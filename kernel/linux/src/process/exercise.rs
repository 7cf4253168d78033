//! Processes without threads, for tests of the table on a machine that runs no programs.

use alloc::sync::Arc;

use super::group::{ProcessGroup, Session};
use super::limits;
use super::process::{Inheritance, Process};
use super::table::Pid;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::signal::actions::SignalActions;

/// Makes such processes.
pub struct Maker {
    group: Arc<ProcessGroup>,
    actions: Arc<SignalActions>,
    credentials: Arc<Credentials>,
}

impl Maker {
    /// All its processes will be of one group, which nobody can find.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        let no_memory = |_| Errno::ENOMEM;
        Ok(Self {
            group: ProcessGroup::new(0, Session::new(0)?)?,
            actions: SignalActions::new().and_then(memory::fallible::try_arc).map_err(no_memory)?,
            credentials: memory::fallible::try_arc(Credentials::root()?).map_err(no_memory)?,
        })
    }

    /// A process with this number that is in no list and not in the table.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn make(&self, pid: Pid) -> Result<Arc<Process>, Errno> {
        let process = Process::new(Inheritance {
            pid,
            space: None,
            parent: None,
            exit_signal: 0,
            group: self.group.clone(),
            actions: self.actions.clone(),
            address_space: None,
            limits: limits::initial(1),
            executable: Default::default(),
            credentials: self.credentials.clone(),
            name: Default::default(),
        });
        memory::fallible::try_arc(process).map_err(|_| Errno::ENOMEM)
    }
}
