//! Mounts: those that propagate, and those by descriptor.

use linux::errno::Errno;
use linux_raw_sys::general as abi;

use crate::machine_under_test::exhaust;
use crate::program::Program;

const AT_FDCWD: u64 = -100i64 as u64;
const MS_BIND: u64 = 4096;
const MS_REC: u64 = 16384;
const MS_SLAVE: u64 = 1 << 19;
const MS_SHARED: u64 = 1 << 20;
const MNT_DETACH: u64 = 2;

fn directory(program: &mut Program<'_>, path: &str) -> u64 {
    let path = program.text(path);
    program.must(abi::__NR_mkdir, &[path, 0o755]);
    path
}

#[test]
fn propagating() {
    exhaust("mounts that propagate", 20, |program| {
        let tmpfs = program.text("tmpfs");
        let (one, other) = (directory(program, "/tmp/one"), directory(program, "/tmp/other"));
        program.must(abi::__NR_mount, &[tmpfs, one, tmpfs, 0, 0]);
        program.must(abi::__NR_mount, &[0, one, 0, MS_SHARED, 0]);
        program.must(abi::__NR_mount, &[one, other, 0, MS_BIND | MS_REC, 0]);
        program.must(abi::__NR_mount, &[0, other, 0, MS_SLAVE, 0]);
        let inner = directory(program, "/tmp/one/inner");
        program.must(abi::__NR_mount, &[tmpfs, inner, tmpfs, 0, 0]);
        let seen = program.text("/tmp/other/inner");
        program.must(abi::__NR_umount2, &[inner, 0]);
        program.refused(abi::__NR_umount2, &[seen, 0], Errno::EINVAL);
        for place in [other, one] {
            program.must(abi::__NR_umount2, &[place, MNT_DETACH]);
            program.must(abi::__NR_rmdir, &[place]);
        }
    });
}

#[test]
fn by_descriptor() {
    exhaust("mounts by descriptor", 20, |program| {
        let place = directory(program, "/tmp/place");
        let (tmpfs, empty) = (program.text("tmpfs"), program.text(""));
        let (source, mine) = (program.text("source"), program.text("mine"));
        let context = program.must(abi::__NR_fsopen, &[tmpfs, 0]);
        program.must(abi::__NR_fsconfig, &[context, 1, source, mine, 0]);
        program.must(abi::__NR_fsconfig, &[context, 6, 0, 0, 0]);
        let mount = program.must(abi::__NR_fsmount, &[context, 0, 0]);
        program.must(abi::__NR_close, &[context]);
        program.must(abi::__NR_move_mount, &[mount, empty, AT_FDCWD, place, 4]);
        program.must(abi::__NR_close, &[mount]);
        let attributes = program.words(&[1, 0, MS_SHARED, 0]);
        program.must(abi::__NR_mount_setattr, &[AT_FDCWD, place, 0x8000, attributes, 32]);
        let copy = program.must(abi::__NR_open_tree, &[AT_FDCWD, place, 0x8001]);
        program.must(abi::__NR_close, &[copy]);
        let pick = program.must(abi::__NR_fspick, &[AT_FDCWD, place, 0]);
        program.must(abi::__NR_close, &[pick]);
        program.must(abi::__NR_umount2, &[place, MNT_DETACH]);
        program.must(abi::__NR_rmdir, &[place]);
    });
}
