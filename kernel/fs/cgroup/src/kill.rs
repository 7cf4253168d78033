//! Ending all processes of a group and below (`cgroup.kill`), those that they fork meanwhile among them.

use alloc::sync::Arc;

use vfs::{Error, Result};

use crate::group::Group;
use crate::{freezer, tree};

/// Writes to `cgroup.kill`.
pub(crate) fn kill(group: &Arc<Group>) -> Result<()> {
    if group.is_root() {
        return Err(Error::NotSupported);
    }
    let _tree = tree::lock(group)?;
    let groups = freezer::subtree(group)?;
    let mark = |by: i32| {
        for group in &groups {
            let mut members = group.members.lock();
            members.kills = members.kills.saturating_add_signed(by);
        }
    };
    // A fork either is in a list when that is looked at below, or sees the mark.
    mark(1);
    let killed = groups.iter().try_for_each(|group| {
        freezer::members(group)?.iter().for_each(|member| member.kill());
        Ok(())
    });
    mark(-1);
    killed
}
