//! A file server in memory, which can be told to answer nonsense.
//!
//! Like QEMU's it knows files by their names: what has lost its name has no attributes, though it can be read and written as long as it is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use p9::transport::{Data, Exchange, Transport};
use p9::wire::{DATA_HEADER_BYTES, Decoder, Encoder, Malformed, kind};

const ENOENT: u32 = 2;
const EIO: u32 = 5;
const EEXIST: u32 = 17;
const ENOTDIR: u32 = 20;
const EFBIG: u32 = 27;
const ENOTEMPTY: u32 = 39;
const EOPNOTSUPP: u32 = 95;

/// Files do not get larger.
const FILE_BYTES_MAX: usize = 1 << 24;

const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const LINK: u32 = 0o120000;
const ROOT: u64 = 1;

#[derive(Default)]
struct Node {
    mode: u32,
    user: u32,
    group: u32,
    links: u64,
    data: Vec<u8>,
    names: Vec<(Vec<u8>, u64)>,
    modified: (u64, u64),
}

/// What a fid stands for: a file by a name, perhaps open.
#[derive(Clone, Copy)]
struct Fid {
    node: u64,
    open: bool,
}

/// What is done to a reply.
pub(crate) type Mutation = Box<dyn FnMut(&mut Vec<u8>) + Send>;

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    fids: HashMap<u32, Fid>,
    next: u64,
    clock: u64,
    mutation: Option<Mutation>,
    /// Requests by kind.
    asked: HashMap<u8, usize>,
    /// Requests that are not answered.
    silent: bool,
    held: Vec<Arc<Exchange>>,
    transfer_bytes: usize,
}

/// See the theory of this file.
pub(crate) struct Server(Mutex<State>);

type Answer = Result<Encoder, u32>;

fn attributes(out: &mut Encoder, number: u64, node: &Node) {
    out.u64(0x7ff);
    identity(out, number, node);
    out.u32(node.mode).u32(node.user).u32(node.group).u64(node.links).u64(0);
    out.u64(node.data.len() as u64).u64(4096).u64(node.data.len().div_ceil(512) as u64);
    for _ in 0..3 {
        out.u64(node.modified.0).u64(node.modified.1);
    }
    out.u64(0).u64(0).u64(0).u64(0);
}

fn identity(out: &mut Encoder, number: u64, node: &Node) {
    let kind = match node.mode & 0o170000 {
        DIRECTORY => 0x80,
        LINK => 2,
        _ => 0,
    };
    out.u8(kind).u32(node.data.len() as u32).u64(number);
}

impl State {
    fn node(&self, number: u64) -> Result<&Node, u32> {
        self.nodes.get(&number).ok_or(ENOENT)
    }

    fn named(&self, fid: u32) -> Result<(u64, &Node), u32> {
        let number = self.fids.get(&fid).ok_or(EIO)?.node;
        let node = self.node(number)?;
        if node.links == 0 { Err(ENOENT) } else { Ok((number, node)) }
    }

    fn open_file(&mut self, fid: u32) -> Result<&mut Node, u32> {
        let fid = self.fids.get(&fid).filter(|fid| fid.open).ok_or(EIO)?;
        self.nodes.get_mut(&fid.node).ok_or(EIO)
    }

    fn child(&self, fid: u32, name: &[u8]) -> Result<u64, u32> {
        let (_, directory) = self.named(fid)?;
        if directory.mode & 0o170000 != DIRECTORY {
            return Err(ENOTDIR);
        }
        directory.names.iter().find(|(known, _)| known == name).map(|(_, number)| *number).ok_or(ENOENT)
    }

    fn make(&mut self, fid: u32, name: &[u8], mode: u32, group: u32, data: &[u8]) -> Result<u64, u32> {
        if self.child(fid, name).is_ok() {
            return Err(EEXIST);
        }
        let (directory, _) = self.named(fid)?;
        self.next += 1;
        self.clock += 1;
        let number = ROOT + self.next;
        let (data, modified) = (data.to_vec(), (self.clock, 0));
        self.nodes.insert(number, Node { mode, group, links: 1, data, modified, ..Node::default() });
        self.nodes.get_mut(&directory).expect("it has a name").names.push((name.to_vec(), number));
        Ok(number)
    }

