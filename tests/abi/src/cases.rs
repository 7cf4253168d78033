//! The cases: every `.c` file under `tests/abi/programs` and every `user/*.c` that says it is one.
//!
//! A program says how it wants to be run in its first comment, one directive a line, `abi: KEY VALUE`:
//!
//! | directive | meaning |
//! |---|---|
//! | `abi: limit SECONDS` | its time limit on an idle machine (default 30); what it gets is [`PATIENCE`] times that |
//! | `abi: args WORD...` | arguments it is given |
//! | `abi: guest` | it judges itself (exit status 0) instead of being compared with the host |
//! | `abi: long` | it runs only with `--long` |
//! | `abi: long-args WORD...` | with `--long` it gets these arguments instead |
//! | `abi: long-limit SECONDS` | with `--long` it has this time limit |
//! | `abi: cpus N,N` | it runs only on these numbers of CPUs |
//! | `abi: long-cpus N,N` | with `--long` it runs only on these |
//! | `abi: alone` | it gets a VM of its own |
//! | `abi: memory SIZE` | its VM has this much memory (implies `alone`) |

use std::fs;
use std::path::{Path, PathBuf};

use crate::image::Place;

/// Seconds a case may take in the guest when it does not ask for more.
const DEFAULT_LIMIT_SECONDS: u32 = 30;

/// So many times its limit a case may take before it is ended: a host may be slow, or busy with others. What takes longer hangs.
pub(crate) const PATIENCE: u32 = 5;

/// How the result of a case is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Output and status must be those of the host.
    Compared,
    /// The program decides: it ends with status 0 when it is content. What it prints is shown.
    Guest,
}

/// One program and how to run it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) source: PathBuf,
    pub(crate) command: Vec<String>,
    /// Seconds on an idle machine; see [`Case::patience_seconds`].
    pub(crate) limit_seconds: u32,
    pub(crate) kind: Kind,
    pub(crate) long: bool,
    pub(crate) alone: bool,
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory: Option<String>,
}

impl Case {
    fn new(name: &str, source: &Path) -> Self {
        Self {
            name: name.to_string(),
            source: source.to_path_buf(),
            command: vec![format!("/abi/bin/{name}")],
            limit_seconds: DEFAULT_LIMIT_SECONDS,
            kind: Kind::Compared,
            long: false,
            alone: false,
            cpus: Vec::new(),
            memory: None,
        }
    }

    /// A case for tests.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self::new(name, Path::new("x.c"))
    }

    /// Seconds after which the case is taken for one that hangs.
    pub(crate) const fn patience_seconds(&self) -> u32 {
        self.limit_seconds * PATIENCE
    }

    /// Whether the case runs on a machine with this many CPUs.
    pub(crate) fn runs_on(&self, cpus: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpus)
    }

    /// Applies the directives of a source text; true when there was at least one.
    fn read_directives(&mut self, text: &str, long: bool) -> Result<bool, String> {
        let mut found = false;
        for line in text.lines().take_while(|line| !line.starts_with("#include")) {
            let Some((_, directive)) = line.split_once("abi: ") else { continue };
            found = true;
            let (key, value) = directive.trim().split_once(' ').unwrap_or((directive.trim(), ""));
            match key {
                "limit" => {
                    self.limit_seconds = value.parse().map_err(|_| format!("{}: bad limit", self.name))?;
                }
                "long-limit" if !long => {}
                "long-limit" => {
                    self.limit_seconds = value.parse().map_err(|_| format!("{}: bad limit", self.name))?;
                }
                "long-args" if !long => {}
                "long-args" => {
                    self.command.truncate(1);
                    self.command.extend(value.split_whitespace().map(String::from));
                }
                "args" => self.command.extend(value.split_whitespace().map(String::from)),
                "guest" => self.kind = Kind::Guest,
                "long" => self.long = true,
                "alone" => self.alone = true,
                "memory" => {
                    self.alone = true;
                    self.memory = Some(value.to_string());
                }
                "long-cpus" if !long => {}
                "cpus" | "long-cpus" => {
                    let numbers: Result<_, _> = value.split(',').map(str::parse).collect();
                    self.cpus = numbers.map_err(|_| format!("{}: bad cpus", self.name))?;
                }
                _ => return Err(format!("{}: unknown directive `{key}`", self.name)),
            }
        }
        Ok(found)
    }
}

/// All cases, sorted by name within their kind; those that may bring a VM down come last.
pub(crate) fn find(place: &Place, long: bool) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for source in sources(&place.programs(), "c")? {
        let mut case = Case::new(&stem(&source), &source);
        case.read_directives(&read(&source)?, long)?;
        cases.push(case);
    }
    for source in sources(&place.user(), "c")? {
        let mut case = Case::new(&stem(&source), &source);
        if case.read_directives(&read(&source)?, long)? {
            cases.push(case);
        }
    }
    for (folder, extension) in [("rust", "rs"), ("go", "go")] {
        for source in sources(&place.programs().join(folder), extension)? {
            let mut case = Case::new(&format!("{folder}_{}", stem(&source)), &source);
            case.limit_seconds = 180;
            case.read_directives(&read(&source)?, long)?;
            cases.push(case);
        }
    }
    let mut script = Case::new("busybox", &place.busybox_script());
    script.command = ["/bin/busybox", "sh", "/abi/busybox.sh"].map(String::from).to_vec();
    script.limit_seconds = 240;
    cases.push(script);
    cases.sort_by_key(|case| (case.alone, case.kind == Kind::Guest, case.name.clone()));
    Ok(cases)
}

/// The files of a folder with this extension, sorted.
pub(crate) fn sources(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    Ok(found)
}

/// A file's name without its folder and extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_change_the_case() {
        let mut case = Case::new("x", Path::new("x.c"));
        let text = "/* A test.\n * abi: limit 7\n * abi: guest\n * abi: cpus 2,4\n */\n#include \"abi.h\"\n";
        assert!(case.read_directives(text, false).unwrap());
        assert_eq!((case.limit_seconds, case.kind), (7, Kind::Guest));
        assert_eq!(case.patience_seconds(), 7 * PATIENCE);
        assert!(case.runs_on(4) && !case.runs_on(1));
    }

    #[test]
    fn directives_of_the_long_campaign_replace_the_others_in_it_only() {
        let text = "/* abi: cpus 2,4\n * abi: args 20\n * abi: long-cpus 4\n * abi: long-args 600\n */\n";
        let read = |long| {
            let mut case = Case::new("x", Path::new("x.c"));
            case.read_directives(text, long).unwrap();
            (case.cpus.clone(), case.command[1].clone())
        };
        assert_eq!(read(false), (vec![2, 4], "20".to_string()));
        assert_eq!(read(true), (vec![4], "600".to_string()));
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert!(Case::new("x", Path::new("x.c")).read_directives("// abi: fast", false).is_err());
    }
}
