//! Pairs of calls on files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};

use super::{DIRECTORY, Operation, Pair, Step, call};

/// Bytes of a page.
const PAGE: usize = 4096;

/// The pairs.
pub(super) const PAIRS: [Pair; 27] = [
    Pair::processes("open_close_one_directory", |side| open_close(format!("{DIRECTORY}/open-{side}"))),
    Pair::processes("open_close_two_directories", |side| open_close(own_directory("open", side)? + "/file")),
    Pair::processes("open_close_same_file", |_| open_close(format!("{DIRECTORY}/open-same"))),
    Pair::threads("open_close_threads_same_file", |_| open_close(format!("{DIRECTORY}/open"))),
    Pair::processes("stat_same_file", |_| stat(format!("{DIRECTORY}/stat"))),
    Pair::processes("stat_distinct_files", |side| stat(format!("{DIRECTORY}/stat-{side}"))),
    Pair::processes("stat_missing", stat_missing),
    Pair::processes("access_same_file", |_| access(format!("{DIRECTORY}/access"))),
    Pair::processes("readlink_same_link", readlink),
    Pair::processes("create_one_directory", |side| create(format!("{DIRECTORY}/create-{side}"))),
    Pair::processes("create_two_directories", |side| create(own_directory("create", side)? + "/file")),
    Pair::processes("unlink_one_directory", |side| unlink(format!("{DIRECTORY}/unlink-{side}"))),
    Pair::processes("unlink_two_directories", |side| unlink(own_directory("unlink", side)? + "/file")),
    Pair::processes("rename_one_directory", |side| rename(format!("{DIRECTORY}/rename-{side}"))),
    Pair::processes("rename_two_directories", |side| rename(own_directory("rename", side)? + "/file")),
    Pair::processes("mkdir_rmdir_two_directories", |side| {
        mkdir_rmdir(own_directory("mkdir", side)? + "/inner")
    }),
    Pair::processes("pread_same_file", |_| pread(format!("{DIRECTORY}/pread"))),
    Pair::processes("pread_distinct_files", |side| pread(format!("{DIRECTORY}/pread-{side}"))),
    Pair::processes("pwrite_distinct_files", |side| pwrite(format!("{DIRECTORY}/pwrite-{side}"))),
    Pair::processes("append_truncate_distinct_files", |side| append(format!("{DIRECTORY}/append-{side}"))),
    Pair::processes("fstat_same_file", |_| fstat(file(format!("{DIRECTORY}/fstat"))?)),
    Pair::threads("fstat_threads_distinct_descriptors", |side| {
        fstat(file(format!("{DIRECTORY}/fstat-{side}"))?)
    }),
    Pair::threads("fstat_threads_same_descriptor", fstat_same),
    Pair::threads("lseek_threads_distinct_descriptors", |side| lseek(format!("{DIRECTORY}/lseek-{side}"))),
    Pair::processes("dup_close", |_| dup_close(format!("{DIRECTORY}/dup"))),
    Pair::processes("write_dev_null", write_null),
    Pair::processes("readdir_same_directory", |_| readdir("/")),
];

/// A directory of a side.
fn own_directory(pair: &str, side: usize) -> io::Result<String> {
    let path = format!("{DIRECTORY}/{pair}-in-{side}");
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A file with a page in it, open for reading and writing.
fn file(path: String) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(&[1; PAGE], 0)?;
    Ok(file)
}

fn open_close(path: String) -> io::Result<Operation> {
    file(path.clone())?;
    Ok(call(move || drop(rustix::fs::open(&*path, OFlags::RDONLY, Mode::empty()).expect("it is there"))))
}

fn stat(path: String) -> io::Result<Operation> {
    file(path.clone())?;
    Ok(call(move || _ = rustix::fs::statat(CWD, &*path, AtFlags::empty()).expect("it is there")))
}

fn access(path: String) -> io::Result<Operation> {
    file(path.clone())?;
    Ok(call(move || rustix::fs::access(&*path, rustix::fs::Access::READ_OK).expect("it is there")))
}

fn stat_missing(side: usize) -> io::Result<Operation> {
    let path = format!("{DIRECTORY}/missing-{side}");
    Ok(call(move || _ = rustix::fs::statat(CWD, &*path, AtFlags::empty()).expect_err("it is not there")))
}

