//! `/proc/sysvipc/msg`: a line for each queue.

use core::fmt::Write;

use crate::name_space::view_of_reader;
use crate::sysv::space::IpcSpace;

const HEADING: &str = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n";

/// Writes it.
///
/// # Errors
/// What the formatter returns.
pub fn write_report(space: &IpcSpace, out: &mut dyn Write) -> core::fmt::Result {
    out.write_str(HEADING)?;
    let view = view_of_reader();
    let mut result = Ok(());
    space.queues.for_each(|queue, key, id| {
        let status = queue.status(key, view.viewer());
        let permissions = &status.permissions;
        let line = writeln!(
            out,
            "{key:10} {id:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10}",
            permissions.mode,
            status.bytes,
            status.messages,
            status.last_sender,
            status.last_receiver,
            permissions.user,
            permissions.group,
            permissions.creator_user,
            permissions.creator_group,
            status.sent,
            status.received,
            status.changed,
        );
        result = result.and(line);
    });
    result
}
