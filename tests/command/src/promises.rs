//! What `./starling run` promises.

use crate::case::{Case, Expected};
use crate::entries::ENTERED;
use crate::images::Images;

/// All cases.
pub(crate) fn cases(images: &Images) -> Vec<Case> {
    let groups = [
        identity(),
        processors(),
        endings(),
        streams(),
        options(),
        from_images(images),
        refusals(images),
        debugger(images),
    ];
    groups.into_iter().flatten().collect()
}

fn identity() -> Vec<Case> {
    vec![
        Case::new("uname names the system", &["uname", "-a"]).output(Expected::LineWith("Starling")),
        Case::new("the machine is x86_64", &["uname", "-m"]).prints("x86_64\n"),
        Case::script("the shell is the image's", "echo $0; echo $PPID").prints("sh\n1\n"),
        Case::new(
            "the first look at /sys waits for the drivers of what is there",
            &["ls", "/sys/bus/pci/slots"],
        )
        .with(&["--machine", "q35", "--cpus", "2", "--device", "pcie-root-port,id=rp0,chassis=1,slot=7"])
        .prints("7\n"),
    ]
}

/// The kernel debugger over the serial port: a file answers its prompts.
fn debugger(images: &Images) -> Vec<Case> {
    /// Writes where no stack is.
    const FAULT: &str = "mount -t debugfs debugfs /sys/kernel/debug; echo panic >/proc/sys/kernel/stack_overflow; \
        echo STACK_GUARD_PAGE_LEADING >/sys/kernel/debug/provoke-crash/DIRECT";
    const LATE_PANIC: &str = "test=late_panic";
    const ASKED_FOR: &str = "asked for on the command line";
    const CONTINUE: &str = "> continue";
    const ENDED: i32 = 125;
    let option = |script: &str| format!("--debugger={}", images.path(script).display());
    let talk = |name: &str, script: &str, cpus: &str, says: &'static str| {
        let option = option(script);
        Case::script(name, "echo before; echo g >/proc/sysrq-trigger; echo after")
            .with(&["--cpus", cpus, &option])
            .prints("before\nafter\n")
            .errors(Expected::Contains(says))
    };
    let mut cases = vec![
        talk("sysrq-g stops all processors", "look.kdb", "2", "Breakpoint, thread"),
        talk("another processor can be talked to", "switch.kdb", "4", "kdb 3> cpu 0"),
        talk("the key enters before a command asks for it", "key.kdb", "2", "kdb 0> help"),
        Case::script("without a debugger sysrq-g does nothing", "echo g >/proc/sysrq-trigger; echo after")
            .prints("after\n"),
        Case::new("a panic is told with a debugger that is off", &["true"])
            .with(&["--verbose", "--kernel-arg", LATE_PANIC])
            .status(ENDED)
            .errors(Expected::InOrder(&["kernel panic on processor", ASKED_FOR])),
    ];
    for cpus in ENTERED {
        let options = ["--cpus", &cpus.to_string(), &option("look.kdb")];
        let with =
            |what: &str| format!("{what} enters the debugger, and then ends the machine, with {cpus} CPUs");
        cases.push(
            Case::script(with("a fault in the kernel"), FAULT)
                .with(&options)
                .status(ENDED)
                .errors(Expected::InOrder(&["(Fault)", "touch_guard", CONTINUE, "kernel stack overflow at"])),
        );
        cases.push(
            Case::new(with("a panic"), &["true"])
                .with(&options)
                .with(&["--kernel-arg", LATE_PANIC])
                .status(ENDED)
                .errors(Expected::InOrder(&["(Fault)", CONTINUE, "kernel panic on processor", ASKED_FOR])),
        );
    }
    cases
}

/// Cases that take long.
pub(crate) fn long_cases() -> Vec<Case> {
    // Each byte value, in an order that no block size divides.
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index * 7 + index / 251) as u8).collect();
    vec![
        Case::script("a megabyte goes through all three streams", "tee /dev/stderr")
            .input(bytes.clone())
            .prints(bytes.clone())
            .errors(Expected::Exactly(bytes))
            .within(600),
        processors_counted("q35", 64).within(600),
    ]
}

