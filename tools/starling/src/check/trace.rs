//! A program and its children on the host, stopped at each of their calls.
//!
//! A shell that stops itself is seized, goes on, and becomes the program; what it does before is not looked at. All children are followed, for as long
//! as one of them is there. A stop of the whole program by a signal is not kept: it goes on at once, because the interface has no other way for a tracer without unsafe code.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::failure::{Context, Failure, Outcome, STATUS_SIGNAL_BASE};

/// What becomes the program.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "kill -STOP $$; exec \"$@\""];
/// What ptrace(2) says of a stop in front of a call.
const ENTRY: u8 = 1;
/// 64-bit programs, as audit(7) names them.
const X86_64: u32 = 0xc000_003e;

/// A call that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) process: Pid,
    pub(super) number: u64,
    pub(super) registers: [u64; 6],
    /// Made as programs of 32 bits do.
    pub(super) narrow: bool,
}

impl Made {
    /// So many bytes of the program's memory, at most eight, as a number.
    pub(super) fn memory(&self, address: u64, bytes: u32) -> Option<u64> {
        let word = ptrace::read(self.process, address as ptrace::AddressType).ok()?;
        let mask = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
        Some(word.cast_unsigned() & mask)
    }
}

/// Runs the program to its end, and shows each call. Returns the program's exit status as a shell has it.
///
/// # Errors
/// When it cannot be started or traced.
pub(super) fn run(command: &[OsString], mut see: impl FnMut(&Made)) -> Outcome<u8> {
    let doing = || command.first().map_or_else(String::new, |name| name.display().to_string());
    let child = Command::new(SHELL[0]).args(&SHELL[1..]).arg("sh").args(command).spawn().context(doing)?;
    let program = Pid::from_raw(child.id().cast_signed());
    let failed = |error: Errno| Failure::ours(format!("{}: {error}", doing()));
    waitpid(program, Some(WaitPidFlag::WUNTRACED)).map_err(failed)?;
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options).map_err(failed)?;
    kill(program, Signal::SIGCONT).map_err(failed)?;
    let mut status = None;
    let mut begun = false;
    // Who is stopped while it is told to go on has been killed, which the next wait tells.
    let go_on = |process, signal: Option<Signal>| {
        let _ = ptrace::syscall(process, signal);
    };
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(process)) => {
                if begun && let Some(made) = made(process) {
                    see(&made);
                }
                go_on(process, None);
            }
            Ok(WaitStatus::PtraceEvent(process, _, event)) => {
                begun |= event == ptrace::Event::PTRACE_EVENT_EXEC as i32;
                go_on(process, None);
            }
            Ok(WaitStatus::Stopped(process, signal)) => go_on(process, Some(signal)),
            Ok(WaitStatus::Exited(process, code)) if process == program => status = Some(code as u8),
            Ok(WaitStatus::Signaled(process, signal, _)) if process == program => {
                status = Some(STATUS_SIGNAL_BASE.saturating_add(signal as u8));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    match status {
        Some(status) if begun => Ok(status),
        // The shell has said why.
        Some(status) => Err(Failure::with_status(status, format!("{}: it cannot be started", doing()))),
        None => Err(Failure::ours(format!("{}: {}", doing(), io::Error::from(io::ErrorKind::NotFound)))),
    }
}

/// The call that a stopped process is about to make; nothing behind a call.
fn made(process: Pid) -> Option<Made> {
    let info = ptrace::syscall_info(process).ok().filter(|info| info.op == ENTRY)?;
    let at = ptrace::getregs(process).ok()?;
    Some(Made {
        process,
        number: at.orig_rax,
        registers: [at.rdi, at.rsi, at.rdx, at.r10, at.r8, at.r9],
        narrow: info.arch != X86_64,
    })
}
