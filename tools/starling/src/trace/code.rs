//! Names: of the functions that an instruction belongs to, and of objects by their addresses.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use addr2line::{Loader, demangle_auto};

use crate::failure::{Context, Outcome};

/// Functions named at most, innermost first.
const FRAMES: usize = 4;
/// The folder of the kernel's own sources.
const SOURCES: &str = "/kernel/";

/// How the region of the threads' stacks is called.
pub(super) const THREAD_SLOT: &str = "a thread's slot";

/// Where the kernel's memory lies, by the upper bits of an address, and how it is called here.
const REGIONS: [(u64, &str); 6] = [
    (0xffff_ffff_8000_0000, "the kernel's image"),
    (0xffff_e000_0000_0000, "frame metadata"),
    (0xffff_d000_0000_0000, THREAD_SLOT),
    (0xffff_c000_0000_0000, "a kernel mapping"),
    (0xffff_8000_0000_0000, "the heap or a page"),
    (0, "the program"),
];

/// The kernel's names.
pub(super) struct Names {
    loader: Loader,
    known: RefCell<HashMap<u64, String>>,
}

impl Names {
    /// The names in a linked kernel.
    ///
    /// # Errors
    /// When it has no debugging information.
    pub(super) fn of(kernel: &Path) -> Outcome<Self> {
        let loader = Loader::new(kernel).context(|| kernel.display().to_string())?;
        Ok(Self { loader, known: RefCell::default() })
    }

    /// The functions that an instruction is in, the innermost first: `lock < get < sys_read (sync/spin.rs:12)`.
    pub(super) fn function(&self, address: u64) -> String {
        let name = || self.look_up(address).unwrap_or_else(|| format!("{address:#x}"));
        self.known.borrow_mut().entry(address).or_insert_with(name).clone()
    }

    fn look_up(&self, address: u64) -> Option<String> {
        let mut frames = self.loader.find_frames(address).ok()?;
        let (mut names, mut place) = (Vec::new(), None);
        while let Ok(Some(frame)) = frames.next()
            && names.len() < FRAMES
        {
            let name = frame.function.as_ref().and_then(|name| name.demangle().ok().map(|name| short(&name)));
            let file = frame.location.as_ref().and_then(|at| Some(at.file?.rsplit_once(SOURCES)?.1));
            // What is inlined from a library says nothing.
            let (Some(name), Some(file)) = (name, file) else { continue };
            if place.is_none() {
                let line = frame.location.as_ref().and_then(|at| at.line).unwrap_or(0);
                place = Some(format!(" ({}:{line})", file.replace("src/", "")));
            }
            names.push(name);
        }
        if names.is_empty() {
            return self.loader.find_symbol(address).map(|name| short(&demangle_auto(name.into(), None)));
        }
        Some(names.join(" < ") + &place.unwrap_or_default())
    }

    /// What lies at an address: a static by its name, anything else by the region of memory.
    pub(super) fn object(&self, address: u64) -> String {
        let (start, region) =
            REGIONS.into_iter().find(|(start, _)| address >= *start).unwrap_or((0, "the program"));
        if start == REGIONS[0].0
            && let Some(symbol) = self.loader.find_symbol_info(address)
        {
            let name = short(&demangle_auto(symbol.name().into(), None));
            return format!("{name}+{}", address - symbol.address());
        }
        region.to_owned()
    }
}

/// A name without the arguments of generic types and without the compiler's hash.
fn short(name: &str) -> String {
    let mut text = String::new();
    let mut depth = 0_u32;
    // `<T as Trait>::name` begins with what would otherwise be left out.
    let name = name.strip_prefix('<').map_or(name, |rest| rest.split(" as ").next().map_or(rest, |_| rest));
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(character),
            _ => {}
        }
    }
    let text = text.replace("::::", "::").replace("{{closure}}", "{closure}");
    match text.rsplit_once("::h") {
        Some((rest, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            rest.into()
        }
        _ => text.trim_end_matches("::").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_generic_arguments_and_hashes() {
        assert_eq!(short("sync::spin::SpinLock<T>::lock"), "sync::spin::SpinLock::lock");
        assert_eq!(short("vfs::walk::walk::h0123456789abcdef"), "vfs::walk::walk");
        assert_eq!(short("a::b::<c::D<e>>"), "a::b");
    }
}