    fn remove(&mut self, fid: u32, name: &[u8]) -> Result<u64, u32> {
        let number = self.child(fid, name)?;
        let (directory, _) = self.named(fid)?;
        let directory = self.nodes.get_mut(&directory).expect("it has a name");
        directory.names.retain(|(known, _)| known != name);
        let node = self.nodes.get_mut(&number).expect("it has a name");
        node.links -= 1;
        Ok(number)
    }

    fn answer(
        &mut self,
        tag: u16,
        request: u8,
        values: &mut Decoder<'_>,
        sent: &[u8],
    ) -> Result<Answer, Malformed> {
        let mut out = Encoder::new(request + 1, tag);
        let reply = &mut out;
        let outcome = match request {
            kind::VERSION => {
                self.fids.clear();
                reply.u32(values.u32()?).text(values.text()?);
                Ok(())
            }
            kind::ATTACH => {
                self.fids.insert(values.u32()?, Fid { node: ROOT, open: false });
                identity(reply, ROOT, &self.nodes[&ROOT]);
                Ok(())
            }
            kind::FLUSH => Ok(()),
            kind::WALK => self.walk(values, reply)?,
            kind::CLUNK => self.fids.remove(&values.u32()?).map(|_| ()).ok_or(EIO),
            kind::STATUS => {
                reply.u32(0).u32(4096).u64(1000).u64(500).u64(400).u64(100).u64(50).u64(0).u32(255);
                Ok(())
            }
            kind::GET_ATTRIBUTES => {
                self.named(values.u32()?).map(|(number, node)| attributes(reply, number, node))
            }
            kind::SET_ATTRIBUTES => self.set(values)?,
            kind::OPEN => self.open(values.u32()?, reply),
            kind::READ => self.read(values, reply)?,
            kind::WRITE => self.write(values, sent, reply)?,
            kind::READ_DIRECTORY => self.list(values, reply)?,
            kind::READ_LINK => self.named(values.u32()?).map(|(_, node)| {
                reply.text(&node.data);
            }),
            kind::SYNC => Ok(()),
            kind::WALK_EXTENDED | kind::CREATE_EXTENDED => Err(EOPNOTSUPP),
            _ => self.change(request, values, reply)?,
        };
        Ok(outcome.map(|()| out))
    }

    fn walk(&mut self, values: &mut Decoder<'_>, reply: &mut Encoder) -> Result<Result<(), u32>, Malformed> {
        let (fid, new_fid, names) = (values.u32()?, values.u32()?, values.u16()?);
        reply.u16(names);
        let found = if names == 0 {
            self.fids.get(&fid).map(|fid| fid.node).ok_or(EIO)
        } else {
            self.child(fid, values.text()?)
        };
        Ok(found.map(|node| {
            if names > 0 {
                identity(reply, node, &self.nodes[&node]);
            }
            self.fids.insert(new_fid, Fid { node, open: false });
        }))
    }

    fn open(&mut self, fid: u32, reply: &mut Encoder) -> Result<(), u32> {
        let (number, node) = self.named(fid)?;
        identity(reply, number, node);
        reply.u32(0);
        self.fids.insert(fid, Fid { node: number, open: true });
        Ok(())
    }

    fn set(&mut self, values: &mut Decoder<'_>) -> Result<Result<(), u32>, Malformed> {
        let (fid, valid) = (values.u32()?, values.u32()?);
        let (mode, user, group, size) = (values.u32()?, values.u32()?, values.u32()?, values.u64()?);
        let _accessed = (values.u64()?, values.u64()?);
        let modified = (values.u64()?, values.u64()?);
        let number = match self.named(fid) {
            Ok((number, _)) => number,
            Err(errno) => return Ok(Err(errno)),
        };
        let node = self.nodes.get_mut(&number).expect("it has a name");
        if valid & 1 != 0 {
            node.mode = node.mode & 0o170000 | mode;
        }
        if valid & 2 != 0 {
            node.user = user;
        }
        if valid & 4 != 0 {
            node.group = group;
        }
        if valid & 8 != 0 {
            if size > FILE_BYTES_MAX as u64 {
                return Ok(Err(EFBIG));
            }
            node.data.resize(size as usize, 0);
        }
        if valid & 0x100 != 0 {
            node.modified = modified;
        }
        Ok(Ok(()))
    }

    fn read(&mut self, values: &mut Decoder<'_>, reply: &mut Encoder) -> Result<Result<(), u32>, Malformed> {
        let (fid, offset, count) = (values.u32()?, values.u64()?, values.u32()?);
        let most = self.transfer_bytes;
        Ok(self.open_file(fid).map(|node| {
            let start = node.data.len().min(offset as usize);
            let count = (count as usize).min(most).min(node.data.len() - start);
            reply.u32(count as u32).bytes(&node.data[start..start + count]);
        }))
    }

