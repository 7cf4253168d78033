//! What an address space should do, page by page, in the simplest possible form.
//!
//! One byte per page stands for its contents. Private pages remember their own byte once they were written; everything
//! else is looked up in the object.

use super::{MapError, Protection};

/// Pages of the modelled window.
pub(super) const PAGES: usize = 48;
/// Files, and pages of each.
pub(super) const FILES: usize = 2;
pub(super) const FILE_PAGES: usize = 12;

/// What a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Zeros.
    Zeros,
    /// A page of a file.
    File { file: usize, page: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) protection: Protection,
    pub(super) shown: Shown,
    pub(super) shared: bool,
    /// Private and writable at some time: counts as committed since then, so it doesn't merge with what never was.
    pub(super) was_writable: bool,
    /// What was stored privately.
    pub(super) own: Option<u8>,
}

/// The files, common to all spaces.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) bytes: [[u8; FILE_PAGES]; FILES],
    pub(super) pages: [usize; FILES],
}

impl Files {
    pub(super) fn new() -> Files {
        Files { bytes: [[0; FILE_PAGES]; FILES], pages: [FILE_PAGES; FILES] }
    }

    pub(super) fn truncate(&mut self, file: usize, pages: usize) {
        self.bytes[file][pages..].fill(0);
        self.pages[file] = pages;
    }
}

#[derive(Clone, Debug)]
pub(super) struct Space(pub(super) [Option<Page>; PAGES]);

/// How an access ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Value(u8),
    NotMapped,
    Denied,
    Bus,
}

impl Space {
    pub(super) fn new() -> Space {
        Space([None; PAGES])
    }

    pub(super) fn read(&self, files: &Files, page: usize) -> Outcome {
        let Some(page) = &self.0[page] else { return Outcome::NotMapped };
        if page.protection.is_empty() {
            return Outcome::Denied;
        }
        match (page.own, page.shown) {
            (_, Shown::File { file, page: number }) if number >= files.pages[file] => Outcome::Bus,
            (Some(own), _) => Outcome::Value(own),
            (None, Shown::Zeros) => Outcome::Value(0),
            (None, Shown::File { file, page: number }) => Outcome::Value(files.bytes[file][number]),
        }
    }

    pub(super) fn write(&mut self, files: &mut Files, page: usize, value: u8) -> Outcome {
        let Some(page) = &mut self.0[page] else { return Outcome::NotMapped };
        if !page.protection.contains(Protection::WRITE) {
            return Outcome::Denied;
        }
        match page.shown {
            Shown::File { file, page: number } if number >= files.pages[file] => return Outcome::Bus,
            Shown::File { file, page: number } if page.shared => files.bytes[file][number] = value,
            _ => page.own = Some(value),
        }
        Outcome::Value(value)
    }

    pub(super) fn protect(
        &mut self,
        first: usize,
        count: usize,
        protection: Protection,
    ) -> Result<(), MapError> {
        for page in &mut self.0[first..first + count] {
            let page = page.as_mut().ok_or(MapError::OutOfMemory)?;
            page.protection = protection;
            page.was_writable |= !page.shared && protection.contains(Protection::WRITE);
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, first: usize, count: usize) -> Result<(), MapError> {
        self.0[first..first + count].iter_mut().flatten().for_each(|page| page.own = None);
        let hole = self.0[first..first + count].iter().any(Option::is_none);
        if hole { Err(MapError::OutOfMemory) } else { Ok(()) }
    }

    /// A file has become shorter: what was stored privately beyond its end is gone as well.
    pub(super) fn cut(&mut self, cut: usize, pages: usize) {
        for page in self.0.iter_mut().flatten() {
            if matches!(page.shown, Shown::File { file, page } if file == cut && page >= pages) {
                page.own = None;
            }
        }
    }

    /// Whether a range is surely one region: same properties, one object in ascending order.
    pub(super) fn is_uniform(&self, first: usize, count: usize) -> bool {
        let Some(start) = self.0[first] else { return false };
        (0..count).all(|offset| {
            let Some(page) = self.0[first + offset] else { return false };
            let follows = match (start.shown, page.shown) {
                (Shown::Zeros, Shown::Zeros) => true,
                (Shown::File { file, page: from }, Shown::File { file: same, page }) => {
                    file == same && page == from + offset
                }
                _ => false,
            };
            let alike = |page: Page| (page.protection, page.shared, page.was_writable);
            follows && alike(page) == alike(start)
        })
    }
}
