//! Files by name, in a directory or an archive, and blobs whose digest has been checked.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::super::content::Section;
use super::super::tarball;
use super::documents::Descriptor;
use crate::failure::{Context, Failure, Outcome};

/// Larger documents than this are none.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Says that a directory or archive is an image layout.
pub(super) const MARK: &str = "oci-layout";
/// The document at the top of a layout.
pub(super) const TOP: &str = "index.json";
/// The document at the top of docker's archives.
pub(super) const SAVED_TOP: &str = "manifest.json";

/// Files by name.
#[derive(Debug)]
pub(crate) enum Layout {
    /// Below a directory.
    Directory(PathBuf),
    /// In an archive.
    Archive(HashMap<String, Section>),
}

impl Layout {
    /// The layout in a directory, if it is one.
    pub(crate) fn in_directory(path: &Path) -> Option<Self> {
        let is_layout = path.join(MARK).is_file() && path.join(TOP).is_file();
        is_layout.then(|| Self::Directory(path.to_owned()))
    }

    /// The layout in an archive, if it is one: by the mark, or by a top document that lists layers.
    pub(crate) fn in_archive(archive: &Section) -> Outcome<Option<Self>> {
        let files = tarball::files(archive)?;
        let has = |name: &str| files.contains_key(name);
        let is_layout = has(MARK) && has(TOP);
        let layout = Self::Archive(files);
        let is_saved = || {
            let top = layout.file(SAVED_TOP).ok().and_then(|top| document(&top, SAVED_TOP).ok());
            top.is_some_and(|images: Vec<super::documents::SavedImage>| !images.is_empty())
        };
        Ok((is_layout || is_saved()).then_some(layout))
    }

    /// Whether there is a file of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(path) => path.join(name).is_file(),
            Self::Archive(files) => files.contains_key(name),
        }
    }

    /// The file of that name, which comes from a digest or is one of the constants here.
    ///
    /// # Errors
    /// When it is not there or no regular file.
    pub(super) fn file(&self, name: &str) -> Outcome<Section> {
        let missing = || Failure::ours(format!("{} is missing", name.escape_debug()));
        match self {
            Self::Archive(files) => files.get(name).cloned().ok_or_else(missing),
            Self::Directory(path) => {
                let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
                let flags = i32::try_from(flags.bits()).context(String::new)?;
                let file = OpenOptions::new().read(true).custom_flags(flags).open(path.join(name));
                let file = match file {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
                    other => other.context(|| name.to_owned())?,
                };
                if !file.metadata().context(|| name.to_owned())?.is_file() {
                    return Err(Failure::ours(format!("{name} is no regular file")));
                }
                Section::whole(file).context(|| name.to_owned())
            }
        }
    }

    /// A blob, as long as its descriptor says and with its digest.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn blob(&self, descriptor: &Descriptor) -> Outcome<Section> {
        let digest = &descriptor.digest;
        let name = digest.path();
        if !self.has(&name) {
            return Err(Failure::ours(format!("blob {digest} is missing")));
        }
        let blob = self.file(&name)?;
        if blob.length != descriptor.size {
            let (found, wanted) = (blob.length, descriptor.size);
            return Err(Failure::ours(format!(
                "blob {digest} is damaged: it has {found} bytes, not {wanted}"
            )));
        }
        digest.verify(blob.reader())?;
        Ok(blob)
    }
}

/// The bytes of a document.
///
/// # Errors
/// When it is larger than any is.
pub(super) fn bytes(file: &Section, name: &str) -> Outcome<Vec<u8>> {
    if file.length > DOCUMENT_BYTES_MAX {
        return Err(Failure::ours(format!("{name} has {} bytes: too big", file.length)));
    }
    file.first_bytes(DOCUMENT_BYTES_MAX as usize).context(|| name.to_owned())
}

/// A document.
///
/// # Errors
/// When it is too large or says something else.
pub(crate) fn document<T: DeserializeOwned>(file: &Section, name: &str) -> Outcome<T> {
    serde_json::from_slice(&bytes(file, name)?).context(|| name.to_owned())
}
