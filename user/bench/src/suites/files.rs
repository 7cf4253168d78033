//! `files`: making, finding and removing files on a file system in memory.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};

use crate::measure::Suite;

const SUITE: Suite = Suite::new("files");
const ROOT: &str = "/tmp/bench-files";
/// Bytes of the files, as lmbench's `lat_fs` has them.
const SIZES: [usize; 3] = [0, 1, 10];
/// Files that are made before they are removed.
const BATCH: u64 = 100;
/// Entries of the large directory.
const ENTRIES: u64 = 10_000;
/// Depths of the paths that are looked up.
const DEPTHS: [usize; 4] = [1, 2, 4, 8];

/// Runs the suite.
///
/// # Errors
/// When the machine refuses what every Linux can do.
pub(crate) fn run() -> io::Result<()> {
    fs::create_dir(ROOT)?;
    for kib in SIZES {
        create_and_unlink(kib);
    }
    large_directory()?;
    for depth in DEPTHS {
        path_walk(depth)?;
    }
    let names = [format!("{ROOT}/one"), format!("{ROOT}/two")];
    fs::write(&names[0], b"")?;
    SUITE.time("rename_there_and_back", |count| {
        for _ in 0..count {
            fs::rename(&names[0], &names[1]).expect("it is there");
            fs::rename(&names[1], &names[0]).expect("it is there");
        }
    });
    fs::remove_dir_all(ROOT)
}

/// What one phase of a batch of files costs for one file.
fn phase(name: &str, kib: usize, which: usize) {
    let content = vec![1; kib << 10];
    let paths: Vec<String> = (0..BATCH).map(|number| format!("{ROOT}/{number}")).collect();
    SUITE.time_inside(format_args!("{name}_{kib}k"), |count| {
        let mut took = [Duration::ZERO; 3];
        let mut files = 0;
        while files < count {
            let start = Instant::now();
            paths.iter().for_each(|path| fs::write(path, &content).expect("room"));
            let written = Instant::now();
            paths
                .iter()
                .for_each(|path| assert_eq!(fs::read(path).expect("it is there").len(), content.len()));
            let read = Instant::now();
            paths.iter().for_each(|path| fs::remove_file(path).expect("it is there"));
            took[0] += written - start;
            took[1] += read - written;
            took[2] += read.elapsed();
            files += BATCH;
        }
        took[which].mul_f64(count as f64 / files as f64)
    });
}

fn create_and_unlink(kib: usize) {
    for (which, name) in ["create_write", "open_read", "unlink"].into_iter().enumerate() {
        phase(name, kib, which);
    }
}

fn large_directory() -> io::Result<()> {
    let directory = format!("{ROOT}/large");
    fs::create_dir(&directory)?;
    let paths: Vec<String> = (0..ENTRIES).map(|number| format!("{directory}/file-{number}")).collect();
    let start = Instant::now();
    for path in &paths {
        fs::write(path, b"")?;
    }
    SUITE.report("create_10000", "ns", start.elapsed().as_secs_f64() * 1e9 / ENTRIES as f64);
    let mut next = 0;
    SUITE.time("stat_among_10000", |count| {
        for _ in 0..count {
            next = (next + 7919) % paths.len();
            rustix::fs::statat(CWD, &paths[next], AtFlags::empty()).expect("it is there");
        }
    });
    SUITE.time_inside("readdir_10000", |count| {
        let start = Instant::now();
        let mut seen = 0;
        while seen < count {
            let here = fs::read_dir(&directory).expect("it is there").count() as u64;
            assert_eq!(here, ENTRIES, "the directory has lost entries");
            seen += here;
        }
        start.elapsed().mul_f64(count as f64 / seen as f64)
    });
    fs::remove_dir_all(directory)
}

fn path_walk(depth: usize) -> io::Result<()> {
    let mut path = ROOT.to_owned();
    for _ in 2..depth {
        path.push_str("/directory");
    }
    fs::create_dir_all(&path)?;
    match depth {
        1 => path = "/tmp".into(),
        _ => {
            path.push_str("/file");
            fs::write(&path, b"")?;
        }
    }
    SUITE.time(format_args!("path_walk_{depth}"), |count| {
        for _ in 0..count {
            rustix::fs::statat(CWD, &path, AtFlags::empty()).expect("it is there");
        }
    });
    Ok(())
}
