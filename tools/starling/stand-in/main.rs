//! A stand-in for QEMU that speaks the host link protocol, so that `starling run` is tested without a virtual machine.
//!
//! It is started as QEMU would be: the link is standard input and output, or later the descriptor of a socket in `-chardev`, the log is the path in `-chardev`, and the run
//! request is at the end of the file in `-initrd`. What it plays is told by the first argument of the command in the request:
//!
//! | command | plays |
//! |---|---|
//! | `exit N`, `kill N` | a command that ends like that |
//! | `fail ERRNO TEXT` | a command that cannot be started |
//! | `print OUT ERR N` | N times OUT to standard output and ERR to standard error |
//! | `cat` | standard input to standard output, giving credit as it is taken |
//! | `greedy` | takes input without giving credit, then tells how much came |
//! | `signals` | tells which signals arrive, ends at `SIGTERM` |
//! | `deaf` | a command that no signal ends |
//! | `silent` | a kernel that never says hello |
//! | `yes` | writes until told that nobody reads |
//! | `request` | prints the run request |
//! | `bug`, `panic` | a kernel with a bug to report |
//! | `babble` | a guest that breaks the protocol |
//! | `die` | QEMU ends with a complaint |
//! | `window` | tells the terminal's size until the first byte is typed |
//! | `trace` | a boot trace |
//! | `move` | moves the link to the second stream, then `cat`, or `panic` on the first one, or `back`: loses the second with a signal that comes there, then `signals` |
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use hostlink_protocol::request::{Key, Records};
use hostlink_protocol::{
    BootRecord, BootRecords, Channel, Deframer, ExitKind, GuestFrame, HostFrame, MAX_FRAME, MAX_PAYLOAD,
    VERSION,
};

/// A frame from the host, owned.
type Received = (u8, Vec<u8>);

/// The guest's end of the link.
#[derive(Default)]
struct Link {
    deframer: Deframer,
    arrived: Vec<u8>,
    /// The second stream, by way of two processes that inherit its descriptor.
    second: Option<(ChildStdin, ChildStdout)>,
    /// Frames that came in the first stream before the host had moved.
    earlier: VecDeque<Received>,
}

impl Link {
    fn send(&self, frame: GuestFrame<'_>) -> io::Result<()> {
        let mut bytes = [0; MAX_FRAME];
        let length = frame.encode(&mut bytes).map_err(io::Error::other)?;
        if let Some((out, _)) = &self.second {
            let mut out = out;
            return out.write_all(&bytes[..length]);
        }
        let mut out = io::stdout();
        out.write_all(&bytes[..length])?;
        out.flush()
    }

    fn text(&self, text: &str) -> io::Result<()> {
        self.send(GuestFrame::Stdout(text.as_bytes()))
    }

    fn exit(&self, kind: ExitKind) -> io::Result<()> {
        self.send(GuestFrame::Exit(kind))
    }

    /// The next frame from the host; an error when it has closed the link.
    fn receive(&mut self) -> io::Result<Received> {
        if let Some(frame) = self.earlier.pop_front() {
            return Ok(frame);
        }
        loop {
            let (taken, frame) = self.deframer.feed(&self.arrived).map_err(io::Error::other)?;
            let frame = frame.map(|(kind, payload)| (kind, payload.to_vec()));
            self.arrived.drain(..taken);
            if let Some(frame) = frame {
                return Ok(frame);
            }
            let mut buffer = [0; 4096];
            let count = match &mut self.second {
                Some((_, input)) => input.read(&mut buffer)?,
                None => io::stdin().read(&mut buffer)?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.arrived.extend(&buffer[..count]);
        }
    }
}

fn main() -> ExitCode {
    match play() {
        Ok(code) => code,
        // The host has ended the virtual machine.
        Err(_) => ExitCode::FAILURE,
    }
}

fn play() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    let value_of =
        |option: &str| arguments.windows(2).find(|pair| pair[0] == option).map(|pair| pair[1].clone());
    let log_path = value_of("-chardev").and_then(|value| value.split("path=").nth(1).map(str::to_owned));
    let mut log = OpenOptions::new().write(true).open(log_path.unwrap_or_default())?;
    let initramfs = std::fs::read(value_of("-initrd").unwrap_or_default())?;
    let request = request(&initramfs);
    let words: Vec<String> =
        request.iter().filter(|(key, _)| *key == Key::Argument).map(|(_, value)| value.clone()).collect();
    writeln!(log, "the kernel log")?;
    let mut link = Link::default();
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    if word(0) == "silent" {
        link.receive()?;
        return Ok(ExitCode::FAILURE);
    }
    if word(0) == "die" {
        eprintln!("qemu-system-x86_64: no such thing");
        return Ok(ExitCode::FAILURE);
    }
    link.send(GuestFrame::Hello { version: VERSION, nanoseconds: 5_000_000 })?;
    if word(0) == "move" {
        let port = arguments.iter().find_map(|value| value.strip_prefix("socket,id=port,fd="));
        link = moved(link, port.unwrap_or_default())?;
    }
    command(&mut link, &mut log, &words, &request)?;
    // The host ends the virtual machine; until then it does not go away.
    loop {
        link.receive()?;
    }
}

