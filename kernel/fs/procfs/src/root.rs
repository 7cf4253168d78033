//! The root directory and the file system type.
//!
//! Mounts that are made in the first name space of process numbers share one instance; one that is made in another has an instance of its own.

use alloc::sync::Arc;

use sync::Once;
use vfs::attributes::FileKind;
use vfs::generated::{Directory, Node, TRAITS, new_superblock};
use vfs::inode::DirectorySink;
use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockTraits};
use vfs::{Error, Result, allocation};

use crate::static_tree::TREE;

/// `PROC_SUPER_MAGIC`
const MAGIC: u64 = 0x9fa0;
/// Positions of processes begin here: the process number is added.
const PROCESSES: u64 = 1 << 32;

/// Supplies the directories of processes.
pub trait ProcessSource: Send + Sync {
    /// The directory of the process with this number, as the caller may see it; `NotFound` if there is none.
    ///
    /// # Errors
    /// `NotFound`, `OutOfMemory`.
    fn process(&self, number: u32) -> Result<Node>;

    /// The lowest process number from `from` on, and the inode number of its directory.
    fn next(&self, from: u32) -> Option<(u32, u64)>;

    /// The processes of the caller's name space of process numbers, if that is another one.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn of_caller(&self) -> Result<Option<Arc<dyn ProcessSource>>> {
        Ok(None)
    }

    /// What stands for the caller among these processes: `self` and `thread-self`. None where the fixed entries say it.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn link_to_caller(&self, of_thread: bool) -> Result<Option<Node>> {
        let _ = of_thread;
        Ok(None)
    }
}

static SOURCE: Once<&'static dyn ProcessSource> = Once::new();

/// Sets where processes come from; once, at start-up.
pub fn set_process_source(source: &'static dyn ProcessSource) {
    SOURCE.call_once(|| source);
}

/// Nobody has this number any longer: lets go of what is cached of its directory. Without this a machine that looks at many
/// short-lived processes (`ps`, `top`) fills its entry cache with what can never be found again.
pub fn forget_process(number: u32) {
    let Some(instance) = INSTANCE.get() else { return };
    let mut buffer = [0; 10];
    vfs::dentry::forget_child(instance.root(), vfs::text::digits(number, &mut buffer));
}

/// A decimal number without leading zeros.
fn parse_number(name: &[u8]) -> Option<u32> {
    if name.first().is_none_or(|&first| first == b'0' || !first.is_ascii_digit()) {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// The root, with the processes of one name space: of the first one, unless it has its own.
struct Root {
    own: Option<Arc<dyn ProcessSource>>,
}

impl Root {
    fn source(&self) -> Option<&dyn ProcessSource> {
        self.own.as_deref().or_else(|| SOURCE.get().copied())
    }
}

impl Directory for Root {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        if let Some(number) = parse_number(name) {
            return self.source().ok_or(Error::NotFound)?.process(number);
        }
        if let Some(own) = &self.own
            && matches!(name, b"self" | b"thread-self")
            && let Some(link) = own.link_to_caller(name == b"thread-self")?
        {
            // Listed under the number that it has everywhere.
            return Ok(Node { number: TREE.lookup(name)?.number, ..link });
        }
        TREE.lookup(name)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut position = position;
        if position < PROCESSES {
            let mut full = Full { sink, full: false };
            position = TREE.list(position, &mut full)?;
            if full.full {
                return Ok(position);
            }
            position = PROCESSES;
        }
        let Some(source) = self.source() else { return Ok(position) };
        let mut from = (position - PROCESSES) as u32;
        while let Some((number, inode)) = source.next(from) {
            let mut buffer = [0; 10];
            let name = vfs::text::digits(number, &mut buffer);
            let after = u64::from(number) + 1;
            if !sink.entry(name, inode, FileKind::Directory, PROCESSES + after) {
                return Ok(PROCESSES + u64::from(number));
            }
            from = number + 1;
        }
        Ok(PROCESSES + u64::from(from))
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        match parse_number(name) {
            // The same number may be another process by now: the inode number tells.
            Some(process) => self
                .source()
                .and_then(|source| source.next(process))
                .is_some_and(|(found, inode)| found == process && inode == number),
            None => TREE.still_valid(name, number),
        }
    }

    fn links(&self) -> u32 {
        TREE.links()
    }
}

/// Notes whether the sink was full.
struct Full<'a> {
    sink: &'a mut dyn DirectorySink,
    full: bool,
}

impl DirectorySink for Full<'_> {
    fn entry(&mut self, name: &[u8], inode: u64, kind: FileKind, next: u64) -> bool {
        let taken = self.sink.entry(name, inode, kind, next);
        self.full |= !taken;
        taken
    }
}

/// The type `proc`.
pub struct ProcFs;

/// `proc`, to be registered at start-up.
pub static PROCFS: ProcFs = ProcFs;
static INSTANCE: Once<Arc<Superblock>> = Once::new();

impl FileSystemType for ProcFs {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::OwnersOfContent
    }

    fn name(&self) -> &'static str {
        "proc"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(own) = SOURCE.get().map(|source| source.of_caller()).transpose()?.flatten() {
            return instance(Some(own));
        }
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance.clone());
        }
        let superblock = instance(None)?;
        Ok(INSTANCE.call_once(|| superblock).clone())
    }
}

fn instance(own: Option<Arc<dyn ProcessSource>>) -> Result<Arc<Superblock>> {
    let root = Node::directory(allocation::arc(Root { own })?);
    let traits = SuperblockTraits { lookup_only: true, block_bytes: 1024, ..TRAITS };
    new_superblock("proc", MAGIC, traits, root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_processes() {
        assert_eq!(parse_number(b"17"), Some(17));
        for name in [&b"017"[..], b"0", b"", b"-1", b"+1", b"1a", b"4294967296"] {
            assert_eq!(parse_number(name), None);
        }
    }
}
