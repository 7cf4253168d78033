//! The dialogue of the active instance.
//!
//! A command is a word, or the beginning of one that fits no other, and its arguments. What is not understood is said to be so: no line
//! may bring the debugger down.

use core::fmt::Write;

use machine::cpu::{self, CpuId};
use machine::debugger::Access;

use super::rendezvous::Next;
use super::terminal::{Terminal, read_line};
use super::words::{Words, complete};
use super::{display, watches};

/// A command that only shows something.
type Show = fn(&Words<'_>, &mut Terminal) -> core::fmt::Result;

/// Commands: name, arguments, what they do.
const SHOWS: &[(&str, &str, &str, Show)] = &[
    ("backtrace", "[THREAD]", "calls of this processor, or of a thread", display::backtrace),
    ("boxes", "", "the matrix of message boxes", display::boxes),
    ("cpus", "", "the processors: who is here and why", display::processors),
    ("help", "", "this list", help),
    ("memory", "ADDRESS [WORDS]", "words of memory", display::memory),
    ("pages", "ADDRESS", "page-table entries that lead to an address", display::pages),
    ("queues", "", "the run queues", display::run_queues),
    ("rcu", "", "grace periods and callbacks", display::rcu),
    ("registers", "", "registers of this processor", display::registers),
    ("slot", "THREAD", "the pages of a thread's stack slot", display::slot),
    ("threads", "", "all threads", display::threads),
    ("break", "ADDRESS", "stop when the instruction there is reached", break_at),
    ("watch", "ADDRESS [rw]", "stop when the word there is written, or read", watch),
    ("unwatch", "NUMBER", "forget a breakpoint", unwatch),
];

/// Commands that end the turn.
const ENDS: [(&str, &str, &str); 2] =
    [("continue", "", "all processors go on"), ("cpu", "NUMBER", "talk to another processor")];

fn help(_: &Words<'_>, out: &mut Terminal) -> core::fmt::Result {
    let shows = SHOWS.iter().map(|(name, arguments, what, _)| (*name, *arguments, *what));
    for (name, arguments, what) in shows.chain(ENDS) {
        writeln!(out, "  {name:<10} {arguments:<16} {what}")?;
    }
    Ok(())
}

/// Talks until the active instance gives the word away, or lets all go on.
pub(super) fn dialogue() -> Next {
    let out = &mut Terminal;
    let this = cpu::current();
    // The terminal takes everything.
    let _ = display::heading(out);
    loop {
        let _ = write!(out, "kdb {this}> ");
        let line = read_line();
        let words = Words::of(line.text());
        if let Some(next) = obey(&words, out) {
            return next;
        }
    }
}

fn obey(words: &Words<'_>, out: &mut Terminal) -> Option<Next> {
    let word = words.get(0)?;
    let names = SHOWS.iter().map(|show| show.0).chain(ENDS.iter().map(|end| end.0));
    match complete(word, names) {
        Some("continue") => return Some(Next::Continue),
        Some("cpu") => return change_processor(words, out),
        Some(name) => {
            if let Some((_, _, _, show)) = SHOWS.iter().find(|show| show.0 == name) {
                let _ = show(words, out);
            }
        }
        None => {
            let _ = writeln!(out, "no such command; try help");
        }
    }
    None
}

fn change_processor(words: &Words<'_>, out: &mut Terminal) -> Option<Next> {
    let chosen = words.number(1).and_then(|number| CpuId::new(usize::try_from(number).ok()?));
    match chosen {
        Some(cpu) if super::entry::present().contains(cpu) => Some(Next::Switch(cpu)),
        _ => {
            let _ = writeln!(out, "no such processor here");
            None
        }
    }
}

fn break_at(words: &Words<'_>, out: &mut Terminal) -> core::fmt::Result {
    set_watch(words, Access::Execute, out)
}

fn watch(words: &Words<'_>, out: &mut Terminal) -> core::fmt::Result {
    let access = if words.get(2) == Some("rw") { Access::ReadWrite } else { Access::Write };
    set_watch(words, access, out)
}

fn set_watch(words: &Words<'_>, access: Access, out: &mut Terminal) -> core::fmt::Result {
    let aligned = |address: &u64| access == Access::Execute || address.is_multiple_of(8);
    match words.address(1).filter(aligned).and_then(|address| watches::choose(None, Some((address, access))))
    {
        Some(index) => writeln!(out, "breakpoint {index}"),
        None => writeln!(out, "an address is wanted, for data a multiple of 8; there are four breakpoints"),
    }
}

fn unwatch(words: &Words<'_>, out: &mut Terminal) -> core::fmt::Result {
    let index = words.number(1).and_then(|number| usize::try_from(number).ok());
    match index.and_then(|index| watches::choose(Some(index), None)) {
        Some(_) => Ok(()),
        None => writeln!(out, "breakpoints are numbered from 0 to 3"),
    }
}
