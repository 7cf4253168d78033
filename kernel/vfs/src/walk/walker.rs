//! The walk itself: fast as far as possible, then one slow step, and again.
//!
//! # Rules (path_resolution(7), openat2(2))
//! - At most 40 symbolic links (`ELOOP`), 255 bytes a name and 4095 a path (`ENAMETOOLONG`).
//! - A trailing slash means that the last component must be a directory, and follows it if it is a link.
//! - `..` of the root is the root; `..` of a mount's root is the parent of the mount point.
//! - `RESOLVE_BENEATH` fails with `EXDEV` where the walk would leave the start; `RESOLVE_IN_ROOT` makes the start the
//!   root. Both fail with `EAGAIN` when a rename happened while `..` was walked.
//! - Every directory that a name is looked up in must be searchable.
//!
//! Text that is left to walk is a stack: the path as given at the bottom, targets of links above. A link whose rest is
//! empty is popped before its target is pushed, so every text but the top one has a component left.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use smallvec::SmallVec;
use sync::rcu;

use super::context::PathContext;
use super::entry::find_entry;
use super::fast::{self, Rules, next_component, only_slashes};
use crate::attributes::FileKind;
use crate::dentry::Dentry;
use crate::flags::{Access, LookupFlags, MountFlags};
use crate::inode::LinkTarget;
use crate::mount::Path;
use crate::name::{NAME_MAX, Name, PATH_MAX};
use crate::permission::check_access;
use crate::{Error, Result, allocation, sticky};

/// Symbolic links that one walk follows.
const LINKS_MAX: u32 = 40;

enum Text<'a> {
    Given(&'a [u8]),
    Link(Arc<[u8]>),
}

impl Text<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Given(bytes) => bytes,
            Text::Link(bytes) => bytes,
        }
    }
}

struct Segment<'a> {
    text: Text<'a>,
    offset: usize,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastName {
    /// A name.
    Name(Name),
    /// `.`
    Current,
    /// `..`
    Parent,
    /// None: the path is `/` or only slashes.
    Root,
}

/// Where a walk to the parent ended.
pub(crate) struct Last {
    /// The last component.
    pub(crate) name: LastName,
    /// Whether slashes followed it.
    pub(crate) trailing_slash: bool,
}

/// A walk under way.
pub(crate) struct Walker<'a> {
    context: &'a PathContext<'a>,
    /// What `..` does not lead beyond.
    root: &'a Path,
    flags: LookupFlags,
    segments: SmallVec<[Segment<'a>; 2]>,
    place: Cow<'a, Path>,
    links: u32,
    renames: u64,
}

impl<'a> Walker<'a> {
    /// A walk along `path`, from `start` when it is relative.
    pub(crate) fn new(
        context: &'a PathContext<'a>,
        start: &'a Path,
        path: &'a [u8],
        flags: LookupFlags,
    ) -> Result<Self> {
        if path.len() >= PATH_MAX {
            return Err(Error::NameTooLong);
        }
        if path.is_empty() && !flags.contains(LookupFlags::EMPTY_PATH) {
            return Err(Error::NotFound);
        }
        let scoped = flags.intersects(LookupFlags::BENEATH | LookupFlags::IN_ROOT);
        let root = if scoped { start } else { &context.places.root };
        let absolute = path.first() == Some(&b'/');
        if absolute && flags.contains(LookupFlags::BENEATH) {
            return Err(Error::CrossDevice);
        }
        let place = Cow::Borrowed(if absolute { root } else { start });
        let mut segments = SmallVec::new();
        segments.push(Segment { text: Text::Given(path), offset: 0 });
        let renames = if scoped { Dentry::rename_count() } else { 0 };
        Ok(Self { context, root, flags, segments, place, links: 0, renames })
    }

    /// Walks to the end.
    pub(crate) fn finish(mut self) -> Result<Path> {
        let mut must_be_directory = self.flags.contains(LookupFlags::DIRECTORY);
        while let Some(last) = self.advance(false)? {
            let follow = self.flags.contains(LookupFlags::FOLLOW) || last.trailing_slash;
            must_be_directory |= last.trailing_slash;
            self.step(&last, follow)?;
        }
        let given = self.segments.first().map_or(&[][..], |segment| segment.text.as_bytes());
        must_be_directory |= given.last() == Some(&b'/');
        let place = self.place.into_owned();
        if must_be_directory && place.inode()?.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(place)
    }

