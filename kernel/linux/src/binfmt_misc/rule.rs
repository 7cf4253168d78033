//! One format: how its files are known, and what executes them.
//!
//! A rule is registered as `:NAME:TYPE:OFFSET:MAGIC:MASK:INTERPRETER:FLAGS`, with any character in place of the colons. Type `M`: the file has the bytes MAGIC at OFFSET, of
//! which only the bits in MASK count. Type `E`: its name ends with a dot and MAGIC; offset and mask are empty. Bytes can be written as `\xHH`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use vfs::text::Text;
use vfs::{Error, OpenFile, OpenFlags, Result, allocation};

use crate::elf::ExecutableGuard;

/// Longest line that registers a rule; the shortest one has all its delimiters and a letter or two.
const LINE_MAX: usize = 1920;
const LINE_MIN: usize = 12;
/// So many of a file's first bytes may be asked for.
const HEAD_BYTES: usize = 256;

bitflags::bitflags! {
    /// What the interpreter gets besides the path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RuleFlags: u8 {
        /// `P`: the first argument stays, behind the path.
        const PRESERVE_FIRST = 1;
        /// `O`: the file comes open, as AT_EXECFD says.
        const OPEN_BINARY = 2;
        /// `C`: who the process is follows from the file, not from the interpreter. Comes with `O`.
        const CREDENTIALS = 4;
        /// `F`: the interpreter is opened when the rule is registered.
        const FIXED = 8;
    }
}

const LETTERS: [(u8, RuleFlags); 4] = [
    (b'P', RuleFlags::PRESERVE_FIRST),
    (b'O', RuleFlags::OPEN_BINARY),
    (b'C', RuleFlags::CREDENTIALS),
    (b'F', RuleFlags::FIXED),
];

/// How its files are known.
#[derive(Debug, PartialEq, Eq)]
enum Pattern {
    Magic { offset: usize, bytes: Vec<u8>, mask: Option<Vec<u8>> },
    Extension(Vec<u8>),
}

/// An interpreter that was opened in advance. Nobody may write to it while it can be executed so.
pub(crate) struct OpenedInterpreter {
    file: Arc<OpenFile>,
    #[expect(dead_code, reason = "its drop is its use")]
    guard: ExecutableGuard,
}

impl OpenedInterpreter {
    /// # Errors
    /// ETXTBSY.
    pub(super) fn new(file: Arc<OpenFile>) -> Result<OpenedInterpreter> {
        let guard = ExecutableGuard::new(file.inode()).map_err(|_| Error::TextBusy)?;
        Ok(OpenedInterpreter { file, guard })
    }

    /// The file, open once more.
    ///
    /// # Errors
    /// ENOMEM, ENFILE, EIO.
    pub(crate) fn open(&self) -> Result<Arc<OpenFile>> {
        let place = self.file.path().ok_or(Error::NotFound)?;
        vfs::open_place(place.clone(), OpenFlags::empty())
    }
}

/// A registered format.
pub(crate) struct Rule {
    pub(super) name: Vec<u8>,
    pattern: Pattern,
    /// Path of what executes it.
    pub(crate) interpreter: Vec<u8>,
    pub(crate) flags: RuleFlags,
    /// With [`RuleFlags::FIXED`].
    pub(crate) opened: Option<OpenedInterpreter>,
    /// The number of its file.
    pub(super) number: u64,
    /// It counts. Anybody who may write its file; read where files are executed.
    pub(super) enabled: AtomicBool,
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    allocation::extend(&mut copy, bytes)?;
    Ok(copy)
}

/// Bytes as they are written, `\xHH` for any.
fn unescape(text: &[u8]) -> Result<Vec<u8>> {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1), digit(at + 2), digit(at + 3)) {
            (b'\\', Some(b'x'), Some(high), Some(low)) => {
                allocation::push(&mut bytes, (high << 4 | low) as u8)?;
                at += 4;
            }
            (byte, ..) => {
                allocation::push(&mut bytes, byte)?;
                at += 1;
            }
        }
    }
    Ok(bytes)
}