fn processors_counted(machine: &str, cpus: u32) -> Case {
    Case::new(format!("{machine} with {cpus} CPUs has {cpus}"), &["nproc"])
        .with(&["--machine", machine, "--cpus", &cpus.to_string()])
        .prints(format!("{cpus}\n"))
}

fn processors() -> Vec<Case> {
    let machines = ["microvm", "q35"].iter();
    let mut cases: Vec<_> =
        machines.flat_map(|machine| [1, 2, 4, 8, 16].map(|cpus| processors_counted(machine, cpus))).collect();
    cases.push(processors_counted("microvm", 64).within(900));
    cases
}

fn endings() -> Vec<Case> {
    let one_line = Expected::LineWith("starling: ");
    vec![
        Case::new("success is 0", &["true"]),
        Case::new("failure is 1", &["false"]).status(1),
        Case::script("any status comes through", "exit 213").status(213),
        Case::script("death by signal is 128 and its number", "kill -9 $$").status(137),
        Case::script("death by a signal with a core is the same", "kill -SEGV $$").status(139),
        Case::new("what does not exist is 127", &["no-such-program"])
            .status(127)
            .errors(Expected::LineWith("starling: no-such-program: No such file or directory")),
        Case::new("no such path is 127", &["/bin/none"]).status(127).errors(one_line.clone()),
        Case::new("a directory is 126", &["/etc"]).status(126).errors(one_line.clone()),
        Case::new("a file without the right is 126", &["/etc/passwd"]).status(126).errors(one_line.clone()),
        Case::new("no such working directory is 125", &["true"])
            .with(&["--workdir", "/none"])
            .status(125)
            .errors(one_line),
        Case::new("a command that takes too long is 124", &["sleep", "1000"])
            .with(&["--timeout", "2"])
            .status(124)
            .errors(Expected::LineWith("timed out")),
        Case::script("who restarts the machine ends the run with 129", "echo before; reboot -f; echo after")
            .prints("before\n")
            .status(129),
        Case::script("who turns the machine off ends the run with 130", "seq 5000; poweroff -f; echo after")
            .prints((1..=5000).map(|number| format!("{number}\n")).collect::<String>())
            .status(130),
        Case::script("who halts the machine ends the run with 130", "echo before >&2; halt -f; echo after")
            .errors(Expected::Exactly(b"before\n".to_vec()))
            .status(130),
        Case::script("a process in the background may end the machine", "(poweroff -f) & sleep 1000")
            .status(130),
        Case::script("only who may ends the machine", "reboot -f || echo refused; poweroff -f || exit 3")
            .with(&["--user", "65534"])
            .prints("refused\n")
            .errors(Expected::Contains("poweroff: (null): Operation not permitted"))
            .status(3),
        Case::script("children that are left do not keep the command", "sleep 1000 & exit 7").status(7),
    ]
}

fn streams() -> Vec<Case> {
    let bytes: Vec<u8> = (0..=255).cycle().take(60_000).collect();
    let numbers: String = (1..=5000).map(|number| format!("{number}\n")).collect();
    vec![
        Case::script("outputs are separate", "echo out; echo err >&2")
            .prints("out\n")
            .errors(Expected::Exactly(b"err\n".to_vec())),
        Case::script(
            "streams are opened by their names",
            "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin",
        )
        .input("in\n")
        .prints("out\nin\n")
        .errors(Expected::Exactly(b"err\n".to_vec())),
        Case::new("input is forwarded byte for byte", &["cat"]).input(bytes.clone()).prints(bytes),
        Case::new("input without an end of line is whole", &["wc", "-c"]).input("four").prints("4\n"),
        Case::new("no input is an end of input", &["cat"]),
        Case::new("output is whole", &["seq", "5000"]).prints(numbers),
        Case::new("input that nobody reads does no harm", &["true"]).input(vec![b'x'; 300_000]),
        Case::script("streams are no terminals", "for n in 0 1 2; do [ -t $n ] && echo $n; done; true"),
        Case::new("a shell reads its script from the input", &[])
            .input("echo $((6 * 7))\nexit 3\n")
            .prints("42\n")
            .status(3),
    ]
}

