//! The arguments and environment of execve, copied out of the old program.
//!
//! All strings lie one after the other in one buffer, NUL-terminated, arguments before environment, as they will lie on the new
//! stack. Limits as in Linux: one string 128 KiB, all together a quarter of RLIMIT_STACK but at most 6 MiB.

use alloc::vec::Vec;

use machine::address::UserAddr;
use machine::user_memory::{self, StringError};

use crate::errno::Errno;
use crate::user_pointer::UserPointer;

/// Longest single string with its terminator.
const STRING_MAX: usize = 128 << 10;
/// Upper bound of all strings whatever the stack limit.
const TOTAL_MAX: u64 = 6 << 20;
/// What may always be passed.
const TOTAL_MIN: u64 = 128 << 10;
const POINTER_BYTES: u64 = 8;

/// Copied arguments and environment.
#[derive(Debug, Default)]
pub struct Arguments {
    bytes: Vec<u8>,
    /// How many arguments.
    pub count: usize,
    /// How many environment strings.
    pub environment_count: usize,
    // Bytes of the arguments proper.
    argument_bytes: usize,
    limit: u64,
}

impl Arguments {
    /// None yet, with the limit that follows from RLIMIT_STACK.
    pub fn new(stack_limit: u64) -> Arguments {
        Arguments { limit: (stack_limit / 4).clamp(TOTAL_MIN, TOTAL_MAX), ..Arguments::default() }
    }

    /// Copies both lists of a calling program.
    #[inline(never)]
    pub fn read(stack_limit: u64, arguments: u64, environment: u64) -> Result<Arguments, Errno> {
        let mut copied = Arguments::new(stack_limit);
        copied.count = copied.read_list(arguments)?;
        copied.argument_bytes = copied.bytes.len();
        copied.environment_count = copied.read_list(environment)?;
        Ok(copied)
    }

    fn read_list(&mut self, list: u64) -> Result<usize, Errno> {
        if list == 0 {
            return Ok(0);
        }
        let mut count = 0;
        loop {
            let string = UserPointer::<u64>::new(list).add(count).read()?;
            if string == 0 {
                return Ok(count);
            }
            count += 1;
            self.charge(0, count)?;
            self.read_string(string)?;
        }
    }

    fn charge(&self, more: usize, pointers: usize) -> Result<(), Errno> {
        let pointers = (self.count + self.environment_count + pointers) as u64 * POINTER_BYTES;
        if (self.bytes.len() + more) as u64 + pointers > self.limit { Err(Errno::E2BIG) } else { Ok(()) }
    }

    fn read_string(&mut self, address: u64) -> Result<(), Errno> {
        const CHUNK: usize = 256;
        let start = self.bytes.len();
        loop {
            let at = self.bytes.len();
            if at - start >= STRING_MAX {
                return Err(Errno::E2BIG);
            }
            self.charge(1, 0)?;
            memory::fallible::try_reserve(&mut self.bytes, CHUNK).map_err(|_| Errno::ENOMEM)?;
            self.bytes.resize(at + CHUNK, 0);
            let from = UserAddr::new(address.wrapping_add((at - start) as u64));
            match user_memory::read_string(&mut self.bytes[at..], from) {
                Ok(length) => {
                    self.bytes.truncate(at + length);
                    self.bytes.push(0);
                    return Ok(());
                }
                Err(StringError::TooLong) => {}
                Err(StringError::Fault) => return Err(Errno::EFAULT),
            }
        }
    }

    /// Adds an argument after the others. Only before any environment string.
    pub fn push_argument(&mut self, argument: &[u8]) -> Result<(), Errno> {
        debug_assert_eq!(self.environment_count, 0, "arguments come before the environment");
        self.push(argument)?;
        self.count += 1;
        self.argument_bytes = self.bytes.len();
        Ok(())
    }

    /// Adds an environment string.
    pub fn push_environment(&mut self, string: &[u8]) -> Result<(), Errno> {
        self.push(string)?;
        self.environment_count += 1;
        Ok(())
    }

    fn push(&mut self, string: &[u8]) -> Result<(), Errno> {
        self.charge(string.len() + 1, 1)?;
        memory::fallible::try_reserve(&mut self.bytes, string.len() + 1).map_err(|_| Errno::ENOMEM)?;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        Ok(())
    }

    /// Replaces the first argument by these (what a script's first line says).
    pub fn replace_first(&mut self, with: &[&[u8]]) -> Result<(), Errno> {
        let old = if self.count == 0 { 0 } else { self.strings().next().map_or(0, |first| first.len() + 1) };
        let added: usize = with.iter().map(|string| string.len() + 1).sum();
        self.charge(added, with.len())?;
        let mut bytes: Vec<u8> =
            memory::fallible::try_vec(self.bytes.len() - old + added).map_err(|_| Errno::ENOMEM)?;
        for string in with {
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        bytes.extend_from_slice(&self.bytes[old..]);
        self.bytes = bytes;
        self.count = self.count.max(1) - 1 + with.len();
        self.argument_bytes = self.argument_bytes + added - old;
        Ok(())
    }

    /// All strings with their terminators, as they go onto the stack.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the arguments with their terminators.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// The strings without their terminators, arguments first.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.count + self.environment_count;
        self.bytes.split(|&byte| byte == 0).take(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_put_their_interpreter_before_the_arguments() {
        let mut arguments = Arguments::new(8 << 20);
        for argument in [&b"script"[..], b"one", b""] {
            arguments.push_argument(argument).expect("room");
        }
        arguments.push_environment(b"A=1").expect("room");
        arguments.replace_first(&[b"/bin/sh", b"-x", b"/tmp/script"]).expect("room");
        let strings: Vec<&[u8]> = arguments.strings().collect();
        assert_eq!(strings, [&b"/bin/sh"[..], b"-x", b"/tmp/script", b"one", b"", b"A=1"]);
        assert_eq!((arguments.count, arguments.environment_count), (5, 1));
        assert_eq!(arguments.argument_bytes(), b"/bin/sh\0-x\0/tmp/script\0one\0\0".len());
    }

    #[test]
    fn too_much_is_refused() {
        let mut arguments = Arguments::new(0);
        let big = alloc::vec![b'x'; 100 << 10];
        assert_eq!(arguments.push_argument(&big), Ok(()));
        assert_eq!(arguments.push_argument(&big), Err(Errno::E2BIG));
    }

    #[test]
    fn every_allocation_may_fail() {
        memory::fallible::exhaust("argument lists", || {
            let mut arguments = Arguments::new(8 << 20);
            let _ = arguments.push_argument(b"a").and_then(|()| arguments.replace_first(&[b"b", b"c"]));
        });
    }
}
