//! What the line discipline does, seen from both ends of the terminal.

use std::string::String;
use std::vec::Vec;

use super::*;
use crate::termios::{Control, InputFlags, OutputFlags};

struct Bench {
    line: LineDiscipline,
    screen: Vec<u8>,
    signals: Vec<TerminalSignal>,
}

impl Bench {
    fn new() -> Self {
        Self { line: LineDiscipline::new().unwrap(), screen: Vec::new(), signals: Vec::new() }
    }

    fn with(change: impl FnOnce(&mut Termios)) -> Self {
        let mut bench = Self::new();
        let mut termios = *bench.line.termios();
        change(&mut termios);
        bench.line.set_termios(termios);
        bench
    }

    fn type_in(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            let received = self.line.receive(byte, &mut |shown| self.screen.push(shown));
            self.signals.extend(received.signal);
        }
        self
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    fn read(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let count = self.line.read(&mut bytes).count;
        bytes.truncate(count);
        bytes
    }
}

#[test]
fn a_line_is_readable_only_when_it_is_ended() {
    let mut bench = Bench::new();
    bench.type_in(b"ab");
    assert!(!bench.line.is_readable(false));
    bench.type_in(b"c\r");
    assert!(bench.line.is_readable(false));
    assert_eq!(bench.read(100), b"abc\n");
    assert_eq!(bench.screen(), "abc\r\n");
}

#[test]
fn a_read_returns_one_line_at_most_and_keeps_the_rest() {
    let mut bench = Bench::new();
    bench.type_in(b"one\ntwo\n");
    assert_eq!(bench.line.readable_bytes(), 8);
    assert_eq!(bench.read(2), b"on");
    assert_eq!(bench.read(100), b"e\n");
    assert_eq!(bench.read(100), b"two\n");
    assert!(!bench.line.is_readable(false));
}

#[test]
fn end_of_file_at_the_start_of_a_line_reads_as_zero_bytes() {
    let mut bench = Bench::new();
    bench.type_in(b"\x04");
    assert!(bench.line.is_readable(false));
    assert_eq!(bench.read(10), b"");
    assert!(!bench.line.is_readable(false));
}

#[test]
fn end_of_file_within_a_line_delivers_it_without_a_newline() {
    let mut bench = Bench::new();
    bench.type_in(b"abc\x04");
    assert_eq!(bench.read(3), b"abc");
    assert!(!bench.line.is_readable(false), "the end-of-file character went with the bytes before it");
}

#[test]
fn erase_word_and_kill_rub_out_what_they_take_back() {
    let mut bench = Bench::new();
    bench.type_in(b"ab\x7f");
    assert_eq!(bench.screen(), "ab\x08 \x08");
    bench.type_in(b" foo bar\x17\n");
    assert_eq!(bench.read(100), b"a foo \n");
    bench.type_in(b"gone\x15kept\n");
    assert_eq!(bench.read(100), b"kept\n");
}

#[test]
fn erase_takes_whole_utf8_characters() {
    let mut bench = Bench::with(|termios| termios.input |= InputFlags::IUTF8);
    bench.type_in("aä\x7f\n".as_bytes());
    assert_eq!(bench.read(10), b"a\n");
    assert_eq!(bench.screen(), "aä\x08 \x08\r\n");
}

#[test]
fn erasing_a_tab_moves_back_to_where_it_started() {
    let mut bench = Bench::new();
    bench.type_in(b"abc\t\x7f");
    assert_eq!(bench.screen(), "abc\t\x08\x08\x08\x08\x08");
}

#[test]
fn erase_stops_at_the_line_start() {
    let mut bench = Bench::new();
    bench.type_in(b"x\n\x7f\x7f\x15y\n");
    assert_eq!(bench.read(10), b"x\n");
    assert_eq!(bench.read(10), b"y\n");
}

#[test]
fn control_characters_raise_signals_and_flush() {
    let mut bench = Bench::new();
    bench.type_in(b"junk\x03");
    assert_eq!(bench.signals, [TerminalSignal::Interrupt]);
    assert_eq!(bench.screen(), "junk^C");
    bench.type_in(b"ok\n\x1a\x1c");
    assert_eq!(bench.signals[1..], [TerminalSignal::Suspend, TerminalSignal::Quit]);
    assert!(!bench.line.is_readable(false), "the signals flushed the complete line");
}

#[test]
fn noflsh_keeps_input_across_a_signal() {
    let mut bench = Bench::with(|termios| termios.local |= LocalFlags::NOFLSH);
    bench.type_in(b"a\x03b\n");
    assert_eq!(bench.read(10), b"ab\n");
}

