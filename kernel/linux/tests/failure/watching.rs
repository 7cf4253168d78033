//! Being told of files, being asked about them, and files by handles.

use linux::errno::Errno;
use linux_raw_sys::general as abi;
use memory::fallible;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const AT_FDCWD: u64 = -100i64 as u64;
const MNT_DETACH: u64 = 2;
const CREATE: u64 = (abi::O_CREAT | abi::O_RDWR) as u64;
const POLLIN: u64 = 1;
/// Of time that nothing else spends: who has something to say has said it then.
const SOON_MS: u64 = 100;

/// `fanotify_init`
const NON_BLOCK: u64 = 0x2;
const CLASS_CONTENT: u64 = 0x4;
const REPORT_PIDFD: u64 = 0x80;
const REPORT_DFID_NAME_TARGET: u64 = 0x1e00;
/// `fanotify_mark`
const ADD: u64 = 0x1;
const REMOVE: u64 = 0x2;
const MOUNT: u64 = 0x10;
const FLUSH: u64 = 0x80;
const FILE_SYSTEM: u64 = 0x100;
const ALL_OF_NAMES: u64 = 0x4000_0fff;
const OPEN: u64 = 0x20;
const OPEN_PERMISSION: u64 = 0x1_0000;

/// A file system of its own, since one in memory remembers what handles are of until it goes.
fn mount_one(program: &mut Program<'_>) -> u64 {
    let (tmpfs, place) = (program.text("tmpfs"), program.text("/tmp/watched"));
    program.must(abi::__NR_mkdir, &[place, 0o755]);
    program.must(abi::__NR_mount, &[tmpfs, place, tmpfs, 0, 0]);
    place
}

fn unmount(program: &mut Program<'_>, place: u64) {
    program.must(abi::__NR_umount2, &[place, MNT_DETACH]);
    program.must(abi::__NR_rmdir, &[place]);
}

fn create(program: &mut Program<'_>, path: u64) {
    let file = program.must(abi::__NR_open, &[path, CREATE, 0o644]);
    program.must(abi::__NR_write, &[file, ARENA, 10]);
    program.must(abi::__NR_close, &[file]);
}

/// Reads all that waits, and closes what comes with it.
fn read_all(program: &mut Program<'_>, group: u64) {
    let room = ARENA + 6 * PAGE;
    loop {
        let Ok(count) = program.call(abi::__NR_read.into(), &[group, room, PAGE]) else { return };
        let mut at = 0;
        while at < count {
            let descriptor = program.word(room + at + 16);
            if descriptor as i32 >= 0 {
                program.must(abi::__NR_close, &[descriptor.into()]);
            }
            at += u64::from(program.word(room + at));
        }
    }
}

#[test]
fn told_of_files() {
    exhaust("events of fanotify", 40, |program| {
        let place = mount_one(program);
        let one = program.text("/tmp/watched/a file with a name that is kept beside its event");
        let other = program.text("/tmp/watched/another one with a name that is kept beside its event");
        for (flags, kinds, mask) in
            [(REPORT_DFID_NAME_TARGET, [0, FILE_SYSTEM], ALL_OF_NAMES), (0, [0, MOUNT], OPEN)]
        {
            let group = program.must(abi::__NR_fanotify_init, &[NON_BLOCK | flags, 0]);
            for kind in kinds {
                program.must(abi::__NR_fanotify_mark, &[group, ADD | kind, mask, AT_FDCWD, place]);
            }
            create(program, one);
            program.must(abi::__NR_rename, &[one, other]);
            program.must(abi::__NR_unlink, &[other]);
            read_all(program, group);
            program.must(abi::__NR_fanotify_mark, &[group, REMOVE, mask, AT_FDCWD, place]);
            program.must(abi::__NR_fanotify_mark, &[group, FLUSH | kinds[1], 0, AT_FDCWD, place]);
            create(program, one);
            program.refused(abi::__NR_read, &[group, ARENA + 6 * PAGE, PAGE], Errno::EAGAIN);
            program.must(abi::__NR_unlink, &[one]);
            program.must(abi::__NR_close, &[group]);
        }
        unmount(program, place);
    });
}

#[test]
fn asked_about_files() {
    exhaust("questions of fanotify", 20, |program| {
        let place = mount_one(program);
        let path = program.text("/tmp/watched/file");
        create(program, path);
        let flags = NON_BLOCK | CLASS_CONTENT | REPORT_PIDFD;
        let group = program.must(abi::__NR_fanotify_init, &[flags, 0]);
        program.must(abi::__NR_fanotify_mark, &[group, ADD, OPEN_PERMISSION, AT_FDCWD, path]);
        program.cast(Part::Open, [path, 0, 0]);
        let child = program.must(abi::__NR_fork, &[]);
        let polled = program.words(&[group | POLLIN << 32]);
        program.must(abi::__NR_poll, &[polled, 1, SOON_MS]);
        let room = ARENA + 6 * PAGE;
        // One that can't be read is denied; but the group is asked, whatever failed before.
        if fallible::failed_at().is_none_or(|place| place.file().contains("instance.rs")) {
            assert_eq!(program.word(polled + 4) >> 16 & 1, 1, "nobody was asked");
        }
        if let Ok(count) = program.call(abi::__NR_read.into(), &[group, room, 100]) {
            assert_eq!(count, 32);
            let [descriptor, pidfd] = [16, 28].map(|at| u64::from(program.word(room + at)));
            let answer = program.words(&[descriptor | 1 << 32]);
            program.must(abi::__NR_write, &[group, answer, 8]);
            program.must(abi::__NR_close, &[descriptor]);
            if (pidfd as i32) >= 0 {
                program.must(abi::__NR_close, &[pidfd]);
            }
        }
        program.must(abi::__NR_wait4, &[child, 0, 0, 0]);
        program.must(abi::__NR_close, &[group]);
        unmount(program, place);
    });
}

#[test]
fn by_handle() {
    exhaust("files by handles", 20, |program| {
        let place = mount_one(program);
        let path = program.text("/tmp/watched/file");
        create(program, path);
        let handle = program.room(8 + 128);
        let mount = program.room(4);
        for of in [path, place] {
            program.put_at(handle, &128_u32.to_le_bytes());
            program.must(abi::__NR_name_to_handle_at, &[AT_FDCWD, of, handle, mount, 0]);
            let root = program.must(abi::__NR_open, &[place, 0, 0]);
            let file = program.must(abi::__NR_open_by_handle_at, &[root, handle, 0]);
            program.must(abi::__NR_close, &[file]);
            program.must(abi::__NR_close, &[root]);
        }
        unmount(program, place);
    });
}

#[test]
fn by_owners_of_leases_and_directories() {
    const SET_LEASE: u64 = 1024;
    const NOTIFY: u64 = 1026;
    exhaust("leases and notices", 10, |program| {
        let (path, directory) = (program.text("/tmp/leased"), program.text("/tmp"));
        create(program, path);
        let file = program.must(abi::__NR_open, &[path, 0, 0]);
        for kind in [0, 1, 2] {
            program.must(abi::__NR_fcntl, &[file, SET_LEASE, kind]);
        }
        program.must(abi::__NR_close, &[file]);
        let folder = program.must(abi::__NR_open, &[directory, 0, 0]);
        program.must(abi::__NR_fcntl, &[folder, NOTIFY, 0x4]);
        program.must(abi::__NR_fcntl, &[folder, NOTIFY, 0]);
        program.must(abi::__NR_close, &[folder]);
        program.must(abi::__NR_unlink, &[path]);
    });
}
