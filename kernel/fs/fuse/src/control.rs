//! `fusectl`: a directory for each connection, by the minor number of its file system's device, for who mounted it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use sync::{Once, SpinLock};
use vfs::generated::{Directory, Node, StaticDirectory, TRAITS, knob, new_superblock, text_file};
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::superblock::{FileSystemType, Superblock};
use vfs::text::Text;
use vfs::{Error, FileKind, Result, allocation};

use crate::connection::Connection;

/// What `statfs` calls it.
const MAGIC: u64 = 0x6573_5543;

/// A connection, and what is shown of it.
struct Shown {
    number: u32,
    connection: Weak<Connection>,
    node: Node,
}

static SHOWN: SpinLock<Vec<Shown>> = SpinLock::named("connections to file servers", Vec::new());

/// The connection of a file system is shown as long as it is there.
pub(crate) fn enter(superblock: &Superblock, connection: &Arc<Connection>) -> Result<()> {
    let (user, group) = (connection.options.user, connection.options.group);
    let number = superblock.device().minor;
    let node = directory(connection)?.owned(u64::from(number) + FIRST_POSITION, user, group);
    let shown = Shown { number, connection: Arc::downgrade(connection), node };
    let mut list = allocation::lock_with_room(|| SHOWN.lock(), 1, |list| &mut *list)?;
    list.push(shown);
    drop(list);
    clean();
    Ok(())
}

/// Drops what is shown of connections that have gone.
fn clean() {
    loop {
        let gone = {
            let mut list = SHOWN.lock();
            let index = list.iter().position(|shown| shown.connection.strong_count() == 0);
            index.map(|index| list.remove(index))
        };
        if gone.is_none() {
            return;
        }
    }
}

fn of(connection: &Weak<Connection>) -> Result<Arc<Connection>> {
    connection.upgrade().ok_or(Error::NotFound)
}

/// The directory of a connection.
fn directory(connection: &Arc<Connection>) -> Result<Node> {
    let (user, group) = (connection.options.user, connection.options.group);
    let files = StaticDirectory::allocate()?;
    let own = |node: Node| Node { user, group, ..node };
    let known = Arc::downgrade(connection);
    files.add(
        "waiting",
        own(Node::file(0o400, text_file(move |out| show(out, of(&known)?.waiting_count()))?)),
    )?;
    let known = Arc::downgrade(connection);
    let end = move |_: &[u8]| of(&known).map(|connection| connection.end(true));
    files.add("abort", own(Node::file(0o200, knob(|_| Err(Error::Invalid), end)?)))?;
    let known = Arc::downgrade(connection);
    let (read, written) = (known.clone(), known);
    let limit = knob(
        move |out| show(out, of(&read)?.background_limits().0.into()),
        move |text| {
            let most = limit(text)?;
            of(&written)?.set_background_limits(Some(most), None);
            Ok(())
        },
    )?;
    files.add("max_background", own(Node::file(0o600, limit)))?;
    let known = Arc::downgrade(connection);
    let (read, written) = (known.clone(), known);
    let congestion = knob(
        move |out| show(out, of(&read)?.background_limits().1.into()),
        move |text| {
            let least = self::limit(text)?;
            of(&written)?.set_background_limits(None, Some(least));
            Ok(())
        },
    )?;
    files.add("congestion_threshold", own(Node::file(0o600, congestion)))?;
    Ok(Node { mode: 0o500, ..Node::directory(files) })
}

fn show(out: &mut Text, number: u32) -> Result<()> {
    // A text remembers when memory ran out.
    let _ = core::fmt::Write::write_fmt(out, format_args!("{number}\n"));
    Ok(())
}

/// A limit that somebody wrote.
fn limit(text: &[u8]) -> Result<u16> {
    let text = core::str::from_utf8(text).map_err(|_| Error::Invalid)?;
    let number: u32 = text.trim().parse().map_err(|_| Error::Invalid)?;
    u16::try_from(number).map_err(|_| Error::Invalid)
}

/// The root directory.
struct Root;

impl Root {
    fn named(name: &[u8]) -> Option<Node> {
        let number: u32 = core::str::from_utf8(name).ok()?.parse().ok()?;
        let list = SHOWN.lock();
        let shown = list.iter().find(|shown| shown.number == number)?;
        (shown.connection.strong_count() > 0).then(|| shown.node.clone())
    }
}

impl Directory for Root {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        Self::named(name).ok_or(Error::NotFound)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut position = position;
        loop {
            let next = {
                let list = SHOWN.lock();
                let later = list.iter().filter(|shown| {
                    u64::from(shown.number) + FIRST_POSITION >= position
                        && shown.connection.strong_count() > 0
                });
                later.map(|shown| shown.number).min()
            };
            let Some(number) = next else { return Ok(position) };
            let mut name = Text::new();
            let _ = core::fmt::Write::write_fmt(&mut name, format_args!("{number}"));
            let at = u64::from(number) + FIRST_POSITION;
            if !sink.entry(&name.finish()?, at, FileKind::Directory, at + 1) {
                return Ok(at);
            }
            position = at + 1;
        }
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        Self::named(name).is_some_and(|node| node.number == number)
    }
}

struct Kind;

static KIND: Kind = Kind;
static INSTANCE: Once<Arc<Superblock>> = Once::new();

/// Registers the type.
pub(crate) fn register() {
    vfs::superblock::register_file_system(&KIND);
}

impl FileSystemType for Kind {
    fn name(&self) -> &'static str {
        "fusectl"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance.clone());
        }
        let root = Node { mode: 0o755, ..Node::directory(allocation::arc(Root)?) };
        let superblock = new_superblock("fusectl", MAGIC, TRAITS, root)?;
        Ok(INSTANCE.call_once(|| superblock).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_of_16_bits() {
        assert_eq!((limit(b"12\n"), limit(b"0"), limit(b"65535")), (Ok(12), Ok(0), Ok(65535)));
        for text in [&b""[..], b"65536", b"-1", b"x", b"\xff"] {
            assert_eq!(limit(text), Err(Error::Invalid));
        }
    }
}
