//! What threads and objects are called: as the program calls them, as who reads the trace does, or by their start routines.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::model::Model;
use crate::failure::{Context, Failure, Outcome};

#[derive(Args, Debug, Default)]
pub(super) struct NameArguments {
    /// Names of objects and threads: lines of an address or handle (0x...) and a name
    #[arg(short, long, value_name = "FILE")]
    aliases: Option<PathBuf>,
}

/// Names that are known.
#[derive(Debug, Default)]
pub(super) struct Names {
    threads: BTreeMap<(u32, u32), String>,
    handles: BTreeMap<(u32, u32), u64>,
    /// By process and address.
    objects: BTreeMap<(u32, u64), String>,
    aliases: BTreeMap<u64, String>,
}

impl Names {
    /// Those of a trace, and those that the arguments give.
    ///
    /// # Errors
    /// When the file of names can't be read.
    pub(super) fn new(model: &Model, arguments: &NameArguments) -> Outcome<Self> {
        let mut names = Self::default();
        if let Some(path) = &arguments.aliases {
            let text = fs::read_to_string(path).context(|| path.display().to_string())?;
            names.aliases = aliases(&text).map_err(|line| {
                Failure::ours(format!("{}: {line} is no address and a name", path.display()))
            })?;
        }
        for (&key, thread) in &model.threads {
            names.handles.extend(thread.handle.map(|handle| (key, handle)));
            let alias = thread.handle.and_then(|handle| names.aliases.get(&handle).cloned());
            let by_routine = || thread.routine.as_ref().map(|routine| format!("{routine}-{}", key.1));
            names
                .threads
                .extend(alias.or_else(|| thread.name.clone()).or_else(by_routine).map(|name| (key, name)));
        }
        for (key, object) in &model.objects {
            names.objects.extend(object.name.clone().map(|name| (*key, name)));
        }
        Ok(names)
    }

    /// A thread's handle.
    pub(super) fn handle(&self, process: u32, thread: u32) -> Option<u64> {
        self.handles.get(&(process, thread)).copied()
    }

    /// A thread's name.
    pub(super) fn thread(&self, process: u32, thread: u32) -> Option<&str> {
        self.threads.get(&(process, thread)).map(String::as_str)
    }

    /// A thread's name, or its number.
    pub(super) fn thread_or_number(&self, process: u32, thread: u32) -> String {
        self.thread(process, thread).map_or_else(|| thread.to_string(), str::to_owned)
    }

    /// An object's name.
    pub(super) fn object(&self, process: u32, address: u64) -> Option<&str> {
        self.aliases.get(&address).or_else(|| self.objects.get(&(process, address))).map(String::as_str)
    }

    /// An object's name, or its address.
    pub(super) fn object_or_address(&self, process: u32, address: u64) -> String {
        self.object(process, address).map_or_else(|| format!("{address:#x}"), str::to_owned)
    }
}

fn aliases(text: &str) -> Result<BTreeMap<u64, String>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let (address, name) = line.split_once(char::is_whitespace)?;
        Some((u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?, name.trim().to_owned()))
    };
    lines.map(|line| pair(line).ok_or_else(|| line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_lines_of_an_address_and_a_name() {
        let found = aliases("# mine\n0x40  the big lock\n\n0xabc queue\n").expect("they are");
        assert_eq!(found, BTreeMap::from([(0x40, "the big lock".into()), (0xabc, "queue".into())]));
        assert_eq!(aliases("40 x"), Err("40 x".into()));
    }
}
