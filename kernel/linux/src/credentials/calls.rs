//! The setuid family, groups and umask-free identity calls. Each change builds new credentials and installs them.

use alloc::vec::Vec;

use vfs::Capabilities;
use vfs::user_space::Ids::{Group, User};

use super::account::Account;
use super::identity::{Credentials, Ids};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// "Leave this id alone."
const KEEP: u32 = u32::MAX;
/// Most supplementary groups (NGROUPS_MAX of Linux).
const GROUPS_MAX: usize = 65536;

/// Real user id.
pub fn getuid(task: &mut Task) -> SysResult {
    Ok(task.credentials.space().shown_user(task.credentials.user.real) as usize)
}

/// Effective user id.
pub fn geteuid(task: &mut Task) -> SysResult {
    Ok(task.credentials.space().shown_user(task.credentials.user.effective) as usize)
}

/// Real group id.
pub fn getgid(task: &mut Task) -> SysResult {
    Ok(task.credentials.space().shown_group(task.credentials.group.real) as usize)
}

/// Effective group id.
pub fn getegid(task: &mut Task) -> SysResult {
    Ok(task.credentials.space().shown_group(task.credentials.group.effective) as usize)
}

fn change(
    task: &mut Task,
    edit: impl FnOnce(&Credentials, &mut Credentials) -> Result<(), Errno>,
) -> SysResult {
    let old = task.credentials.clone();
    let mut new = Credentials::clone(&old);
    edit(&old, &mut new)?;
    if new.user.real != old.user.real {
        new.account = Account::of(new.user.real)?;
    }
    task.install_credentials(memory::fallible::try_arc(new).map_err(|_| Errno::ENOMEM)?);
    Ok(0)
}

fn finish_user(old: &Credentials, new: &mut Credentials) {
    new.file.user = new.user.effective;
    new.adjust_after_user_change(&old.user);
}

/// Sets all user ids with CAP_SETUID, else the effective one.
pub fn setuid(task: &mut Task, id: u32) -> SysResult {
    let id = task.credentials.space().kernel_user(id).ok_or(Errno::EINVAL)?;
    change(task, |old, new| {
        if old.has_here(Capabilities::SETUID) {
            new.user = Ids::all(id);
        } else if id == old.user.real || id == old.user.saved {
            new.user.effective = id;
        } else {
            return Err(Errno::EPERM);
        }
        finish_user(old, new);
        Ok(())
    })
}

/// Sets all group ids with CAP_SETGID, else the effective one.
pub fn setgid(task: &mut Task, id: u32) -> SysResult {
    let id = task.credentials.space().kernel_group(id).ok_or(Errno::EINVAL)?;
    change(task, |old, new| {
        if old.has_here(Capabilities::SETGID) {
            new.group = Ids::all(id);
        } else if id == old.group.real || id == old.group.saved {
            new.group.effective = id;
        } else {
            return Err(Errno::EPERM);
        }
        new.file.group = new.group.effective;
        Ok(())
    })
}

/// The kernel's ids of what a program named; those that shall stay as they are stay.
fn kernel_ids<const N: usize>(
    task: &Task,
    kind: vfs::user_space::Ids,
    mut ids: [u32; N],
) -> Result<[u32; N], Errno> {
    for id in ids.iter_mut().filter(|id| **id != KEEP) {
        *id = task.credentials.space().kernel(kind, *id).ok_or(Errno::EINVAL)?;
    }
    Ok(ids)
}

fn real_effective(old: Ids, privileged: bool, real: u32, effective: u32) -> Result<Ids, Errno> {
    let mut new = old;
    if real != KEEP {
        if !privileged && real != old.real && real != old.effective {
            return Err(Errno::EPERM);
        }
        new.real = real;
    }
    if effective != KEEP {
        if !privileged && !old.holds(effective) {
            return Err(Errno::EPERM);
        }
        new.effective = effective;
    }
    if real != KEEP || (effective != KEEP && effective != old.real) {
        new.saved = new.effective;
    }
    Ok(new)
}

fn all_three(old: Ids, privileged: bool, ids: [u32; 3]) -> Result<Ids, Errno> {
    if !privileged && ids.iter().any(|&id| id != KEEP && !old.holds(id)) {
        return Err(Errno::EPERM);
    }
    let pick = |id, old| if id == KEEP { old } else { id };
    Ok(Ids {
        real: pick(ids[0], old.real),
        effective: pick(ids[1], old.effective),
        saved: pick(ids[2], old.saved),
    })
}

/// Sets real and effective user id.
pub fn setreuid(task: &mut Task, real: u32, effective: u32) -> SysResult {
    let [real, effective] = kernel_ids(task, User, [real, effective])?;
    change(task, |old, new| {
        new.user = real_effective(old.user, old.has_here(Capabilities::SETUID), real, effective)?;
        finish_user(old, new);
        Ok(())
    })
}

/// Sets real and effective group id.
pub fn setregid(task: &mut Task, real: u32, effective: u32) -> SysResult {
    let [real, effective] = kernel_ids(task, Group, [real, effective])?;
    change(task, |old, new| {
        new.group = real_effective(old.group, old.has_here(Capabilities::SETGID), real, effective)?;
        new.file.group = new.group.effective;
        Ok(())
    })
}

