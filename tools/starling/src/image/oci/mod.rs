//! Images as container tools have them: OCI's image layout, as a directory or an archive, and the archives of `docker save`.
//!
//! * [`digest`]: what names a blob
//! * [`documents`]: what is said in JSON
//! * [`layout`]: files by name, in a directory or an archive, and blobs whose digest has been checked
//! * [`bundle`]: from the first document to configuration and layers
//! * [`layer`]: unpacking layers and putting them over each other
//!
//! Nothing is believed. A blob is used after its length and digest were found to be what the document says that names it, up to the
//! document at the top, which nothing vouches for; layers that were unpacked are compared with the configuration once more.

mod bundle;
mod digest;
mod documents;
mod layer;
mod layout;
#[cfg(test)]
mod tests;

pub(crate) use bundle::{Bundle, Choice};
pub(crate) use digest::{Digest, HashingWriter};
pub(crate) use documents::{
    CONFIGURATION, Configuration, Descriptor, Execution, Index, LAYER, Layers, MANIFEST, Manifest, NAME,
};
pub(crate) use layout::{Layout, document};
