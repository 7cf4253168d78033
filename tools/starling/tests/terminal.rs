//! `starling run` on a real terminal: raw mode, its end in every case, sizes, and the key that ends a hung guest.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A terminal with `starling run` on it.
struct Session {
    master: File,
    /// Keeps the terminal alive, and tells its settings.
    terminal: File,
    child: Child,
    seen: String,
}

impl Session {
    /// Starts the stand-in's `command` on a terminal of 33 rows and 101 columns.
    fn start(command: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        let terminal = OpenOptions::new().read(true).write(true).open(name).expect("opens");
        resize(&master, 33, 101);
        let end = || Stdio::from(OwnedFd::from(terminal.try_clone().expect("a descriptor")));
        let image = concat!(env!("CARGO_MANIFEST_DIR"), "/stand-in");
        let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        // A session of its own, so that the terminal is its controlling terminal.
        let child = Command::new("setsid")
            .args([
                "--ctty",
                env!("CARGO_BIN_EXE_starling"),
                "run",
                "--accel",
                "tcg",
                "--kernel",
                kernel,
                "-it",
                image,
            ])
            .args(["--", command])
            .env("STARLING_QEMU", env!("CARGO_BIN_EXE_stand-in-qemu"))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("starling starts");
        Self { master: File::from(master), terminal, child, seen: String::new() }
    }

    /// Reads until the screen shows `text`.
    fn expect(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let mut buffer = [0; 1024];
            let count = self.master.read(&mut buffer).expect("the terminal is alive");
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        self.seen = self.seen.split_once(text).map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    }

    fn type_in(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("the terminal is alive");
    }

    /// Whether the terminal edits lines and echoes, as it does outside of raw mode.
    fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("settings").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn status(&mut self) -> Option<i32> {
        self.child.wait().expect("ends").code()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the child is there");
    }
}

fn resize(master: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("resized");
}

#[test]
fn keys_and_sizes_reach_the_guest() {
    let mut session = Session::start("window");
    assert!(session.is_cooked());
    session.expect("33x101\r\n");
    assert!(!session.is_cooked());
    session.type_in(b"a\x03\x1a");
    session.expect("typed [97, 3, 26]");
    resize(&session.master.try_clone().expect("a descriptor").into(), 50, 132);
    session.expect("50x132\r\n");
    session.type_in(b"q");
    assert_eq!(session.status(), Some(3));
    assert!(session.is_cooked(), "the terminal is as it was");
}

#[test]
fn terminal_is_restored_when_a_signal_ends_the_session() {
    let mut session = Session::start("window");
    session.expect("33x101\r\n");
    assert!(!session.is_cooked());
    session.signal(Signal::HUP);
    assert_eq!(session.status(), Some(129));
    assert!(session.is_cooked(), "the terminal is as it was");
}

#[test]
fn terminal_is_restored_when_a_signal_is_insisted_on() {
    let mut session = Session::start("window");
    session.expect("33x101\r\n");
    // The first ones go to the command, which does not care.
    while session.child.try_wait().expect("a child").is_none() {
        session.signal(Signal::TERM);
    }
    assert_eq!(session.status(), Some(143));
    assert!(session.is_cooked(), "the terminal is as it was");
}

#[test]
fn terminal_is_restored_when_the_virtual_machine_vanishes() {
    let mut session = Session::start("window");
    session.expect("33x101\r\n");
    assert!(!session.is_cooked());
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", session.child.id()));
    for child in children.expect("/proc tells").split_whitespace() {
        let pid = child.parse().ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("the virtual machine is there");
    }
    assert_eq!(session.status(), Some(125));
    assert!(session.is_cooked(), "the terminal is as it was");
}

#[test]
fn terminal_is_restored_when_the_kernel_panics() {
    let mut session = Session::start("panic");
    assert_eq!(session.status(), Some(125));
    session.expect("kernel panic: all is lost\r\n");
    session.expect("the kernel panicked");
    assert!(session.is_cooked(), "the terminal is as it was");
}

#[test]
fn escape_key_ends_a_hung_guest() {
    let mut session = Session::start("window");
    session.expect("33x101\r\n");
    session.type_in(b"\x1d\x1d");
    session.type_in(b"\x1d");
    assert_eq!(session.status(), Some(137));
    assert!(session.is_cooked(), "the terminal is as it was");
}
