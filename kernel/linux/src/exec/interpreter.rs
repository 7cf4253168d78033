//! From the file that is to be executed to the program that does it: formats that somebody registered ([`binfmt_misc`]), and scripts.
//!
//! Each step names an interpreter, which is looked at like the file was: registered formats first, then `#!`. What is neither is the program.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vfs::OpenFile;

use super::arguments::Arguments;
use super::image::ProgramFile;
use super::open as files;
use crate::binfmt_misc;
use crate::binfmt_misc::rule::{Rule, RuleFlags};
use crate::elf::ExecutableGuard;
use crate::errno::Errno;
use crate::file::context::AT_FDCWD;
use crate::task::Task;

/// Interpreters of interpreters, at most.
const DEPTH_MAX: u32 = 5;
/// First bytes of a file that formats look at; of a script's first line one less counts.
const HEAD_BYTES: usize = 256;
const LINE_BYTES: usize = HEAD_BYTES - 1;

/// What a caller of execve names.
pub(super) struct ProgramPath {
    pub(super) name: Vec<u8>,
    /// It means the same when the program has been replaced.
    pub(super) stays: bool,
}

/// What is to be executed.
pub(super) struct Resolved {
    pub(super) program: ProgramFile,
    /// What registered formats want besides the path.
    flags: RuleFlags,
    /// The program finds this file open.
    pub(super) handed_over: Option<Arc<OpenFile>>,
}

impl Resolved {
    /// The file from which follows who the process is.
    pub(super) fn gives(&self) -> &Arc<OpenFile> {
        match &self.handed_over {
            Some(file) if self.flags.contains(RuleFlags::CREDENTIALS) => file,
            _ => &self.program.file,
        }
    }

    /// Whether the first argument stands behind the path.
    pub(super) fn keeps_first(&self) -> bool {
        self.flags.contains(RuleFlags::PRESERVE_FIRST)
    }
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    memory::fallible::try_copy(bytes).map_err(|_| Errno::ENOMEM)
}

/// Follows interpreters to a program.
#[inline(never)]
pub(super) fn resolve(
    task: &Task,
    file: Arc<OpenFile>,
    path: &ProgramPath,
    arguments: &mut Arguments,
) -> Result<Resolved, Errno> {
    let mut resolved =
        Resolved { program: ProgramFile::read(file)?, flags: RuleFlags::empty(), handed_over: None };
    let mut last: Option<Vec<u8>> = None;
    for depth in 0.. {
        let name = last.as_deref().unwrap_or(&path.name);
        let head = &resolved.program.head[..resolved.program.head.len().min(HEAD_BYTES)];
        let rule = binfmt_misc::find(head, name);
        if rule.is_none() && !head.starts_with(b"#!") {
            break;
        }
        // A file that somebody is writing to is as busy as a program.
        drop(ExecutableGuard::new(resolved.program.file.inode())?);
        // The interpreter would not find it.
        if !path.stays {
            return Err(Errno::ENOENT);
        }
        let (interpreter, file) = match rule {
            Some(rule) => {
                resolved.flags |= rule.flags;
                by_rule(task, &rule, name, arguments)?
            }
            None => by_first_line(task, head, name, arguments)?,
        };
        if depth == DEPTH_MAX {
            return Err(Errno::ELOOP);
        }
        let former = core::mem::replace(&mut resolved.program, ProgramFile::read(file)?).file;
        // An interpreter that is given an open file is a program, not a file for another one.
        if resolved.flags.contains(RuleFlags::OPEN_BINARY) && resolved.handed_over.replace(former).is_some() {
            return Err(Errno::ENOEXEC);
        }
        last = Some(interpreter);
    }
    Ok(resolved)
}

/// The interpreter of a registered format, and its file.
#[inline(never)]
fn by_rule(
    task: &Task,
    rule: &Rule,
    name: &[u8],
    arguments: &mut Arguments,
) -> Result<(Vec<u8>, Arc<OpenFile>), Errno> {
    if rule.flags.contains(RuleFlags::PRESERVE_FIRST) {
        let first = copy(arguments.strings().next().unwrap_or_default())?;
        arguments.replace_first(&[&rule.interpreter, name, &first])?;
    } else {
        arguments.replace_first(&[&rule.interpreter, name])?;
    }
    let file = match &rule.opened {
        Some(opened) => opened.open()?,
        None => files::for_execution(task, AT_FDCWD, &rule.interpreter, false, true)?,
    };
    Ok((copy(&rule.interpreter)?, file))
}