/// The records of the request: the file's data follows its name, up to the next member.
fn request(initramfs: &[u8]) -> Vec<(Key, String)> {
    let name = b".starling/run\0";
    let Some(found) = initramfs.windows(name.len()).position(|window| window == name) else {
        return Vec::new();
    };
    let start = (found + name.len()).next_multiple_of(4);
    let end = initramfs[start..]
        .windows(6)
        .position(|window| window == b"070701")
        .map_or(initramfs.len(), |end| start + end);
    Records::new(&initramfs[start..end])
        .map(|(key, value)| (key, String::from_utf8_lossy(value).into_owned()))
        .collect()
}

fn command(
    link: &mut Link,
    log: &mut impl Write,
    words: &[String],
    request: &[(Key, String)],
) -> io::Result<()> {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let number = |index: usize| word(index).parse::<u32>().unwrap_or(0);
    let exited = |status: u32| ExitKind::Exited(u8::try_from(status).unwrap_or(255));
    match word(0) {
        "exit" => link.exit(exited(number(1))),
        "kill" => link.exit(ExitKind::Killed(u8::try_from(number(1)).unwrap_or(0))),
        "fail" => {
            let errno = u16::try_from(number(1)).unwrap_or(0);
            link.send(GuestFrame::StartFailed { errno, text: word(2).as_bytes() })
        }
        "print" => {
            for _ in 0..number(3) {
                link.send(GuestFrame::Stdout(word(1).as_bytes()))?;
                link.send(GuestFrame::Stderr(word(2).as_bytes()))?;
            }
            link.exit(exited(0))
        }
        "move" if word(1) == "panic" => {
            writeln!(log, "kernel panic: all is lost")?;
            Link::default().send(GuestFrame::Bug(b"kernel panic: all is lost"))?;
            std::process::exit(0);
        }
        "move" if word(1) == "back" => {
            back(link)?;
            signals(link, true)
        }
        "cat" | "move" => cat(link),
        "greedy" => greedy(link),
        "signals" => signals(link, true),
        "deaf" => signals(link, false),
        "yes" => yes(link),
        "request" => {
            for (key, value) in request {
                link.text(&format!("{}={value}\n", key.name()))?;
            }
            link.exit(exited(0))
        }
        "bug" => {
            writeln!(log, "BUG: something is wrong")?;
            link.send(GuestFrame::Bug(b"something is wrong"))?;
            link.exit(exited(0))
        }
        "panic" => {
            writeln!(log, "kernel panic: all is lost")?;
            link.send(GuestFrame::Bug(b"kernel panic: all is lost"))?;
            std::process::exit(0);
        }
        "babble" => {
            io::stdout().write_all(&[0x55, 0, 0])?;
            io::stdout().flush()
        }
        "window" => window(link),
        "trace" => trace(link),
        other => link.send(GuestFrame::StartFailed { errno: 2, text: other.as_bytes() }),
    }
}

fn cat(link: &mut Link) -> io::Result<()> {
    loop {
        let (kind, payload) = link.receive()?;
        match kind {
            HostFrame::STDIN => {
                link.send(GuestFrame::Stdout(&payload))?;
                let bytes = u32::try_from(payload.len()).map_err(io::Error::other)?;
                link.send(GuestFrame::Credit { channel: Channel::Stdin, bytes })?;
            }
            HostFrame::STDIN_EOF => return link.exit(ExitKind::Exited(0)),
            _ => {}
        }
    }
}

