//! POSIX access control lists: what a file permits to more users and groups than its mode has room for.
//!
//! A list has an entry for the owner, for the owning group and for all others, any number for single users and groups, and then a *mask*, the
//! most that the entries of groups and single users give. Programs see it as the value of an extended attribute (version 2), file systems
//! keep it in a form of their own. A file's mode shows the list: the owner's and the others' entries, and the mask where the group's bits
//! are. A directory may have a second, *default* list, which files that are made in it begin with.
//!
//! # In memory
//! The list that permissions are checked with hangs on the inode and is read under RCU. Most files have none, which is a bit beside their
//! mode: see [`InodeHead`](crate::inode::InodeHead).

use alloc::vec::Vec;

use crate::credentials::Credentials;
use crate::user_space::UserSpace;
use crate::{Error, Result, allocation};

/// The attribute that shows a file's list.
const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// The attribute that shows a directory's default list.
const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";
/// The version of the form that programs use.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// What entries that name nobody have for an id.
const NOBODY: u32 = u32::MAX;

/// Which of a file's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The one that says who may do what with the file.
    Access,
    /// The one that files made in the directory begin with.
    Default,
}

impl ListKind {
    /// The list that an extended attribute shows.
    pub fn of_attribute(name: &[u8]) -> Option<Self> {
        match name {
            ACCESS_NAME => Some(Self::Access),
            DEFAULT_NAME => Some(Self::Default),
            _ => None,
        }
    }

    /// The name of the extended attribute that shows it.
    pub const fn attribute(self) -> &'static [u8] {
        match self {
            Self::Access => ACCESS_NAME,
            Self::Default => DEFAULT_NAME,
        }
    }
}

/// Whom an entry is about. In this order they stand in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Who {
    /// The file's owner.
    Owner = 0x01,
    /// A user by number.
    User = 0x02,
    /// The file's group.
    OwningGroup = 0x04,
    /// A group by number.
    Group = 0x08,
    /// Nobody: the most that users, groups and the owning group may.
    Mask = 0x10,
    /// Who is none of these.
    Others = 0x20,
}

impl Who {
    /// From its number, which is the same in programs and on disks.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0x01 => Self::Owner,
            0x02 => Self::User,
            0x04 => Self::OwningGroup,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Others,
            _ => return None,
        })
    }

    /// Whether an entry has the number of a user or group.
    pub const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it is about.
    pub who: Who,
    /// What they may: three bits as in a mode.
    pub access: u16,
    /// The user or group, of entries that name one.
    pub id: u32,
}

/// A list that may not be sound: [`check`](Self::check) tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AccessList(Vec<Entry>);

impl AccessList {
    /// No entries yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an entry behind the others.
    ///
    /// # Errors
    /// No memory.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let id = if entry.who.is_named() { entry.id } else { NOBODY };
        allocation::push(&mut self.0, Entry { id, ..entry })
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// A copy.
    ///
    /// # Errors
    /// No memory.
    pub fn try_clone(&self) -> Result<Self> {
        let mut copy = Vec::new();
        allocation::reserve(&mut copy, self.0.len())?;
        copy.extend_from_slice(&self.0);
        Ok(Self(copy))
    }

