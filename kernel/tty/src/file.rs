//! A terminal, and the master side of a pseudo-terminal, as open files.

use alloc::sync::Arc;
use core::fmt;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result};

use crate::control;
use crate::job_control::job_control;
use crate::pseudo::{Master, Pair};
use crate::terminal::Terminal;

/// A terminal opened by a program.
pub struct TerminalFile {
    terminal: Arc<Terminal>,
    /// The terminal's [cuts](Terminal::cuts) when it was opened.
    since: u64,
    /// For slaves of pseudo-terminals: told when the last file closes.
    pair: Option<Arc<Pair>>,
}

impl TerminalFile {
    /// Opens a terminal. A session leader without a controlling terminal gets it as such, unless the flags forbid it.
    ///
    /// # Errors
    /// [`Error::Io`] when it is hung up or locked, [`Error::Busy`] when it is exclusive, [`Error::OutOfMemory`].
    pub fn open(terminal: Arc<Terminal>, pair: Option<Arc<Pair>>, flags: OpenFlags) -> Result<Arc<Self>> {
        if terminal.is_hung_up() || pair.as_ref().is_some_and(|pair| pair.is_locked()) {
            return Err(Error::Io);
        }
        let privileged =
            job_control().and_then(|control| control.caller()).is_some_and(|caller| caller.privileged);
        if terminal.state.lock().exclusive && !privileged {
            return Err(Error::Busy);
        }
        let since = terminal.cuts();
        if !flags.contains(OpenFlags::NO_CONTROLLING_TERMINAL) {
            acquire_on_open(&terminal);
        }
        if let Some(pair) = &pair {
            pair.slave_opened();
        }
        let file = Self { terminal, since, pair };
        // When the allocation fails, dropping `file` closes it again.
        memory::fallible::try_arc(file).map_err(|_| Error::OutOfMemory)
    }

    /// The terminal.
    pub fn terminal(&self) -> &Arc<Terminal> {
        &self.terminal
    }
}

fn acquire_on_open(terminal: &Arc<Terminal>) {
    let Some(control) = job_control() else { return };
    let Some(caller) = control.caller() else { return };
    if caller.leads_session && control.controlling_terminal().is_none() && terminal.session().is_none() {
        terminal.associate(caller.session, caller.group);
        control.set_controlling_terminal(Some(terminal.clone()));
    }
}

impl Drop for TerminalFile {
    fn drop(&mut self) {
        if let Some(pair) = &self.pair {
            pair.slave_closed();
        }
    }
}

impl FileOperations for TerminalFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.terminal.read(sink, file.non_block(), self.since)
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.terminal.write(source, file.non_block(), self.since)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        self.terminal.poll(table, self.since)
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if self.terminal.is_over(self.since) {
            return Err(Error::Io);
        }
        control::terminal(&self.terminal, command, argument)
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let name = self.terminal.name();
        write!(out, "tty:[{}:{}]", name.major, name.minor)
    }
}

/// The master side of a pseudo-terminal opened by a program.
pub struct MasterFile {
    master: Master,
}

impl MasterFile {
    /// Makes a pseudo-terminal whose slave belongs to the user and group.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there are too many, [`Error::OutOfMemory`].
    pub fn open(user: u32, group: u32) -> Result<Arc<Self>> {
        let master = crate::pseudo::open_master(user, group)?;
        memory::fallible::try_arc(Self { master }).map_err(|_| Error::OutOfMemory)
    }

    /// The master side.
    pub fn master(&self) -> &Master {
        &self.master
    }
}

impl FileOperations for MasterFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.master.read(sink, file.non_block())
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.master.write(source, file.non_block())
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        self.master.poll(table)
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        control::master(&self.master, command, argument)
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/dev/ptmx")
    }
}
