//! `/proc/sysvipc/shm`: a line for each segment.

use core::fmt::Write;

use machine::address::PAGE_SIZE;

use crate::name_space::view_of_reader;
use crate::sysv::space::IpcSpace;

const HEADING: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
                       atime      dtime      ctime                   rss                  swap\n";

/// Writes it.
///
/// # Errors
/// What the formatter returns.
pub fn write_report(space: &IpcSpace, out: &mut dyn Write) -> core::fmt::Result {
    out.write_str(HEADING)?;
    let view = view_of_reader();
    let mut result = Ok(());
    space.segments.for_each(|segment, key, id| {
        let status = segment.status(key, view.viewer());
        let permissions = &status.permissions;
        let resident = segment.resident_pages() * PAGE_SIZE as u64;
        let line = writeln!(
            out,
            "{key:10} {id:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10} {resident:21} {:21}",
            permissions.mode,
            status.bytes,
            status.creator,
            status.last_process,
            status.attachments,
            permissions.user,
            permissions.group,
            permissions.creator_user,
            permissions.creator_group,
            status.attached,
            status.detached,
            status.changed,
            0,
        );
        result = result.and(line);
    });
    result
}
