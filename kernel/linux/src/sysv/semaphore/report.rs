//! `/proc/sysvipc/sem`: a line for each set.

use core::fmt::Write;

use crate::name_space::view_of_reader;
use crate::sysv::space::IpcSpace;

const HEADING: &str =
    "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n";

/// Writes it.
///
/// # Errors
/// What the formatter returns.
pub fn write_report(space: &IpcSpace, out: &mut dyn Write) -> core::fmt::Result {
    out.write_str(HEADING)?;
    let view = view_of_reader();
    let mut result = Ok(());
    space.sets.for_each(|set, key, id| {
        let status = set.status(key, view.viewer());
        let permissions = &status.permissions;
        let line = writeln!(
            out,
            "{key:10} {id:10}  {:4o} {:10} {:5} {:5} {:5} {:5} {:10} {:10}",
            permissions.mode,
            status.semaphores,
            permissions.user,
            permissions.group,
            permissions.creator_user,
            permissions.creator_group,
            status.operated,
            status.changed,
        );
        result = result.and(line);
    });
    result
}
