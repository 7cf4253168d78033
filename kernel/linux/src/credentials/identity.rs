//! The credentials of a thread.
//!
//! A [`Credentials`] object never changes: a call that changes ids builds a new one and swaps the thread's pointer, so that
//! reading one's own credentials takes neither lock nor atomic. Rules for capabilities on id changes and on execve are those of
//! capabilities(7); securebits as in prctl(2).

use alloc::sync::Arc;

use vfs::file_capabilities::FileCapabilities;
use vfs::{Capabilities, Credentials as FileCredentials, UserSpace};

use super::account::Account;
use crate::errno::Errno;

bitflags::bitflags! {
    /// `securebits`: switch off the special treatment of user 0.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SecureBits: u32 {
        /// User 0 gains no capabilities on execve.
        const NOROOT = 1 << 0;
        /// NOROOT can no longer change.
        const NOROOT_LOCKED = 1 << 1;
        /// Changes of user ids leave the capabilities alone.
        const NO_SETUID_FIXUP = 1 << 2;
        /// NO_SETUID_FIXUP can no longer change.
        const NO_SETUID_FIXUP_LOCKED = 1 << 3;
        /// Keep permitted capabilities when the last user id 0 goes.
        const KEEP_CAPS = 1 << 4;
        /// KEEP_CAPS can no longer change.
        const KEEP_CAPS_LOCKED = 1 << 5;
        /// No ambient capability can be raised.
        const NO_CAP_AMBIENT_RAISE = 1 << 6;
        /// NO_CAP_AMBIENT_RAISE can no longer change.
        const NO_CAP_AMBIENT_RAISE_LOCKED = 1 << 7;
    }
}

/// Three ids: real, effective, saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// In whose name it acts.
    pub effective: u32,
    /// What the effective id may return to.
    pub saved: u32,
}

impl Ids {
    /// All three the same.
    pub const fn all(id: u32) -> Ids {
        Ids { real: id, effective: id, saved: id }
    }

    /// Whether `id` is one of them.
    pub const fn holds(&self, id: u32) -> bool {
        self.real == id || self.effective == id || self.saved == id
    }
}

/// What a program file gives to who executes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileGives {
    /// Its owner, with the set-user-ID bit.
    pub user: Option<u32>,
    /// Its group, with the set-group-ID bit.
    pub group: Option<u32>,
    /// Capabilities.
    pub capabilities: Option<FileCapabilities>,
    /// What keeps the process from gaining any of it.
    pub restraint: Restraint,
}

/// What keeps a process from gaining privileges by a program's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restraint {
    /// Nothing.
    #[default]
    None,
    /// Somebody else has a hand in it: a tracer without privileges, or who shares its root and working directory. It gets other ids only if it may take
    /// any (CAP_SETUID), and of capabilities those that it has.
    Unsafe,
    /// It has given up gaining any (PR_SET_NO_NEW_PRIVS): neither ids nor capabilities.
    NoNewPrivileges,
}

/// Who a thread acts for and what it may do.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Credentials {
    /// User ids.
    pub user: Ids,
    /// Group ids.
    pub group: Ids,
    /// File-system ids, supplementary groups, the effective capabilities, and the name space of users. All ids are the kernel's, also those above.
    pub file: FileCredentials,
    /// Permitted capabilities.
    pub permitted: Capabilities,
    /// Inheritable capabilities.
    pub inheritable: Capabilities,
    /// Upper bound of what execve can give.
    pub bounding: Capabilities,
    /// Kept over execve of unprivileged programs.
    pub ambient: Capabilities,
    /// Exceptions from the rules for user 0.
    pub secure_bits: SecureBits,
    /// Counts of the real user: the process's own handle.
    pub account: Arc<Account>,
}

impl Credentials {
    /// Those of the first process.
    pub fn root() -> Result<Credentials, Errno> {
        Ok(Credentials {
            user: Ids::all(0),
            group: Ids::all(0),
            file: FileCredentials::root(),
            permitted: Capabilities::all(),
            inheritable: Capabilities::empty(),
            bounding: Capabilities::all(),
            ambient: Capabilities::empty(),
            secure_bits: SecureBits::empty(),
            account: Account::of(0)?,
        })
    }

