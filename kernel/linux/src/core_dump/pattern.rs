//! Where core dumps go: `/proc/sys/kernel/core_pattern`, a path or a program after `|`, with `%` and a letter for what is known of the process.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use sched::Mutex;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use crate::process::limits::Resource;
use crate::process::pid_space;
use crate::process::table::Pid;
use crate::task::Task;

/// Longest pattern.
const PATTERN_MAX: usize = 127;

/// The pattern; `None`: `core`.
static PATTERN: Mutex<Option<Vec<u8>>> = Mutex::named("name of core dumps", None);
/// `core_uses_pid`: the process's number is added to a name without one.
static USES_PID: AtomicU32 = AtomicU32::new(0);
/// `core_pipe_limit`: programs that read dumps at the same time; 0: any number, and nobody waits for them.
static PIPE_LIMIT: AtomicU32 = AtomicU32::new(0);
/// `fs.suid_dumpable`: what programs are that gained privileges: 0 not to be dumped, 1 like others, 2 dumped for root only.
static PRIVILEGED: AtomicU32 = AtomicU32::new(0);

/// The pattern.
pub(crate) fn pattern() -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    allocation::extend(&mut copy, PATTERN.lock().as_deref().unwrap_or(b"core"))?;
    Ok(copy)
}

/// Sets it, up to a line's end.
pub(crate) fn set_pattern(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let line = bytes.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
    if line.len() > PATTERN_MAX {
        return Err(Error::Invalid);
    }
    let mut copy = Vec::new();
    allocation::extend(&mut copy, line)?;
    *PATTERN.lock() = Some(copy);
    Ok(())
}

macro_rules! number {
    ($get:ident, $set:ident, $cell:ident) => {
        #[doc = concat!("What `", stringify!($cell), "` says.")]
        pub(crate) fn $get() -> u32 {
            $cell.load(Ordering::Relaxed)
        }

        #[doc = concat!("Sets `", stringify!($cell), "`.")]
        pub(crate) fn $set(value: u32) {
            $cell.store(value, Ordering::Relaxed);
        }
    };
}

number!(uses_pid, set_uses_pid, USES_PID);
number!(pipe_limit, set_pipe_limit, PIPE_LIMIT);
number!(privileged, set_privileged, PRIVILEGED);

/// Where a dump goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To a file of this path.
    File(Vec<u8>),
    /// To a program with these arguments, its path first.
    Program(Vec<Vec<u8>>),
}

/// What letters stand for.
pub(super) struct Facts<'a> {
    pub(super) task: &'a Task,
    pub(super) signal: u32,
}

impl Facts<'_> {
    /// Writes what a letter stands for; nothing for letters without a meaning.
    fn write(&self, letter: u8, out: &mut Text) {
        let task = self.task;
        let process = task.process();
        let number = match letter {
            b'%' => return out.push_bytes(b"%"),
            b'p' => self.own_pid().into(),
            b'P' => process.pid().into(),
            b'i' => pid_space::seen(process.space(), task.thread.tid()).into(),
            b'I' => task.thread.tid().into(),
            b'u' => task.credentials.user.real.into(),
            b'g' => task.credentials.group.real.into(),
            b'd' => process.is_dumpable.load(Ordering::Relaxed).into(),
            b's' => self.signal.into(),
            b't' => crate::time::clock::realtime_ns() / 1_000_000_000,
            b'c' => process.limit(Resource::Core),
            b'C' => machine::cpu::current().index() as u64,
            b'h' => return push_escaped(task.system_names().node().as_bytes(), out),
            b'e' => return push_escaped(crate::proc::trimmed(&task.thread.name()), out),
            b'f' | b'E' => return self.write_path(letter == b'E', out),
            _ => return,
        };
        let _ = write!(out, "{number}");
    }

    /// The process's number as it sees it itself.
    fn own_pid(&self) -> Pid {
        let process = self.task.process();
        pid_space::seen(process.space(), process.pid())
    }

    /// The path of the program, or its last part.
    fn write_path(&self, whole: bool, out: &mut Text) {
        let place = self.task.process().executable.lock().file.clone();
        let Some(place) = place else { return };
        let mut path = Vec::new();
        if place.write_to(&vfs::Path::root_of(&place.mount), true, &mut path).is_err() {
            return;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path);
        push_escaped(if whole { &path } else { name }, out);
    }
}

/// What processes call themselves must not lead to other directories.
fn push_escaped(name: &[u8], out: &mut Text) {
    match name {
        b"." => out.push_bytes(b"!"),
        b".." => out.push_bytes(b"!."),
        _ => name
            .iter()
            .for_each(|&byte| out.push_bytes(if byte == b'/' { b"!" } else { core::slice::from_ref(&byte) })),
    }
}

/// Replaces letters in one word. Returns whether the process's number was among them.
fn expand(word: &[u8], mut letter: impl FnMut(u8, &mut Text)) -> Result<(Vec<u8>, bool)> {
    let mut out = Text::new();
    let (mut bytes, mut has_number) = (word.iter().copied(), false);
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let Some(which) = bytes.next() else { break };
                has_number |= which == b'p';
                letter(which, &mut out);
            }
            _ => out.push_bytes(&[byte]),
        }
    }
    Ok((out.finish()?, has_number))
}

/// Where the dump of a process goes; `None`: nowhere.
pub(super) fn destination(facts: &Facts<'_>) -> Result<Option<Destination>> {
    let pattern = pattern()?;
    let letter = |which, out: &mut Text| facts.write(which, out);
    if let Some(program) = pattern.strip_prefix(b"|") {
        let mut words = Vec::new();
        for word in program.split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
            allocation::push(&mut words, expand(word, letter)?.0)?;
        }
        return Ok((!words.is_empty()).then_some(Destination::Program(words)));
    }
    let (mut name, has_number) = expand(&pattern, letter)?;
    if !has_number && uses_pid() != 0 {
        let mut buffer = [0; 10];
        allocation::extend(&mut name, b".")?;
        allocation::extend(&mut name, vfs::text::digits(facts.own_pid(), &mut buffer))?;
    }
    Ok((!name.is_empty()).then_some(Destination::File(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_replaced_and_unknown_ones_dropped() {
        let letter = |which: u8, out: &mut Text| match which {
            b'p' => out.push_bytes(b"17"),
            b'%' => out.push_bytes(b"%"),
            _ => {}
        };
        let expanded = |word: &[u8]| expand(word, letter).expect("memory");
        assert_eq!(expanded(b"core.%p"), (b"core.17".to_vec(), true));
        assert_eq!(expanded(b"a%%b%zc%"), (b"a%bc".to_vec(), false));
    }

    #[test]
    fn names_of_processes_stay_in_the_directory() {
        for (name, wanted) in [(&b"a/b"[..], &b"a!b"[..]), (b"..", b"!."), (b".", b"!"), (b"x..", b"x..")] {
            let mut out = Text::new();
            push_escaped(name, &mut out);
            assert_eq!(out.finish().expect("memory"), wanted);
        }
    }

    #[test]
    fn patterns_have_a_longest_length() {
        assert_eq!(set_pattern(&[b'x'; PATTERN_MAX + 1]), Err(Error::Invalid));
    }
}
