//! `net/unix`: the local sockets.
//!
//! There is no list of all sockets, which every pair would pay for: they are looked for in the processes' descriptor tables. Connections that wait to be
//! accepted come after the socket where they wait. Sockets that only messages hold are not shown.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use net::unix::{Kind, Name, UnixSocket};
use vfs::text::Text;
use vfs::{DescriptorTable, Error, Result, allocation};

use crate::process::table;
use crate::socket::create::type_number;

/// A line.
struct Line {
    /// The open file's number.
    id: u64,
    inode: u64,
    kind: Kind,
    is_listening: bool,
    is_connected: bool,
    /// How many connections wait there.
    waiting: usize,
    name: Option<Arc<Name>>,
}

/// `__SO_ACCEPTCON`
const ACCEPTS: u32 = 0x1_0000;

/// States as they are shown.
mod state {
    pub(super) const UNCONNECTED: u8 = 1;
    pub(super) const CONNECTING: u8 = 2;
    pub(super) const CONNECTED: u8 = 3;
}

/// `net/unix`
pub(super) fn local(out: &mut Text) -> Result<()> {
    let mut lines = Vec::new();
    let mut last = 0;
    for process in table::processes().map_err(|_| Error::OutOfMemory)? {
        for thread in process.threads().map_err(|_| Error::OutOfMemory)? {
            // Most threads have their process's table.
            if let Some(files) = thread.files()
                && core::mem::replace(&mut last, files.id()) != files.id()
            {
                look_at(&files, &mut lines)?;
            }
        }
    }
    sorting::sort_by_key(&mut lines, |line: &Line| line.id);
    lines.dedup_by_key(|line| line.id);
    let _ = out.write_str("Num       RefCount Protocol Flags    Type St Inode Path\n");
    for line in &lines {
        write(line, out);
    }
    Ok(())
}

fn look_at(files: &DescriptorTable, lines: &mut Vec<Line>) -> Result<()> {
    let mut from = 0;
    while let Some(descriptor) = files.next_open(from) {
        from = descriptor + 1;
        let Ok(file) = files.get(descriptor) else { continue };
        let Some(socket) = file.object::<UnixSocket>() else { continue };
        let line = Line {
            id: file.id(),
            inode: file.inode().number,
            kind: socket.kind(),
            is_listening: socket.is_listening(),
            is_connected: socket.is_connected(),
            waiting: socket.waiting(),
            name: socket.name().cloned(),
        };
        allocation::push(lines, line)?;
    }
    Ok(())
}

fn write(line: &Line, out: &mut Text) {
    let flags = if line.is_listening { ACCEPTS } else { 0 };
    let own = if line.is_connected { state::CONNECTED } else { state::UNCONNECTED };
    write_one(line, (2 + u32::from(line.is_connected), flags, own, line.inode), out);
    for _ in 0..line.waiting {
        write_one(line, (2, 0, state::CONNECTING, 0), out);
    }
}

fn write_one(line: &Line, (references, flags, state, inode): (u32, u32, u8, u64), out: &mut Text) {
    let kind = type_number(line.kind);
    let _ =
        write!(out, "{:016x}: {references:08X} {:08X} {flags:08X} {kind:04X} {state:02X} {inode:5}", 0, 0);
    if let Some(name) = &line.name {
        let _ = out.write_str(" ");
        let bytes = name.as_bytes();
        match bytes {
            // Zero bytes of abstract names are shown as this sign.
            [0, ..] => {
                for &byte in bytes {
                    out.push_bytes(&[if byte == 0 { b'@' } else { byte }]);
                }
            }
            _ => out.push_bytes(&bytes[..bytes.len() - 1]),
        }
    }
    let _ = out.write_str("\n");
}