    /// What a program gave as an attribute's value; `None` for one without entries.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another version, `EINVAL` for what is no list.
    pub fn from_value(value: &[u8]) -> Result<Option<Self>> {
        let (version, entries) = value.split_first_chunk::<HEADER_BYTES>().ok_or(Error::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::NotSupported);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(Error::Invalid);
        }
        let mut list = Self::new();
        allocation::reserve(&mut list.0, entries.len())?;
        for &[who0, who1, access0, access1, id @ ..] in entries {
            let who = Who::from_number(u16::from_le_bytes([who0, who1])).ok_or(Error::Invalid)?;
            let id = u32::from_le_bytes(id);
            if who.is_named() && id == NOBODY {
                return Err(Error::Invalid);
            }
            list.push(Entry { who, access: u16::from_le_bytes([access0, access1]), id })?;
        }
        Ok((!list.0.is_empty()).then_some(list))
    }

    /// Writes the value that programs see into `buffer`, nothing if that is empty; returns its length.
    ///
    /// # Errors
    /// `ERANGE` if it does not fit.
    pub fn to_value(&self, buffer: &mut [u8]) -> Result<usize> {
        let length = HEADER_BYTES + self.0.len() * ENTRY_BYTES;
        if buffer.is_empty() {
            return Ok(length);
        }
        let value = buffer.get_mut(..length).ok_or(Error::Range)?;
        let (header, entries) = value.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&VERSION.to_le_bytes());
        for (bytes, entry) in entries.chunks_exact_mut(ENTRY_BYTES).zip(&self.0) {
            bytes[..2].copy_from_slice(&(entry.who as u16).to_le_bytes());
            bytes[2..4].copy_from_slice(&entry.access.to_le_bytes());
            bytes[4..].copy_from_slice(&entry.id.to_le_bytes());
        }
        Ok(length)
    }

    /// Replaces ids by what they are called in a name space of users; the list is only to be shown after that.
    pub(crate) fn show_in(&mut self, space: &UserSpace) {
        for entry in &mut self.0 {
            match entry.who {
                Who::User => entry.id = space.shown_user(entry.id),
                Who::Group => entry.id = space.shown_group(entry.id),
                _ => {}
            }
        }
    }

    /// Replaces what ids are called in a name space of users by the kernel's ids.
    ///
    /// # Errors
    /// `EINVAL` for ids that it does not know.
    pub(crate) fn take_from(&mut self, space: &UserSpace) -> Result<()> {
        for entry in &mut self.0 {
            match entry.who {
                Who::User => entry.id = space.kernel_user(entry.id).ok_or(Error::Invalid)?,
                Who::Group => entry.id = space.kernel_group(entry.id).ok_or(Error::Invalid)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether it is a list: the entries in order, one each of the owner, the owning group and the others, and a mask if
    /// anybody is named.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn check(&self) -> Result<()> {
        let mut rest = self.0.iter().peekable();
        let mut named = false;
        if self.0.iter().any(|entry| entry.access & !7 != 0) {
            return Err(Error::Invalid);
        }
        rest.next_if(|entry| entry.who == Who::Owner).ok_or(Error::Invalid)?;
        while rest.next_if(|entry| entry.who == Who::User).is_some() {
            named = true;
        }
        rest.next_if(|entry| entry.who == Who::OwningGroup).ok_or(Error::Invalid)?;
        while rest.next_if(|entry| entry.who == Who::Group).is_some() {
            named = true;
        }
        if rest.next_if(|entry| entry.who == Who::Mask).is_none() && named {
            return Err(Error::Invalid);
        }
        rest.next_if(|entry| entry.who == Who::Others).ok_or(Error::Invalid)?;
        if rest.next().is_some() { Err(Error::Invalid) } else { Ok(()) }
    }

    fn access_of(&self, who: Who) -> Option<u32> {
        self.0.iter().find(|entry| entry.who == who).map(|entry| u32::from(entry.access))
    }

    /// The permission bits that show it, and whether they say everything that it says.
    pub(crate) fn mode(&self) -> (u32, bool) {
        let of = |who| self.access_of(who).unwrap_or(0);
        let mask = self.access_of(Who::Mask);
        let group = mask.unwrap_or_else(|| of(Who::OwningGroup));
        let says_all = mask.is_none() && !self.0.iter().any(|entry| entry.who.is_named());
        (of(Who::Owner) << 6 | group << 3 | of(Who::Others), says_all)
    }

    /// Which entry stands for the group's bits of the mode.
    fn group_bits(&self) -> Who {
        if self.access_of(Who::Mask).is_some() { Who::Mask } else { Who::OwningGroup }
    }

    /// Changes the entries that the mode shows as `chmod` changes the mode. Whether any of them was another one before.
    pub(crate) fn change_mode(&mut self, mode: u32) -> bool {
        let group = self.group_bits();
        let mut changed = false;
        for entry in &mut self.0 {
            let access = match entry.who {
                Who::Owner => mode >> 6,
                Who::Others => mode,
                who if who == group => mode >> 3,
                _ => continue,
            } as u16
                & 7;
            changed |= entry.access != access;
            entry.access = access;
        }
        changed
    }

    /// Begins a new file with this list, a directory's default one: what the mode that is asked for does not have, the
    /// entries that it shows lose. Returns the file's mode.
    fn limit(&mut self, mode: u32) -> u32 {
        let group = self.group_bits();
        for entry in &mut self.0 {
            entry.access &= match entry.who {
                Who::Owner => mode >> 6,
                Who::Others => mode,
                who if who == group => mode >> 3,
                _ => continue,
            } as u16;
        }
        mode & !0o777 | self.mode().0
    }

    /// Whether it grants `wanted` to somebody who is not the owner.
    ///
    /// # Errors
    /// `EACCES` if not, `EIO` if the list has no entry for the others.
    pub(crate) fn grants(&self, wanted: u32, group: u32, credentials: &Credentials) -> Result<()> {
        let decide = |granted: bool| if granted { Ok(()) } else { Err(Error::AccessDenied) };
        let has = |entry: &Entry| u32::from(entry.access) & wanted == wanted;
        let within_mask = || decide(self.access_of(Who::Mask).is_none_or(|mask| mask & wanted == wanted));
        let mut member = false;
        for entry in &self.0 {
            match entry.who {
                Who::Owner | Who::Mask => {}
                Who::User if entry.id == credentials.user => {
                    return if has(entry) { within_mask() } else { Err(Error::AccessDenied) };
                }
                Who::User => {}
                Who::OwningGroup | Who::Group => {
                    let id = if entry.who == Who::Group { entry.id } else { group };
                    if credentials.in_group(id) {
                        member = true;
                        if has(entry) {
                            return within_mask();
                        }
                    }
                }
                Who::Others => return decide(!member && has(entry)),
            }
        }
        Err(Error::Io)
    }
}

/// The lists that a new file has from its directory.
#[derive(Debug)]
pub struct NewLists {
    /// Who may do what with it; `None` if its mode says so.
    pub access: Option<AccessList>,
    /// What it hands on, if it is a directory.
    pub default: Option<AccessList>,
}

impl NewLists {
    /// Those of a file in a directory with a default list, and the file's mode.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn inherit(default: AccessList, is_directory: bool, mode: u32) -> Result<(Self, u32)> {
        let mut access = default.try_clone()?;
        let mode = access.limit(mode);
        let says_all = access.mode().1;
        let lists = Self { access: (!says_all).then_some(access), default: is_directory.then_some(default) };
        Ok((lists, mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(Who, u16, u32)]) -> AccessList {
        AccessList(entries.iter().map(|&(who, access, id)| Entry { who, access, id }).collect())
    }

    fn sample() -> AccessList {
        list(&[
            (Who::Owner, 7, NOBODY),
            (Who::User, 6, 1000),
            (Who::OwningGroup, 5, NOBODY),
            (Who::Group, 6, 50),
            (Who::Mask, 4, NOBODY),
            (Who::Others, 1, NOBODY),
        ])
    }

    #[test]
    fn values_come_back_as_they_were() {
        let mut buffer = [0; 64];
        let length = sample().to_value(&mut buffer).unwrap();
        assert_eq!(length, 4 + 6 * 8);
        assert_eq!(AccessList::from_value(&buffer[..length]), Ok(Some(sample())));
        assert_eq!(sample().to_value(&mut []), Ok(length));
        assert_eq!(sample().to_value(&mut buffer[..length - 1]), Err(Error::Range));
        assert_eq!(AccessList::from_value(&buffer[..4]), Ok(None));
        assert_eq!(AccessList::from_value(&buffer[..5]), Err(Error::Invalid));
        assert_eq!(AccessList::from_value(&[]), Err(Error::Invalid));
        assert_eq!(AccessList::from_value(&[1, 0, 0, 0]), Err(Error::NotSupported));
    }

    #[test]
    fn a_list_has_its_entries_in_order_and_a_mask_for_those_it_names() {
        assert_eq!(sample().check(), Ok(()));
        for left_out in 0..6 {
            let mut damaged = sample();
            damaged.0.remove(left_out);
            let named = matches!(sample().0[left_out].who, Who::User | Who::Group);
            assert_eq!(damaged.check().is_ok(), named, "without entry {left_out}");
        }
        for first in 0..5 {
            let mut turned = sample();
            turned.0.swap(first, first + 1);
            assert_eq!(turned.check(), Err(Error::Invalid));
        }
        let mut wide = sample();
        wide.0[1].access = 8;
        assert_eq!(wide.check(), Err(Error::Invalid));
        assert_eq!(list(&[]).check(), Err(Error::Invalid));
    }

    #[test]
    fn the_mask_limits_all_but_owner_and_others() {
        let of = |user, group| Credentials::ordinary(user, group);
        let list = sample();
        assert_eq!(list.grants(4, 7, &of(1000, 1)), Ok(()));
        assert_eq!(list.grants(2, 7, &of(1000, 1)), Err(Error::AccessDenied));
        assert_eq!(list.grants(4, 7, &of(1, 7)), Ok(()));
        assert_eq!(list.grants(1, 7, &of(1, 7)), Err(Error::AccessDenied));
        assert_eq!(list.grants(2, 7, &of(1, 50)), Err(Error::AccessDenied));
        assert_eq!(list.grants(1, 7, &of(1, 1)), Ok(()));
        assert_eq!(list.grants(4, 7, &of(1, 1)), Err(Error::AccessDenied));
    }

    #[test]
    fn the_mode_shows_the_mask_and_changes_it() {
        let mut list = sample();
        assert_eq!(list.mode(), (0o741, false));
        assert!(list.change_mode(0o620));
        assert!(!list.change_mode(0o620));
        assert_eq!(list.mode().0, 0o620);
        assert_eq!(list.access_of(Who::OwningGroup), Some(5));
    }

    #[test]
    fn a_new_file_has_what_both_the_default_list_and_its_maker_give() {
        let (lists, mode) = NewLists::inherit(sample(), false, 0o100666).unwrap();
        assert_eq!(mode, 0o100640);
        assert_eq!(lists.access.unwrap().mode().0, 0o640);
        assert_eq!(lists.default, None);
        let plain = self::list(&[(Who::Owner, 7, 0), (Who::OwningGroup, 5, 0), (Who::Others, 0, 0)]);
        let (lists, mode) = NewLists::inherit(plain, true, 0o777).unwrap();
        assert_eq!((mode, lists.access), (0o750, None));
        assert!(lists.default.is_some());
    }
}
