//! The file system `binfmt_misc`: `register` takes rules, `status` and a file for each rule tell and change what counts.

use alloc::sync::Arc;

use sync::Once;
use vfs::attributes::FileKind;
use vfs::generated::{Directory, File, Node, TRAITS, knob, new_superblock};
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::superblock::{FileSystemType, Superblock};
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use super::registry;
use super::rule::{OpenedInterpreter, Rule, RuleFlags};

/// `BINFMTFS_MAGIC`
const MAGIC: u64 = 0x4249_4e4d;
/// Positions of rules begin here; their numbers are added.
const RULES: u64 = FIRST_POSITION + 2;

/// What is written to `status` and to the files of rules.
enum Change {
    Disable,
    Enable,
    Remove,
}

fn parse_change(bytes: &[u8]) -> Result<Change> {
    match bytes.strip_suffix(b"\n").unwrap_or(bytes) {
        b"0" => Ok(Change::Disable),
        b"1" => Ok(Change::Enable),
        b"-1" => Ok(Change::Remove),
        _ => Err(Error::Invalid),
    }
}

struct RuleFile(Arc<Rule>);

impl File for RuleFile {
    fn show(&self, out: &mut Text) -> Result<()> {
        // A text remembers when memory ran out.
        let _ = self.0.show(out);
        Ok(())
    }

    fn store(&self, bytes: &[u8]) -> Result<usize> {
        let enabled = &self.0.enabled;
        match parse_change(bytes)? {
            Change::Disable => enabled.store(false, core::sync::atomic::Ordering::Relaxed),
            Change::Enable => enabled.store(true, core::sync::atomic::Ordering::Relaxed),
            Change::Remove => registry::remove(&self.0),
        }
        Ok(bytes.len())
    }
}

fn node_of(rule: Arc<Rule>) -> Result<Node> {
    let number = rule.number;
    Ok(Node::file(0o644, allocation::arc(RuleFile(rule))?).owned(number, 0, 0))
}

fn show_status(out: &mut Text) -> Result<()> {
    out.push_bytes(if registry::is_enabled() { b"enabled\n" } else { b"disabled\n" });
    Ok(())
}

fn change_status(bytes: &[u8]) -> Result<()> {
    match parse_change(bytes)? {
        Change::Disable => registry::enable(false),
        Change::Enable => registry::enable(true),
        Change::Remove => registry::remove_all(),
    }
    Ok(())
}

fn register(line: &[u8]) -> Result<()> {
    let mut rule = Rule::parse(line)?;
    if rule.flags.contains(RuleFlags::FIXED) {
        let thread = crate::terminal::calling_thread().ok_or(Error::Invalid)?;
        let file = crate::exec::open::for_thread(&thread, &rule.interpreter)?;
        rule.opened = Some(OpenedInterpreter::new(file)?);
    }
    registry::add(allocation::arc(rule)?)
}

/// The root directory.
struct Root {
    register: Node,
    status: Node,
}

impl Root {
    fn new() -> Result<Root> {
        let nothing = |_: &mut Text| Err(Error::Invalid);
        Ok(Root {
            register: Node::file(0o200, knob(nothing, register)?),
            status: Node::file(0o644, knob(show_status, change_status)?),
        })
    }

    fn fixed(&self) -> [(&'static [u8], &Node); 2] {
        [(b"register", &self.register), (b"status", &self.status)]
    }
}

impl Directory for Root {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        if let Some((_, node)) = self.fixed().into_iter().find(|(known, _)| *known == name) {
            return Ok(node.clone());
        }
        node_of(registry::named(name).ok_or(Error::NotFound)?)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut position = position;
        for (index, (name, node)) in (FIRST_POSITION..).zip(self.fixed()) {
            if position <= index {
                if !sink.entry(name, node.number, FileKind::Regular, index + 1) {
                    return Ok(index);
                }
                position = index + 1;
            }
        }
        while let Some(rule) = registry::next(position - RULES) {
            let at = RULES + rule.number;
            if !sink.entry(&rule.name, rule.number, FileKind::Regular, at + 1) {
                return Ok(at);
            }
            position = at + 1;
        }
        Ok(position)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        let is_fixed = self.fixed().iter().any(|(known, node)| *known == name && node.number == number);
        is_fixed || registry::named(name).is_some_and(|rule| rule.number == number)
    }
}

/// The type `binfmt_misc`.
pub struct BinfmtMisc;

/// `binfmt_misc`, to be registered at start-up: one instance, which all mounts show.
pub static BINFMT_MISC: BinfmtMisc = BinfmtMisc;
static INSTANCE: Once<Arc<Superblock>> = Once::new();

impl FileSystemType for BinfmtMisc {
    fn name(&self) -> &'static str {
        "binfmt_misc"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance.clone());
        }
        let root = Node { mode: 0o755, ..Node::directory(allocation::arc(Root::new()?)?) };
        let superblock = new_superblock("binfmt_misc", MAGIC, TRAITS, root)?;
        Ok(INSTANCE.call_once(|| superblock).clone())
    }
}