    /// The same for a new process: a copy, so that references to it are counted where only that process does.
    pub fn for_child(&self) -> Result<Arc<Credentials>, Errno> {
        let copy = Credentials { account: self.account.another()?, ..self.clone() };
        memory::fallible::try_arc(copy).map_err(|_| Errno::ENOMEM)
    }

    /// Whether the capability is effective for the whole system.
    pub fn has(&self, capability: Capabilities) -> bool {
        self.file.has(capability)
    }

    /// Whether it is effective in the caller's own name space of users.
    pub fn has_here(&self, capability: Capabilities) -> bool {
        self.file.has_here(capability)
    }

    /// Whether it is effective for what belongs to a name space of users.
    pub fn has_in(&self, space: &UserSpace, capability: Capabilities) -> bool {
        self.file.has_in_as(self.user.effective, space, capability)
    }

    /// Fails with EPERM without the capability for what belongs to a name space of users.
    pub fn require_in(&self, space: &UserSpace, capability: Capabilities) -> Result<(), Errno> {
        if self.has_in(space, capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// The name space of users.
    pub fn space(&self) -> &UserSpace {
        &self.file.space
    }

    /// Whether an id is that of user 0 of its name space.
    fn is_root(&self, user: u32) -> bool {
        self.file.space.kernel_user(0) == Some(user)
    }

    fn holds_root(&self, ids: &Ids) -> bool {
        self.file.space.kernel_user(0).is_some_and(|root| ids.holds(root))
    }

    /// The same in another name space of users, as who may do everything there.
    pub fn entering(&self, space: UserSpace) -> Credentials {
        let mut new = self.clone();
        new.file.space = space;
        new.file.capabilities = Capabilities::all();
        new.permitted = Capabilities::all();
        new.inheritable = Capabilities::empty();
        new.bounding = Capabilities::all();
        new.ambient = Capabilities::empty();
        new.secure_bits = SecureBits::empty();
        new
    }

    /// Whether who has these has nothing that who has `new` would not have.
    pub fn is_above(&self, new: &Credentials) -> bool {
        if self.file.space.is_same(&new.file.space) {
            return self.permitted.contains(new.permitted);
        }
        let mut space = &new.file.space;
        while let Some(parent) = space.parent() {
            if parent.is_same(&self.file.space) && space.owner() == self.user.effective {
                return true;
            }
            space = parent;
        }
        false
    }

    /// Fails with EPERM without the capability.
    pub fn require(&self, capability: Capabilities) -> Result<(), Errno> {
        if self.has(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// As permission checks of access(2) see the process: by its real ids.
    pub fn file_with_real_ids(&self) -> FileCredentials {
        let capabilities =
            if self.is_root(self.user.real) && !self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
                self.permitted
            } else if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
                self.file.capabilities
            } else {
                Capabilities::empty()
            };
        FileCredentials {
            user: self.user.real,
            group: self.group.real,
            groups: self.file.groups.clone(),
            capabilities,
            space: self.file.space.clone(),
        }
    }

    /// Whether a process with these credentials may signal one with those of `target`.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let mine = [self.user.effective, self.user.real];
        mine.contains(&target.user.saved)
            || mine.contains(&target.user.real)
            || self.has_in(target.space(), Capabilities::KILL)
    }

    /// Adjusts the capabilities after user ids changed from `old`.
    pub fn adjust_after_user_change(&mut self, old: &Ids) {
        if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
            return;
        }
        let had_root = self.holds_root(old);
        if had_root && !self.holds_root(&self.user) {
            if !self.secure_bits.contains(SecureBits::KEEP_CAPS) {
                self.permitted = Capabilities::empty();
                self.file.capabilities = Capabilities::empty();
            }
            self.ambient = Capabilities::empty();
        }
        let (was_root, is_root) = (self.is_root(old.effective), self.is_root(self.user.effective));
        if was_root && !is_root {
            self.file.capabilities = Capabilities::empty();
        }
        if !was_root && is_root {
            self.file.capabilities = self.permitted;
        }
    }

