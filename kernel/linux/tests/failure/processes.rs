//! fork, clone, execve, wait, sessions and groups, process descriptors.

use linux::errno::Errno;
use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const CLONE_THREAD_FLAGS: u64 = (abi::CLONE_VM
    | abi::CLONE_FS
    | abi::CLONE_FILES
    | abi::CLONE_SIGHAND
    | abi::CLONE_THREAD
    | abi::CLONE_SYSVSEM) as u64;
const AT_FDCWD: u64 = -100_i64 as u64;

/// Waits for any child and returns its status.
fn reap(program: &mut Program<'_>) -> u32 {
    let status = program.room(4);
    program.must(abi::__NR_wait4, &[u64::MAX, status, 0, 0]);
    program.word(status)
}

#[test]
fn forking_and_waiting() {
    exhaust("fork and wait", 20, |program| {
        program.cast(Part::End, [7, 0, 0]);
        let child = program.must(abi::__NR_fork, &[]);
        assert!(child > 2);
        assert_eq!(reap(program), 7 << 8);
        program.refused(abi::__NR_wait4, &[u64::MAX, 0, 0, 0], Errno::ECHILD);
    });
}

#[test]
fn a_child_in_name_spaces_of_its_own() {
    exhaust("clone into name spaces", 25, |program| {
        let spaces =
            abi::CLONE_NEWUSER | abi::CLONE_NEWPID | abi::CLONE_NEWUTS | abi::CLONE_NEWIPC | abi::SIGCHLD;
        program.cast(Part::End, [3, 0, 0]);
        program.must(abi::__NR_clone, &[spaces.into(), 0, 0, 0, 0]);
        assert_eq!(reap(program), 3 << 8);
    });
}

#[test]
fn a_child_that_is_number_one() {
    exhaust("unshare of process numbers", 25, |program| {
        program.must(abi::__NR_unshare, &[abi::CLONE_NEWPID.into()]);
        program.cast(Part::End, [4, 0, 0]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 4 << 8);
        // Its name space has ended with it.
        program.refused(abi::__NR_fork, &[], Errno::ENOMEM);
    });
}