fn options() -> Vec<Case> {
    vec![
        Case::script("variables are set", "echo $A-$B-$C")
            .with(&["-e", "A=1", "--env", "B=x y", "--env", "C"])
            .variable("C", "host")
            .prints("1-x y-host\n"),
        Case::new("the working directory is set", &["pwd"]).with(&["-w", "/usr/bin"]).prints("/usr/bin\n"),
        Case::script("the user is set", "id -u; id -g").with(&["--user", "nobody"]).prints("65534\n65534\n"),
        Case::new("the host name is set", &["hostname"]).with(&["--hostname", "box"]).prints("box\n"),
        Case::new("a little memory is enough", &["echo", "hello"])
            .with(&["--memory", "32M"])
            .prints("hello\n"),
        Case::script(
            "memory is what was asked for",
            "[ $(awk '/MemTotal/ {print $2}' /proc/meminfo) -gt 900000 ]",
        )
        .with(&["-m", "1g"]),
        Case::new("the log is shown when asked for", &["true"])
            .with(&["--verbose"])
            .errors(Expected::Contains("Starling")),
        Case::script("a terminal can be had", "tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ]")
            .with(&["-t"])
            .output(Expected::Contains("/dev/console")),
        Case::new("the boot trace ends at the command", &["true"])
            .with(&["--boot-trace"])
            .errors(Expected::Contains("first user instruction")),
    ]
}

fn from_images(images: &Images) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["directory", "image.tar"] {
        let case = |what: &str, script: &str| {
            Case::script(format!("{name}: {what}"), script).image(&images.path(name))
        };
        cases.push(case("files are there", "cat /etc/motd").prints("welcome\n"));
        cases.push(
            case("links lead to places in the image", "cat /absolute /upwards").prints("welcome\nwelcome\n"),
        );
        cases.push(case("hard links are one file", "[ /etc/motd -ef /etc/again ]"));
        cases.push(case("links are kept", "readlink /absolute").prints("/etc/motd\n"));
        cases.push(case("nothing else is there", "ls /etc").prints("again\nmotd\nnoexec\n"));
    }
    cases.push(
        Case::new("a link out of the image leads to a place in it", &["/bin/cat", "/out/escaped"])
            .image(&images.path("link.tar"))
            .prints("out\n")
            .leaves_alone(images.path("escaped")),
    );
    cases
}

fn refusals(images: &Images) -> Vec<Case> {
    let refused = |name: &str, image: &str, why: &'static str| {
        Case::new(name, &["true"]).image(&images.path(image)).status(125).errors(Expected::LineWith(why))
    };
    let bad = |name: &str, options: &[&str]| {
        Case::new(name, &["true"]).with(options).status(125).errors(Expected::LineWith("starling: "))
    };
    vec![
        refused("a name that leaves the image is refused", "parent.tar", "leaves the image")
            .leaves_alone(images.path("../escaped")),
        refused("a missing image is refused", "none", "No such file or directory"),
        refused("a text is no image", "text", "neither a directory nor"),
        refused(
            "a file system of which only the magic number is there is not searched for users",
            "magic",
            "give numbers",
        )
        .with(&["--user", "nobody"]),
        refused("an archive is not written", "image.tar", "can be written").with(&["--rw"]),
        bad("no CPUs are refused", &["--cpus", "0"]),
        bad("too little memory is refused", &["--memory", "1"]),
        bad("an unknown option is refused", &["--frobnicate"]),
        bad("an unknown machine is refused", &["--machine", "pdp11"]),
    ]
}
