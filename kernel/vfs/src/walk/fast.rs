//! The part of a walk that needs nobody's help: cached entries, directories that everybody may search or that the
//! credentials allow, mount points.
//!
//! Runs in one RCU read section over as many components as possible; no lock, no reference count and no store for any
//! of them. For a component it reads the parent's table, bucket and place of the entry, the entry's flags and inode,
//! and the inode's mode. What it can't do (a missing entry, a symbolic link, a volatile directory, `..` out of a
//! mount) it leaves to the slow step, at the component where it stopped.

use alloc::sync::Arc;

use memory::per_cpu::{Kept, Shared};
use sync::rcu::{self, RcuReadGuard};

use super::context::{PathContext, status_at};
use crate::attributes::{FileKind, FileStatus};
use crate::credentials::Credentials;
use crate::dentry::{Dentry, DentryFlags};
use crate::flags::{Access, LookupFlags};
use crate::mount::{Mount, Path};
use crate::name::{PATH_MAX, hash_name};
use crate::permission::check_access;
use crate::{Error, Result};

/// How far the fast part got.
pub(super) struct Progress {
    /// The place, if it moved.
    pub(super) place: Option<Path>,
    /// Bytes of the text that are done.
    pub(super) offset: usize,
    /// The name at the end is known not to exist, and it was the last one or its absence ends the walk.
    pub(super) absent: bool,
}

/// What a fast walk may do.
pub(super) struct Rules<'a> {
    pub(super) root: &'a Path,
    pub(super) credentials: &'a Credentials,
    pub(super) flags: LookupFlags,
    /// Stop before the last component.
    pub(super) keep_last: bool,
    /// No other text waits to be walked after this one.
    pub(super) is_last_text: bool,
}

/// Where the fast part got to, under RCU.
struct Reached<'guard> {
    mount: &'guard Shared<Mount>,
    dentry: &'guard Arc<Dentry>,
    offset: usize,
    absent: bool,
}

/// Walks from `start` along `text`, beginning at `offset`.
pub(super) fn walk(rules: &Rules<'_>, start: &Path, text: &[u8], offset: usize) -> Progress {
    let guard = rcu::read();
    let Reached { mount, dentry, offset: done, absent } = reach(rules, start, text, offset, &guard);
    let moved = !Arc::ptr_eq(dentry, &start.dentry) || !Shared::ptr_eq(mount, &start.mount);
    // Who learns that the name is absent has no use for the place.
    if absent || !moved {
        return Progress { place: None, offset: done, absent };
    }
    let place = Path::new(mount.clone(), dentry.keep(&guard));
    drop(guard);
    if !Kept::is_spread(&place.dentry) {
        place.dentry.note_user();
    }
    if !place.dentry.still_hashed() {
        // Evicted (or removed) just now: the slow steps go this way again.
        return Progress { place: None, offset, absent: false };
    }
    Progress { place: Some(place), offset: done, absent: false }
}

/// What `stat` shows, if the fast part gets to the end of the path: within one read section, so that it needs no reference to
/// the mount or the entry.
pub(super) fn status(
    context: &PathContext<'_>,
    start: &Path,
    path: &[u8],
    flags: LookupFlags,
) -> Option<Result<FileStatus>> {
    if path.is_empty() || path.len() >= PATH_MAX || !LookupFlags::FOLLOW.contains(flags) {
        return None;
    }
    let root = &context.places.root;
    let rules = Rules { root, credentials: context.credentials, flags, keep_last: false, is_last_text: true };
    let start = if path[0] == b'/' { root } else { start };
    let guard = rcu::read();
    let Reached { mount, dentry, offset, absent } = reach(&rules, start, path, 0, &guard);
    if absent {
        return Some(Err(Error::NotFound));
    }
    // Attributes of volatile files are computed, which may take longer than a read section.
    if !only_slashes(path, offset) || dentry.flags().contains(DentryFlags::VOLATILE) {
        return None;
    }
    let inode = dentry.inode()?;
    if path.last() == Some(&b'/') && inode.kind != FileKind::Directory {
        return Some(Err(Error::NotDirectory));
    }
    Some(Ok(status_at(mount, dentry, inode.status_at_hand()?)))
}

/// As far as the fast part gets from `start` along `text`, beginning at `offset`. Part of both callers: what they ask for is known there.
#[inline(always)]
fn reach<'guard>(
    rules: &Rules<'_>,
    start: &'guard Path,
    text: &[u8],
    offset: usize,
    guard: &'guard RcuReadGuard,
) -> Reached<'guard> {
    let (mut mount, mut dentry): (&Shared<Mount>, &Arc<Dentry>) = (&start.mount, &start.dentry);
    let mut done = offset;
    let mut absent = false;
    while let Some((name, end)) = next_component(text, done) {
        let rest_is_empty = only_slashes(text, end);
        let is_last = rest_is_empty && rules.is_last_text;
        if is_last && rules.keep_last {
            break;
        }
        let Some(directory) = dentry.inode() else { break };
        if directory.kind != FileKind::Directory
            || dentry.flags().contains(DentryFlags::VOLATILE)
            || check_access(directory, Access::EXECUTE, rules.credentials).is_err()
        {
            break;
        }
        if name[0] == b'.' && name.len() <= 2 && (name.len() == 1 || name[1] == b'.') {
            if name.len() == 2 {
                let at_root = Arc::ptr_eq(dentry, &rules.root.dentry) || Arc::ptr_eq(dentry, mount.root());
                let restricted = rules.flags.intersects(LookupFlags::BENEATH | LookupFlags::IN_ROOT);
                let Some(parent) = dentry.parent_under(guard) else { break };
                if at_root
                    || restricted
                    || !mount.is_whole()
                    || parent.flags().contains(DentryFlags::MOUNT_POINT)
                {
                    break;
                }
                dentry = parent;
            }
            done = end;
            continue;
        }
        let Some(child) = dentry.cached_child(name, hash_name(name), guard) else { break };
        child.mark_referenced();
        let Some(inode) = child.inode() else {
            // A name below an absent one is absent too; an absent last name is for the caller to create.
            absent = true;
            break;
        };
        if inode.kind == FileKind::SymbolicLink {
            let trailing = end < text.len();
            if !is_last || trailing || rules.flags.contains(LookupFlags::FOLLOW) {
                break;
            }
        }
        let (mut new_mount, mut new_dentry) = (mount, child);
        if child.flags().contains(DentryFlags::MOUNT_POINT) {
            if rules.flags.intersects(LookupFlags::NO_CROSSING | LookupFlags::NO_MOUNT_POINT) {
                break;
            }
            while new_dentry.flags().contains(DentryFlags::MOUNT_POINT) {
                let Some(mounted) = new_mount.mounted_on(new_dentry, guard) else { break };
                (new_mount, new_dentry) = (mounted, mounted.root());
            }
        }
        (mount, dentry) = (new_mount, new_dentry);
        done = end;
    }
    Reached { mount, dentry, offset: done, absent }
}

/// The next component at or after `offset`, and where it ends.
#[inline]
pub(super) fn next_component(text: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let rest = text.get(offset..)?;
    let start = offset + rest.iter().position(|&byte| byte != b'/')?;
    let rest = &text[start..];
    let end = start + rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    Some((&text[start..end], end))
}

/// Whether nothing but slashes is left.
#[inline]
pub(super) fn only_slashes(text: &[u8], offset: usize) -> bool {
    text[offset..].iter().all(|&byte| byte == b'/')
}
