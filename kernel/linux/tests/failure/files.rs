//! Files by name: opening and creating on every file system, attributes, locks, mounts.

use linux::errno::Errno;
use linux_raw_sys::general as abi;

use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const LONG_NAME: &str = "a name that is longer than those which need no memory of their own";
const CREATE: u64 = (abi::O_CREAT | abi::O_RDWR | abi::O_EXCL) as u64;

fn create(program: &mut Program<'_>, path: &str) -> u64 {
    let path = program.text(path);
    program.must(abi::__NR_open, &[path, CREATE, 0o644])
}

fn remove(program: &mut Program<'_>, path: &str) {
    let path = program.text(path);
    program.must(abi::__NR_unlink, &[path]);
}

#[test]
fn creating_writing_and_removing() {
    exhaust("files of tmpfs", 25, |program| {
        let name = format!("/tmp/{LONG_NAME}");
        let file = create(program, &name);
        let mut left = 3 * PAGE;
        while left > 0 {
            let written = program.must(abi::__NR_write, &[file, ARENA, left]);
            assert!(written > 0, "{left} bytes are left");
            left -= written;
        }
        program.must(abi::__NR_lseek, &[file, 1 << 30, 0]);
        assert_eq!(program.must(abi::__NR_write, &[file, ARENA, 10]), 10);
        program.must(abi::__NR_fallocate, &[file, 0, 1 << 20, 3 * PAGE]);
        program.must(abi::__NR_ftruncate, &[file, 5]);
        let status = program.room(256);
        program.must(abi::__NR_fstat, &[file, status]);
        let again = program.text(&name);
        program.refused(abi::__NR_open, &[again, CREATE, 0o644], Errno::EEXIST);
        program.must(abi::__NR_close, &[file]);
        remove(program, &name);
        program.refused(abi::__NR_unlink, &[again], Errno::ENOENT);
    });
}

#[test]
fn names_of_all_kinds() {
    exhaust("names", 40, |program| {
        let directory = program.text("/tmp/directory");
        program.must(abi::__NR_mkdir, &[directory, 0o755]);
        let file = create(program, "/tmp/directory/file");
        program.must(abi::__NR_close, &[file]);
        let target = program.text("/tmp/directory/file");
        let link = program.text("/tmp/link");
        program.must(abi::__NR_link, &[target, link]);
        let symbolic = program.text("/tmp/symbolic");
        program.must(abi::__NR_symlink, &[directory, symbolic]);
        let through = program.text("/tmp/symbolic/file");
        let moved = program.text("/tmp/directory/moved to a name that is longer than those without memory");
        program.must(abi::__NR_rename, &[through, moved]);
        let fifo = program.text("/tmp/fifo");
        program.must(abi::__NR_mknod, &[fifo, u64::from(abi::S_IFIFO) | 0o600, 0]);
        let ends = program.must(abi::__NR_open, &[fifo, abi::O_RDWR.into(), 0]);
        program.must(abi::__NR_write, &[ends, ARENA, 10]);
        program.must(abi::__NR_close, &[ends]);
        let text = program.room(100);
        assert_eq!(program.must(abi::__NR_readlink, &[symbolic, text, 100]), 14);
        program.must(abi::__NR_chdir, &[symbolic]);
        assert_eq!(program.must(abi::__NR_getcwd, &[text, 100]), 15);
        let relative = program.text(".");
        let entries = program.room(1024);
        let opened = program.must(abi::__NR_open, &[relative, abi::O_DIRECTORY.into(), 0]);
        assert!(program.must(abi::__NR_getdents64, &[opened, entries, 1024]) > 0);
        let root = program.text("/");
        program.must(abi::__NR_chroot, &[root]);
        program.must(abi::__NR_chdir, &[root]);
        for path in [moved, link, symbolic, fifo] {
            program.must(abi::__NR_unlink, &[path]);
        }
        program.must(abi::__NR_rmdir, &[directory]);
    });
}

#[test]
fn attributes() {
    exhaust("attributes", 10, |program| {
        let file = create(program, "/tmp/attributes");
        let name = program.text("user.name");
        program.must(abi::__NR_fsetxattr, &[file, name, ARENA, 3000, 0]);
        let list = program.room(100);
        assert_eq!(program.must(abi::__NR_flistxattr, &[file, list, 100]), 10);
        assert_eq!(program.must(abi::__NR_fgetxattr, &[file, name, ARENA + PAGE, PAGE]), 3000);
        program.must(abi::__NR_fremovexattr, &[file, name]);
        program.must(abi::__NR_fchmod, &[file, 0o600]);
        program.must(abi::__NR_fchown, &[file, 5, 6]);
        let path = program.text("/tmp/attributes");
        program.must(abi::__NR_utimensat, &[-100_i64 as u64, path, 0, 0]);
        program.must(abi::__NR_truncate, &[path, 10_000]);
        program.must(abi::__NR_unlink, &[path]);
    });
}

