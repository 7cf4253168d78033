//! Whether what is there is what must be.

use std::collections::BTreeSet;

use crate::operation::{Operation, SLOT_BYTES, SLOTS, State};
use crate::{NOISE, NOISE_KEY, contents, folder_of};

/// Bytes that a disk writes as one.
const SECTOR: usize = 512;
/// Bytes that a file system writes back as one.
const PAGE: usize = 4096;
/// What does not fit is compared with so many records before and after.
const NEAR: u64 = 20;

/// A file system that can be looked at.
pub trait Tree {
    /// The names in a folder.
    ///
    /// # Errors
    /// When it cannot be read.
    fn names(&self, folder: &str) -> Result<BTreeSet<String>, String>;
    /// All of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// Checks the folder of a writer of which so many records were acknowledged.
///
/// # Errors
/// What is missing or wrong.
pub fn check(tree: &impl Tree, seed: u64, writer: u64, acknowledged: u64) -> Result<(), String> {
    let at = |records| {
        let before = State::after(seed, writer, records);
        let mut after = before.clone();
        let begun = after.advance();
        let view = View { tree, folder: folder_of(writer), before, after, begun };
        view.check().map_err(|why| format!("{} after record {records}, before {begun:?}: {why}", view.folder))
    };
    at(acknowledged).map_err(|why| {
        let near = acknowledged.saturating_sub(NEAR)..acknowledged + NEAR;
        let fitting: Vec<u64> = near.filter(|records| at(*records).is_ok()).collect();
        format!("{why}; it would fit {fitting:?}")
    })
}

struct View<'a, T> {
    tree: &'a T,
    folder: String,
    before: State,
    after: State,
    /// What may have been under way.
    begun: Operation,
}

fn names_of(state: &State) -> BTreeSet<String> {
    let named = state.named.keys().map(|which| format!("named{which}"));
    let folders = state.folders.keys().map(|which| format!("folder{which}"));
    named.chain(folders).chain(["log".into(), "slots".into()]).collect()
}

impl<T: Tree> View<'_, T> {
    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        self.tree.read(&format!("{}/{name}", self.folder))
    }

    fn check(&self) -> Result<(), String> {
        let found = self.tree.names(&self.folder)?;
        let (before, after) = (names_of(&self.before), names_of(&self.after));
        if let Some(missing) = before.intersection(&after).find(|name| !found.contains(*name)) {
            return Err(format!("{missing} is missing"));
        }
        for name in &found {
            let temporary = name == "temporary" && matches!(self.begun, Operation::Replace { .. });
            if !temporary && !before.contains(name) && !after.contains(name) {
                return Err(format!("{name} should not be there"));
            }
        }
        self.check_log()?;
        self.check_slots()?;
        for which in (0..crate::NAMES).filter(|which| found.contains(&format!("named{which}"))) {
            self.check_named(which)?;
        }
        for which in (0..crate::FOLDERS).filter(|which| found.contains(&format!("folder{which}"))) {
            self.check_folder(which)?;
        }
        Ok(())
    }

    /// One of the two is the beginning of the other, and what is there ends between their ends.
    fn check_log(&self) -> Result<(), String> {
        let found = self.read("log")?;
        let (before, after) = (self.before.log_contents(), self.after.log_contents());
        let (short, long) = if before.len() < after.len() { (before, after) } else { (after, before) };
        if found.len() < short.len() || found.len() > long.len() {
            return Err(format!("the log has {} bytes, not {} to {}", found.len(), short.len(), long.len()));
        }
        let mut wanted = long[..found.len()].to_vec();
        if matches!(self.begun, Operation::Cut { .. }) {
            // Of a cut that was not finished the zeroes behind the new end may be there, up to the end of the page.
            let tail = short.len()..short.len().next_multiple_of(PAGE).min(found.len());
            for at in tail.filter(|at| found[*at] == 0) {
                wanted[at] = 0;
            }
        }
        same(&found, &wanted).map_err(|at| format!("the log is wrong from byte {at} on"))
    }

    fn check_slots(&self) -> Result<(), String> {
        let found = self.read("slots")?;
        if found.len() as u64 != SLOTS * SLOT_BYTES {
            return Err(format!("the slots have {} bytes", found.len()));
        }
        for slot in 0..SLOTS {
            let (before, after) = (self.before.slot_contents(slot), self.after.slot_contents(slot));
            for (index, sector) in
                found[(slot * SLOT_BYTES) as usize..][..SLOT_BYTES as usize].chunks(SECTOR).enumerate()
            {
                let range = index * SECTOR..(index + 1) * SECTOR;
                if sector != &before[range.clone()] && sector != &after[range] {
                    return Err(format!("sector {index} of slot {slot} is wrong"));
                }
            }
        }
        Ok(())
    }

    fn check_named(&self, which: u64) -> Result<(), String> {
        let found = self.read(&format!("named{which}"))?;
        let fits = |state: &State| {
            state.named.get(&which).is_some_and(|whole| state.whole_contents(*whole) == found)
        };
        if fits(&self.before) || fits(&self.after) {
            return Ok(());
        }
        Err(format!(
            "named{which}, of {} bytes, is neither {:?} nor {:?}",
            found.len(),
            self.before.named.get(&which),
            self.after.named.get(&which)
        ))
    }

    fn check_folder(&self, which: u64) -> Result<(), String> {
        let name = format!("folder{which}");
        let found = self.tree.names(&format!("{}/{name}", self.folder))?;
        let (before, after) = (self.before.folders.get(&which), self.after.folders.get(&which));
        let settled = before == after;
        if let Some(other) = found.iter().find(|name| *name != "file") {
            return Err(format!("{other} in {name} should not be there"));
        }
        if found.is_empty() {
            return if settled { Err(format!("the file in {name} is missing")) } else { Ok(()) };
        }
        let file = self.read(&format!("{name}/file"))?;
        let Some(whole) = before.or(after) else { return Ok(()) };
        let wanted = self.before.whole_contents(*whole);
        let partly = before.is_none() && file.len() <= wanted.len();
        if !partly && file.len() != wanted.len() {
            return Err(format!("the file in {name} has {} bytes, not {}", file.len(), wanted.len()));
        }
        same(&file, &wanted[..file.len()])
            .map_err(|at| format!("the file in {name} is wrong from byte {at} on"))
    }
}

