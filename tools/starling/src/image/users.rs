//! Which user a command runs as: `--user NAME|UID[:GROUP|GID]`, names looked up in the image as docker does.

use std::path::Path;

use super::content::Content;
use super::tree::{Attributes, Kind, Node, Tree};
use crate::failure::{Failure, Outcome};

/// Larger user data bases than this are not searched.
const MAXIMUM_DATABASE: u64 = 1 << 20;

/// A user and a group by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserId {
    /// The user.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
}

impl UserId {
    /// The superuser.
    pub(crate) const ROOT: Self = Self { uid: 0, gid: 0 };

    /// The user that `text` names in this image.
    ///
    /// # Errors
    /// When a name is in neither data base of the image.
    pub(crate) fn parse(text: &str, tree: &Tree) -> Outcome<Self> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let passwd = database(tree, b"etc/passwd");
        let known = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
            let by_name = fields.first() == Some(&user);
            fields.len() > 3 && (by_name || fields[2] == user)
        });
        let uid = known.as_ref().and_then(|fields| fields[2].parse().ok()).or_else(|| user.parse().ok());
        let uid = uid.ok_or_else(|| Failure::ours(format!("user {user}: not in the image's /etc/passwd")))?;
        let own_group = known.as_ref().and_then(|fields| fields[3].parse().ok()).unwrap_or(0);
        let gid = group.map_or(Ok(own_group), |group| group_id(group, tree))?;
        Ok(Self { uid, gid })
    }
}

/// The names of users and groups that a directory on the host has, as the image that it is used as.
pub(crate) fn accounts(root: &Path) -> Tree {
    let mut tree = Tree::default();
    for name in ["etc/passwd", "etc/group"] {
        let path = root.join(name);
        // A link may lead out of the directory.
        let is_file = std::fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAXIMUM_DATABASE);
        let bytes = if is_file { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let kind = Kind::File(tree.add_content(Content::Bytes(bytes)));
        // Two names that lie inside are taken.
        let _ = tree.insert(name.as_bytes(), Node { attributes: Attributes::root(0o644), kind });
    }
    tree
}

fn group_id(group: &str, tree: &Tree) -> Outcome<u32> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let groups = database(tree, b"etc/group");
    let found =
        groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == group);
    let gid = found.and_then(|fields| fields.get(2)?.parse().ok());
    gid.ok_or_else(|| Failure::ours(format!("group {group}: not in the image's /etc/group")))
}

fn database(tree: &Tree, path: &[u8]) -> String {
    let content: Option<&Content> = match tree.lookup(path).map(|node| &node.kind) {
        Some(Kind::File(file)) => Some(tree.content(*file)),
        _ => None,
    };
    let bytes = content.and_then(|content| content.read(MAXIMUM_DATABASE).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for (path, text) in [
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1001::/home/alice:/bin/sh\n"),
            ("etc/group", "root:x:0:\nstaff:x:50:alice\n"),
        ] {
            let kind = Kind::File(tree.add_content(Content::Bytes(text.into())));
            tree.insert(path.as_bytes(), Node { attributes: Attributes::root(0o644), kind }).expect("inside");
        }
        tree
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let id = |text: &str| UserId::parse(text, &tree()).expect("known");
        assert_eq!(id("alice"), UserId { uid: 1000, gid: 1001 });
        assert_eq!(id("1000"), UserId { uid: 1000, gid: 1001 });
        assert_eq!(id("alice:staff"), UserId { uid: 1000, gid: 50 });
        assert_eq!(id("65534"), UserId { uid: 65534, gid: 0 });
        assert_eq!(id("7:8"), UserId { uid: 7, gid: 8 });
    }

    #[test]
    fn unknown_names_are_refused() {
        for text in ["bob", "alice:nobody", "", "-1", "alice:"] {
            assert!(UserId::parse(text, &tree()).is_err(), "{text}");
        }
        assert!(UserId::parse("root", &Tree::default()).is_err());
    }
}
