//! How many locks single system calls take, asked of a kernel that counts them (`get_lcount`), and `lcount-test`: ten writes of
//! 4 KiB, as the paper's test program does them (specs/scalability.md, acceptance 1).
//!
//! A line for each, `locks NAME MEAN MOST`.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use bench::disk;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};

/// Starling's own call.
const GET_LCOUNT: libc::c_long = 4108;
/// Made before anything is counted: the first time, memory is allocated and caches are filled.
const WARM_UP: u32 = 32;
const ROUNDS: u32 = 64;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Locks that this thread has taken.
fn taken() -> io::Result<u64> {
    let mut count = 0_u64;
    // SAFETY: the call writes one word to the address it is given.
    match unsafe { libc::syscall(GET_LCOUNT, &raw mut count) } {
        0 => Ok(count),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks taken by `body`.
fn of(mut body: impl FnMut()) -> io::Result<u64> {
    let before = taken()?;
    body();
    Ok(taken()? - before)
}

fn report(name: &str, mut body: impl FnMut()) -> io::Result<()> {
    (0..WARM_UP).for_each(|_| body());
    let (mut sum, mut most) = (0, 0);
    for _ in 0..ROUNDS {
        let locks = of(&mut body)?;
        sum += locks;
        most = most.max(locks);
    }
    println!("locks {name} {:.2} {most}", sum as f64 / f64::from(ROUNDS));
    Ok(())
}

/// Runs all.
///
/// # Errors
/// When the kernel does not count.
pub(crate) fn run() -> io::Result<()> {
    taken()?;
    lcount_test("tmpfs", "/tmp/lcount-test", pwrite)?;
    report("getppid", || _ = black_box(rustix::process::getppid()))?;
    files()?;
    descriptors()?;
    let word = std::sync::atomic::AtomicU32::new(0);
    report("futex_wake", || {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is alive, and nobody waits for it.
        black_box(unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) });
    })?;
    shared_table()?;
    ext4()
}

/// Ten writes of 4 KiB, each to the next page of a new file, and each to a page that is there.
fn lcount_test(file_system: &str, path: &str, write: fn(&File, u64) -> io::Result<()>) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    for kind in ["new", "cached"] {
        let mut counts = Vec::new();
        for page in 0..10 {
            counts.push(of(|| write(&file, page * PAGE as u64).expect("there is room"))?);
        }
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let words: Vec<_> = counts.iter().map(u64::to_string).collect();
        println!(
            "lcount-test: {file_system}, 4096 bytes to a {kind} page: {}; mean {mean:.1}",
            words.join(", ")
        );
    }
    fs::remove_file(path)
}

fn pwrite(file: &File, offset: u64) -> io::Result<()> {
    file.write_all_at(&[1; PAGE], offset)
}

/// A call of its own for the files on a disk, so that what they cost is not in the mean of the others.
fn pwritev(file: &File, offset: u64) -> io::Result<()> {
    let written = rustix::io::pwritev(file, &[io::IoSlice::new(&[1; PAGE])], offset)?;
    if written == PAGE { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Pages of a file with a journal behind it, and a time that changes with every tick of the coarse clock.
fn ext4() -> io::Result<()> {
    const ROOT: &str = "/tmp/locks-ext4";
    disk::attach(ROOT)?;
    let path = format!("{ROOT}/lcount-test");
    lcount_test("ext4", &path, pwritev)?;
    fs::write(&path, [1; PAGE])?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    report("ext4_pwrite_4k", || pwritev(&file, 0).expect("it is there"))?;
    let mut page = [0; PAGE];
    report("ext4_pread_4k", || {
        rustix::io::preadv(&file, &mut [io::IoSliceMut::new(&mut page)], 0).expect("it is there");
    })?;
    drop(file);
    disk::detach(ROOT)
}

fn files() -> io::Result<()> {
    let path = "/tmp/bench-locks";
    fs::write(path, [1; PAGE])?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut page = [0; PAGE];
    report("pwrite_4k", || file.write_all_at(&page, 0).expect("it is there"))?;
    report("pread_4k", || file.read_exact_at(&mut page, 0).expect("it is there"))?;
    report("write_4k_and_lseek", || {
        rustix::io::write(&file, &[2; PAGE]).expect("it is there");
        rustix::fs::seek(&file, SeekFrom::Start(0)).expect("it is there");
    })?;
    report("lseek", || _ = black_box(rustix::fs::seek(&file, SeekFrom::Start(0))))?;
    report("fstat", || _ = black_box(rustix::fs::fstat(&file)))?;
    report("stat", || _ = black_box(rustix::fs::statat(CWD, path, AtFlags::empty())))?;
    report("open_close", || {
        drop(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it is there"))
    })?;
    drop(file);
    fs::remove_file(path)
}

fn descriptors() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    report("write_null_1", || _ = black_box(rustix::io::write(&null, b"x")))?;
    report("dup_close", || drop(rustix::io::dup(&null).expect("there is room")))?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let mut byte = [0];
    report("pipe_write_read_1", || {
        rustix::io::write(&writer, b"x").expect("there is room");
        rustix::io::read(&reader, &mut byte).expect("there is a byte");
    })
}

/// `fget` where another thread shares the table: as many locks as without.
fn shared_table() -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let sharer = std::thread::spawn(move || {
        let mut byte = [0];
        // Until the other end is closed.
        while rustix::io::read(&reader, &mut byte).is_ok_and(|count| count > 0) {}
    });
    let result = report("write_null_1_shared_table", || {
        // SAFETY: the descriptor is open, and the byte is there.
        black_box(unsafe { libc::write(null.as_raw_fd(), b"x".as_ptr().cast(), 1) });
    });
    drop(writer);
    sharer.join().map_err(|_| io::Error::other("the other thread failed"))?;
    result
}
