//! Who asks: the part of a process's credentials that file permission checks read.
//!
//! The personality owns the full set (real, effective, saved ids) and embeds this one, which holds the
//! *file-system* ids and the effective capabilities. For `access(2)` it builds one from the real ids.

use alloc::sync::Arc;
use alloc::vec::Vec;
use bitflags::bitflags;
use machine::set_once::SetOnce;

use crate::inode::InodeHead;
use crate::user_space::UserSpace;

bitflags! {
    /// Capabilities, numbered as in `capabilities(7)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Capabilities: u64 {
        /// Change owners of files.
        const CHOWN = 1 << 0;
        /// Bypass read, write and execute permission checks.
        const DAC_OVERRIDE = 1 << 1;
        /// Bypass read checks, and read and search checks of directories.
        const DAC_READ_SEARCH = 1 << 2;
        /// Bypass checks that want the caller to own the file.
        const FOWNER = 1 << 3;
        /// Keep set-user-id and set-group-id bits when a file is modified.
        const FSETID = 1 << 4;
        /// Send signals to any process.
        const KILL = 1 << 5;
        /// Change group ids.
        const SETGID = 1 << 6;
        /// Change user ids.
        const SETUID = 1 << 7;
        /// Change capability sets.
        const SETPCAP = 1 << 8;
        /// Set immutable and append-only attributes.
        const LINUX_IMMUTABLE = 1 << 9;
        /// Bind to privileged ports.
        const NET_BIND_SERVICE = 1 << 10;
        /// Broadcast.
        const NET_BROADCAST = 1 << 11;
        /// Administer the network.
        const NET_ADMIN = 1 << 12;
        /// Use raw sockets.
        const NET_RAW = 1 << 13;
        /// Lock memory.
        const IPC_LOCK = 1 << 14;
        /// Bypass checks on System V IPC objects.
        const IPC_OWNER = 1 << 15;
        /// Load modules.
        const SYS_MODULE = 1 << 16;
        /// Raw I/O.
        const SYS_RAWIO = 1 << 17;
        /// Change the root directory.
        const SYS_CHROOT = 1 << 18;
        /// Trace any process.
        const SYS_PTRACE = 1 << 19;
        /// Process accounting.
        const SYS_PACCT = 1 << 20;
        /// Administer the system: mounts, trusted attributes, …
        const SYS_ADMIN = 1 << 21;
        /// Reboot.
        const SYS_BOOT = 1 << 22;
        /// Raise priorities.
        const SYS_NICE = 1 << 23;
        /// Exceed resource limits.
        const SYS_RESOURCE = 1 << 24;
        /// Set the clock.
        const SYS_TIME = 1 << 25;
        /// Configure terminals.
        const SYS_TTY_CONFIG = 1 << 26;
        /// Make device nodes.
        const MKNOD = 1 << 27;
        /// Establish leases.
        const LEASE = 1 << 28;
        /// Write the audit log.
        const AUDIT_WRITE = 1 << 29;
        /// Control auditing.
        const AUDIT_CONTROL = 1 << 30;
        /// Set file capabilities.
        const SETFCAP = 1 << 31;
        /// Override mandatory access control.
        const MAC_OVERRIDE = 1 << 32;
        /// Configure mandatory access control.
        const MAC_ADMIN = 1 << 33;
        /// Privileged syslog operations.
        const SYSLOG = 1 << 34;
        /// Wake alarms.
        const WAKE_ALARM = 1 << 35;
        /// Block suspend.
        const BLOCK_SUSPEND = 1 << 36;
        /// Read the audit log.
        const AUDIT_READ = 1 << 37;
        /// Performance monitoring.
        const PERFMON = 1 << 38;
        /// Load programs into the kernel.
        const BPF = 1 << 39;
        /// Checkpoint and restore.
        const CHECKPOINT_RESTORE = 1 << 40;
    }
}

/// The credentials that file operations are checked against. Cloning takes one atomic increment when
/// there are supplementary groups, none otherwise.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The file-system user id.
    pub user: u32,
    /// The file-system group id.
    pub group: u32,
    /// Supplementary groups, sorted ascending.
    pub groups: Option<Arc<Vec<u32>>>,
    /// The effective capabilities: those in `space`.
    pub capabilities: Capabilities,
    /// The name space of users. Ids are those of the first one, whichever it is.
    pub space: UserSpace,
}