#[test]
fn locks() {
    exhaust("locks", 6, |program| {
        let file = create(program, "/tmp/locks");
        let lock = |kind: u64, start: u64, length: u64| [kind, start, length, 0];
        // Splits one lock into three, and merges them.
        for (kind, start, length) in [(1, 0, 100), (0, 20, 20), (2, 30, 5), (1, 0, 100), (2, 0, 0)] {
            let words = program.words(&lock(kind, start, length));
            program.must(abi::__NR_fcntl, &[file, abi::F_SETLK.into(), words]);
        }
        for open_file_lock in [1, 0] {
            let words = program.words(&lock(open_file_lock, 0, 10));
            program.must(abi::__NR_fcntl, &[file, 37, words]);
        }
        program.must(abi::__NR_flock, &[file, 2]);
        remove(program, "/tmp/locks");
    });
}

#[test]
fn device_files() {
    exhaust("device files", 15, |program| {
        for path in ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"] {
            let path = program.text(path);
            let file = program.must(abi::__NR_open, &[path, abi::O_RDWR.into(), 0]);
            let _ = program.must(abi::__NR_read, &[file, ARENA + PAGE, 100]);
            program.must(abi::__NR_close, &[file]);
        }
        let node = create(program, "/dev/a new node in the device file system");
        program.must(abi::__NR_close, &[node]);
        remove(program, "/dev/a new node in the device file system");
        let zero = program.text("/dev/zero");
        let file = program.must(abi::__NR_open, &[zero, abi::O_RDWR.into(), 0]);
        let shared = program.must(abi::__NR_mmap, &[0, 2 * PAGE, 3, 1, file, 0]);
        program.put_at(shared, &[1]);
    });
}

#[test]
fn files_without_names() {
    exhaust("memory files", 20, |program| {
        let name = program.text("name");
        let allow_sealing = 2;
        let file = program.must(abi::__NR_memfd_create, &[name, allow_sealing]);
        program.must(abi::__NR_ftruncate, &[file, 4 * PAGE]);
        let mapped = program.must(abi::__NR_mmap, &[0, 4 * PAGE, 3, 1, file, 0]);
        program.put_at(mapped + 3 * PAGE, &[1]);
        let directory = program.text("/tmp");
        let flags = u64::from(abi::O_TMPFILE | abi::O_RDWR);
        let temporary = program.must(abi::__NR_open, &[directory, flags, 0o600]);
        let second = program.must(abi::__NR_memfd_create, &[name, allow_sealing]);
        let mut left = 2 * PAGE;
        while left > 0 {
            let copied = program.must(abi::__NR_copy_file_range, &[file, 0, second, 0, left, 0]);
            assert!(copied > 0, "{left} bytes are left");
            left -= copied;
        }
        assert_eq!(program.must(abi::__NR_lseek, &[file, 0, 0]), 0);
        assert_eq!(program.must(abi::__NR_sendfile, &[temporary, file, 0, PAGE]), PAGE);
    });
}

#[test]
fn mounting() {
    exhaust("mounts", 40, |program| {
        let kind = program.text("tmpfs");
        let [one, two] = ["/tmp/one", "/tmp/two"].map(|path| program.text(path));
        program.must(abi::__NR_mkdir, &[one, 0o755]);
        program.must(abi::__NR_mkdir, &[two, 0o755]);
        let options = program.text("size=1m,mode=700");
        program.must(abi::__NR_mount, &[kind, one, kind, 0, options]);
        let file = create(program, "/tmp/one/file");
        program.must(abi::__NR_write, &[file, ARENA, 100]);
        program.must(abi::__NR_close, &[file]);
        let bind = u64::from(abi::MS_BIND | abi::MS_REC);
        program.must(abi::__NR_mount, &[one, two, 0, bind, 0]);
        let remount = u64::from(abi::MS_BIND | abi::MS_REMOUNT | abi::MS_RDONLY);
        program.must(abi::__NR_mount, &[0, two, 0, remount, 0]);
        let mounts = program.text("/proc/self/mountinfo");
        let file = program.must(abi::__NR_open, &[mounts, 0, 0]);
        assert!(program.must(abi::__NR_read, &[file, ARENA + PAGE, PAGE]) > 0);
        program.must(abi::__NR_close, &[file]);
        program.must(abi::__NR_umount2, &[two, 0]);
        program.must(abi::__NR_umount2, &[one, 0]);
        program.must(abi::__NR_rmdir, &[two]);
        program.must(abi::__NR_rmdir, &[one]);
    });
}
