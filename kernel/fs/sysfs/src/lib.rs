//! `/sys`: devices and kernel objects as files.
//!
//! A tree of directories that is filled by whoever has something to show: [`directory`] makes one (and those above it),
//! [`add`] puts a node into one. Everything else is [`vfs::generated`]'s. There is one instance, shared by all mounts.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::{Once, SpinLock};
use vfs::generated::{Node, StaticDirectory, new_superblock, text_file};
use vfs::superblock::{FileSystemType, Superblock};
use vfs::text::Text;
use vfs::{Result, allocation};

/// `SYSFS_MAGIC`
const MAGIC: u64 = 0x6265_6572;

static ROOT: StaticDirectory = StaticDirectory::new();
static DIRECTORIES: SpinLock<Vec<(String, Arc<StaticDirectory>)>> = SpinLock::new(Vec::new());

/// The directory at a path such as `devices/system/cpu`, made when it is missing, with those above it.
pub fn directory(path: &str) -> Result<Arc<StaticDirectory>> {
    if let Some((_, known)) = DIRECTORIES.lock().iter().find(|(known, _)| known == path) {
        return Ok(known.clone());
    }
    let new = StaticDirectory::allocate()?;
    let mut node = Node::directory(new.clone());
    node.mode = 0o755;
    match path.rsplit_once('/') {
        Some((above, name)) => directory(above)?.add(name, node)?,
        None => ROOT.add(path, node)?,
    }
    let mut directories = DIRECTORIES.lock();
    allocation::push(&mut directories, (path.into(), new.clone()))?;
    Ok(new)
}

/// Adds a node at a path.
pub fn add(path: &str, node: Node) -> Result<()> {
    match path.rsplit_once('/') {
        Some((above, name)) => directory(above)?.add(name, node),
        None => ROOT.add(path, node),
    }
}

/// Adds a file that everybody may read.
pub fn add_text(path: &str, show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<()> {
    add(path, Node::file(0o444, text_file(show)?))
}

/// The type `sysfs`.
pub struct SysFs;

/// `sysfs`, to be registered at start-up.
pub static SYSFS: SysFs = SysFs;
static INSTANCE: Once<Arc<Superblock>> = Once::new();

impl FileSystemType for SysFs {
    fn name(&self) -> &'static str {
        "sysfs"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance.clone());
        }
        let root: &'static StaticDirectory = &ROOT;
        let mut node = Node::directory(allocation::arc(root)?);
        node.mode = 0o755;
        let superblock = new_superblock("sysfs", MAGIC, node)?;
        Ok(INSTANCE.call_once(|| superblock).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::generated::Directory;

    #[test]
    fn directories_are_made_on_the_way() {
        add_text("devices/system/cpu/online", |out| {
            out.push_bytes(b"0\n");
            Ok(())
        })
        .unwrap();
        let node = ROOT.lookup(b"devices").unwrap();
        assert_eq!(node.kind(), vfs::attributes::FileKind::Directory);
        assert!(directory("devices/system/cpu").unwrap().lookup(b"online").is_ok());
        assert!(ROOT.lookup(b"online").is_err());
    }
}