/// Moves the link to the second stream. What is sent there is there before the first one has told of it.
fn moved(mut first: Link, descriptor: &str) -> io::Result<Link> {
    if descriptor.is_empty() {
        first.send(GuestFrame::Moved)?;
        return Ok(first);
    }
    // Everything else that is inherited is closed, so that the host sees the end of what the stand-in has open.
    let cat = |redirection: &str| {
        let closed = "exec 2>/dev/null; for fd in 3 4 5 6 7 8 9; do";
        let keep = format!("[ $fd = {descriptor} ] || eval \"exec $fd>&-\"; done");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{closed} {keep}; exec cat {redirection}&{descriptor} {descriptor}>&-"));
        shell
    };
    let writer = cat(">").stdin(Stdio::piped()).spawn()?;
    let reader = cat("<").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let second = Option::zip(writer.stdin, reader.stdout);
    let mut second = Link { second, ..Link::default() };
    first.text("one\n")?;
    second.text("three\n")?;
    first.text("two\n")?;
    first.send(GuestFrame::Moved)?;
    loop {
        match first.receive()? {
            (HostFrame::MOVED, _) => return Ok(second),
            frame => second.earlier.push_back(frame),
        }
    }
}

/// Is back on the first stream when a signal comes in the second, and says that it has not heard that one.
fn back(link: &mut Link) -> io::Result<()> {
    link.text("ready\n")?;
    // What came in the first stream does not count.
    link.earlier.clear();
    let mut heard = 0;
    while !matches!(link.receive()?, (HostFrame::SIGNAL, _)) {
        heard += 1;
    }
    *link = Link::default();
    link.send(GuestFrame::Back { heard })
}

/// Counts what comes without new credit. A signal from the host marks the moment to tell.
fn greedy(link: &mut Link) -> io::Result<()> {
    let mut total = 0;
    loop {
        let (kind, payload) = link.receive()?;
        match kind {
            HostFrame::STDIN => {
                total += payload.len();
                if total == 16_384 {
                    link.send(GuestFrame::Stderr(b"full\n"))?;
                }
            }
            HostFrame::SIGNAL => {
                link.text(&format!("{total}\n"))?;
                return link.exit(ExitKind::Exited(0));
            }
            _ => {}
        }
    }
}

fn signals(link: &mut Link, obedient: bool) -> io::Result<()> {
    link.text("ready\n")?;
    loop {
        if let (HostFrame::SIGNAL, payload) = link.receive()? {
            link.text(&format!("signal {}\n", payload[0]))?;
            if obedient && payload[0] == 15 {
                return link.exit(ExitKind::Killed(15));
            }
        }
    }
}

/// Writes for ever from one thread while another waits for the news that nobody reads.
fn yes(link: &mut Link) -> io::Result<()> {
    std::thread::spawn(|| {
        let writer = Link::default();
        while writer.send(GuestFrame::Stdout(&[b'y'; MAX_PAYLOAD])).is_ok() {}
    });
    loop {
        if link.receive()? == (HostFrame::OUTPUT_CLOSED, vec![GuestFrame::STDOUT]) {
            return link.exit(ExitKind::Killed(13));
        }
    }
}

fn window(link: &mut Link) -> io::Result<()> {
    loop {
        let (kind, payload) = link.receive()?;
        match HostFrame::decode(kind, &payload) {
            Ok(HostFrame::Window { rows, columns }) => {
                link.send(GuestFrame::Tty(format!("{rows}x{columns}\r\n").as_bytes()))?;
            }
            Ok(HostFrame::TtyInput(bytes)) if !bytes.contains(&0x1d) => {
                link.send(GuestFrame::Tty(format!("typed {bytes:?}\r\n").as_bytes()))?;
                if bytes.contains(&b'q') {
                    return link.exit(ExitKind::Exited(3));
                }
            }
            _ => {}
        }
    }
}

fn trace(link: &Link) -> io::Result<()> {
    let mut bytes = [0; 64];
    let record = BootRecord { nanoseconds: 1_000_000, name: b"memory" };
    let length = record.encode(&mut bytes).map_err(io::Error::other)?;
    link.send(GuestFrame::BootTrace(BootRecords::decode(&bytes[..length]).map_err(io::Error::other)?))?;
    link.send(GuestFrame::FirstUser { nanoseconds: 7_000_000 })?;
    link.exit(ExitKind::Exited(0))
}