    fn write(
        &mut self,
        values: &mut Decoder<'_>,
        sent: &[u8],
        reply: &mut Encoder,
    ) -> Result<Result<(), u32>, Malformed> {
        let (fid, offset, count) = (values.u32()?, values.u64()? as usize, values.u32()? as usize);
        assert_eq!(count, sent.len(), "the data is there");
        self.clock += 1;
        let (clock, count) = (self.clock, count.min(self.transfer_bytes));
        if offset > FILE_BYTES_MAX {
            return Ok(Err(EFBIG));
        }
        Ok(self.open_file(fid).map(|node| {
            let end = offset + count;
            node.data.resize(node.data.len().max(end), 0);
            node.data[offset..end].copy_from_slice(&sent[..count]);
            node.modified = (clock, 0);
            reply.u32(count as u32);
        }))
    }

    fn list(&mut self, values: &mut Decoder<'_>, reply: &mut Encoder) -> Result<Result<(), u32>, Malformed> {
        let (fid, offset, count) = (values.u32()?, values.u64()? as usize, values.u32()? as usize);
        let names = match self.open_file(fid) {
            Ok(node) => node.names.clone(),
            Err(errno) => return Ok(Err(errno)),
        };
        let mut list = Encoder::new(0, 0);
        let mut bytes = 0;
        for (index, (name, number)) in names.iter().enumerate().skip(offset) {
            bytes += 24 + name.len();
            if bytes > count {
                break;
            }
            identity(&mut list, *number, &self.nodes[number]);
            list.u64(index as u64 + 1).u8((self.nodes[number].mode >> 12) as u8).text(name);
        }
        let list = list.finish(0).expect("there is memory");
        reply.u32(list.len() as u32 - 7).bytes(&list[7..]);
        Ok(Ok(()))
    }

    /// Changes of names.
    fn change(
        &mut self,
        request: u8,
        values: &mut Decoder<'_>,
        reply: &mut Encoder,
    ) -> Result<Result<(), u32>, Malformed> {
        let fid = values.u32()?;
        Ok(match request {
            kind::CREATE => {
                let (name, _flags, mode, group) =
                    (values.text()?, values.u32()?, values.u32()?, values.u32()?);
                self.make(fid, name, mode | REGULAR, group, &[]).map(|number| {
                    identity(reply, number, &self.nodes[&number]);
                    reply.u32(0);
                    self.fids.insert(fid, Fid { node: number, open: true });
                })
            }
            kind::MAKE_DIRECTORY => {
                let (name, mode, group) = (values.text()?, values.u32()?, values.u32()?);
                self.make(fid, name, mode | DIRECTORY, group, &[])
                    .map(|number| identity(reply, number, &self.nodes[&number]))
            }
            kind::SYMBOLIC_LINK => {
                let (name, target, group) = (values.text()?, values.text()?, values.u32()?);
                self.make(fid, name, 0o777 | LINK, group, target)
                    .map(|number| identity(reply, number, &self.nodes[&number]))
            }
            kind::LINK => {
                let (linked, name) = (values.u32()?, values.text()?);
                match (
                    self.named(fid).map(|(number, _)| number),
                    self.named(linked).map(|(number, _)| number),
                ) {
                    (Ok(directory), Ok(number)) => {
                        self.nodes.get_mut(&directory).expect("known").names.push((name.to_vec(), number));
                        self.nodes.get_mut(&number).expect("known").links += 1;
                        Ok(())
                    }
                    _ => Err(ENOENT),
                }
            }
            kind::UNLINK => {
                let name = values.text()?;
                match self.child(fid, name) {
                    Ok(number) if !self.nodes[&number].names.is_empty() => Err(ENOTEMPTY),
                    _ => self.remove(fid, name).map(|_| ()),
                }
            }
            kind::RENAME => {
                let (old, to, new) = (values.text()?, values.u32()?, values.text()?);
                let _ = self.remove(to, new);
                self.remove(fid, old).and_then(|number| {
                    let (directory, _) = self.named(to)?;
                    self.nodes.get_mut(&directory).expect("known").names.push((new.to_vec(), number));
                    self.nodes.get_mut(&number).expect("known").links += 1;
                    Ok(())
                })
            }
            other => panic!("a request of kind {other}"),
        })
    }
}

