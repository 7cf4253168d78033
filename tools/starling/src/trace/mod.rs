//! `starling trace`: what the kernel does inside a call, seen from the emulator, and what the threads of a program do.
//!
//! * [`plugin`]: the machine whose accesses are recorded
//! * [`window`]: what it recorded
//! * [`code`]: names of functions and objects
//! * [`sharing`]: cache lines that calls on two processors share though they commute; [`conflict`] finds them,
//!   [`expectation`] knows which ones are known; [`comparison`]: how many there are in several kernels
//! * [`messages`]: what messages on one processor cost because there are others
//! * [`threads`]: what a program's threads do with each other
//! * [`locks`]: locks and atomic operations of each system call; [`ceilings`] knows how many are allowed

mod ceilings;
mod code;
mod comparison;
mod conflict;
mod expectation;
mod locks;
mod messages;
mod plugin;
mod sharing;
mod threads;
mod window;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Look into what the kernel does inside a call.
#[derive(Args, Debug)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Locks(locks::LocksArguments),
    Messages(messages::MessagesArguments),
    Sharing(sharing::SharingArguments),
    Threads(Box<threads::ThreadsArguments>),
}

/// Traces what the arguments say and returns the exit status.
///
/// # Errors
/// When the machine cannot be had or did not do what it was to do.
pub(crate) fn trace(arguments: &TraceArguments) -> Outcome<u8> {
    match &arguments.what {
        What::Locks(arguments) => locks::trace(arguments),
        What::Messages(arguments) => messages::trace(arguments),
        What::Sharing(arguments) => sharing::trace(arguments),
        What::Threads(arguments) => threads::threads(arguments),
    }
}