/// Sets real, effective and saved user id.
pub fn setresuid(task: &mut Task, real: u32, effective: u32, saved: u32) -> SysResult {
    let ids = kernel_ids(task, User, [real, effective, saved])?;
    change(task, |old, new| {
        new.user = all_three(old.user, old.has_here(Capabilities::SETUID), ids)?;
        finish_user(old, new);
        Ok(())
    })
}

/// Sets real, effective and saved group id.
pub fn setresgid(task: &mut Task, real: u32, effective: u32, saved: u32) -> SysResult {
    let ids = kernel_ids(task, Group, [real, effective, saved])?;
    change(task, |old, new| {
        new.group = all_three(old.group, old.has_here(Capabilities::SETGID), ids)?;
        new.file.group = new.group.effective;
        Ok(())
    })
}

fn write_ids(ids: Ids, shown: impl Fn(u32) -> u32, real: u64, effective: u64, saved: u64) -> SysResult {
    UserPointer::<u32>::new(real).write(&shown(ids.real))?;
    UserPointer::<u32>::new(effective).write(&shown(ids.effective))?;
    UserPointer::<u32>::new(saved).write(&shown(ids.saved))?;
    Ok(0)
}

/// Reads the three user ids.
pub fn getresuid(task: &mut Task, real: u64, effective: u64, saved: u64) -> SysResult {
    write_ids(task.credentials.user, |id| task.credentials.space().shown_user(id), real, effective, saved)
}

/// Reads the three group ids.
pub fn getresgid(task: &mut Task, real: u64, effective: u64, saved: u64) -> SysResult {
    write_ids(task.credentials.group, |id| task.credentials.space().shown_group(id), real, effective, saved)
}

/// Sets the file-system user id; returns the old one in any case.
pub fn setfsuid(task: &mut Task, id: u32) -> SysResult {
    let before = task.credentials.file.user;
    let shown = task.credentials.space().shown_user(before);
    let Some(id) = task.credentials.space().kernel_user(id) else { return Ok(shown as usize) };
    let allowed =
        task.credentials.user.holds(id) || id == before || task.credentials.has_here(Capabilities::SETUID);
    if allowed && id != before {
        change(task, |_, new| {
            new.file.user = id;
            new.adjust_after_file_user_change(before);
            Ok(())
        })?;
    }
    Ok(shown as usize)
}

/// Sets the file-system group id; returns the old one in any case.
pub fn setfsgid(task: &mut Task, id: u32) -> SysResult {
    let before = task.credentials.file.group;
    let shown = task.credentials.space().shown_group(before);
    let Some(id) = task.credentials.space().kernel_group(id) else { return Ok(shown as usize) };
    let allowed =
        task.credentials.group.holds(id) || id == before || task.credentials.has_here(Capabilities::SETGID);
    if allowed && id != before {
        change(task, |_, new| {
            new.file.group = id;
            Ok(())
        })?;
    }
    Ok(shown as usize)
}

/// Reads the supplementary groups.
pub fn getgroups(task: &mut Task, room: i32, list: u64) -> SysResult {
    let groups: &[u32] = task.credentials.file.groups.as_deref().map_or(&[], Vec::as_slice);
    if room < 0 || (room != 0 && (room as usize) < groups.len()) {
        return Err(Errno::EINVAL);
    }
    let space = task.credentials.space();
    if room > 0 && space.is_first() {
        UserPointer::<u32>::new(list).write_slice(groups)?;
    } else if room > 0 {
        for (index, &group) in groups.iter().enumerate() {
            UserPointer::<u32>::new(list).add(index).write(&space.shown_group(group))?;
        }
    }
    Ok(groups.len())
}

/// Sets the supplementary groups.
pub fn setgroups(task: &mut Task, count: i32, list: u64) -> SysResult {
    let space = task.credentials.space();
    if !task.credentials.has_here(Capabilities::SETGID) || !space.may_set_groups() {
        return Err(Errno::EPERM);
    }
    if count < 0 || count as usize > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut groups: Vec<u32> = UserPointer::<u32>::new(list).read_vector(count as usize)?;
    for group in &mut groups {
        *group = space.kernel_group(*group).ok_or(Errno::EINVAL)?;
    }
    sorting::sort(&mut groups);
    let groups = match groups.is_empty() {
        true => None,
        false => Some(memory::fallible::try_arc(groups).map_err(|_| Errno::ENOMEM)?),
    };
    change(task, |_, new| {
        new.file.groups = groups;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Ids = Ids { real: 10, effective: 20, saved: 30 };

    #[test]
    fn setreuid_saves_the_effective_id_when_it_leaves_the_real_one() {
        assert_eq!(real_effective(OLD, false, KEEP, 10), Ok(Ids { real: 10, effective: 10, saved: 30 }));
        assert_eq!(real_effective(OLD, false, 20, KEEP), Ok(Ids { real: 20, effective: 20, saved: 20 }));
        assert_eq!(real_effective(OLD, false, 30, KEEP), Err(Errno::EPERM));
        assert_eq!(real_effective(OLD, true, 99, 98), Ok(Ids { real: 99, effective: 98, saved: 98 }));
    }

    #[test]
    fn setresuid_only_permutes_without_privilege() {
        assert_eq!(all_three(OLD, false, [30, 10, KEEP]), Ok(Ids { real: 30, effective: 10, saved: 30 }));
        assert_eq!(all_three(OLD, false, [30, 11, KEEP]), Err(Errno::EPERM));
    }
}