/// Where two texts of one length begin to differ.
fn same(found: &[u8], wanted: &[u8]) -> Result<(), usize> {
    found.iter().zip(wanted).position(|(found, wanted)| found != wanted).map_or(Ok(()), Err)
}

/// Checks that the noise's files have nothing that was not written there.
///
/// # Errors
/// What is wrong.
pub fn check_noise(tree: &impl Tree) -> Result<(), String> {
    if !tree.names("")?.contains(NOISE) {
        return Ok(());
    }
    for name in tree.names(NOISE)?.iter().filter(|name| name.starts_with("file")) {
        let found = tree.read(&format!("{NOISE}/{name}"))?;
        let wanted = contents(NOISE_KEY, 0, found.len() as u64);
        let wrong = found.iter().zip(&wanted).position(|(found, wanted)| *found != 0 && found != wanted);
        if let Some(at) = wrong {
            return Err(format!("{NOISE}/{name} has at byte {at} what was never written"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Tree, check};
    use crate::State;

    struct Memory(BTreeMap<String, Vec<u8>>);

    impl Tree for Memory {
        fn names(&self, folder: &str) -> Result<BTreeSet<String>, String> {
            let inside = self.0.keys().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
            Ok(inside.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect())
        }

        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            self.0.get(path).cloned().ok_or_else(|| format!("no {path}"))
        }
    }

    fn tree_of(state: &State) -> Memory {
        let mut files = BTreeMap::new();
        files.insert("writer1/log".into(), state.log_contents());
        files.insert(
            "writer1/slots".into(),
            (0..crate::SLOTS).flat_map(|slot| state.slot_contents(slot)).collect(),
        );
        for (which, whole) in &state.named {
            files.insert(format!("writer1/named{which}"), state.whole_contents(*whole));
        }
        for (which, whole) in &state.folders {
            files.insert(format!("writer1/folder{which}/file"), state.whole_contents(*whole));
        }
        Memory(files)
    }

    #[test]
    fn a_folder_fits_the_record_it_is_after_and_the_one_before() {
        for records in 1..60 {
            let tree = tree_of(&State::after(7, 1, records));
            check(&tree, 7, 1, records).unwrap();
            check(&tree, 7, 1, records - 1).unwrap();
        }
    }

    #[test]
    fn a_lost_record_is_noticed() {
        let lost = (2..200).filter(|records| {
            let before = State::after(7, 1, records - 2);
            before.clone().advance() != State::after(7, 1, *records).next_operation()
                && tree_of(&before).0 != tree_of(&State::after(7, 1, records - 1)).0
                && check(&tree_of(&before), 7, 1, *records).is_ok()
        });
        // What the record after the lost one has done again may hide it.
        assert!(lost.count() < 30);
    }

    #[test]
    fn a_damaged_byte_is_noticed() {
        let state = State::after(7, 1, 50);
        for path in tree_of(&state).0.keys() {
            let mut tree = tree_of(&state);
            let Some(byte) = tree.0.get_mut(path).and_then(|bytes| bytes.last_mut()) else { continue };
            *byte ^= 1;
            assert!(check(&tree, 7, 1, 50).is_err(), "{path}");
        }
    }
}
