//! What /proc and /sys show.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

/// Reads a file to its end, in pieces.
fn read_all(program: &mut Program<'_>, path: &str) {
    let text = program.text(path);
    let file = program.must(abi::__NR_open, &[text, 0, 0]);
    let mut total = 0;
    loop {
        let count = program.must(abi::__NR_read, &[file, ARENA + 4 * PAGE, 700]);
        total += count;
        if count == 0 {
            break;
        }
    }
    assert!(total > 0, "{path} is empty");
    program.must(abi::__NR_close, &[file]);
}

fn list_all(program: &mut Program<'_>, path: &str) {
    let text = program.text(path);
    let file = program.must(abi::__NR_open, &[text, abi::O_DIRECTORY.into(), 0]);
    while program.must(abi::__NR_getdents64, &[file, ARENA + 4 * PAGE, 300]) > 0 {}
    program.must(abi::__NR_close, &[file]);
}

#[test]
fn a_process_in_proc() {
    exhaust("/proc/self", 60, |program| {
        let path = program.text("/tmp");
        program.must(abi::__NR_open, &[path, 0, 0]);
        program.cast(Part::Pause, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        for name in ["maps", "smaps", "status", "stat", "statm", "limits", "mounts", "mountinfo", "comm"] {
            read_all(program, &format!("/proc/{child}/{name}"));
        }
        read_all(program, "/proc/self/task/2/stat");
        read_all(program, "/proc/self/fdinfo/0");
        for name in ["fd", "task", "ns", "fdinfo"] {
            list_all(program, &format!("/proc/{child}/{name}"));
        }
        let room = program.room(200);
        for name in
            ["/proc/self", "/proc/thread-self", "/proc/self/cwd", "/proc/self/fd/0", "/proc/self/ns/pid"]
        {
            let name = program.text(name);
            assert!(program.must(abi::__NR_readlink, &[name, room, 200]) > 0);
        }
        program.must(abi::__NR_kill, &[child, abi::SIGKILL.into()]);
        program.must(abi::__NR_wait4, &[child, 0, 0, 0]);
    });
}

#[test]
fn the_system_in_proc_and_sys() {
    exhaust("/proc and /sys", 60, |program| {
        for name in [
            "meminfo",
            "stat",
            "loadavg",
            "uptime",
            "vmstat",
            "cpuinfo",
            "interrupts",
            "filesystems",
            "buddyinfo",
            "sys/kernel/hostname",
            "sys/kernel/pid_max",
        ] {
            read_all(program, &format!("/proc/{name}"));
        }
        list_all(program, "/proc");
        list_all(program, "/sys/devices/system/cpu");
        read_all(program, "/sys/devices/system/cpu/online");
    });
}