/// The interpreter of a script, and its file.
#[inline(never)]
fn by_first_line(
    task: &Task,
    head: &[u8],
    name: &[u8],
    arguments: &mut Arguments,
) -> Result<(Vec<u8>, Arc<OpenFile>), Errno> {
    let (interpreter, option) = parse_first_line(head)?;
    match option {
        Some(option) => arguments.replace_first(&[interpreter, option, name])?,
        None => arguments.replace_first(&[interpreter, name])?,
    }
    let file = files::for_execution(task, AT_FDCWD, interpreter, false, true)?;
    Ok((copy(interpreter)?, file))
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let first = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    &text[first..]
}

/// The interpreter in a script's first bytes, and its one optional argument: the rest of the line, blanks inside included.
fn parse_first_line(head: &[u8]) -> Result<(&[u8], Option<&[u8]>), Errno> {
    let text = &head[2..head.len().min(LINE_BYTES)];
    let ends_name = |byte: u8| is_blank(byte) || byte == 0;
    let mut line = match text.iter().position(|&byte| byte == b'\n') {
        Some(end) => &text[..end],
        // A line that was cut, and may have been cut in the interpreter's name.
        None if head.len() == HEAD_BYTES && !skip_blanks(text).iter().any(|&byte| ends_name(byte)) => {
            return Err(Errno::ENOEXEC);
        }
        None => text,
    };
    while line.last().is_some_and(|&byte| is_blank(byte)) {
        line = &line[..line.len() - 1];
    }
    let line = skip_blanks(line);
    if line.is_empty() {
        // A file that ends so names no interpreter, which Linux takes for the current directory.
        let is_whole_file = head.len() < HEAD_BYTES && !text.contains(&b'\n');
        return Err(if is_whole_file { Errno::EACCES } else { Errno::ENOEXEC });
    }
    let end = line.iter().position(|&byte| ends_name(byte)).unwrap_or(line.len());
    let option = match line.get(end) {
        Some(&byte) if is_blank(byte) => skip_blanks(&line[end..]),
        _ => &[],
    };
    let option = option.split(|&byte| byte == 0).next().filter(|option| !option.is_empty());
    Ok((&line[..end], option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_split_into_interpreter_and_one_argument() {
        assert_eq!(parse_first_line(b"#!/bin/sh\necho"), Ok((&b"/bin/sh"[..], None)));
        assert_eq!(
            parse_first_line(b"#! /usr/bin/env  -S a b \n"),
            Ok((&b"/usr/bin/env"[..], Some(&b"-S a b"[..])))
        );
        assert_eq!(parse_first_line(b"#!\t/bin/sh\r\n"), Ok((&b"/bin/sh\r"[..], None)));
        assert_eq!(parse_first_line(b"#!/bin/sh -x"), Ok((&b"/bin/sh"[..], Some(&b"-x"[..]))));
        assert_eq!(parse_first_line(b"#!/bin/sh\0 -x\n"), Ok((&b"/bin/sh"[..], None)));
        assert_eq!(parse_first_line(b"#!\n"), Err(Errno::ENOEXEC));
        assert_eq!(parse_first_line(b"#! \t \n"), Err(Errno::ENOEXEC));
        assert_eq!(parse_first_line(b"#! "), Err(Errno::EACCES));
    }

    #[test]
    fn a_cut_line_must_not_cut_the_interpreter() {
        let mut head = alloc::vec![b'x'; HEAD_BYTES];
        head[..2].copy_from_slice(b"#!");
        assert_eq!(parse_first_line(&head), Err(Errno::ENOEXEC));
        head[10] = b' ';
        let (interpreter, option) = parse_first_line(&head).expect("the name is whole");
        assert_eq!((interpreter.len(), option.map(<[u8]>::len)), (8, Some(LINE_BYTES - 11)));
    }
}
