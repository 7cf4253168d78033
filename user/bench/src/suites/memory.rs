//! `memory`: page faults, mappings, and what a fork of a large process costs.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use bench::measure::Suite;
use bench::process::{fork, kill, wait};

const SUITE: Suite = Suite::new("memory");
const PAGE: usize = 4096;
const SMALL: usize = 64 << 10;
const LARGE: usize = 64 << 20;
/// Bytes of the mapping in the tests of page faults.
const FAULTS: usize = 4 << 20;
/// Bytes of the process that is forked.
const FORKED: usize = 256 << 20;

/// A mapping that is ours alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Private memory without a file.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused range, which nothing else refers to.
        let start = unsafe { mmap_anonymous(null_mut(), length, protection, MapFlags::PRIVATE) }?;
        Ok(Self { start, length })
    }

    /// The start of a file, shared.
    fn of_file(file: &File, length: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused range, which nothing else refers to; the file is as long and stays so.
        let start = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { start, length })
    }

    /// Writes to each page and returns the number of pages.
    pub(crate) fn touch(&self) -> u64 {
        for offset in (0..self.length).step_by(PAGE) {
            // SAFETY: the byte is inside the mapping, which is writable and used through this object only.
            unsafe { self.start.cast::<u8>().add(offset).write_volatile(1) };
        }
        (self.length / PAGE) as u64
    }

    fn protect(&self, flags: MprotectFlags) {
        // SAFETY: the range is the mapping's, and nobody has a reference into it.
        unsafe { mprotect(self.start, self.length, flags) }.expect("the range is mapped");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's, and the mapping ends here.
        unsafe { munmap(self.start, self.length) }.expect("the range is mapped");
    }
}

/// Runs the suite.
pub(crate) fn run() {
    SUITE.single("fault_anonymous", || {
        faults("fault_anonymous", || Mapping::anonymous(FAULTS).expect("memory"));
        Ok(())
    });
    SUITE.single("fault_file", file_faults);
    for (test, length) in [("mmap_munmap_64k", SMALL), ("mmap_munmap_64m", LARGE)] {
        SUITE.single(test, || {
            SUITE.time(test, |count| {
                (0..count).for_each(|_| drop(Mapping::anonymous(length).expect("address space")));
            });
            Ok(())
        });
    }
    SUITE.single("mprotect_64k", protection);
    SUITE.single("brk_64k", program_break);
    SUITE.single("fault_copy_on_write", copy_on_write);
    SUITE.single("fork_exit_256m", fork_of_large_process);
    SUITE.group(["read_64k", "write_64k"], copy_through_kernel);
}

/// What is left of the machine's memory when its only program has just started.
pub(crate) fn after_boot() {
    let suite = Suite::new("boot");
    suite.single("memory_free_after_boot", || {
        suite.report("memory_free_after_boot", "KiB", field("/proc/meminfo", "MemFree:")?);
        Ok(())
    });
}

/// The number after a name in a file of `/proc`.
///
/// # Errors
/// When the file cannot be read or has no such line.
pub(crate) fn field(path: &str, name: &str) -> io::Result<f64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{path} has no {name}")))
}

/// Touches all pages of mappings made by `make` and reports the time of one page.
fn faults(name: &str, make: impl Fn() -> Mapping) {
    SUITE.time_inside(name, |count| {
        let mut took = Duration::ZERO;
        let mut pages = 0;
        while pages < count {
            let mapping = make();
            let start = Instant::now();
            pages += mapping.touch();
            took += start.elapsed();
        }
        took.mul_f64(count as f64 / pages as f64)
    });
}

fn file_faults() -> io::Result<()> {
    let path = "/tmp/bench-fault";
    fs::write(path, vec![1; FAULTS])?;
    let file = File::options().read(true).write(true).open(path)?;
    faults("fault_file", || Mapping::of_file(&file, FAULTS).expect("a mapping"));
    fs::remove_file(path)
}

fn protection() -> io::Result<()> {
    let mapping = Mapping::anonymous(SMALL)?;
    mapping.touch();
    SUITE.time("mprotect_64k", |count| {
        for number in 0..count {
            let write = if number % 2 == 0 { MprotectFlags::empty() } else { MprotectFlags::WRITE };
            mapping.protect(MprotectFlags::READ | write);
        }
    });
    Ok(())
}

fn program_break() -> io::Result<()> {
    let step = libc::intptr_t::try_from(SMALL).expect("a small number");
    SUITE.time("brk_64k", |count| {
        for _ in 0..count {
            for change in [step, -step] {
                // SAFETY: the library's allocator does not use what is above the break while this program has one thread and
                // allocates nothing between the two calls.
                assert_ne!(unsafe { libc::sbrk(change) }.addr(), usize::MAX, "no memory");
            }
        }
    });
    Ok(())
}

/// The first write to each page after a fork, in the parent.
fn copy_on_write() -> io::Result<()> {
    let mapping = Mapping::anonymous(FAULTS)?;
    mapping.touch();
    SUITE.time_inside("fault_copy_on_write", |count| {
        let mut took = Duration::ZERO;
        let mut pages = 0;
        while pages < count {
            let child = bench::process::fork_sleeper().expect("a child");
            let start = Instant::now();
            pages += mapping.touch();
            took += start.elapsed();
            kill(child).expect("our own child");
        }
        took.mul_f64(count as f64 / pages as f64)
    });
    Ok(())
}

fn fork_of_large_process() -> io::Result<()> {
    let mapping = Mapping::anonymous(FORKED)?;
    mapping.touch();
    SUITE.time("fork_exit_256m", |count| {
        (0..count).for_each(|_| fork(|| ()).and_then(wait).expect("a child"));
    });
    Ok(())
}

fn copy_through_kernel() -> io::Result<()> {
    let path = "/tmp/bench-copy";
    fs::write(path, vec![1; SMALL])?;
    let file = File::open(path)?;
    let mut block = vec![0; SMALL];
    SUITE.time("read_64k", |count| {
        (0..count).for_each(|_| assert_eq!(file.read_at(&mut block, 0).ok(), Some(SMALL)));
    });
    let file = File::options().write(true).open(path)?;
    SUITE.time("write_64k", |count| {
        (0..count).for_each(|_| assert_eq!(file.write_at(&block, 0).ok(), Some(SMALL)));
    });
    fs::remove_file(path)
}
