//! Ports of PCI Express and their services in a real machine, driven through QEMU's monitor: the acceptance checks of
//! specs/pcie-port-bus.md as far as QEMU's devices go.
//!
//! One machine for all: root ports of two makes, a switch with two ports behind the second, and a device behind the first of those. A shell in
//! the guest is asked over standard input, QEMU over a socket. Whatever takes its time is asked for again until a limit.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::case::starling;
use crate::{functions, images};

/// What is promised, in the order in which it is checked.
pub(crate) const CHECKS: [(&str, Check); 13] = [
    ("the ports of figure 5 have the service devices of the paper", service_devices),
    ("Debian's lspci sees ports, slots and error reporting", lspci),
    ("Debian's lspci says the same by /proc as by /sys", lspci_by_proc),
    ("files of PCI functions say and do what Linux documents", functions::files),
    (
        "functions that are taken out are found again, and files of those that went reach nothing",
        functions::stale,
    ),
    ("services of a port share its interrupt", shared_interrupt),
    ("error reporting works while hot-plug is unbound, and hot-plug after", independence),
    ("a device comes and goes behind a root port and a switch", hot_plug),
    ("a slot is switched off and on by hand", slot_power),
    ("a slot that was switched off stays off when the port above it recovers", slot_stays_off),
    ("a non-fatal error is reported and counted", non_fatal),
    ("a fatal error resets the bus", fatal),
    ("a correctable error can be injected, and a thousand", injected),
];

/// A check in a running machine.
pub(crate) type Check = fn(&mut Machine) -> Result<(), String>;

const ARGUMENTS: [&str; 18] = [
    "--machine",
    "q35",
    "--cpus",
    "2",
    "--timeout",
    "3000",
    "--device",
    "pcie-root-port,id=rp0,chassis=1,slot=1",
    "--device",
    "ioh3420,id=rp1,chassis=2,slot=2",
    "--device",
    "x3130-upstream,id=up,bus=rp1",
    "--device",
    "xio3130-downstream,id=dn0,bus=up,chassis=3,slot=3",
    "--device",
    "xio3130-downstream,id=dn1,bus=up,chassis=4,slot=4",
    "--device",
    "virtio-net-pci,aer=on,bus=dn0,id=nic0,romfile=",
];
/// Ends the shell's answer.
const END: &str = "@end@";
/// How long something may take to happen.
const PATIENCE: Duration = Duration::from_secs(300);
/// The monitor's event of a device that is gone.
const DELETED: &str = "DEVICE_DELETED";
const EXPRESS: &str = "/sys/bus/pci_express";
/// The ports, as the kernel or firmware has numbered them, are found by what they are.
pub(crate) const NETWORK: &str = "grep -l 0x020000 /sys/bus/pci/devices/*/class | sed 's,/class,,'";

/// A machine with a shell and a monitor.
pub(crate) struct Machine {
    child: Child,
    shell: ChildStdin,
    answers: BufReader<ChildStdout>,
    monitor: BufReader<UnixStream>,
    /// Rounds of plugging.
    rounds: usize,
    /// What the monitor has said of devices that are gone, and nobody has asked for.
    deletions: Vec<String>,
    _folder: tempfile::TempDir,
}

