//! Control groups with their controllers: made, entered, limited, left and removed.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

/// `CLONE_INTO_CGROUP`
const INTO_GROUP: u64 = 0x2_0000_0000;
const TREE: &str = "/tmp/groups";

fn write(program: &mut Program<'_>, file: &str, text: &str) {
    let path = program.text(&format!("{TREE}/{file}"));
    let file = program.must(abi::__NR_open, &[path, abi::O_WRONLY.into(), 0]);
    let bytes = program.bytes(text.as_bytes());
    program.must(abi::__NR_write, &[file, bytes, text.len() as u64]);
    program.must(abi::__NR_close, &[file]);
}

fn show(program: &mut Program<'_>, file: &str) {
    let path = program.text(&format!("{TREE}/{file}"));
    let file = program.must(abi::__NR_open, &[path, 0, 0]);
    program.must(abi::__NR_read, &[file, ARENA + 7 * PAGE, 1000]);
    program.must(abi::__NR_close, &[file]);
}

fn make(program: &mut Program<'_>, group: &str) -> u64 {
    let path = program.text(&format!("{TREE}/{group}"));
    program.must(abi::__NR_mkdir, &[path, 0o755]);
    path
}

#[test]
fn in_groups_with_limits() {
    exhaust("control groups", 60, |program| {
        let (cgroup2, tree) = (program.text("cgroup2"), program.text(TREE));
        program.must(abi::__NR_mkdir, &[tree, 0o755]);
        program.must(abi::__NR_mount, &[cgroup2, tree, cgroup2, 0, 0]);
        write(program, "cgroup.subtree_control", "+memory +io +pids +cpu");
        let outer = make(program, "outer");
        // What fails for want of memory when a group hands controllers on to the groups that it has, is done when it is asked for once more.
        let inner = make(program, "outer/inner");
        write(program, "outer/cgroup.subtree_control", "+memory +cpu");
        for (file, text) in [
            ("memory.max", "1G"),
            ("memory.high", "1G"),
            ("pids.max", "9"),
            ("cpu.weight", "7"),
            ("inner/memory.max", "512M"),
            ("inner/cpu.weight", "8"),
        ] {
            write(program, &format!("outer/{file}"), text);
        }
        program.cast(Part::Pause, [0; 3]);
        let place = program.must(abi::__NR_open, &[inner, abi::O_DIRECTORY.into(), 0]);
        let wanted = program.words(&[INTO_GROUP, 0, 0, 0, abi::SIGCHLD.into(), 0, 0, 0, 0, 0, place]);
        let child = program.must(abi::__NR_clone3, &[wanted, 88]);
        program.must(abi::__NR_close, &[place]);
        for file in
            ["memory.stat", "memory.events", "memory.current", "cgroup.procs", "cgroup.events", "cpu.stat"]
        {
            show(program, &format!("outer/inner/{file}"));
        }
        show(program, "outer/io.stat");
        write(program, "outer/cgroup.freeze", "0");
        program.must(abi::__NR_kill, &[child, abi::SIGKILL.into()]);
        program.must(abi::__NR_wait4, &[child, 0, 0, 0]);
        // From now on the process has a reason to look at its state, which it would do on its way to user mode: it can't sleep.
        write(program, "outer/inner/cgroup.procs", "0");
        // What is touched now is charged, and stays charged where it is.
        let private = program.must(abi::__NR_mmap, &[0, 8 * PAGE, 3, 0x22, u64::MAX, 0]);
        (0..8).for_each(|page| program.put_at(private + page * PAGE, &[1]));
        write(program, "cgroup.procs", "0");
        program.must(abi::__NR_rmdir, &[inner]);
        program.must(abi::__NR_rmdir, &[outer]);
        write(program, "cgroup.subtree_control", "-memory -io -pids -cpu");
        program.must(abi::__NR_umount2, &[tree, 0]);
        program.must(abi::__NR_rmdir, &[tree]);
    });
}
