//! Paths of groups, as they are seen from the root of a name space.

use alloc::vec::Vec;

use vfs::text::Text;
use vfs::{Result, allocation};

use crate::group::Group;

/// Writes the path of a group as seen from another one: `/` for itself, with `..` for what is above it.
///
/// # Errors
/// `ENOMEM`.
pub fn write_path(group: &Group, view: &Group, out: &mut Text) -> Result<()> {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut common = group;
    // The root is above all.
    while !view.is_within(common) {
        allocation::push(&mut names, common.name.as_bytes())?;
        let Some(parent) = &common.parent else { break };
        common = parent;
    }
    let above = view.upwards().take_while(|above| !core::ptr::eq(*above, common)).count();
    for _ in 0..above {
        out.push_bytes(b"/..");
    }
    for name in names.iter().rev() {
        out.push_bytes(b"/");
        out.push_bytes(name);
    }
    if above == 0 && names.is_empty() {
        out.push_bytes(b"/");
    }
    if !group.is_root() && group.is_removed() {
        out.push_bytes(b" (deleted)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn paths_are_relative_to_the_view() {
        let root = tree::root();
        let make = |parent, name: &[u8]| {
            tree::make(parent, name, (0, 0), |group| Ok(group.clone())).expect("memory")
        };
        let (left, right) = (make(root, b"left"), make(root, b"right"));
        let inner = make(&left, b"inner");
        let path = |group: &Group, view: &Group| {
            let mut out = Text::new();
            write_path(group, view, &mut out).expect("memory");
            alloc::string::String::from_utf8(out.finish().expect("memory")).expect("names are text")
        };
        assert_eq!(path(&inner, root), "/left/inner");
        assert_eq!(path(&inner, &left), "/inner");
        assert_eq!(path(&inner, &inner), "/");
        assert_eq!(path(root, root), "/");
        assert_eq!(path(&right, &inner), "/../../right");
        assert_eq!(path(root, &left), "/..");
        for group in [&inner, &left, &right] {
            tree::remove(group).expect("empty");
        }
        assert_eq!(path(&right, root), "/right (deleted)");
    }
}
