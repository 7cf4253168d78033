//! Who may do what with an object: owner, creator and mode, as sysvipc(7) has it.

use vfs::{Capabilities, UserSpace};

use crate::abi::IpcPermissions;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;

/// The permission bits of a mode.
pub const MODE_BITS: u32 = 0o777;
/// All may read: what looking at an object takes.
pub const READ: u32 = 0o444;
/// All may write.
pub const WRITE: u32 = 0o222;

/// Ids and mode of an object.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    /// Who owns it; changed by IPC_SET.
    pub user: u32,
    /// Its group; changed by IPC_SET.
    pub group: u32,
    /// Who made it.
    pub creator_user: u32,
    /// The group of who made it.
    pub creator_group: u32,
    /// Permission bits, and above them what the kind of object notes.
    pub mode: u32,
}

impl Permissions {
    /// Of a new object of the caller's.
    pub fn new(caller: &Credentials, mode: u32) -> Permissions {
        let (user, group) = (caller.user.effective, caller.group.effective);
        Permissions { user, group, creator_user: user, creator_group: group, mode: mode & MODE_BITS }
    }

    /// Whether the caller is the owner or the creator.
    fn is_owned_by(&self, caller: &Credentials) -> bool {
        [self.user, self.creator_user].contains(&caller.user.effective)
    }

    /// Fails with EACCES unless the caller may do what the bits of `wanted` say, whichever class they are in. `space`: the name space of users that the
    /// object's own belongs to.
    pub fn check(&self, caller: &Credentials, space: &UserSpace, wanted: u32) -> Result<(), Errno> {
        let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
        let granted = if self.is_owned_by(caller) {
            self.mode >> 6
        } else if caller.file.in_group(self.creator_group) || caller.file.in_group(self.group) {
            self.mode >> 3
        } else {
            self.mode
        };
        match wanted & !granted == 0 || caller.has_in(space, Capabilities::IPC_OWNER) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }

    /// Fails with EPERM unless the caller may change or remove the object.
    pub fn check_control(&self, caller: &Credentials, space: &UserSpace) -> Result<(), Errno> {
        if self.is_owned_by(caller) { Ok(()) } else { caller.require_in(space, Capabilities::SYS_ADMIN) }
    }

    /// Fails with EPERM unless the caller is the owner or the creator.
    pub fn check_owner(&self, caller: &Credentials) -> Result<(), Errno> {
        if self.is_owned_by(caller) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// IPC_SET: takes owner, group and permission bits over. Fails with EINVAL for ids that the caller's name space of users does not know.
    pub fn set(&mut self, new: &IpcPermissions, space: &UserSpace) -> Result<(), Errno> {
        let user = space.kernel_user(new.user).ok_or(Errno::EINVAL)?;
        let group = space.kernel_group(new.group).ok_or(Errno::EINVAL)?;
        (self.user, self.group) = (user, group);
        self.mode = self.mode & !MODE_BITS | new.mode & MODE_BITS;
        Ok(())
    }

    /// The same with ids as a program in a name space of users sees them.
    pub fn seen_in(&self, space: &UserSpace) -> Permissions {
        Permissions {
            user: space.shown_user(self.user),
            group: space.shown_group(self.group),
            creator_user: space.shown_user(self.creator_user),
            creator_group: space.shown_group(self.creator_group),
            mode: self.mode,
        }
    }

    /// As programs see it.
    pub fn to_user(&self, key: i32, id: i32) -> IpcPermissions {
        IpcPermissions {
            key,
            user: self.user,
            group: self.group,
            creator_user: self.creator_user,
            creator_group: self.creator_group,
            mode: self.mode,
            sequence: super::registry::sequence_of(id),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(user: u32, group: u32) -> Credentials {
        let mut credentials = Credentials::root().expect("memory");
        credentials.user.effective = user;
        credentials.group.effective = group;
        credentials.file = vfs::Credentials::ordinary(user, group);
        credentials
    }

    #[test]
    fn classes_are_owner_group_and_others() {
        let permissions = Permissions::new(&someone(1, 10), 0o640);
        let asks =
            |user, group, wanted| permissions.check(&someone(user, group), UserSpace::FIRST, wanted).is_ok();
        assert!(asks(1, 99, READ | WRITE));
        assert!(asks(2, 10, READ));
        assert!(!asks(2, 10, WRITE));
        assert!(!asks(2, 11, READ));
        assert!(asks(2, 11, 0));
        assert!(
            permissions.check(&Credentials::root().expect("memory"), UserSpace::FIRST, READ | WRITE).is_ok()
        );
    }

    #[test]
    fn creators_keep_control_after_giving_an_object_away() {
        let mut permissions = Permissions::new(&someone(1, 10), 0o600);
        let new = IpcPermissions { user: 2, group: 20, mode: 0o7644, ..Default::default() };
        permissions.mode |= 0o1000;
        assert_eq!(permissions.set(&new, UserSpace::FIRST), Ok(()));
        assert_eq!(permissions.mode, 0o1644);
        assert!(permissions.check_control(&someone(1, 10), UserSpace::FIRST).is_ok());
        assert!(permissions.check_control(&someone(2, 10), UserSpace::FIRST).is_ok());
        assert_eq!(permissions.check_control(&someone(3, 10), UserSpace::FIRST), Err(Errno::EPERM));
        assert_eq!(
            permissions.set(&IpcPermissions { user: u32::MAX, ..new }, UserSpace::FIRST),
            Err(Errno::EINVAL)
        );
    }
}
