//! Extended attributes: those of the real file.
//!
//! What the overlay keeps for itself nobody sees. A program that sets an attribute of such a name gets one of another, longer name on the layer, so that an
//! overlay can be the upper layer's contents of another: `trusted.overlay.x` is kept as `trusted.overlay.overlay.x`.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use vfs::inode::{Inode, SetAttribute};
use vfs::{Result, allocation, file_capabilities};

use crate::copy_up::copy_up;
use crate::node::Node;

/// What the overlay keeps at the files of layers.
pub(crate) const OWN: &[u8] = b"trusted.overlay.";
/// How programs' attributes of that kind begin on layers.
pub(crate) const ESCAPED: &[u8] = b"trusted.overlay.overlay.";
/// A directory with value `y` hides those below it.
pub(crate) const OPAQUE: &[u8] = b"trusted.overlay.opaque";

/// A name as layers have it.
fn kept(name: &[u8]) -> Result<Cow<'_, [u8]>> {
    let Some(rest) = name.strip_prefix(OWN) else { return Ok(Cow::Borrowed(name)) };
    let mut longer = Vec::new();
    allocation::extend(&mut longer, ESCAPED)?;
    allocation::extend(&mut longer, rest)?;
    Ok(Cow::Owned(longer))
}

pub(crate) fn get(node: &Node, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
    let real = node.real()?;
    real.operations().extended_attribute(real, &kept(name)?, buffer)
}

pub(crate) fn set(inode: &Inode, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
    let real = copy_up(inode)?.existing()?;
    file_capabilities::set_below(real, &kept(name)?, value, how)?;
    real.touch_changed();
    crate::node::refresh(inode);
    Ok(())
}

/// What is not there is not worth a copy.
pub(crate) fn remove(node: &Node, inode: &Inode, name: &[u8]) -> Result<()> {
    get(node, name, &mut [])?;
    let real = copy_up(inode)?.existing()?;
    real.operations().remove_extended_attribute(real, &kept(name)?)?;
    real.touch_changed();
    crate::node::refresh(inode);
    Ok(())
}

pub(crate) fn list(node: &Node, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let real = node.real()?;
    real.operations().list_extended_attributes(real, &mut |name| match name.strip_prefix(ESCAPED) {
        Some(rest) => {
            let mut shown = Vec::new();
            allocation::extend(&mut shown, OWN)?;
            allocation::extend(&mut shown, rest)?;
            each(&shown)
        }
        None if name.starts_with(OWN) => Ok(()),
        None => each(name),
    })
}