#[test]
fn literal_next_takes_the_meaning_away() {
    let mut bench = Bench::new();
    bench.type_in(b"\x16\x03\n");
    assert!(bench.signals.is_empty());
    assert_eq!(bench.read(10), b"\x03\n");
    assert_eq!(bench.screen(), "^\x08^C\r\n");
}

#[test]
fn reprint_shows_the_line_again() {
    let mut bench = Bench::new();
    bench.type_in(b"abc\x12");
    assert_eq!(bench.screen(), "abc^R\r\nabc");
}

#[test]
fn stop_and_start_hold_output_and_are_not_input() {
    let mut bench = Bench::new();
    bench.type_in(b"\x13");
    assert!(bench.line.is_stopped());
    bench.type_in(b"\x11\n");
    assert!(!bench.line.is_stopped());
    assert_eq!(bench.read(10), b"\n");
}

#[test]
fn raw_mode_delivers_bytes_at_once() {
    let mut bench = Bench::with(|termios| {
        termios.local = LocalFlags::empty();
        termios.input = InputFlags::empty();
    });
    bench.type_in(b"\x03\r");
    assert!(bench.line.is_readable(false));
    assert_eq!(bench.read(10), b"\x03\r");
    assert_eq!(bench.screen(), "");
}

#[test]
fn poll_waits_for_the_minimum_in_raw_mode() {
    let mut bench = Bench::with(|termios| {
        termios.local -= LocalFlags::ICANON;
        termios.characters[Control::Minimum as usize] = 3;
    });
    bench.type_in(b"ab");
    assert!(bench.line.is_readable(false));
    assert!(!bench.line.is_readable(true));
    bench.type_in(b"c");
    assert!(bench.line.is_readable(true));
}

#[test]
fn leaving_canonical_mode_makes_the_edited_line_readable() {
    let mut bench = Bench::new();
    bench.type_in(b"abc");
    let mut termios = *bench.line.termios();
    termios.local -= LocalFlags::ICANON;
    bench.line.set_termios(termios);
    assert_eq!(bench.read(10), b"abc");
}

#[test]
fn entering_canonical_mode_makes_pending_input_a_line() {
    let mut bench = Bench::with(|termios| termios.local -= LocalFlags::ICANON);
    bench.type_in(b"abc");
    let mut termios = *bench.line.termios();
    termios.local |= LocalFlags::ICANON;
    bench.line.set_termios(termios);
    assert_eq!(bench.read(10), b"abc");
}

#[test]
fn an_overlong_line_is_cut_but_can_be_ended() {
    let mut bench = Bench::new();
    bench.type_in(&[b'x'; 5000]);
    assert_eq!(bench.line.room(), 1);
    bench.type_in(b"\n");
    let line = bench.read(8192);
    assert_eq!(line.len(), BUFFER_BYTES);
    assert_eq!(line.last(), Some(&b'\n'));
    assert_eq!(bench.line.room(), BUFFER_BYTES - 1);
}

#[test]
fn output_processing_expands_newlines_and_tabs() {
    let mut line = LineDiscipline::new().unwrap();
    let mut termios = *line.termios();
    termios.output |= OutputFlags::XTABS;
    line.set_termios(termios);
    let mut shown = Vec::new();
    for byte in *b"a\tb\n" {
        line.output(byte, &mut |byte| shown.push(byte));
    }
    assert_eq!(shown, b"a       b\r\n");
}

#[test]
fn echonl_echoes_only_newlines() {
    let mut bench = Bench::with(|termios| {
        termios.local -= LocalFlags::ECHO;
        termios.local |= LocalFlags::ECHONL;
    });
    bench.type_in(b"secret\n");
    assert_eq!(bench.screen(), "\r\n");
}

proptest::proptest! {
    /// Whatever is typed and read in whatever pieces, nothing panics and the positions stay ordered.
    #[test]
    fn any_input_keeps_the_invariants(
        steps in proptest::collection::vec((proptest::collection::vec(0_u8..=255, 0..600), 0_usize..700, 0_u8..6), 1..30),
    ) {
        let mut bench = Bench::new();
        for (typed, size, change) in steps {
            bench.type_in(&typed);
            bench.read(size);
            let mut termios = *bench.line.termios();
            match change {
                0 => termios.local.toggle(LocalFlags::ICANON),
                1 => termios.input.toggle(InputFlags::IUTF8),
                2 => termios.local.toggle(LocalFlags::ECHOPRT),
                3 => bench.line.flush_input(),
                _ => {}
            }
            bench.line.set_termios(termios);
            let line = &bench.line;
            assert!(line.tail <= line.canonical && line.canonical <= line.head);
            assert!(line.buffered() <= BUFFER_BYTES);
        }
    }
}
