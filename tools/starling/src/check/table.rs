//! What Starling's kernel says of its calls: its table, read as it is written. There is one source for it, the book's page and the kernel itself.

use std::collections::{BTreeMap, BTreeSet};

/// The table's source.
const SOURCE: &str = include_str!("../../../../kernel/linux/src/table.rs");
/// Numbers from here on are Starling's own.
const FIRST_NATIVE: u64 = 0x1000;

/// One call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// Names of what it lacks.
    pub(super) lacks: BTreeSet<String>,
    /// Names that are all of their kind that it has, kind by kind.
    pub(super) has_only: Vec<BTreeSet<String>>,
}

/// All calls by number.
#[derive(Debug)]
pub(super) struct Table {
    calls: BTreeMap<u64, Call>,
}

impl Table {
    /// The kernel's.
    pub(super) fn of_the_kernel() -> Self {
        Self::parse(SOURCE)
    }

    fn parse(source: &str) -> Self {
        let written: BTreeMap<u64, (&str, &str)> = source.lines().filter_map(line).collect();
        let text_of =
            |wanted: &str| written.values().find(|(name, _)| *name == wanted).map(|(_, text)| *text);
        let call = |(number, (name, text)): (&u64, &(&str, &str))| {
            let mut call = Call { name: (*name).to_owned(), ..Call::default() };
            add(text, &mut call);
            if let Some(text) = same_as(text).and_then(text_of) {
                add(text, &mut call);
            }
            (*number, call)
        };
        Self { calls: written.iter().map(call).collect() }
    }

    /// The call of that number, if Starling has it.
    pub(super) fn get(&self, number: u64) -> Option<&Call> {
        self.calls.get(&number)
    }
}

/// `16 ioctl(3) = file::ioctl::ioctl: "what the file supports";`
fn line(line: &str) -> Option<(u64, (&str, &str))> {
    let (call, rest) = line.trim().split_once(" = ")?;
    let (number, name) = call.split_once(' ')?;
    let (name, _) = name.split_once('(')?;
    let number = number.parse().ok().filter(|number| *number < FIRST_NATIVE)?;
    let text = rest.split_once('"')?.1.strip_suffix("\";")?;
    Some((number, (name, text)))
}

/// Its parts, without what is in brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim)
}

fn add(text: &str, call: &mut Call) {
    for part in parts(text) {
        if let Some(rest) = part.strip_prefix("no ") {
            call.lacks.extend(names(rest));
        } else if let Some(rest) = part.strip_prefix("only ") {
            call.has_only.push(names(rest).collect());
        }
    }
}

/// The call that another one is said to be like.
fn same_as(text: &str) -> Option<&str> {
    let name = parts(text).find_map(|part| part.strip_prefix("as "))?;
    name.split([',', ' ']).next()
}

/// The names of the manual in it; errors in brackets are none.
fn names(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_name = |word: &&str| {
        word.contains('_')
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.split([' ', ',']).filter(is_name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parts_say_what_is_there_and_what_is_not() {
        let table = Table::parse(
            "    9 mmap(6) = memory::mmap: \"no MAP_A (ENOMEM), MAP_B has no effect\";\n    \
             10 other(1) = a::b: \"as mmap; no C_1; in words\";\n    \
             41 socket(3) = a::b: \"only AF_UNIX, AF_NETLINK; only NETLINK_X\";\n    \
             4096 ipc(6) = ipc::ipc: \"Starling's own\";\n",
        );
        let mmap = table.get(9).expect("it is there");
        assert_eq!((mmap.name.as_str(), &mmap.lacks), ("mmap", &set(&["MAP_A", "MAP_B"])));
        assert_eq!(table.get(10).map(|call| &call.lacks), Some(&set(&["C_1", "MAP_A", "MAP_B"])));
        let socket = table.get(41).expect("it is there");
        assert_eq!(socket.has_only, [set(&["AF_UNIX", "AF_NETLINK"]), set(&["NETLINK_X"])]);
        assert!(table.get(4096).is_none() && table.get(1).is_none());
    }

    #[test]
    fn the_kernels_table_is_read() {
        let table = Table::of_the_kernel();
        assert_eq!(table.get(0).map(|call| call.name.as_str()), Some("read"));
        assert!(table.calls.len() > 250, "{}", table.calls.len());
        assert!(table.get(134).is_none(), "uselib is not there, and will not be");
    }
}
