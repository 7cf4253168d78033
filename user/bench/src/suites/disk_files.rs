//! `files-ext4`: files on an ext4, on a virtio disk, or in memory where instructions are counted: making and removing them, writing and reading them in order and at random, and having them last.
//!
//! What is read in order or at random is not in memory when that begins. What is written is on the disk when the time is taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::files::{LARGE_DIRECTORY, PHASES, Phase, large_directory, life};
use bench::disk;
use bench::measure::Suite;

const SUITE: Suite = Suite::new("files-ext4");
const ROOT: &str = "/tmp/bench-ext4";
/// Kibibytes of small files.
const SIZES: [usize; 2] = [0, 10];
/// Mebibytes of the large file.
const LARGE: usize = 128;
/// Bytes of one call where a file is written or read in order.
const PIECE: usize = 64 << 10;
/// Bytes of one call where it is written or read at random, or synced.
const BLOCK: usize = 4 << 10;
/// Such calls between two looks at the clock.
const RANDOM: usize = 4096;

/// Runs the suite.
///
/// # Errors
/// When there is no disk with a file system, or its directory cannot be made.
pub(crate) fn run() -> io::Result<()> {
    disk::attach(ROOT)?;
    for kib in SIZES {
        // There is nothing to be written to an empty file.
        for (phase, name) in PHASES.into_iter().filter(|(phase, _)| kib > 0 || *phase != Phase::Write) {
            let test = format!("{name}_{kib}k");
            SUITE.single(&test, || {
                life(&SUITE, ROOT, &test, kib, phase);
                Ok(())
            });
        }
    }
    SUITE.group(LARGE_DIRECTORY, || large_directory(&SUITE, ROOT));
    SUITE.group(["create_fsync_4k", "append_fsync_4k", "overwrite_fsync_4k"], synced);
    SUITE.group(
        [
            "write_sequential_1m",
            "rewrite_sequential_1m",
            "read_sequential_1m",
            "write_random_4k",
            "read_random_4k",
        ],
        large_file,
    );
    disk::detach(ROOT)
}

/// Small writes that last.
fn synced() -> io::Result<()> {
    let block = [1; BLOCK];
    let mut made = 0;
    SUITE.time("create_fsync_4k", |count| {
        for _ in 0..count {
            let mut file = File::create_new(format!("{ROOT}/synced-{made}")).expect("a new file");
            file.write_all(&block).expect("there is room");
            file.sync_all().expect("the disk is well");
            made += 1;
        }
    });
    for number in 0..made {
        fs::remove_file(format!("{ROOT}/synced-{number}"))?;
    }
    let path = format!("{ROOT}/synced");
    let mut file = File::create_new(&path)?;
    SUITE.time("append_fsync_4k", |count| {
        for _ in 0..count {
            file.write_all(&block).expect("there is room");
            file.sync_all().expect("the disk is well");
        }
    });
    let blocks = file.metadata()?.len() / BLOCK as u64;
    let mut next = 0;
    SUITE.time("overwrite_fsync_4k", |count| {
        for _ in 0..count {
            next = (next + 7919) % blocks;
            file.write_all_at(&block, next * BLOCK as u64).expect("it is there");
            file.sync_all().expect("the disk is well");
        }
    });
    fs::remove_file(path)
}

fn large_file() -> io::Result<()> {
    let path = format!("{ROOT}/large-file");
    let mebibyte = |start: Instant| start.elapsed().div_f64(LARGE as f64);
    let call = |start: Instant| start.elapsed().div_f64(RANDOM as f64);
    let mut piece = vec![1; PIECE];
    SUITE.time_slow(
        &[
            "write_sequential_1m",
            "rewrite_sequential_1m",
            "read_sequential_1m",
            "write_random_4k",
            "read_random_4k",
        ],
        || {
            disk::forget()?;
            let start = Instant::now();
            write_all(&mut File::create_new(&path)?, &piece)?;
            let written = mebibyte(start);
            let start = Instant::now();
            write_all(&mut OpenOptions::new().write(true).open(&path)?, &piece)?;
            let rewritten = mebibyte(start);
            disk::forget()?;
            let start = Instant::now();
            let mut file = File::open(&path)?;
            while file.read(&mut piece)? > 0 {}
            let read = mebibyte(start);
            disk::forget()?;
            let start = Instant::now();
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            for place in places() {
                file.write_all_at(&piece[..BLOCK], place)?;
            }
            file.sync_all()?;
            let written_at_random = call(start);
            disk::forget()?;
            let start = Instant::now();
            for place in places() {
                file.read_exact_at(&mut piece[..BLOCK], place)?;
            }
            let read_at_random = call(start);
            fs::remove_file(&path)?;
            Ok(vec![written, rewritten, read, written_at_random, read_at_random])
        },
    )
}

fn write_all(file: &mut File, piece: &[u8]) -> io::Result<()> {
    for _ in 0..(LARGE << 20) / PIECE {
        file.write_all(piece)?;
    }
    file.sync_all()
}

/// Blocks of the large file in an order that is the same each time.
fn places() -> impl Iterator<Item = u64> {
    let blocks = ((LARGE << 20) / BLOCK) as u64;
    (0..RANDOM as u64).map(move |number| number * 7919 % blocks * BLOCK as u64)
}