    /// Walks to the directory of the last component and returns that.
    pub(crate) fn stop_at_parent(&mut self) -> Result<Last> {
        loop {
            match self.advance(true)? {
                None => return Ok(Last { name: LastName::Root, trailing_slash: false }),
                Some(component) if component.is_last => {
                    let directory = self.place.inode()?;
                    if directory.kind != FileKind::Directory {
                        return Err(Error::NotDirectory);
                    }
                    check_access(directory, Access::EXECUTE, self.context.credentials)?;
                    return Ok(Last { trailing_slash: component.trailing_slash, name: component.name });
                }
                Some(component) => self.step(&component, true)?,
            }
        }
    }

    /// The place reached.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Goes fast as far as possible; then returns the component at which it stopped, `None` at the end.
    fn advance(&mut self, keep_last: bool) -> Result<Option<Component>> {
        let is_last_text = self.segments.len() == 1;
        let Some(segment) = self.segments.last_mut() else { return Ok(None) };
        let rules = Rules {
            root: self.root,
            credentials: self.context.credentials,
            flags: self.flags,
            keep_last,
            is_last_text,
        };
        let progress = fast::walk(&rules, &self.place, segment.text.as_bytes(), segment.offset);
        segment.offset = progress.offset;
        if let Some(place) = progress.place {
            self.place = Cow::Owned(place);
        }
        if progress.absent {
            return Err(Error::NotFound);
        }
        let text = segment.text.as_bytes();
        let Some((name, end)) = next_component(text, segment.offset) else {
            if is_last_text {
                return Ok(None);
            }
            self.segments.pop();
            return self.advance(keep_last);
        };
        let rest_is_empty = only_slashes(text, end);
        let component = Component {
            name: Component::classify(name)?,
            is_last: rest_is_empty && is_last_text,
            trailing_slash: rest_is_empty && is_last_text && end < text.len(),
        };
        if !(component.is_last && keep_last) {
            segment.offset = end;
        }
        Ok(Some(component))
    }

    /// One component, with everything that can come up.
    fn step(&mut self, component: &Component, follow: bool) -> Result<()> {
        let directory = self.place.inode()?;
        if directory.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        directory.operations().refresh(directory);
        check_access(directory, Access::EXECUTE, self.context.credentials)?;
        match &component.name {
            LastName::Root | LastName::Current => Ok(()),
            LastName::Parent => self.climb(),
            LastName::Name(name) => self.descend(name.as_bytes(), component, follow),
        }
    }

    fn descend(&mut self, name: &[u8], component: &Component, follow: bool) -> Result<()> {
        if self.flags.contains(LookupFlags::CACHED) {
            return Err(Error::WouldBlock);
        }
        let dentry = find_entry(&self.place.dentry, name)?;
        let below = Path::new(self.place.mount.clone(), dentry);
        let below = if component.is_last && self.flags.contains(LookupFlags::NO_MOUNT_POINT) {
            below
        } else {
            self.cross(below)?
        };
        let inode = below.inode()?;
        if inode.kind == FileKind::SymbolicLink && (follow || !component.is_last) {
            return self.follow(&below);
        }
        self.place = Cow::Owned(below);
        Ok(())
    }

    /// Steps onto what is mounted.
    fn cross(&self, place: Path) -> Result<Path> {
        let before = place.mount.id();
        let place = place.onto_mounts();
        if place.mount.id() != before && self.flags.contains(LookupFlags::NO_CROSSING) {
            return Err(Error::CrossDevice);
        }
        Ok(place)
    }

    /// `..`
    fn climb(&mut self) -> Result<()> {
        loop {
            if self.place.same(self.root) {
                return if self.flags.contains(LookupFlags::BENEATH) {
                    Err(Error::CrossDevice)
                } else {
                    Ok(())
                };
            }
            if !self.place.is_mount_root() {
                break;
            }
            let above = {
                let guard = rcu::read();
                self.place
                    .mount
                    .attached_at(&guard)
                    .map(|(mount, point)| Path::new(mount.clone(), point.clone()))
            };
            let Some(above) = above else { return Ok(()) };
            if self.flags.contains(LookupFlags::NO_CROSSING) {
                return Err(Error::CrossDevice);
            }
            self.place = Cow::Owned(above);
        }
        let Some(parent) = self.place.dentry.parent() else { return Ok(()) };
        if !self.place.mount.shows(&parent) {
            return Err(Error::NotFound);
        }
        let parent = self.cross(Path::new(self.place.mount.clone(), parent))?;
        let scoped = self.flags.intersects(LookupFlags::BENEATH | LookupFlags::IN_ROOT);
        if scoped && Dentry::rename_count() != self.renames {
            return Err(Error::WouldBlock);
        }
        self.place = Cow::Owned(parent);
        Ok(())
    }