    /// Adjusts the effective file capabilities after the file-system user id changed from `old`.
    pub fn adjust_after_file_user_change(&mut self, old: u32) {
        if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
            return;
        }
        let file = Capabilities::CHOWN
            | Capabilities::DAC_OVERRIDE
            | Capabilities::DAC_READ_SEARCH
            | Capabilities::FOWNER
            | Capabilities::FSETID
            | Capabilities::LINUX_IMMUTABLE
            | Capabilities::MKNOD
            | Capabilities::MAC_OVERRIDE;
        let (was_root, is_root) = (self.is_root(old), self.is_root(self.file.user));
        if was_root && !is_root {
            self.file.capabilities.remove(file);
        } else if !was_root && is_root {
            self.file.capabilities |= self.permitted & file;
        }
    }

    /// The credentials after execve of a program whose file gives this. Also says whether the program gained privileges (AT_SECURE).
    ///
    /// # Errors
    /// EPERM for a program that would not notice that it lacks a capability which its file gives: one that has what it gets effective at once.
    pub fn after_exec(&self, file: &FileGives) -> Result<(Credentials, bool), Errno> {
        let mut new = self.clone();
        new.user.effective = file.user.unwrap_or(new.user.effective);
        new.group.effective = file.group.unwrap_or(new.group.effective);
        let mut is_effective = false;
        new.permitted = Capabilities::empty();
        if let Some(given) = &file.capabilities {
            new.permitted = self.bounding & given.permitted | self.inheritable & given.inheritable;
            is_effective = given.effective;
            if is_effective && !new.permitted.contains(given.permitted) {
                return Err(Errno::EPERM);
            }
        }
        // A set-user-ID-root program with capabilities of its own has those only, if it is not root who executes it.
        let is_root_only_by_file =
            file.capabilities.is_some() && self.is_root(new.user.effective) && !self.is_root(new.user.real);
        if !self.secure_bits.contains(SecureBits::NOROOT) && !is_root_only_by_file {
            if self.is_root(new.user.effective) || self.is_root(new.user.real) {
                new.permitted = self.inheritable | self.bounding;
            }
            is_effective |= self.is_root(new.user.effective);
        }
        let privileged_ids =
            new.user.effective != self.user.effective || !self.file.in_group(new.group.effective);
        let gains = privileged_ids || !self.permitted.contains(new.permitted);
        if gains && file.restraint != Restraint::None {
            if file.restraint == Restraint::NoNewPrivileges || !self.has_here(Capabilities::SETUID) {
                new.user.effective = new.user.real;
                new.group.effective = new.group.real;
            }
            new.permitted &= self.permitted;
        }
        let changed_ids =
            privileged_ids || new.user.effective != self.user.real || new.group.effective != self.group.real;
        new.user.saved = new.user.effective;
        new.group.saved = new.group.effective;
        new.file.user = new.user.effective;
        new.file.group = new.group.effective;
        if file.capabilities.is_some() || privileged_ids {
            new.ambient = Capabilities::empty();
        }
        new.permitted |= new.ambient;
        new.file.capabilities = if is_effective { new.permitted } else { new.ambient };
        new.secure_bits.remove(SecureBits::KEEP_CAPS);
        let has_more = is_effective || !new.ambient.contains(new.permitted);
        Ok((new, changed_ids || !self.is_root(self.user.real) && has_more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Credentials {
        Credentials::root().expect("memory")
    }

    #[test]
    fn leaving_user_zero_drops_capabilities_unless_kept() {
        let mut credentials = root();
        let old = credentials.user;
        credentials.user = Ids::all(1000);
        credentials.adjust_after_user_change(&old);
        assert!(credentials.permitted.is_empty());
        assert!(!credentials.has(Capabilities::KILL));

        let mut kept = root();
        kept.secure_bits |= SecureBits::KEEP_CAPS;
        kept.user = Ids::all(1000);
        kept.adjust_after_user_change(&old);
        assert!(kept.permitted.contains(Capabilities::KILL));
        assert!(!kept.has(Capabilities::KILL), "the effective set goes in any case");
    }

    #[test]
    fn effective_zero_returns_with_its_capabilities() {
        let mut credentials = root();
        let old = credentials.user;
        credentials.user.effective = 1000;
        credentials.adjust_after_user_change(&old);
        assert!(!credentials.has(Capabilities::CHOWN));
        let old = credentials.user;
        credentials.user.effective = 0;
        credentials.adjust_after_user_change(&old);
        assert!(credentials.has(Capabilities::CHOWN));
    }

    #[test]
    fn set_user_id_programs_gain_root_and_are_secure() {
        let mut user = root();
        let old = user.user;
        user.user = Ids::all(1000);
        user.adjust_after_user_change(&old);
        let (program, secure) =
            user.after_exec(&FileGives { user: Some(0), ..FileGives::default() }).expect("allowed");
        assert!(secure);
        assert_eq!(program.user, Ids { real: 1000, effective: 0, saved: 0 });
        assert!(program.has(Capabilities::SYS_ADMIN));
        let (program, secure) = user.after_exec(&FileGives::default()).expect("allowed");
        assert!(!secure);
        assert_eq!(program.user.effective, 1000);
    }

    fn giving(permitted: Capabilities, inheritable: Capabilities, effective: bool) -> FileGives {
        let capabilities = FileCapabilities { permitted, inheritable, effective, root: 0 };
        FileGives { capabilities: Some(capabilities), ..FileGives::default() }
    }

    #[test]
    fn files_give_capabilities_within_the_bounding_set() {
        let none = Capabilities::empty();
        let mut user = root();
        (user.user, user.file.user) = (Ids::all(1000), 1000);
        (user.permitted, user.file.capabilities) = (none, none);
        let (program, secure) = user.after_exec(&giving(Capabilities::NET_RAW, none, true)).expect("allowed");
        assert!(secure && program.has(Capabilities::NET_RAW));
        let (program, _) = user.after_exec(&giving(Capabilities::NET_RAW, none, false)).expect("allowed");
        assert_eq!((program.permitted, program.file.capabilities), (Capabilities::NET_RAW, none));

        user.inheritable = Capabilities::CHOWN;
        let file = giving(none, Capabilities::CHOWN | Capabilities::KILL, true);
        let (program, _) = user.after_exec(&file).expect("allowed");
        assert_eq!(program.permitted, Capabilities::CHOWN);

        user.bounding = none;
        let refused = user.after_exec(&giving(Capabilities::NET_RAW, none, true));
        assert_eq!(refused.err(), Some(Errno::EPERM), "it could not know");
        let (program, _) = user.after_exec(&giving(Capabilities::NET_RAW, none, false)).expect("allowed");
        assert!(program.permitted.is_empty());
    }

    #[test]
    fn who_has_given_up_privileges_gains_none_from_files() {
        let none = Capabilities::empty();
        let mut user = root();
        (user.user, user.permitted, user.file.capabilities) = (Ids::all(1000), Capabilities::CHOWN, none);
        let file = FileGives {
            restraint: Restraint::NoNewPrivileges,
            ..giving(Capabilities::NET_RAW | Capabilities::CHOWN, none, true)
        };
        let (program, _) = user.after_exec(&file).expect("allowed");
        assert_eq!(program.permitted, Capabilities::CHOWN);
    }

    #[test]
    fn capabilities_of_a_set_user_id_root_program_are_all_it_has() {
        let none = Capabilities::empty();
        let mut user = root();
        (user.user, user.permitted, user.file.capabilities) = (Ids::all(1000), none, none);
        let file = FileGives { user: Some(0), ..giving(Capabilities::NET_RAW, none, true) };
        let (program, _) = user.after_exec(&file).expect("allowed");
        assert_eq!((program.user.effective, program.permitted), (0, Capabilities::NET_RAW));
        let (program, _) = root().after_exec(&file).expect("allowed");
        assert_eq!(program.permitted, Capabilities::all(), "root has all in any case");
    }

    #[test]
    fn signals_need_a_common_user_or_the_capability() {
        let boss = root();
        let mut user = root();
        user.user = Ids::all(1000);
        user.file.capabilities = Capabilities::empty();
        assert!(boss.may_signal(&user));
        assert!(!user.may_signal(&boss));
        assert!(user.may_signal(&user));
    }
}