#[test]
fn a_child_and_a_program_with_other_clocks() {
    exhaust("unshare of times", 40, |program| {
        program.must(abi::__NR_unshare, &[abi::CLONE_NEWTIME.into()]);
        let path = program.text("/program");
        let list = program.words(&[path, 0]);
        program.cast(Part::Execute, [path, list, list]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 0);
        program.must(abi::__NR_unshare, &[abi::CLONE_NEWTIME.into()]);
        program.cast(Part::Execute, [path, list, list]);
        program.must(abi::__NR_vfork, &[]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn borrowing_memory_until_execve() {
    exhaust("vfork and execve", 40, |program| {
        let path = program.text("/program");
        let list = program.words(&[path, 0]);
        program.cast(Part::Execute, [path, list, list]);
        program.must(abi::__NR_vfork, &[]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn executing_a_script_by_descriptor() {
    exhaust("execve of a script", 40, |program| {
        let path = program.text("/script");
        let words: Vec<u64> = (0..40).map(|number| program.text(&format!("argument {number}"))).collect();
        let mut list = words.clone();
        list.push(0);
        let list = program.words(&list);
        program.cast(Part::Execute, [path, list, list]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn a_child_with_much_memory_and_many_files() {
    exhaust("fork of a large process", 40, |program| {
        let area = program.must(abi::__NR_mmap, &[0, 64 << 30, 3, 0x4022, u64::MAX, 0]);
        for gigabyte in (0..64).step_by(16) {
            program.put_at(area + (gigabyte << 30), &[1]);
        }
        let pipe = program.room(8);
        for _ in 0..40 {
            program.must(abi::__NR_pipe, &[pipe]);
        }
        program.cast(Part::End, [0; 3]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn threads_and_their_ends() {
    exhaust("threads", 20, |program| {
        let stack = ARENA + PAGE;
        let clear = program.words(&[1]);
        let flags = CLONE_THREAD_FLAGS | u64::from(abi::CLONE_CHILD_CLEARTID | abi::CLONE_PARENT_SETTID);
        program.cast(Part::EndThread, [0; 3]);
        for _ in 0..3 {
            program.must(abi::__NR_clone, &[flags, stack, clear, clear, 0]);
            // Until the kernel clears the word.
            while program.word(clear) != 0 {
                let value = program.word(clear).into();
                let _ = program.call(abi::__NR_futex.into(), &[clear, 0, value, 0]);
            }
        }
    });
}

#[test]
fn a_process_with_a_descriptor() {
    exhaust("clone3 with a process descriptor", 25, |program| {
        let pidfd = program.words(&[0]);
        let mut words = [0; 11];
        words[0] = abi::CLONE_PIDFD.into();
        words[1] = pidfd;
        words[4] = abi::SIGCHLD.into();
        let arguments = program.words(&words);
        program.cast(Part::Pause, [0; 3]);
        let child = program.must(abi::__NR_clone3, &[arguments, 88]);
        let descriptor = program.word(pidfd).into();
        let second = program.must(abi::__NR_pidfd_open, &[child, 0]);
        let poll = program.words(&[descriptor | 1 << 32]);
        assert_eq!(program.must(abi::__NR_poll, &[poll, 1, 0]), 0);
        program.must(abi::__NR_pidfd_send_signal, &[second, abi::SIGKILL.into(), 0, 0]);
        assert_eq!(program.must(abi::__NR_poll, &[poll, 1, u64::MAX]), 1);
        let information = program.room(128);
        let (by_descriptor, exited) = (3, abi::WEXITED.into());
        program.must(abi::__NR_waitid, &[by_descriptor, descriptor, information, exited, 0]);
        program.must(abi::__NR_close, &[descriptor]);
        program.must(abi::__NR_close, &[second]);
    });
}

#[test]
fn tracing() {
    exhaust("seize, stop, look, change, and let go", 30, |program| {
        const SEIZE: u64 = 0x4206;
        const INTERRUPT: u64 = 0x4207;
        const GET_REGISTERS: u64 = 12;
        const SET_REGISTERS: u64 = 13;
        const SET_VECTOR_REGISTERS: u64 = 0x4205;
        const POKE: u64 = 5;
        const POKE_USER: u64 = 6;
        const DEBUG_CONTROL: u64 = 848 + 7 * 8;
        const DETACH: u64 = 17;
        program.cast(Part::Pause, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        program.must(abi::__NR_ptrace, &[SEIZE, child, 0, 0]);
        program.must(abi::__NR_ptrace, &[INTERRUPT, child, 0, 0]);
        let status = program.room(4);
        program.must(abi::__NR_wait4, &[child, status, abi::__WALL.into(), 0]);
        assert_eq!(program.word(status), 0x80_057f);
        let registers = program.room(27 * 8);
        program.must(abi::__NR_ptrace, &[GET_REGISTERS, child, 0, registers]);
        program.must(abi::__NR_ptrace, &[SET_REGISTERS, child, 0, registers]);
        let image = program.room(512);
        let vector = program.words(&[image, 512]);
        program.must(abi::__NR_ptrace, &[SET_VECTOR_REGISTERS, child, 2, vector]);
        program.must(abi::__NR_ptrace, &[POKE, child, registers, 1]);
        program.must(abi::__NR_ptrace, &[POKE_USER, child, DEBUG_CONTROL, 0]);
        program.must(abi::__NR_ptrace, &[DETACH, child, 0, 0]);
        program.must(abi::__NR_kill, &[child, abi::SIGKILL.into()]);
        assert_eq!(reap(program), abi::SIGKILL);
    });
}

#[test]
fn groups_and_sessions() {
    exhaust("groups and sessions", 25, |program| {
        program.cast(Part::Stop, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        program.must(abi::__NR_setpgid, &[child, child]);
        let status = program.room(4);
        program.must(abi::__NR_wait4, &[child, status, abi::WUNTRACED.into(), 0]);
        assert_eq!(program.word(status) & 0xff, 0x7f);
        program.must(abi::__NR_kill, &[(child as i64).wrapping_neg() as u64, abi::SIGCONT.into()]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn an_auxiliary_vector_of_its_own() {
    exhaust("auxiliary vectors", 5, |program| {
        let vector = program.words(&[6, 4096, 0, 0]);
        program.must(abi::__NR_prctl, &[35, 12, vector, 32, 0]);
        program.must(abi::__NR_prctl, &[35, 12, vector, 16, 0]);
        program.must(abi::__NR_fork, &[]);
        reap(program);
    });
}

#[test]
fn orphans_find_their_heir() {
    exhaust("orphans", 35, |program| {
        program.must(abi::__NR_prctl, &[36, 1, 0, 0, 0]);
        let parent = u64::from(abi::CLONE_PARENT | abi::SIGCHLD);
        program.cast(Part::End, [3, 0, 0]);
        program.refused(abi::__NR_clone, &[u64::from(abi::CLONE_THREAD), 0, 0, 0, 0], Errno::EINVAL);
        let _ = program.must(abi::__NR_clone, &[parent, 0, 0, 0, 0]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 3 << 8);
    });
}

#[test]
fn credentials() {
    exhaust("credentials", 8, |program| {
        let groups: Vec<u64> = (0..200).collect();
        let list = program.words(&groups);
        program.must(abi::__NR_setgroups, &[400, list]);
        program.must(abi::__NR_setresgid, &[5, 6, 7]);
        program.must(abi::__NR_setresuid, &[1000, 1000, 0]);
        program.must(abi::__NR_setresuid, &[0, 0, 0]);
        program.must(abi::__NR_setfsuid, &[77]);
        let limits = program.words(&[100, 200]);
        program.must(abi::__NR_prlimit64, &[0, abi::RLIMIT_NPROC.into(), limits, 0]);
        program.cast(Part::End, [0; 3]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 0);
    });
}

#[test]
fn executing_relative_to_a_directory() {
    exhaust("execveat", 40, |program| {
        let path = program.text("program");
        let nothing = program.words(&[0]);
        program.refused(abi::__NR_execveat, &[AT_FDCWD, nothing, 0, 0, 0], Errno::ENOENT);
        program.cast(Part::Execute, [path, nothing, nothing]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(reap(program), 0);
    });
}
