//! `records`: writes records that last, or checks what is there of them.
//!
//! * `records write FOLDER SEED WRITERS [DISK]` writes until it is ended, and prints `WRITER NUMBER` after each record; record 0 is the folder.
//!   With a disk it also leaves the number in the writer's mark, which is written through to the device but not made to last.
//! * `records check FOLDER SEED WRITER:NUMBER...` checks the folders of writers with so many acknowledged records.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use records::{
    MARK_BYTES, MARKS_AT, NOISE, NOISE_KEY, Operation, Random, SLOT_BYTES, SLOTS, State, Tree, check,
    check_noise, contents, folder_of,
};

const O_DIRECT: i32 = 0o40000;
/// Files of the noise.
const NOISE_FILES: u64 = 12;
/// Between its changes.
const NOISE_PAUSE: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        [_, "write", folder, seed, writers] => write(Path::new(folder), seed, writers, None),
        [_, "write", folder, seed, writers, disk] => write(Path::new(folder), seed, writers, Some(disk)),
        [_, "check", folder, seed, ref writers @ ..] => check_all(Path::new(folder), seed, writers),
        _ => Err("records write FOLDER SEED WRITERS [DISK] | check FOLDER SEED WRITER:NUMBER...".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("records: {why}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

fn write(folder: &Path, seed: &str, writers: &str, disk: Option<&str>) -> Result<(), String> {
    let (seed, writers) = (number(seed)?, number(writers)?);
    let noise = folder.join(NOISE);
    thread::spawn(move || make_noise(&noise, seed));
    let writer = |which: u64| {
        let writer = Writer::new(folder, seed, which, disk)?;
        writer.run()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..writers).map(|which| scope.spawn(move || writer(which))).collect();
        let ended = running.into_iter().map(|running| match running.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("a writer panicked".into()),
        });
        ended.collect()
    })
}

/// One of the writers.
struct Writer {
    folder: PathBuf,
    state: State,
    which: u64,
    mark: Option<File>,
    slots: File,
}

/// A block in memory that devices can take as it is.
#[repr(align(4096))]
struct Block([u8; MARK_BYTES as usize]);

fn synced(folder: &Path) -> Result<(), Error> {
    File::open(folder)?.sync_all()
}

/// A file as a whole, made to last; its name is not.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let file = File::create(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

impl Writer {
    fn new(parent: &Path, seed: u64, which: u64, disk: Option<&str>) -> Result<Self, Error> {
        let folder = parent.join(folder_of(which));
        fs::create_dir(&folder)?;
        File::create(folder.join("log"))?.sync_all()?;
        let slots = File::create(folder.join("slots"))?;
        slots.set_len(SLOTS * SLOT_BYTES)?;
        slots.sync_all()?;
        synced(&folder)?;
        synced(parent)?;
        let open = |disk| OpenOptions::new().write(true).custom_flags(O_DIRECT).open(disk);
        let mark = disk.map(open).transpose()?;
        Ok(Self { folder, state: State::new(seed, which), which, mark, slots })
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            if let Some(mark) = &self.mark {
                let mut block = Block([0; MARK_BYTES as usize]);
                let number = (self.state.records() + 1).to_le_bytes();
                block.0[..8].copy_from_slice(&number);
                block.0[8..16].copy_from_slice(&number);
                mark.write_all_at(&block.0, MARKS_AT + self.which * MARK_BYTES)?;
            }
            println!("{} {}", self.which, self.state.records());
            let mut next = self.state.clone();
            next.advance();
            self.perform(self.state.next_operation(), &next)?;
            self.state = next;
        }
    }

    fn perform(&self, operation: Operation, next: &State) -> Result<(), Error> {
        let data = |length| contents(next.key(next.records()), 0, length);
        match operation {
            Operation::Append { hole, length, data_only } => {
                let log = OpenOptions::new().write(true).open(self.folder.join("log"))?;
                log.write_all_at(&data(length), self.state.log_length() + hole)?;
                if data_only { log.sync_data() } else { log.sync_all() }
            }
            Operation::Cut { length } => {
                let log = OpenOptions::new().write(true).open(self.folder.join("log"))?;
                log.set_len(length)?;
                log.sync_all()
            }
            Operation::Overwrite { slot } => {
                self.slots.write_all_at(&data(SLOT_BYTES), slot * SLOT_BYTES)?;
                self.slots.sync_data()
            }
            Operation::Replace { which, length } => {
                let temporary = self.folder.join("temporary");
                write_whole(&temporary, &data(length))?;
                fs::rename(&temporary, self.folder.join(format!("named{which}")))?;
                synced(&self.folder)
            }
            Operation::Remove { which } => {
                absent_is_fine(fs::remove_file(self.folder.join(format!("named{which}"))))?;
                synced(&self.folder)
            }
            Operation::Folder { which, length } => {
                let folder = self.folder.join(format!("folder{which}"));
                if next.has_folder(which) {
                    fs::create_dir(&folder)?;
                    write_whole(&folder.join("file"), &data(length))?;
                    synced(&folder)?;
                } else {
                    fs::remove_dir_all(&folder)?;
                }
                synced(&self.folder)
            }
        }
    }
}

fn absent_is_fine(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Changes that nobody makes last, until the process ends. What goes wrong is no matter: nothing depends on it.
fn make_noise(folder: &Path, seed: u64) {
    let mut random = Random(!seed);
    let _ = fs::create_dir(folder);
    loop {
        let file = folder.join(format!("file{}", random.below(NOISE_FILES)));
        let other = folder.join(format!("file{}", random.below(NOISE_FILES)));
        let _ = match random.below(10) {
            0 => fs::remove_file(&file),
            1 => fs::rename(&file, &other),
            2 => fs::hard_link(&file, &other),
            3 => fs::create_dir(folder.join("folder")).or_else(|_| fs::remove_dir(folder.join("folder"))),
            4 => {
                OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(random.below(60_000)))
            }
            _ => OpenOptions::new().write(true).create(true).truncate(false).open(&file).and_then(|file| {
                let (offset, length) = (random.below(50_000), random.below(20_000));
                file.write_all_at(&contents(NOISE_KEY, offset, length), offset)
            }),
        };
        if random.below(30) == 0 {
            let _ = synced(folder);
        }
        // The writers are what it is about.
        thread::sleep(NOISE_PAUSE);
    }
}

/// A folder of this machine.
struct Folder<'a>(&'a Path);

impl Tree for Folder<'_> {
    fn names(&self, folder: &str) -> Result<BTreeSet<String>, String> {
        let path = self.0.join(folder);
        let why = |error: Error| format!("{}: {error}", path.display());
        let name = |entry: Result<fs::DirEntry, Error>| {
            Ok(entry.map_err(why)?.file_name().to_string_lossy().into_owned())
        };
        fs::read_dir(&path).map_err(why)?.map(name).collect()
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        fs::read(self.0.join(path)).map_err(|error| format!("{path}: {error}"))
    }
}

fn check_all(folder: &Path, seed: &str, writers: &[&str]) -> Result<(), String> {
    let (tree, seed) = (Folder(folder), number(seed)?);
    for writer in writers {
        let (writer, acknowledged) =
            writer.split_once(':').ok_or_else(|| format!("{writer} has no colon"))?;
        check(&tree, seed, number(writer)?, number(acknowledged)?)?;
    }
    check_noise(&tree)
}
