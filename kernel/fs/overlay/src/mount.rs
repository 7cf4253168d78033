//! Making an instance: finding the layers, and getting the work directory ready.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::sync::atomic::AtomicU64;

use memory::per_cpu::Shared;
use vfs::attributes::FileSystemStatus;
use vfs::flags::{LookupFlags, MountFlags};
use vfs::inode::{NewFile, SetAttribute};
use vfs::mount::{Mount, Path};
use vfs::name::Name;
use vfs::permission::check_removal;
use vfs::superblock::{
    FileSystemType, MountedBy, STACKED_MAX, Superblock, SuperblockOperations, SuperblockTraits,
    anonymous_device,
};
use vfs::tree::layer;
use vfs::{Capabilities, Credentials, DeviceNumber, Error, FileKind, PathContext, Result, allocation};

use crate::attributes::OPAQUE;
use crate::instance::{Layer, Overlay, Upper, may_change};
use crate::node::find;
use crate::options::Options;
use crate::work::clear;

/// What `statfs` calls it.
const MAGIC: u64 = 0x794c_7630;

/// Directories within each other in what a crash leaves in the work directory.
const WORK_DEPTH: u32 = 2;

/// Grace periods that the inodes in memory are waited for at the end: each gives back one directory more of a chain.
const END_ROUNDS: usize = 64;

/// The type `overlay`, to be registered at start-up.
pub static OVERLAY: OverlayType = OverlayType(());

/// The type of [`OVERLAY`].
pub struct OverlayType(());

fn refuse<T>(why: &str) -> Result<T> {
    log::warn!("overlay: {why}");
    Err(Error::Invalid)
}

/// Where layers are, before any of it is made.
struct Places {
    upper: Option<(Path, Path)>,
    lowers: Vec<Path>,
}

impl Places {
    fn find(context: &PathContext<'_>, options: &Options) -> Result<Self> {
        let walk = |path: &Vec<u8>| {
            let place = context.walk(&context.places.cwd, path, LookupFlags::FOLLOW)?;
            if place.inode()?.kind == FileKind::Directory {
                Ok(place)
            } else {
                refuse("a layer is no directory")
            }
        };
        let upper = match (&options.upper, &options.work) {
            (Some(upper), Some(work)) => Some((walk(upper)?, walk(work)?)),
            _ => None,
        };
        let mut lowers = Vec::new();
        for path in &options.lowers {
            allocation::push(&mut lowers, walk(path)?)?;
        }
        let places = Self { upper, lowers };
        places.check()?;
        Ok(places)
    }

    fn check(&self) -> Result<()> {
        if let Some((upper, work)) = &self.upper {
            if upper.mount.read_only() {
                return refuse("the upper layer can only be read");
            }
            if !Shared::ptr_eq(&upper.mount, &work.mount) {
                return refuse("upperdir and workdir must be on one mount");
            }
            if upper.dentry.is_below(&work.dentry) || work.dentry.is_below(&upper.dentry) {
                return refuse("upperdir and workdir must not be in each other");
            }
            if upper.mount.superblock().traits().stacked > 0 {
                return refuse("an overlay can't be the upper layer");
            }
            let overlaps = |lower: &&Path| {
                [upper, work]
                    .into_iter()
                    .any(|own| own.dentry.is_below(&lower.dentry) || lower.dentry.is_below(&own.dentry))
            };
            if self.lowers.iter().any(|lower| overlaps(&lower)) {
                log::warn!("overlay: a lower layer overlaps with the upper one or the work directory");
                return Err(Error::Loop);
            }
        }
        Ok(())
    }

    /// The height of the pile.
    fn stacked(&self) -> Result<u8> {
        let below = self.lowers.iter().map(|lower| lower.mount.superblock().traits().stacked).max();
        let stacked = below.unwrap_or(0) + 1;
        if stacked > STACKED_MAX { refuse("too many overlays on each other") } else { Ok(stacked) }
    }

    fn make(&self, options: &Options, stacked: u8, mounter: Option<&Credentials>) -> Result<Overlay> {
        let mut devices: Vec<(Arc<Superblock>, DeviceNumber)> = Vec::new();
        let mut layer = |place: &Path, flags: MountFlags| -> Result<Layer> {
            let superblock = place.mount.superblock();
            let known = devices.iter().find(|(other, _)| Arc::ptr_eq(other, superblock));
            let device = match known {
                Some((_, device)) => *device,
                None => {
                    let device = anonymous_device();
                    allocation::push(&mut devices, (superblock.clone(), device))?;
                    device
                }
            };
            let mount = Mount::new(superblock.clone(), Arc::clone(&place.dentry), b"overlay", flags)?;
            Ok(Layer { mount, root: Arc::clone(&place.dentry), device })
        };
        let upper = match &self.upper {
            Some((upper, work)) => {
                let layer = layer(upper, MountFlags::RELATIVE_ACCESS_TIME)?;
                let work = match prepare_work(&layer.place(&work.dentry), mounter) {
                    Ok(work) => Some(work),
                    Err(Error::AccessDenied | Error::NotPermitted) => {
                        log::warn!("overlay: the work directory can't be written, so nothing will be");
                        None
                    }
                    Err(error) => return Err(error),
                };
                let mounter = mounter.cloned();
                Some(Upper { layer, work, mounter, names: AtomicU64::new(0), volatile: options.volatile })
            }
            None => None,
        };
        let mut lowers = Vec::new();
        for place in &self.lowers {
            let flags = MountFlags::READ_ONLY | MountFlags::NO_ACCESS_TIME;
            allocation::push(&mut lowers, layer(place, flags)?)?;
        }
        Ok(Overlay::new(upper, lowers, stacked))
    }
}