/// How much less memory may be free after rounds of plugging: an object lost in each of fifty is more.
const LOST_KB_MAX: i64 = 512;

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Machine {
    /// Boots.
    pub(crate) fn start(rounds: usize) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(text)?;
        let root = folder.path().join("root");
        images::make_folder_with_lspci(&root).map_err(text)?;
        let mut machine = Self::with(&ARGUMENTS, &root)?;
        machine.rounds = rounds;
        Ok(machine)
    }

    /// Boots an image with these options.
    pub(crate) fn with(arguments: &[impl AsRef<OsStr>], root: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(text)?;
        let socket = folder.path().join("monitor");
        let monitor = format!("--qemu-arg=unix:{},server=on,wait=off", socket.display());
        let mut child = starling()
            .args(arguments)
            .args(["--qemu-arg=-qmp", &monitor])
            .arg(root)
            .args(["--", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(text)?;
        let shell = child.stdin.take().ok_or("no standard input")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut shell_ready = shell;
        writeln!(shell_ready, "echo {END}").map_err(text)?;
        read_answer(&mut answers)?;
        let stream = UnixStream::connect(&socket).map_err(text)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        let monitor = BufReader::new(stream);
        let mut machine = Self {
            child,
            shell: shell_ready,
            answers,
            monitor,
            rounds: 0,
            deletions: Vec::new(),
            _folder: folder,
        };
        machine.execute("{\"execute\": \"qmp_capabilities\"}")?;
        Ok(machine)
    }

    /// What a command in the guest prints. Its last line may lack an end.
    pub(crate) fn guest(&mut self, command: &str) -> Result<String, String> {
        writeln!(self.shell, "{command}\necho\necho {END}").map_err(text)?;
        read_answer(&mut self.answers)
    }

    /// Asks the guest until the answer is this.
    pub(crate) fn until(&mut self, command: &str, wanted: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let answer = self.guest(command)?;
            if answer.trim() == wanted {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{command} says {answer:?}, not {wanted:?}"));
            }
            self.guest("sleep 0.2")?;
        }
    }

    /// Reads the monitor up to a line with this in it.
    pub(crate) fn monitor_line(&mut self, part: &str) -> Result<String, String> {
        let start = Instant::now();
        let mut line = String::new();
        while start.elapsed() < PATIENCE {
            line.clear();
            if self.monitor.read_line(&mut line).map_err(text)? == 0 {
                return Err("the monitor has gone".into());
            }
            if line.contains(part) {
                return Ok(line);
            }
            if line.contains(DELETED) {
                self.deletions.push(line.clone());
            }
        }
        Err(format!("the monitor does not say {part}"))
    }

    /// Waits until the monitor says, or has said, that a device is gone.
    pub(crate) fn deleted(&mut self, name: &str) -> Result<(), String> {
        let named = format!("\"device\": \"{name}\"");
        loop {
            let known = self.deletions.iter().position(|line| line.contains(&named));
            if let Some(known) = known {
                self.deletions.swap_remove(known);
                return Ok(());
            }
            let line = self.monitor_line(DELETED)?;
            self.deletions.push(line);
        }
    }

    /// A command of the monitor; what it answers.
    pub(crate) fn execute(&mut self, command: &str) -> Result<String, String> {
        writeln!(self.monitor.get_mut(), "{command}").map_err(text)?;
        self.monitor_line("\"return\"")
    }

    /// A command of the human monitor.
    pub(crate) fn monitor(&mut self, command: &str) -> Result<(), String> {
        let request = format!(
            "{{\"execute\": \"human-monitor-command\", \"arguments\": {{\"command-line\": \"{command}\"}}}}"
        );
        let answer = self.execute(&request)?;
        if answer.contains("Error") { Err(answer) } else { Ok(()) }
    }

    /// Errors of a severity that the network device behind the switch has counted.
    fn total(&mut self, severity: &str) -> Result<u64, String> {
        let command = format!("cat $({NETWORK} | tail -n 1)/aer_dev_{severity} | tail -n 1");
        let line = self.guest(&command)?;
        let number = line.split_whitespace().last().and_then(|word| word.parse().ok());
        number.ok_or_else(|| format!("{command} says {line:?}"))
    }

    pub(crate) fn number(&mut self, command: &str) -> Result<u64, String> {
        let line = self.guest(command)?;
        line.trim().parse().map_err(|_| format!("{command} says {line:?}"))
    }

    fn total_becomes(&mut self, severity: &str, wanted: u64) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let total = self.total(severity)?;
            if total == wanted {
                return Ok(());
            }
            if start.elapsed() > PATIENCE || total > wanted {
                return Err(format!("{total} errors are counted as {severity}, not {wanted}"));
            }
            self.guest("sleep 0.2")?;
        }
    }

    /// Presses the button of a device's slot. A guest shows the device a moment before it lets the slot's lamp shine steadily, and QEMU refuses
    /// as long as that blinks.
    pub(crate) fn unplug(&mut self, name: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            match self.monitor(&format!("device_del {name}")) {
                Err(why) if why.contains("guest is busy") && start.elapsed() < PATIENCE => {
                    self.guest("sleep 0.1")?;
                }
                other => return other,
            }
        }
    }

    /// Plugs a network device in and out again.
    fn plug(&mut self, bus: &str, name: &str) -> Result<(), String> {
        let present = self.functions()?;
        let count = format!("{NETWORK} | wc -l");
        self.monitor(&format!("device_add virtio-net-pci,bus={bus},id={name},romfile="))?;
        self.until(&count, &format!("{}", present + 1))?;
        self.unplug(name)?;
        self.deleted(name)?;
        self.until(&count, &format!("{present}"))
    }

    /// Free memory, with nothing in caches that can be thrown away.
    pub(crate) fn free_kb_without_caches(&mut self) -> Result<i64, String> {
        self.guest("sync; echo 3 > /proc/sys/vm/drop_caches")?;
        self.free_kb()
    }

    /// Waits until as much memory is free, without caches, as there was before, but for so much. What has ended is freed a moment later.
    pub(crate) fn memory_comes_back(&mut self, before: i64, lost_kb_max: i64) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let lost = before - self.free_kb_without_caches()?;
            if lost <= lost_kb_max {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{lost} KiB less are free than before"));
            }
            self.guest("sleep 0.2")?;
        }
    }

    /// Free memory.
    fn free_kb(&mut self) -> Result<i64, String> {
        let line = self.guest("sed -n 's/MemFree: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")?;
        line.trim().parse().map_err(|_| format!("free memory is {line:?}"))
    }

    fn functions(&mut self) -> Result<usize, String> {
        let answer = self.guest(&format!("{NETWORK} | wc -l"))?;
        answer.trim().parse().map_err(text)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The machine ends with the command, whatever state it is in.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_answer(answers: &mut BufReader<ChildStdout>) -> Result<String, String> {
    let mut answer = String::new();
    loop {
        let start = answer.len();
        if answers.read_line(&mut answer).map_err(text)? == 0 {
            return Err(format!("the machine has ended: {answer}"));
        }
        if answer[start..].trim_end() == END {
            answer.truncate(start);
            return Ok(answer);
        }
    }
}

fn service_devices(machine: &mut Machine) -> Result<(), String> {
    let names = format!("ls {EXPRESS}/devices | sed 's/.*://' | sort | uniq -c | tr -s ' \\n' ' '");
    machine.until(&names, "2 pcie00 2 pcie01 2 pcie02 1 pcie11 2 pcie21 2 pcie22")?;
    machine.until("ls /sys/bus/pci/drivers/pcieport | grep -c :", "5")
}

fn lspci(machine: &mut Machine) -> Result<(), String> {
    let seen = machine.guest("lspci -vv 2>/dev/null")?;
    let drivers = seen.matches("Kernel driver in use: pcieport").count();
    let reporting = seen.matches("] Advanced Error Reporting").count();
    let slots: Vec<_> = (1..=4).filter(|number| seen.contains(&format!("\tSlot #{number},"))).collect();
    if drivers == 5 && reporting >= 5 && slots.len() == 4 {
        Ok(())
    } else {
        Err(format!(
            "{drivers} ports with a driver, {reporting} with error reporting, slots {slots:?}: {seen}"
        ))
    }
}

/// Of prefetchable windows `lspci` takes another bit for their width when it reads `resource`, on Linux as here.
const SAME_WIDTH: &str =
    "sed -e '/Prefetchable memory behind bridge/{s/\\[..-bit\\]//;s/\\([ -]\\)0*\\([1-9a-f]\\)/\\1\\2/g}'";

/// It knows slots by `/sys` only. It reads no more than eight digits of an address in `/proc/bus/pci/devices`, and what follows a longer one it takes for something else.
const WITHOUT_REGIONS: &str = "grep -v -e 'Region [0-9]:' -e 'Kernel driver in use' -e 'Physical Slot:'";

fn lspci_by_proc(machine: &mut Machine) -> Result<(), String> {
    // All functions; and a port, whose addresses are short.
    for (which, filter, lines_min) in [("", WITHOUT_REGIONS, 1000), ("-s 00:01.0", "cat", 100)] {
        for way in ["proc", "sysfs"] {
            machine.guest(&format!(
                "lspci {which} -A linux-{way} -nvvxxxx 2> /tmp/why-{way} | {SAME_WIDTH} | {filter} > /tmp/{way}"
            ))?;
        }
        let lines = machine.number("cat /tmp/proc | wc -l")?;
        let different =
            machine.guest("diff /tmp/proc /tmp/sysfs | head -n 40; diff /tmp/why-proc /tmp/why-sysfs")?;
        if lines < lines_min || !different.trim().is_empty() {
            return Err(format!("{lines} lines: {different}"));
        }
    }
    machine.until("lspci -s 00:01.0 -A linux-proc -vv 2> /dev/null | grep -c -e 'Region 0: Memory at .*size=4K' -e 'in use: pcieport'", "2")
}

fn shared_interrupt(machine: &mut Machine) -> Result<(), String> {
    machine.until("grep -c 'PCI-MSI.*aer.*pciehp' /proc/interrupts", "2")
}

fn independence(machine: &mut Machine) -> Result<(), String> {
    let ports = machine.guest(&format!("ls {EXPRESS}/drivers/pciehp | grep ^0000:00:"))?;
    let ports: Vec<_> = ports.split_whitespace().map(str::to_owned).collect();
    for port in &ports {
        machine.guest(&format!("echo {port} > {EXPRESS}/drivers/pciehp/unbind"))?;
    }
    machine.until(&format!("ls {EXPRESS}/drivers/pciehp | grep -c ^0000:00:"), "0")?;
    let before = machine.total("nonfatal")?;
    machine.monitor("pcie_aer_inject_error nic0 POISON_TLP 1 2 3 4")?;
    machine.total_becomes("nonfatal", before + 1)?;
    for port in &ports {
        machine.guest(&format!("echo {port} > {EXPRESS}/drivers/pciehp/bind"))?;
    }
    machine
        .until(&format!("ls {EXPRESS}/drivers/pciehp | grep -c ^0000:00:"), &format!("{}", ports.len()))?;
    machine.plug("rp0", "again")
}

/// Begins to look at every file there is, again and again.
fn begin_looking(machine: &mut Machine) -> Result<(), String> {
    let look = "(while [ ! -e /tmp/stop ]; do ls -lR /sys /proc/bus; lspci; done > /dev/null 2>&1; echo > /tmp/ended) &";
    machine.guest("rm -f /tmp/stop /tmp/ended")?;
    machine.guest(look).map(drop)
}

/// Nobody looks any more.
fn end_looking(machine: &mut Machine) -> Result<(), String> {
    machine.guest("echo > /tmp/stop")?;
    machine.until("cat /tmp/ended && echo yes", "yes")
}

/// Rounds of plugging, while others look at every file there is. Memory is compared when they don't: they have some of their own.
fn hot_plug(machine: &mut Machine) -> Result<(), String> {
    begin_looking(machine)?;
    // The first rounds make what is kept.
    machine.plug("rp0", "first0")?;
    machine.plug("dn1", "first1")?;
    end_looking(machine)?;
    let before = machine.free_kb()?;
    begin_looking(machine)?;
    for round in 0..machine.rounds {
        machine.plug(if round % 2 == 0 { "rp0" } else { "dn1" }, &format!("hot{round}"))?;
    }
    end_looking(machine)?;
    let start = Instant::now();
    loop {
        let lost = before - machine.free_kb()?;
        if lost <= LOST_KB_MAX {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{lost} KiB less are free after {} rounds", machine.rounds));
        }
        // What has ended is freed a moment later.
        machine.guest("sleep 0.2")?;
    }
}

fn slot_power(machine: &mut Machine) -> Result<(), String> {
    let present = machine.functions()?;
    let count = format!("{NETWORK} | wc -l");
    machine.guest("echo 0 > /sys/bus/pci/slots/3/power")?;
    machine.until(&count, &format!("{}", present - 1))?;
    machine.guest("echo 1 > /sys/bus/pci/slots/3/power")?;
    machine.until(&count, &format!("{present}"))
}

fn slot_stays_off(machine: &mut Machine) -> Result<(), String> {
    let present = machine.functions()?;
    let count = format!("{NETWORK} | wc -l");
    let recoveries = "dmesg | grep -c 'AER: device recovery successful'";
    machine.guest("echo 0 > /sys/bus/pci/slots/3/power")?;
    machine.until(&count, &format!("{}", present - 1))?;
    let before = machine.guest(recoveries)?;
    let before: u32 = before.trim().parse().map_err(text)?;
    // One thread recovers and looks at slots: when the second recovery is over, it has looked at them after the first.
    for more in 1..=2 {
        machine.monitor("pcie_aer_inject_error rp1 DLP")?;
        machine.until(recoveries, &format!("{}", before + more))?;
    }
    machine.until("cat /sys/bus/pci/slots/3/power", "0")?;
    machine.until(&count, &format!("{}", present - 1))?;
    machine.guest("echo 1 > /sys/bus/pci/slots/3/power")?;
    machine.until(&count, &format!("{present}"))
}

fn non_fatal(machine: &mut Machine) -> Result<(), String> {
    let before = machine.total("nonfatal")?;
    machine.guest("dmesg -c > /dev/null")?;
    machine.monitor("pcie_aer_inject_error nic0 POISON_TLP 1 2 3 4")?;
    machine.total_becomes("nonfatal", before + 1)?;
    // Only who is behind the agent's own port is asked.
    machine.until("dmesg | grep -c 'AER: device recovery successful'", "1")?;
    let port = machine.guest(&format!("basename $(dirname $(realpath $({NETWORK} | tail -n 1)))"))?;
    let asking = "dmesg | sed -n 's/.* \\([0-9a-f:.]*\\): AER: broadcast .*/\\1/p' | sort -u";
    machine.until(asking, port.trim())?;
    let header = "01000000 02000000 03000000 04000000";
    machine.until(&format!("dmesg | grep -q 'TLP Header: {header}' && echo yes"), "yes")?;
    let address = machine.guest(&format!("{NETWORK} | tail -n 1 | sed 's,.*/,,'"))?;
    let line = format!(
        "{}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
        address.trim()
    );
    machine.until(&format!("dmesg | grep -q '{line}' && echo yes"), "yes")
}

/// The steps of the recoveries that the log has, in order.
fn steps(machine: &mut Machine) -> Result<String, String> {
    let seen = machine.guest("dmesg | sed -n -e 's/.*AER: broadcast \\(.*\\) message/\\1/p' -e 's/.*the bus behind it was reset/reset/p' -e 's/.*AER: device recovery //p'")?;
    Ok(seen.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn fatal(machine: &mut Machine) -> Result<(), String> {
    machine.guest("dmesg -c > /dev/null")?;
    machine.monitor("pcie_aer_inject_error nic0 DLP")?;
    machine.total_becomes("fatal", 1)?;
    machine.until("dmesg | grep -q 'the bus behind it was reset' && echo yes", "yes")?;
    machine.until("dmesg | grep -c 'device recovery'", "1")?;
    let seen = steps(machine)?;
    if seen != "error_detected reset slot_reset resume successful" {
        return Err(format!("the recovery was: {seen}"));
    }
    let address = format!("tail -c +6 $({NETWORK} | tail -n 1)/config | head -c 1 | wc -c");
    machine.until(&address, "1")
}

fn injected(machine: &mut Machine) -> Result<(), String> {
    let bus = machine.guest(&format!("{NETWORK} | tail -n 1 | sed 's,.*/,,' | cut -d: -f2"))?;
    let bus = u8::from_str_radix(bus.trim(), 16).map_err(text)?;
    let zeros = "\\000\\000\\000\\000";
    let one =
        format!("printf '\\{bus:03o}\\000\\000\\000{zeros}\\100\\000\\000\\000{zeros}{zeros}{zeros}{zeros}'");
    machine.guest(&format!("dmesg -c > /dev/null; {one} > /dev/aer_inject"))?;
    machine.total_becomes("correctable", 1)?;
    // It is reported as a warning, layer, role and bit as the specification has them; no driver hears of it.
    let role = "PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)";
    machine.until(&format!("dmesg | grep -c '{role}'"), "1")?;
    machine.until("dmesg -r | grep '\\[ 6\\] BadTLP' | cut -c 1-3", "<4>")?;
    let seen = steps(machine)?;
    if !seen.is_empty() {
        return Err(format!("there was a recovery: {seen}"));
    }
    // Each is counted or told to be lost. What is told of more than a hundred would not all be in the log any more.
    let mut lost = 0;
    for round in 1..=10 {
        machine.guest(&format!("for i in $(seq 100); do {one} > /dev/aer_inject; done"))?;
        let start = Instant::now();
        loop {
            lost += machine.number(
                "dmesg -c | sed -n 's/.*AER: \\([0-9]*\\) error messages lost/\\1/p' | awk '{n += $1} END {print n + 0}'",
            )?;
            let counted =
                machine.number("cat /sys/bus/pci/devices/0000:00:02.0/aer_rootport_total_err_cor")?;
            if counted + lost == 1 + round * 100 {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{counted} errors are counted and {lost} lost after round {round}"));
            }
            machine.guest("sleep 0.1")?;
        }
    }
    Ok(())
}
