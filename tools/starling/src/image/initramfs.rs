//! The file that QEMU hands to the kernel: the image as a cpio archive, and before it the run request as one of its own.
//!
//! It lives in memory without a name, so that nothing of it (the environment of the command, for one) is left on a
//! disk, whatever ends the tool.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;

use hostlink_protocol::request::{self, Key};
use rustix::fs::MemfdFlags;

use super::cpio_writer::CpioWriter;
use super::tree::{Attributes, Tree};
use super::users::UserId;
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// A tree with fewer nodes than this is written before anybody could read a progress line.
const NODES_WORTH_SHOWING: usize = 10_000;

/// What the kernel is asked to run.
#[derive(Debug)]
pub(crate) struct RunRequest {
    /// The program and its arguments; none: the shell.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// `NAME=VALUE` each.
    pub(crate) environment: Vec<Vec<u8>>,
    /// Where to start.
    pub(crate) working_directory: String,
    /// The terminal's rows and columns, if the command gets one.
    pub(crate) terminal: Option<(u16, u16)>,
    /// Who runs it.
    pub(crate) user: UserId,
    /// The guest's host name.
    pub(crate) host_name: String,
    /// Where the root file system is, if it is not this archive: see [`Key::Root`].
    pub(crate) root: Option<String>,
    /// What is mounted, each as in [`Key::Volume`].
    pub(crate) volumes: Vec<Vec<u8>>,
}

impl RunRequest {
    /// The request as the kernel reads it.
    fn encode(&self) -> Outcome<Vec<u8>> {
        let mut file = Vec::new();
        let mut record = |key: Key, value: &[u8]| {
            request::append(&mut file, key, value)
                .map_err(|_| Failure::ours("an argument has a NUL byte in it"))
        };
        self.arguments.iter().try_for_each(|argument| record(Key::Argument, argument))?;
        self.environment.iter().try_for_each(|variable| record(Key::Environment, variable))?;
        record(Key::WorkingDirectory, self.working_directory.as_bytes())?;
        record(Key::Terminal, if self.terminal.is_some() { b"1" } else { b"0" })?;
        if let Some((rows, columns)) = self.terminal {
            record(Key::Rows, rows.to_string().as_bytes())?;
            record(Key::Columns, columns.to_string().as_bytes())?;
        }
        record(Key::User, format!("{}:{}", self.user.uid, self.user.gid).as_bytes())?;
        record(Key::HostName, self.host_name.as_bytes())?;
        self.root.iter().try_for_each(|root| record(Key::Root, root.as_bytes()))?;
        self.volumes.iter().try_for_each(|volume| record(Key::Volume, volume))?;
        Ok(file)
    }
}

/// The finished file.
#[derive(Debug)]
pub(crate) struct Initramfs {
    /// A memory file.
    pub(crate) file: OwnedFd,
    /// Its size.
    pub(crate) bytes: u64,
}

impl Initramfs {
    /// Writes the image and, if there is one, the request.
    ///
    /// # Errors
    /// When contents of the image cannot be read or there is no memory.
    pub(crate) fn build(tree: &Tree, request: Option<&RunRequest>, progress: &Progress) -> Outcome<Self> {
        let file =
            rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC).context(|| "the initramfs".into())?;
        let file = File::from(file);
        let total = tree.len();
        let mut writer = CpioWriter::new(BufWriter::with_capacity(1 << 18, &file));
        // First, so that it counts whatever the image holds, and is found at once.
        if let Some(request) = request {
            let bytes = request.encode()?;
            writer
                .single_file(request::FILE, Attributes::root(0o600), bytes)
                .context(|| "the initramfs".into())?;
        }
        writer
            .tree(tree, |done| {
                if total >= NODES_WORTH_SHOWING && done % 1000 == 0 {
                    progress.say(&format!("packing the image: {done} of {total} files"));
                }
            })
            .context(|| "packing the image".into())?;
        writer.finish().and_then(|mut out| out.flush()).context(|| "the initramfs".into())?;
        let bytes = file.metadata().context(|| "the initramfs".into())?.len();
        Ok(Self { file: file.into(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpio_reader;
    use super::*;
    use hostlink_protocol::request::Records;

    #[test]
    fn request_is_the_first_member() {
        let request = RunRequest {
            arguments: vec![b"echo".to_vec(), b"".to_vec()],
            environment: vec![b"A=b".to_vec()],
            working_directory: "/tmp".into(),
            terminal: Some((24, 80)),
            user: UserId { uid: 1, gid: 2 },
            host_name: "starling".into(),
            root: None,
            volumes: Vec::new(),
        };
        let built = Initramfs::build(&Tree::default(), Some(&request), &Progress::silent()).expect("memory");
        let tree = cpio_reader::read(
            &super::super::content::Section::whole(File::from(built.file)).expect("a file"),
        )
        .expect("well formed");
        let node = tree.lookup(b".starling/run").expect("the request is there");
        assert_eq!(node.attributes.mode, 0o600);
        let super::super::tree::Kind::File(file) = node.kind else { panic!("a file") };
        let bytes = tree.content(file).read(4096).expect("readable");
        let records: Vec<_> = Records::new(&bytes).collect();
        assert_eq!(records[0], (Key::Argument, &b"echo"[..]));
        assert_eq!(records[1], (Key::Argument, &b""[..]));
        assert_eq!(records[2], (Key::Environment, &b"A=b"[..]));
        assert_eq!(records[7], (Key::User, &b"1:2"[..]));
        assert_eq!(records.len(), 9);
    }

    #[test]
    fn nul_byte_in_an_argument_is_refused() {
        let request = RunRequest {
            arguments: vec![b"a\0b".to_vec()],
            environment: vec![],
            working_directory: "/".into(),
            terminal: None,
            user: UserId::ROOT,
            host_name: "starling".into(),
            root: None,
            volumes: Vec::new(),
        };
        assert!(Initramfs::build(&Tree::default(), Some(&request), &Progress::silent()).is_err());
    }
}