impl Server {
    /// With an empty root directory.
    pub(crate) fn new() -> Arc<Self> {
        let root = Node { mode: DIRECTORY | 0o755, links: 1, ..Node::default() };
        let nodes = HashMap::from([(ROOT, root)]);
        Arc::new(Self(Mutex::new(State { nodes, transfer_bytes: usize::MAX, ..State::default() })))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is done to replies from now on.
    pub(crate) fn mutate(&self, mutation: Option<Mutation>) {
        self.state().mutation = mutation;
    }

    /// Transfers no more at a time.
    pub(crate) fn limit(&self, bytes: usize) {
        self.state().transfer_bytes = bytes;
    }

    /// How many requests of a kind there were.
    pub(crate) fn asked(&self, kind: u8) -> usize {
        self.state().asked.get(&kind).copied().unwrap_or(0)
    }

    /// Files that the client has numbers for.
    pub(crate) fn fids(&self) -> usize {
        self.state().fids.len()
    }

    /// Answers nothing any more, until it is called with false: then all that waits fails.
    pub(crate) fn be_silent(&self, silent: bool) {
        let held = {
            let mut state = self.state();
            state.silent = silent;
            std::mem::take(&mut state.held)
        };
        held.iter().for_each(|exchange| exchange.failed(vfs::Error::Io));
    }

    /// Whether a request of that kind waits for an answer.
    pub(crate) fn holds(&self, kind: u8) -> bool {
        self.state().held.iter().any(|exchange| exchange.request()[4] == kind)
    }

    /// The bytes of the file at a path of one or two names.
    pub(crate) fn contents(&self, path: &[&[u8]]) -> Option<Vec<u8>> {
        let state = self.state();
        let mut number = ROOT;
        for name in path {
            number = state.nodes[&number].names.iter().find(|(known, _)| known == name)?.1;
        }
        Some(state.nodes[&number].data.clone())
    }

    /// Somebody else changes a file.
    pub(crate) fn put(&self, name: &[u8], data: &[u8]) {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let known =
            state.nodes[&ROOT].names.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        let number = known.unwrap_or_else(|| {
            state.next += 1;
            let number = ROOT + state.next;
            let node = Node { mode: REGULAR | 0o644, links: 1, ..Node::default() };
            state.nodes.insert(number, node);
            state.nodes.get_mut(&ROOT).expect("the root").names.push((name.to_vec(), number));
            number
        });
        let node = state.nodes.get_mut(&number).expect("known");
        (node.data, node.modified) = (data.to_vec(), (clock, 0));
    }
}

impl Transport for Server {
    fn message_bytes_max(&self) -> u32 {
        1 << 18
    }

    fn depth(&self) -> usize {
        8
    }

    fn submit(&self, exchange: Arc<Exchange>) {
        let mut state = self.state();
        if state.silent {
            return state.held.push(exchange);
        }
        let mut sent = Vec::new();
        if let Data::Sent(pieces) = exchange.data() {
            for piece in pieces {
                let mut part = vec![0; piece.bytes];
                piece.frame.read(piece.offset, &mut part);
                sent.extend(part);
            }
        }
        let mut values = Decoder::new(exchange.request());
        let (length, request, tag) = (values.u32().unwrap(), values.u8().unwrap(), values.u16().unwrap());
        assert_eq!(
            length as usize,
            exchange.request().len() + sent.len(),
            "the length is that of the message"
        );
        *state.asked.entry(request).or_default() += 1;
        let answer = state.answer(tag, request, &mut values, &sent).expect("requests are well-formed");
        let mut bytes = answer
            .unwrap_or_else(|errno| {
                let mut out = Encoder::new(kind::ERROR, tag);
                out.u32(errno);
                out
            })
            .finish(0)
            .expect("there is memory");
        if let Some(mutation) = &mut state.mutation {
            mutation(&mut bytes);
        }
        drop(state);
        let mut room = exchange.room();
        if let Data::Received(pieces) = exchange.data() {
            assert_eq!(room, DATA_HEADER_BYTES);
            let mut rest = bytes.get(DATA_HEADER_BYTES..).unwrap_or_default();
            for piece in pieces {
                let (part, behind) = rest.split_at(rest.len().min(piece.bytes));
                piece.frame.write(piece.offset, part);
                rest = behind;
                room += piece.bytes;
            }
        }
        // As much as there is room for: a ring does not let a device say more.
        bytes.truncate(room);
        exchange.arrived(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
    }
}