/// Empties `work` in the work directory, or makes it; and sees whether the file system can keep what is needed.
fn prepare_work(place: &Path, mounter: Option<&Credentials>) -> Result<Arc<vfs::dentry::Dentry>> {
    let name = Name::new(b"work")?;
    may_change(place.inode()?, mounter)?;
    let work = match find(&place.dentry, name.as_bytes())? {
        Some(work) => work,
        None => {
            let new = NewFile {
                kind: FileKind::Directory,
                mode: 0,
                access_lists: None,
                user: mounter.map_or(0, |mounter| mounter.user),
                group: mounter.map_or(0, |mounter| mounter.group),
                special: DeviceNumber::default(),
                target: &[],
            };
            layer::create(place, &name, &new)?
        }
    };
    let inode = work.existing()?;
    if let Some(mounter) = mounter {
        check_removal(place.inode()?, inode, mounter)?;
    }
    if inode.kind != FileKind::Directory {
        return refuse("the work directory has a file `work`");
    }
    clear(&Path::new(place.mount.clone(), work.clone()), WORK_DEPTH, mounter)?;
    let kept = inode.operations().set_extended_attribute(inode, OPAQUE, b"0", SetAttribute::Any);
    if kept.is_err() {
        return refuse("the upper layer's file system keeps no extended attributes");
    }
    Ok(work)
}

/// What the file layer asks of an overlay as a whole.
struct Operations {
    overlay: Arc<Overlay>,
    options: Options,
}

impl Operations {
    fn first(&self) -> &Layer {
        self.overlay.upper.as_ref().map_or(&self.overlay.lowers[0], |upper| &upper.layer)
    }
}

fn write_path(out: &mut dyn fmt::Write, path: &[u8]) -> fmt::Result {
    path.utf8_chunks().try_for_each(|chunk| out.write_str(chunk.valid()))
}

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        self.first().superblock().status()
    }

    fn sync(&self) -> Result<()> {
        match &self.overlay.upper {
            Some(upper) if !upper.volatile => upper.layer.superblock().operations().sync(),
            _ => Ok(()),
        }
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (index, lower) in self.options.lowers.iter().enumerate() {
            out.write_str(if index == 0 { ",lowerdir=" } else { ":" })?;
            write_path(out, lower)?;
        }
        if let (Some(upper), Some(work)) = (&self.options.upper, &self.options.work) {
            out.write_str(",upperdir=")?;
            write_path(out, upper)?;
            out.write_str(",workdir=")?;
            write_path(out, work)?;
        }
        if self.options.volatile { out.write_str(",volatile") } else { Ok(()) }
    }

    fn change_read_only(&self, read_only: bool) -> Result<()> {
        if read_only { self.sync() } else { self.overlay.upper()?.work().map(|_| ()) }
    }

    /// Everything is written, and the layers' file systems are given back before the call returns.
    fn finish(&self) {
        if let Err(error) = self.sync() {
            log::warn!("overlay: not everything could be written: {error}");
        }
        for _ in 0..END_ROUNDS {
            sync::rcu::barrier_expedited();
            // The other one is the root directory's.
            if Arc::strong_count(&self.overlay) <= 2 {
                return;
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FileSystemType for OverlayType {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Users
    }

    /// What it shows of lower layers would be the user's to change by the rights of its own.
    fn is_safe_for_users(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "overlay"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        Err(Error::Invalid)
    }

    fn mount_at(
        &'static self,
        context: &PathContext<'_>,
        _source: &[u8],
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let options = Options::parse(options)?;
        let places = Places::find(context, &options)?;
        let traits = SuperblockTraits {
            stacked: places.stacked()?,
            access_lists: true,
            ..SuperblockTraits::default()
        };
        let mounter = Some(context.credentials).filter(|mounter| !mounter.has(Capabilities::DAC_OVERRIDE));
        let overlay = allocation::arc(places.make(&options, traits.stacked, mounter)?)?;
        let read_only = overlay.upper.as_ref().is_none_or(|upper| upper.work.is_none());
        let operations: Box<dyn SuperblockOperations> =
            allocation::boxed(Operations { overlay: overlay.clone(), options })?;
        let superblock =
            Superblock::new("overlay", MAGIC, traits, operations, |superblock| overlay.root(superblock))?;
        superblock.set_read_only(read_only);
        if let Some(upper) = &overlay.upper
            && !upper.volatile
            && let Some(backing) = upper.layer.superblock().backing()
        {
            superblock.set_backing(backing.clone());
        }
        Ok(superblock)
    }
}
