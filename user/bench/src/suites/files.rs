//! `files`: making, finding and removing files on a file system in memory.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use bench::measure::{Suite, settle};

const SUITE: Suite = Suite::new("files");
const ROOT: &str = "/tmp/bench-files";
/// Kibibytes of the files, as lmbench's `lat_fs` has them.
const SIZES: [usize; 3] = [0, 1, 10];
/// Files that are made before they are removed.
const BATCH: u64 = 100;
/// Entries of the large directory.
const ENTRIES: u64 = 10_000;
/// Components of the longest path that is looked up.
const DEPTH: usize = 8;

/// What is done to a file in its turn. Each phase opens it, does its work and closes it, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Makes it, and writes its content if there is any: `lat_fs` calls this creation.
    Create,
    /// Writes its content again.
    Write,
    /// Reads it to its end.
    Read,
    /// Removes it.
    Unlink,
}

pub(super) const PHASES: [(Phase, &str); 4] =
    [(Phase::Create, "create"), (Phase::Write, "write"), (Phase::Read, "read"), (Phase::Unlink, "unlink")];

/// Runs the suite.
///
/// # Errors
/// When its directory cannot be made.
pub(crate) fn run() -> io::Result<()> {
    fs::create_dir(ROOT)?;
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
    for depth in 1..=DEPTH {
        let test = format!("path_walk_{depth}");
        SUITE.single(&test, || path_walk(&test, depth));
    }
    SUITE.single("rename_there_and_back", rename);
    fs::remove_dir_all(ROOT)
}

/// What one phase in the life of a batch of files costs for one file.
pub(super) fn life(suite: &Suite, root: &str, test: &str, kib: usize, wanted: Phase) {
    let mut content = vec![1; kib << 10];
    let paths: Vec<String> = (0..BATCH).map(|number| format!("{root}/{number}")).collect();
    suite.time_inside(test, |count| {
        let mut took = Duration::ZERO;
        let mut files = 0;
        while files < count {
            for (phase, _) in PHASES {
                // What one phase leaves for later is not the next one's.
                settle();
                let start = Instant::now();
                paths.iter().for_each(|path| phase.apply(path, &mut content));
                if phase == wanted {
                    took += start.elapsed();
                }
            }
            files += BATCH;
        }
        took.mul_f64(count as f64 / files as f64)
    });
}

impl Phase {
    fn apply(self, path: &str, content: &mut [u8]) {
        let open = |flags| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).expect("a file");
        match self {
            Self::Create => {
                let file = open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
                if !content.is_empty() {
                    assert_eq!(rustix::io::write(file, content), Ok(content.len()));
                }
            }
            Self::Write => assert_eq!(rustix::io::write(open(OFlags::WRONLY), content), Ok(content.len())),
            Self::Read => {
                let file = open(OFlags::RDONLY);
                assert_eq!(rustix::io::read(&file, &mut *content), Ok(content.len()));
                assert_eq!(rustix::io::read(&file, &mut [0; 1]), Ok(0));
            }
            Self::Unlink => rustix::fs::unlink(path).expect("it is there"),
        }
    }
}

/// What [`large_directory`] reports.
pub(super) const LARGE_DIRECTORY: [&str; 4] =
    ["create_10000", "stat_among_10000", "readdir_10000", "unlink_10000"];

/// Makes a large directory, looks names up in it, lists it, and removes its files.
pub(super) fn large_directory(suite: &Suite, root: &str) -> io::Result<()> {
    let directory = format!("{root}/large");
    fs::create_dir(&directory)?;
    let paths: Vec<String> = (0..ENTRIES).map(|number| format!("{directory}/file-{number}")).collect();
    let each = |start: Instant| start.elapsed().div_f64(ENTRIES as f64);
    suite.time_slow(&["create_10000", "unlink_10000"], || {
        let start = Instant::now();
        paths.iter().for_each(|path| Phase::Create.apply(path, &mut []));
        let created = each(start);
        let start = Instant::now();
        paths.iter().for_each(|path| Phase::Unlink.apply(path, &mut []));
        Ok(vec![created, each(start)])
    })?;
    paths.iter().for_each(|path| Phase::Create.apply(path, &mut []));
    let mut next = 0;
    suite.time("stat_among_10000", |count| {
        for _ in 0..count {
            next = (next + 7919) % paths.len();
            rustix::fs::statat(CWD, &paths[next], AtFlags::empty()).expect("it is there");
        }
    });
    suite.time_inside("readdir_10000", |count| {
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

/// `stat` of a directory whose path has so many components.
fn path_walk(test: &str, depth: usize) -> io::Result<()> {
    let components = ["tmp", "bench-files"].into_iter().chain(std::iter::repeat("directory"));
    let path: String = components.take(depth).flat_map(|name| ["/", name]).collect();
    fs::create_dir_all(&path)?;
    SUITE.time(test, |count| {
        for _ in 0..count {
            rustix::fs::statat(CWD, &path, AtFlags::empty()).expect("it is there");
        }
    });
    Ok(())
}

fn rename() -> io::Result<()> {
    let names = [format!("{ROOT}/one"), format!("{ROOT}/two")];
    fs::write(&names[0], b"")?;
    SUITE.time("rename_there_and_back", |count| {
        for _ in 0..count {
            fs::rename(&names[0], &names[1]).expect("it is there");
            fs::rename(&names[1], &names[0]).expect("it is there");
        }
    });
    Ok(())
}