impl Rule {
    /// Reads a line as it is written to `register`.
    ///
    /// # Errors
    /// EINVAL, ENOMEM.
    pub(super) fn parse(line: &[u8]) -> Result<Rule> {
        if !(LINE_MIN..=LINE_MAX).contains(&line.len()) {
            return Err(Error::Invalid);
        }
        let delimiter = line[0];
        let mut fields = line[1..].splitn(7, |&byte| byte == delimiter);
        let mut field = || fields.next().ok_or(Error::Invalid);
        let (name, kind, offset, magic) = (field()?, field()?, field()?, field()?);
        let (mask, interpreter, flags) = (field()?, field()?, field()?);
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Error::Invalid);
        }
        let pattern = match kind {
            b"E" if !magic.is_empty() && !magic.contains(&b'/') => Pattern::Extension(copy(magic)?),
            b"M" => magic_pattern(offset, magic, mask)?,
            _ => return Err(Error::Invalid),
        };
        if interpreter.is_empty() {
            return Err(Error::Invalid);
        }
        Ok(Rule {
            name: copy(name)?,
            pattern,
            interpreter: copy(interpreter)?,
            flags: parse_flags(flags)?,
            opened: None,
            number: vfs::generated::next_number(),
            enabled: AtomicBool::new(true),
        })
    }

    /// Whether a file that begins so, and was named so, is of the format.
    pub(super) fn matches(&self, head: &[u8], name: &[u8]) -> bool {
        // Relaxed: says nothing about other data.
        if !self.enabled.load(Ordering::Relaxed) {
            return false;
        }
        match &self.pattern {
            Pattern::Extension(extension) => {
                let dot = name.iter().rposition(|&byte| byte == b'.');
                dot.is_some_and(|dot| name[dot + 1..] == extension[..])
            }
            Pattern::Magic { offset, bytes, mask } => {
                // What is beyond a short file's end counts as zeros.
                let at = |index: usize| head.get(offset + index).copied().unwrap_or(0);
                let counts = |index: usize| mask.as_ref().map_or(u8::MAX, |mask| mask[index]);
                bytes.iter().enumerate().all(|(index, byte)| (at(index) ^ byte) & counts(index) == 0)
            }
        }
    }

    /// What its file shows.
    pub(super) fn show(&self, out: &mut Text) -> fmt::Result {
        let enabled = self.enabled.load(Ordering::Relaxed);
        out.write_str(if enabled { "enabled\n" } else { "disabled\n" })?;
        out.write_str("interpreter ")?;
        out.push_bytes(&self.interpreter);
        out.write_str("\nflags: ")?;
        for (letter, flag) in LETTERS {
            if self.flags.contains(flag) {
                out.push_bytes(&[letter]);
            }
        }
        out.write_str("\n")?;
        let hexadecimal = |out: &mut Text, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")).and_then(|()| out.write_str("\n"))
        };
        match &self.pattern {
            Pattern::Extension(extension) => {
                out.write_str("extension .")?;
                out.push_bytes(extension);
                out.write_str("\n")
            }
            Pattern::Magic { offset, bytes, mask } => {
                write!(out, "offset {offset}\nmagic ")?;
                hexadecimal(out, bytes)?;
                let Some(mask) = mask else { return Ok(()) };
                out.write_str("mask ")?;
                hexadecimal(out, mask)
            }
        }
    }
}

fn magic_pattern(offset: &[u8], magic: &[u8], mask: &[u8]) -> Result<Pattern> {
    let offset = match core::str::from_utf8(offset) {
        Ok("") => 0,
        Ok(text) => text.parse::<usize>().map_err(|_| Error::Invalid)?,
        Err(_) => return Err(Error::Invalid),
    };
    let bytes = unescape(magic)?;
    let mask = if mask.is_empty() { None } else { Some(unescape(mask)?) };
    let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= HEAD_BYTES);
    if bytes.is_empty() || !fits || mask.as_ref().is_some_and(|mask| mask.len() != bytes.len()) {
        return Err(Error::Invalid);
    }
    Ok(Pattern::Magic { offset, bytes, mask })
}

fn parse_flags(text: &[u8]) -> Result<RuleFlags> {
    let mut flags = RuleFlags::empty();
    for byte in text.strip_suffix(b"\n").unwrap_or(text) {
        let (_, flag) = LETTERS.iter().find(|(letter, _)| letter == byte).ok_or(Error::Invalid)?;
        flags |= *flag;
    }
    if flags.contains(RuleFlags::CREDENTIALS) {
        flags |= RuleFlags::OPEN_BINARY;
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_counts_under_its_mask() {
        let rule = Rule::parse(b":elf:M:1:\\x45L\\x46:\\xff\\xfe\\xff:/bin/x:OC\n").expect("well formed");
        assert!(rule.matches(b"\x7fELF", b"x") && rule.matches(b"\x7fEMF", b"x"));
        assert!(!rule.matches(b"\x7fEL", b"x") && !rule.matches(b"ELF", b"x"));
        assert_eq!(rule.flags, RuleFlags::OPEN_BINARY | RuleFlags::CREDENTIALS);
        let mut text = Text::new();
        rule.show(&mut text).expect("memory");
        let shown = "enabled\ninterpreter /bin/x\nflags: OC\noffset 1\nmagic 454c46\nmask fffeff\n";
        assert_eq!(text.finish().expect("memory"), shown.as_bytes());
    }

    #[test]
    fn names_end_with_extensions() {
        let rule = Rule::parse(b"|py|E||py||/usr/bin/python3|").expect("well formed");
        assert!(rule.matches(b"", b"/tmp/a.b.py"));
        assert!(!rule.matches(b"", b"/tmp/a.py.b") && !rule.matches(b"", b"py"));
        rule.enabled.store(false, Ordering::Relaxed);
        assert!(!rule.matches(b"", b"a.py"));
    }

    #[test]
    fn malformed_lines_are_refused() {
        for wrong in [
            &b":x:E::py::/bin/x"[..],
            b":a/b:E::py::/bin/x:",
            b":..:E::py::/bin/x:",
            b"::E::python::/bin/x:",
            b":x:E::p/y::/bin/x:",
            b":x:E::::/bin/x/y/z:",
            b":x:E::python:::",
            b":x:M:::::/bin/x/y:",
            b":x:M:a:abcdef::/bin/x:",
            b":x:M:250:abcdefg::/bin/x:",
            b":x:M:0:abc:ab:/bin/x:",
            b":x:Q::py::/bin/x:",
            b":x:E::py::/bin/x:Z",
        ] {
            assert_eq!(Rule::parse(wrong).err(), Some(Error::Invalid), "{}", wrong.escape_ascii());
        }
        assert_eq!(Rule::parse(&[b':'; LINE_MAX + 1]).err(), Some(Error::Invalid));
    }
}