impl Credentials {
    /// The superuser with all capabilities: kernel-internal work and the first process.
    pub const fn root() -> Self {
        Self { user: 0, group: 0, groups: None, capabilities: Capabilities::all(), space: UserSpace::new() }
    }

    /// An ordinary user without capabilities or supplementary groups.
    pub const fn ordinary(user: u32, group: u32) -> Self {
        Self { user, group, groups: None, capabilities: Capabilities::empty(), space: UserSpace::new() }
    }

    /// Whether `group` is the file-system group or a supplementary one.
    #[inline]
    pub fn in_group(&self, group: u32) -> bool {
        self.group == group || self.groups.as_ref().is_some_and(|list| list.binary_search(&group).is_ok())
    }

    /// Whether it has all of `wanted` over the whole system: nobody in a later name space of users has any.
    #[inline]
    pub const fn has(&self, wanted: Capabilities) -> bool {
        self.space.is_first() && self.capabilities.contains(wanted)
    }

    /// Whether it has all of `wanted` over what belongs to its own name space of users.
    #[inline]
    pub const fn has_here(&self, wanted: Capabilities) -> bool {
        self.capabilities.contains(wanted)
    }

    /// Whether it has all of `wanted` over what belongs to a name space of users.
    pub fn has_in(&self, space: &UserSpace, wanted: Capabilities) -> bool {
        self.has_in_as(self.user, space, wanted)
    }

    /// The same for who acts as another user than it opens files by.
    #[inline]
    pub fn has_in_as(&self, user: u32, space: &UserSpace, wanted: Capabilities) -> bool {
        if space.is_same(&self.space) { self.has_here(wanted) } else { self.has_below(user, space, wanted) }
    }

    #[inline(never)]
    fn has_below(&self, user: u32, space: &UserSpace, wanted: Capabilities) -> bool {
        let mut space = space;
        while let Some(parent) = space.parent().filter(|_| space.level() > self.space.level()) {
            if parent.is_same(&self.space) {
                return space.owner() == user || self.has_here(wanted);
            }
            space = parent;
        }
        false
    }

    /// Whether it has all of `wanted` over a file: in its own name space, if that knows the file's owners.
    #[inline]
    pub fn has_over(&self, inode: &InodeHead, wanted: Capabilities) -> bool {
        self.has_over_owned(inode.user(), inode.group(), wanted)
    }

    /// The same for a file with these owners.
    #[inline]
    pub fn has_over_owned(&self, user: u32, group: u32, wanted: Capabilities) -> bool {
        self.capabilities.contains(wanted) && self.space.knows(user, group)
    }
}

/// Calls what it is given with the credentials of the program that the kernel works for now, if it works for one.
pub type ShowCaller = fn(&mut dyn FnMut(&Credentials));

static CALLER: SetOnce<ShowCaller> = SetOnce::new();

/// Registers how to learn who the program is that the kernel works for now: for the few operations
/// that must know and are not told who asks. Once, at start-up.
pub fn register_caller(show: ShowCaller) {
    CALLER.set(show);
}

/// Whether the program that the kernel works for now is as wanted; false for the kernel's own threads.
#[cold]
pub fn caller_is(wanted: impl Fn(&Credentials) -> bool) -> bool {
    let mut is = false;
    if let Some(show) = CALLER.get() {
        show(&mut |credentials| is = wanted(credentials));
    }
    is
}

/// Whether the program that the kernel works for now has these capabilities; false for the kernel's own threads.
#[cold]
pub fn caller_has(wanted: Capabilities) -> bool {
    caller_is(|credentials| credentials.has(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplementary_groups_count() {
        let mut someone = Credentials::ordinary(7, 8);
        assert!(someone.in_group(8));
        assert!(!someone.in_group(9));
        someone.groups = Some(Arc::new(alloc::vec![3, 9, 12]));
        assert!(someone.in_group(9));
        assert!(!someone.in_group(10));
    }
}