    /// Puts a link's target in front of what is left to walk. The place stays the link's directory, or becomes the
    /// root, or where a magic link leads.
    pub(crate) fn follow(&mut self, link: &Path) -> Result<()> {
        let inode = link.inode()?;
        if self.flags.contains(LookupFlags::NO_LINKS)
            || link.mount.flags().contains(MountFlags::NO_LINKS)
            || self.links >= LINKS_MAX
        {
            return Err(Error::Loop);
        }
        self.links += 1;
        self.pop_finished();
        if self.segments.is_empty() {
            sticky::check_following(self.place.inode()?, inode, self.context.credentials)?;
        }
        let target = inode.operations().link_target(inode)?;
        crate::time::accessed_at(link, inode);
        match target {
            LinkTarget::Jump(place) => {
                if self.flags.contains(LookupFlags::NO_MAGIC_LINKS) {
                    return Err(Error::Loop);
                }
                if self.flags.intersects(LookupFlags::BENEATH | LookupFlags::IN_ROOT) {
                    return Err(Error::CrossDevice);
                }
                self.change_mount(place)
            }
            LinkTarget::Text(text) => self.push_target(text),
        }
    }

    fn push_target(&mut self, text: Arc<[u8]>) -> Result<()> {
        if text.is_empty() {
            return Err(Error::NotFound);
        }
        if text[0] == b'/' {
            if self.flags.contains(LookupFlags::BENEATH) {
                return Err(Error::CrossDevice);
            }
            let root = self.root.clone();
            self.change_mount(root)?;
        }
        if self.segments.len() == self.segments.capacity() {
            allocation::fail_point()?;
            self.segments.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        }
        self.segments.push(Segment { text: Text::Link(text), offset: 0 });
        Ok(())
    }

    fn change_mount(&mut self, place: Path) -> Result<()> {
        if self.flags.contains(LookupFlags::NO_CROSSING) && place.mount.id() != self.place.mount.id() {
            return Err(Error::CrossDevice);
        }
        self.place = Cow::Owned(place);
        Ok(())
    }

    /// Drops texts that have no component left. The bottom one stays if its trailing slash must be remembered; it is
    /// recognised by having nothing but slashes left.
    fn pop_finished(&mut self) {
        while let Some(segment) = self.segments.last() {
            if !only_slashes(segment.text.as_bytes(), segment.offset) {
                return;
            }
            if segment.offset < segment.text.as_bytes().len() {
                self.flags |= LookupFlags::DIRECTORY;
            }
            self.segments.pop();
        }
    }

    /// For creation: the last component turned out to be a link that is to be followed; it was not consumed.
    pub(crate) fn follow_last(&mut self, link: &Path) -> Result<()> {
        if let Some(segment) = self.segments.last_mut()
            && let Some((_, end)) = next_component(segment.text.as_bytes(), segment.offset)
        {
            segment.offset = end;
        }
        self.follow(link)
    }

    /// The place, when a magic link led to it and nothing is left to walk.
    pub(crate) fn at_end(&self) -> Option<Path> {
        self.segments.is_empty().then(|| self.place.clone().into_owned())
    }

    /// Whether a trailing slash was met, also one after a link that was followed since.
    pub(crate) fn wants_directory(&self) -> bool {
        self.flags.contains(LookupFlags::DIRECTORY)
    }
}

/// A component at which the fast part stopped.
struct Component {
    name: LastName,
    is_last: bool,
    trailing_slash: bool,
}

impl Component {
    fn classify(name: &[u8]) -> Result<LastName> {
        Ok(match name {
            b"." => LastName::Current,
            b".." => LastName::Parent,
            _ if name.len() > NAME_MAX => return Err(Error::NameTooLong),
            _ => LastName::Name(Name::new(name)?),
        })
    }
}
