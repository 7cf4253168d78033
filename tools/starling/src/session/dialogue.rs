//! The dialogue with the kernel debugger, which talks over the port that carries the kernel log.
//!
//! The debugger prompts with `kdb N> `. While a prompt is the last thing it said, what is typed is for it; with the end of the line the
//! keyboard is the command's again. A script answers each prompt with its next line, and with `continue` when there is none left. A line
//! `enter` in front of a script's commands presses the key that enters the debugger, once the guest has said hello.

use std::collections::VecDeque;
use std::io::{self, Write};

/// The key that enters the debugger, as the kernel knows it: Ctrl-].
const ENTRY_KEY: u8 = 0x1d;
/// A script's line that presses it.
const ENTER: &str = "enter";
/// Bytes of the log that are kept to find a prompt at its end.
const TAIL: usize = 16;

/// One end of the dialogue.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    /// None: the user talks.
    script: Option<VecDeque<String>>,
    tail: Vec<u8>,
    prompted: bool,
    to_kernel: VecDeque<u8>,
}

impl Dialogue {
    /// The user types.
    pub(crate) fn with_the_user() -> Self {
        Self::default()
    }

    /// A script answers.
    pub(crate) fn with_script(text: &str) -> Self {
        Self { script: Some(text.lines().map(str::to_owned).collect()), ..Self::default() }
    }

    /// The guest listens.
    pub(super) fn greeted(&mut self) {
        if let Some(script) = &mut self.script
            && script.front().is_some_and(|line| line == ENTER)
        {
            script.pop_front();
            self.enter();
        }
    }

    /// Presses the key that enters the debugger.
    pub(super) fn enter(&mut self) {
        self.to_kernel.push_back(ENTRY_KEY);
    }

    /// Looks at what the kernel has logged.
    pub(super) fn listen(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.tail.push(byte);
            if byte == b'\n' {
                self.tail.clear();
            }
            if ends_with_prompt(&self.tail) {
                self.prompted = true;
                self.answer();
            }
            if self.tail.len() > TAIL {
                self.tail.remove(0);
            }
        }
    }

    fn answer(&mut self) {
        let Some(script) = &mut self.script else { return };
        let line = script.pop_front().unwrap_or_else(|| "continue".into());
        self.to_kernel.extend(line.bytes().chain([b'\r']));
        self.prompted = false;
    }

    /// Whether what is typed is for the debugger.
    pub(super) fn takes_input(&self) -> bool {
        self.prompted && self.script.is_none()
    }

    /// Takes what was typed.
    pub(super) fn type_in(&mut self, bytes: &[u8]) {
        self.to_kernel.extend(bytes);
        self.prompted &= !bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    }

    /// Whether something waits to be sent.
    pub(super) fn has_more(&self) -> bool {
        !self.to_kernel.is_empty()
    }

    /// Sends what it can.
    pub(super) fn send(&mut self, port: &mut impl Write) {
        let (front, _) = self.to_kernel.as_slices();
        match port.write(front) {
            Ok(count) => drop(self.to_kernel.drain(..count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // That QEMU has gone is seen elsewhere.
            Err(_) => self.to_kernel.clear(),
        }
    }
}

/// Whether the text ends with `kdb N> `.
fn ends_with_prompt(text: &[u8]) -> bool {
    let Some(start) = text.strip_suffix(b"> ") else { return false };
    let digits = start.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && start[..start.len() - digits].ends_with(b"kdb ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(dialogue: &mut Dialogue) -> Vec<u8> {
        let mut bytes = Vec::new();
        while dialogue.has_more() {
            dialogue.send(&mut bytes);
        }
        bytes
    }

    #[test]
    fn a_script_answers_prompts_and_goes_on_at_its_end() {
        let mut dialogue = Dialogue::with_script("enter\ncpus\n");
        dialogue.greeted();
        assert_eq!(sent(&mut dialogue), [ENTRY_KEY]);
        dialogue.listen(b"debugger on cpu 0\nkdb 0");
        assert!(!dialogue.has_more());
        dialogue.listen(b"> ");
        assert_eq!(sent(&mut dialogue), b"cpus\r");
        dialogue.listen(b"cpus\ncpu 0: active\nkdb 12> ");
        assert_eq!(sent(&mut dialogue), b"continue\r");
    }

    #[test]
    fn the_keyboard_is_the_debuggers_until_the_end_of_the_line() {
        let mut dialogue = Dialogue::with_the_user();
        assert!(!dialogue.takes_input());
        dialogue.listen(b"\nkdb 3> ");
        assert!(dialogue.takes_input());
        dialogue.type_in(b"he");
        dialogue.listen(b"he");
        assert!(dialogue.takes_input());
        dialogue.type_in(b"lp\r");
        assert!(!dialogue.takes_input());
        assert_eq!(sent(&mut dialogue), b"help\r");
    }

    #[test]
    fn only_a_prompt_is_one() {
        assert!(ends_with_prompt(b"kdb 0> "));
        assert!(!ends_with_prompt(b"kdb > ") && !ends_with_prompt(b"0> ") && !ends_with_prompt(b"kdb 0>"));
    }
}
