//! The command line.

use std::path::PathBuf;

use crate::cases::Case;

/// What `--help` and a usage error print.
pub(crate) const USAGE: &str = "\
usage: abi-tests [OPTIONS] [FILTER...]
  --long             also run the cases that take minutes, and judge the known differences
  --list             print the names of the cases and stop
  --self-check       compare the host with itself: are the programs deterministic?
  --show             print what the host's Linux prints and stop
  --cpus LIST        numbers of CPUs to run with (default: 1 and 4, and 2 for cases
                     with a VM of their own; with --long 1,2,4 for all)
  --memory SIZE      memory of the VM (default 512M)
  --machine NAME     q35 or microvm (default: the tool's)
  --image-only DIR   write the image to DIR and stop; run one case by hand with
                     ./starling run DIR -- /abi/bin/NAME
  --starling PATH    the command to run (default: ./starling at the top of the project)
  --repeat N         run every chosen case N times
  --seconds N        have the chosen cases go on for N seconds in Starling: they get the
                     number as another argument, which must not change what they print
A FILTER chooses the cases whose name contains it; =NAME chooses exactly one, and runs it
with all the numbers of CPUs given.";

/// The parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) long: bool,
    pub(crate) list: bool,
    pub(crate) self_check: bool,
    pub(crate) show: bool,
    /// Empty: not given.
    cpus: Vec<u32>,
    pub(crate) memory: String,
    pub(crate) machine: Option<String>,
    pub(crate) image_only: Option<PathBuf>,
    pub(crate) starling: Option<PathBuf>,
    pub(crate) repeat: u32,
    pub(crate) seconds: Option<u32>,
    filters: Vec<String>,
}

impl Arguments {
    /// Reads the arguments after the program's name.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { memory: String::from("512M"), repeat: 1, ..Self::default() };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--long" => parsed.long = true,
                "--list" => parsed.list = true,
                "--self-check" => parsed.self_check = true,
                "--show" => parsed.show = true,
                "--cpus" => parsed.cpus = numbers(&value()?)?,
                "--memory" => parsed.memory = value()?,
                "--machine" => parsed.machine = Some(value()?),
                "--image-only" => parsed.image_only = Some(PathBuf::from(value()?)),
                "--starling" => parsed.starling = Some(PathBuf::from(value()?)),
                "--repeat" => parsed.repeat = value()?.parse().map_err(|_| "--repeat needs a number")?,
                "--seconds" => {
                    parsed.seconds = Some(value()?.parse().map_err(|_| "--seconds needs a number")?);
                }
                _ if word.starts_with("--") => return Err(format!("unknown option {word}")),
                _ => parsed.filters.push(word),
            }
        }
        Ok(parsed)
    }

    /// Whether the command line chooses this case.
    pub(crate) fn wants(&self, case: &Case) -> bool {
        (self.names(case) || !case.long || self.long) && self.wants_name(&case.name)
    }

    /// Whether the command line names exactly this case: then it runs with whatever numbers of CPUs are given.
    pub(crate) fn names(&self, case: &Case) -> bool {
        self.filters.iter().any(|filter| filter.strip_prefix('=') == Some(&case.name))
    }

    /// The first `=NAME` that is neither a case nor one of the other tests.
    pub(crate) fn unknown_name(&self, cases: &[Case], others: &[&str]) -> Option<&str> {
        let is_known = |name: &str| cases.iter().any(|case| case.name == name) || others.contains(&name);
        self.filters.iter().filter_map(|filter| filter.strip_prefix('=')).find(|name| !is_known(name))
    }

    /// The numbers of CPUs that a case runs with. A VM for a single case costs most, so those get one size by default.
    pub(crate) fn cpus(&self, case: &Case) -> Vec<u32> {
        let usual: &[u32] = match (self.long, case.alone) {
            _ if !self.cpus.is_empty() => &self.cpus,
            (true, _) => &[1, 2, 4],
            (false, true) => &[2],
            (false, false) => &[1, 4],
        };
        let asked_for = !self.cpus.is_empty() && self.names(case);
        usual.iter().copied().filter(|cpus| asked_for || case.runs_on(*cpus)).collect()
    }

    /// Whether known differences count as failures: in the long campaign, and for what is asked for by name.
    pub(crate) fn judges_all(&self) -> bool {
        self.long || !self.filters.is_empty()
    }

    /// Whether the filters choose this name.
    pub(crate) fn wants_name(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self.filters.iter().any(|filter| match filter.strip_prefix('=') {
                Some(exact) => exact == name,
                None => name.contains(filter.as_str()),
            })
    }
}

fn numbers(list: &str) -> Result<Vec<u32>, String> {
    list.split(',').map(|word| word.parse().map_err(|_| format!("not a number of CPUs: {word}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_filters_are_told_apart() {
        let words = ["--cpus", "1,4", "pipe", "--long"].map(String::from);
        let parsed = Arguments::parse(words.into_iter()).unwrap();
        let mut case = Case::named("pipe");
        assert_eq!(parsed.cpus(&case), [1, 4]);
        case.cpus = vec![2, 4];
        assert_eq!(parsed.cpus(&case), [4]);
        assert!(parsed.long);
        assert!(parsed.wants_name("pipe_splice"));
        assert!(!parsed.wants_name("futex"));
    }

    #[test]
    fn cases_with_a_machine_of_their_own_run_on_one_size() {
        let parsed = Arguments::parse(std::iter::empty()).unwrap();
        let mut case = Case::named("hogs");
        assert_eq!(parsed.cpus(&case), [1, 4]);
        case.alone = true;
        assert_eq!(parsed.cpus(&case), [2]);
        let parsed = Arguments::parse(std::iter::once("--long".into())).unwrap();
        assert_eq!(parsed.cpus(&case), [1, 2, 4]);
    }

    #[test]
    fn an_exact_name_must_be_known_and_a_part_of_one_need_not() {
        let unknown = |words: &[&str]| {
            let parsed = Arguments::parse(words.iter().map(ToString::to_string)).unwrap();
            parsed.unknown_name(&[Case::named("pipe")], &["terminal"]).map(String::from)
        };
        assert_eq!(unknown(&["=pipe", "=terminal", "futex"]), None);
        assert_eq!(unknown(&["=pipe", "=futex"]), Some(String::from("futex")));
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(Arguments::parse(["--nonsense".to_string()].into_iter()).is_err());
    }
}
