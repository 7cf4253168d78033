//! Ports of virtio consoles: a stream of bytes under the name that QEMU gives it, and a terminal, spoken to through QEMU's sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::case::starling;

/// What is promised.
pub(crate) const NAME: &str = "ports of a virtio console carry bytes both ways, and one is a terminal";

/// Machines, with the device that has the ports.
const MACHINES: [(&str, &str); 2] = [("q35", "virtio-serial-pci"), ("microvm", "virtio-serial-device")];
/// Bytes that go to the guest and come back.
const BYTES: usize = 2_000_000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sends back what comes on the port, then answers a line on the terminal.
const GUEST: &str = "port=/dev/virtio-ports/starling.test; until [ -e $port ]; do usleep 10000; done; stty -F /dev/hvc0 raw -echo; \
    echo ready; exec 3<>$port; cat $port 2>/dev/null || echo taken; head -c 2000000 <&3 >&3; \
    read line </dev/hvc0; echo got $line >/dev/hvc0; read line </dev/hvc0";

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// QEMU's end of a chardev.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, String> {
    let stream = UnixStream::connect(path).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    Ok(stream)
}

/// Bytes without a period that buffers have.
fn pattern() -> Vec<u8> {
    let mut seed = 1_u32;
    let step = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    (0..BYTES).map(step).collect()
}

/// Sends bytes, and compares what comes back with them.
pub(crate) fn echo(stream: &UnixStream) -> Result<(), String> {
    let sent = pattern();
    let mut back = vec![0; BYTES];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut writer = stream;
            writer.write_all(&sent)
        });
        let mut reader = stream;
        reader.read_exact(&mut back).map_err(text)?;
        sender.join().map_err(|_| "the sender panicked")?.map_err(text)
    })?;
    if sent == back { Ok(()) } else { Err("other bytes come back than were sent".into()) }
}

fn terminal(path: &Path) -> Result<(), String> {
    let mut stream = connect(path)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(text)?);
    stream.write_all(b"hello\n").map_err(text)?;
    let mut line = String::new();
    answers.read_line(&mut line).map_err(text)?;
    stream.write_all(b"bye\n").map_err(text)?;
    if line.trim() == "got hello" { Ok(()) } else { Err(format!("the terminal says {line:?}")) }
}

fn check_on(machine: &str, device: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let (port, terminal_path) = (folder.path().join("port"), folder.path().join("terminal"));
    let socket =
        |name: &str, path: &Path| format!("socket,id={name},path={},server=on,wait=off", path.display());
    let mut words = vec!["-device".into(), format!("{device},id=own,max_ports=4")];
    if machine == "microvm" {
        words.extend(["-global".into(), "virtio-mmio.force-legacy=false".into()]);
    }
    words.extend(["-chardev".into(), socket("terminal", &terminal_path)]);
    words.extend(["-device".into(), "virtconsole,bus=own.0,chardev=terminal".into()]);
    words.extend(["-chardev".into(), socket("bytes", &port)]);
    words.extend(["-device".into(), "virtserialport,bus=own.0,chardev=bytes,name=starling.test".into()]);
    let mut command = starling();
    command.args(["--machine", machine, "--cpus", "2", "--timeout", "150", "--kernel-arg", "devices=first"]);
    for word in words {
        command.args(["--qemu-arg", &word]);
    }
    let mut child = command
        .args(["--", "sh", "-c", GUEST])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .map_err(text)?;
    let mut told = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut wait_for = |wanted: &str| {
        let line = told.next().ok_or("it has ended")?.map_err(text)?;
        if line == wanted { Ok(()) } else { Err(format!("it says {line:?}, not {wanted:?}")) }
    };
    let outcome = wait_for("ready")
        .and_then(|()| connect(&port))
        .and_then(|stream| wait_for("taken").and_then(|()| echo(&stream)))
        .and_then(|()| terminal(&terminal_path));
    if outcome.is_err() {
        // It may wait for what will not come.
        let _ = child.kill();
    }
    let status = child.wait().map_err(text)?;
    outcome?;
    if status.success() { Ok(()) } else { Err(format!("it ends with {status}")) }
}

/// Boots each machine.
pub(crate) fn check() -> Result<(), String> {
    for (machine, device) in MACHINES {
        check_on(machine, device).map_err(|why| format!("{machine}: {why}"))?;
    }
    Ok(())
}