fn readlink(_: usize) -> io::Result<Operation> {
    let path = format!("{DIRECTORY}/link");
    // Both sides make it, and one finds it there.
    let _ = std::os::unix::fs::symlink("target", &path);
    let mut buffer = [0; 64];
    Ok(call(move || _ = rustix::fs::readlinkat_raw(CWD, &*path, &mut buffer[..]).expect("it is there")))
}

fn make_new(path: &str) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    drop(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).expect("it is not there"));
}

fn create(path: String) -> io::Result<Operation> {
    Ok(Box::new(move |step| match step {
        Step::Before => {}
        Step::Call => make_new(&path),
        Step::After => rustix::fs::unlink(&*path).expect("it is there"),
    }))
}

fn unlink(path: String) -> io::Result<Operation> {
    Ok(Box::new(move |step| match step {
        Step::Before => make_new(&path),
        Step::Call => rustix::fs::unlink(&*path).expect("it is there"),
        Step::After => {}
    }))
}

fn rename(path: String) -> io::Result<Operation> {
    let other = format!("{path}-renamed");
    file(path.clone())?;
    Ok(Box::new(move |step| match step {
        Step::Before => {}
        Step::Call => rustix::fs::rename(&*path, &*other).expect("it is there"),
        Step::After => rustix::fs::rename(&*other, &*path).expect("it is there"),
    }))
}

fn mkdir_rmdir(path: String) -> io::Result<Operation> {
    Ok(call(move || {
        rustix::fs::mkdir(&*path, Mode::RWXU).expect("it is not there");
        rustix::fs::rmdir(&*path).expect("it is there");
    }))
}

fn pread(path: String) -> io::Result<Operation> {
    let file = file(path)?;
    let mut page = [0; PAGE];
    Ok(call(move || assert_eq!(rustix::io::pread(&file, &mut page, 0), Ok(PAGE))))
}

fn pwrite(path: String) -> io::Result<Operation> {
    let file = file(path)?;
    let page = [2; PAGE];
    Ok(call(move || assert_eq!(rustix::io::pwrite(&file, &page, 0), Ok(PAGE))))
}

fn append(path: String) -> io::Result<Operation> {
    let file = file(path)?;
    let page = [2; PAGE];
    Ok(Box::new(move |step| match step {
        Step::Before => {}
        Step::Call => assert_eq!(rustix::io::pwrite(&file, &page, PAGE as u64), Ok(PAGE)),
        Step::After => file.set_len(PAGE as u64).expect("it is open"),
    }))
}

fn fstat(file: File) -> io::Result<Operation> {
    Ok(call(move || _ = rustix::fs::fstat(&file).expect("it is open")))
}

/// The file that both threads have.
static SAME: OnceLock<File> = OnceLock::new();

fn fstat_same(_: usize) -> io::Result<Operation> {
    let file = SAME.get_or_init(|| file(format!("{DIRECTORY}/same")).expect("room"));
    Ok(call(move || _ = rustix::fs::fstat(file).expect("it is open")))
}

fn lseek(path: String) -> io::Result<Operation> {
    let file = file(path)?;
    Ok(call(move || assert_eq!(rustix::fs::seek(&file, SeekFrom::Start(1)), Ok(1))))
}

fn dup_close(path: String) -> io::Result<Operation> {
    let file = file(path)?;
    Ok(call(move || drop(rustix::io::dup(&file).expect("descriptors are left"))))
}

fn write_null(_: usize) -> io::Result<Operation> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(call(move || assert_eq!(rustix::io::write(&null, b"x"), Ok(1))))
}

fn readdir(path: &'static str) -> io::Result<Operation> {
    let directory = File::open(path)?;
    let mut buffer = Vec::with_capacity(PAGE);
    Ok(Box::new(move |step| match step {
        Step::Before => _ = rustix::fs::seek(&directory, SeekFrom::Start(0)).expect("it is open"),
        Step::Call => {
            let mut entries = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
            assert!(entries.next().is_some_and(|entry| entry.is_ok()));
        }
        Step::After => buffer.clear(),
    }))
}
