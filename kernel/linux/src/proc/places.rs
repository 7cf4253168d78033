//! Links to places: `cwd`, `root`, `exe`, and the files of `fd`; and the names in `ns`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use vfs::generated::{Body, Directory, Link, Node};
use vfs::inode::{DirectorySink, FIRST_POSITION, LinkTarget};
use vfs::text::Text;
use vfs::{Error, FileKind, Path, Result};

use super::process::Subject;

/// Appends the path of a place as the reader sees it, ` (deleted)` behind it when its name is gone.
pub(super) fn write_path(place: &Path, out: &mut Text) -> Result<()> {
    let mut bytes = Vec::new();
    place.write_as_seen(&mut bytes)?;
    out.push_bytes(&bytes);
    Ok(())
}

/// `cwd`
pub(super) fn current_directory(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().cwd.clone())
}

/// `root`
pub(super) fn root(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().root.clone())
}

/// `exe`
pub(super) fn executable(subject: &Subject) -> Result<Path> {
    subject.process()?.executable.lock().file.clone().ok_or(Error::NotFound)
}

/// A link that jumps to a place of the process.
pub(super) struct PlaceLink {
    pub(super) subject: Subject,
    pub(super) place: fn(&Subject) -> Result<Path>,
}

impl PlaceLink {
    fn place(&self) -> Result<Path> {
        self.subject.check_access()?;
        (self.place)(&self.subject)
    }
}

impl Link for PlaceLink {
    fn target(&self) -> Result<LinkTarget> {
        self.place().map(LinkTarget::Jump)
    }

    fn text(&self) -> Result<Arc<[u8]>> {
        let mut text = Text::new();
        write_path(&self.place()?, &mut text)?;
        vfs::allocation::arc_bytes(&text.finish()?)
    }
}

/// Kinds of name spaces and the numbers of the ones that everybody is in; that of mounts is the first of its kind.
const SPACES: [(&str, u64); 9] = [
    ("cgroup", 4_026_531_835),
    ("ipc", 4_026_531_839),
    ("mnt", 4_026_531_841),
    ("net", 4_026_531_840),
    ("pid", 4_026_531_836),
    ("pid_for_children", 4_026_531_836),
    ("time", 4_026_531_834),
    ("user", 4_026_531_837),
    ("uts", 4_026_531_838),
];
const MOUNTS: &str = "mnt";
/// Name spaces of mounts made later.
const LATER_SPACES: u64 = 4_026_532_000;

/// The directory `ns`: what can be compared, not entered.
struct NameSpaces(Subject);

/// `ns`
pub(super) fn name_spaces(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> = vfs::allocation::arc(NameSpaces(subject.clone()))?;
    Ok(directory)
}

fn space_number(subject: &Subject, index: usize) -> Result<u64> {
    let (name, number) = SPACES[index];
    if name != MOUNTS {
        return Ok(number);
    }
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(match context.places().namespace.id() {
        1 => number,
        later => LATER_SPACES + later,
    })
}

impl Directory for NameSpaces {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let index = SPACES.iter().position(|space| space.0.as_bytes() == name).ok_or(Error::NotFound)?;
        let subject = self.0.clone();
        let text = move || {
            subject.check_access()?;
            let kind = SPACES[index].0.split('_').next().unwrap_or("");
            let mut text = vfs::text::Text::new();
            // What does not fit into memory is remembered by the text.
            let _ = write!(text, "{kind}:[{}]", space_number(&subject, index)?);
            vfs::allocation::arc_bytes(&text.finish()?)
        };
        let (user, group) = self.0.owner();
        let node = Node::new(0o777, Body::Link(vfs::allocation::arc(text)?));
        Ok(node.owned(self.0.part_number("ns", index as u64)?, user, group))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        for (index, (name, _)) in SPACES.iter().enumerate().skip((position - FIRST_POSITION) as usize) {
            let number = self.0.part_number("ns", index as u64)?;
            if !sink.entry(name.as_bytes(), number, FileKind::SymbolicLink, next + 1) {
                break;
            }
            next += 1;
        }
        Ok(next)
    }

    fn still_valid(&self, _name: &[u8], _number: u64) -> bool {
        self.0.process().is_ok()
    }
}
