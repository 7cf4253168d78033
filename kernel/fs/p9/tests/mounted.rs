//! The file system through the file layer, with a server in memory.

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use memory::buffer::{Sink, Source};
use p9::transport::{self, Transport};
use p9::wire::kind;
use server::Server;
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags, RenameFlags};
use vfs::inode::DirectorySink;
use vfs::mount::{Mount, MountNamespace};
use vfs::superblock::{Superblock, find_file_system};
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};
use vfs::{Error, FileKind, Result};

/// A mounted server.
struct World {
    server: Arc<Server>,
    transport: Arc<dyn Transport>,
    places: Places,
    credentials: Credentials,
    superblock: Arc<Superblock>,
    name: String,
}

const BOTH: [&[u8]; 2] = [b"trans=virtio,cache=none", b"trans=virtio,cache=loose,msize=20000"];

impl World {
    fn mount(server: &Arc<Server>, options: &[u8]) -> Result<Self> {
        static REGISTERED: Once = Once::new();
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        REGISTERED.call_once(p9::mounted::register);
        let name = format!("share{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let transport: Arc<dyn Transport> = server.clone();
        transport::register(name.as_bytes(), transport.clone())?;
        let mounted = find_file_system(b"9p")?.mount(name.as_bytes(), options);
        let superblock = mounted.inspect_err(|_| transport::unregister(&transport))?;
        let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"share", MountFlags::empty())?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let places = Places { cwd: root.clone(), root, namespace };
        Ok(Self {
            server: server.clone(),
            transport,
            places,
            credentials: Credentials::root(),
            superblock,
            name,
        })
    }

    fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0 }
    }

    fn open(&self, path: &[u8], flags: OpenFlags) -> Result<Arc<OpenFile>> {
        // What a hostile server says to be a pipe would be waited for.
        let flags = flags | OpenFlags::NON_BLOCK;
        let how = OpenHow { flags, mode: 0o640, resolve: LookupFlags::empty() };
        self.context().open(&self.places.root, path, &how)
    }

    fn create(&self, path: &[u8]) -> Result<Arc<OpenFile>> {
        self.open(path, OpenFlags::READ_WRITE | OpenFlags::CREATE)
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let directory = self.open(path, OpenFlags::DIRECTORY)?;
        let mut names = Names::default();
        let mut position = 2;
        loop {
            names.room = 3;
            let next = directory.operations().read_directory(&directory, position, &mut names)?;
            if next == position || names.room == 3 {
                names.all.sort();
                return Ok(names.all);
            }
            position = next;
        }
    }

    fn size(&self, path: &[u8]) -> Result<u64> {
        Ok(self.context().status(&self.places.root, path, LookupFlags::empty())?.size)
    }

    /// As `umount` does.
    fn unmount(self) -> Arc<Server> {
        let Self { places, superblock, server, transport, .. } = self;
        drop(places);
        sync::rcu::barrier_expedited();
        superblock.finish();
        drop(superblock);
        transport::unregister(&transport);
        server
    }
}

/// Takes a few entries at a time.
#[derive(Default)]
struct Names {
    all: Vec<Vec<u8>>,
    room: usize,
}

impl DirectorySink for Names {
    fn entry(&mut self, name: &[u8], _inode: u64, _kind: FileKind, _next: u64) -> bool {
        if self.room > 0 {
            self.room -= 1;
            self.all.push(name.to_vec());
            return true;
        }
        false
    }
}

fn write(file: &Arc<OpenFile>, offset: i64, bytes: &[u8]) -> Result<usize> {
    file.write_at(offset, &mut Source::kernel(bytes))
}

fn read(file: &Arc<OpenFile>, offset: i64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = file.read_at(offset, &mut Sink::kernel(&mut bytes))?;
    bytes.truncate(count);
    Ok(bytes)
}

fn files_at_the_server_are_what_was_written() {
    for options in BOTH {
        for limit in [usize::MAX, 3000] {
            let world = World::mount(&Server::new(), options).expect("the server is there");
            world.server.limit(limit);
            let (context, root) = (world.context(), &world.places.root);
            context.make_directory(root, b"/d", 0o755).expect("it is new");
            let data: Vec<u8> = (0..100_000u32).map(|at| (at * 7 / 3) as u8).collect();
            let file = world.create(b"/d/file").expect("it is new");
            let mut at = 0;
            while at < data.len() {
                let end = data.len().min(at + 9_000);
                at += write(&file, at as i64, &data[at..end]).expect("the server takes it");
            }
            file.sync(false).expect("the server takes it");
            let there = world.server.contents(&[b"d", b"file"]).expect("it was made");
            let wrong = there.iter().zip(&data).position(|(one, other)| one != other);
            assert_eq!((there.len(), wrong), (data.len(), None));
            let start = read(&file, 77, 5000).expect("it is there");
            assert!(start.len() >= 5000.min(limit) && start == data[77..77 + start.len()]);
            file.truncate(50_001).expect("it may be cut");
            context.make_symbolic_link(b"d/file", root, b"/link").expect("it is new");
            context
                .make_hard_link(root, b"/d/file", root, b"/hard", LookupFlags::empty())
                .expect("it is new");
            context.rename(root, b"/d/file", root, b"/moved", RenameFlags::empty()).expect("it is there");
            assert_eq!(
                world.names(b"/"),
                Ok([&b"d"[..], b"hard", b"link", b"moved"].map(Vec::from).to_vec())
            );
            assert_eq!(world.size(b"/hard"), Ok(50_001));
            context.unlink(root, b"/moved").expect("it is there");
            assert_eq!(world.size(b"/hard"), Ok(50_001), "the other name is still there");
            assert_eq!(context.remove_directory(root, b"/d"), Ok(()));
            assert_eq!(world.open(b"/link", OpenFlags::empty()).err(), Some(Error::NotFound));
            assert_eq!(context.unlink(root, b"/nothing"), Err(Error::NotFound));
            assert_eq!(world.superblock.status().blocks, 1000);
            drop(file);
            let server = world.unmount();
            assert!(server.contents(&[b"hard"]).expect("it has a name") == data[..50_001]);
            assert_eq!(server.fids(), 0, "nothing is left at the server");
        }
    }
}

fn an_open_file_outlives_its_name() {
    for options in BOTH {
        let world = World::mount(&Server::new(), options).expect("the server is there");
        let (context, root) = (world.context(), &world.places.root);
        let file = world.create(b"/gone").expect("it is new");
        assert_eq!(write(&file, 0, &[7; 9000]), Ok(9000));
        context.unlink(root, b"/gone").expect("it is there");
        assert_eq!(read(&file, 8000, 5000), Ok(vec![7; 1000]));
        file.truncate(100).expect("it is open");
        assert_eq!(read(&file, 0, 5000), Ok(vec![7; 100]));
        assert_eq!(write(&file, 200, b"x"), Ok(1));
        assert_eq!(read(&file, 99, 5000).expect("it is open"), [&[7][..], &[0; 100], b"x"].concat());
        assert_eq!((file.status().size, file.status().links), (201, 0));
        let other = world.create(b"/gone").expect("the name is free");
        assert_eq!(read(&other, 0, 10), Ok(Vec::new()));
        drop((file, other));
        world.unmount();
    }
}

fn without_a_cache_each_read_asks_the_server() {
    let world = World::mount(&Server::new(), BOTH[0]).expect("the server is there");
    world.server.put(b"counter", b"1");
    let file = world.open(b"/counter", OpenFlags::empty()).expect("it is there");
    assert_eq!(read(&file, 0, 10), Ok(b"1".to_vec()));
    world.server.put(b"counter", b"22");
    assert_eq!(read(&file, 0, 10), Ok(b"22".to_vec()));
    assert_eq!(world.size(b"/counter"), Ok(2));
    assert_eq!(world.open(b"/new", OpenFlags::empty()).err(), Some(Error::NotFound));
    world.server.put(b"new", b"n");
    assert_eq!(world.size(b"/new"), Ok(1), "that it was absent was not kept");
    drop(file);
    world.unmount();
}

fn a_loose_cache_asks_once() {
    let world = World::mount(&Server::new(), BOTH[1]).expect("the server is there");
    world.server.put(b"file", &[5; 3000]);
    for _ in 0..4 {
        let file = world.open(b"/file", OpenFlags::empty()).expect("it is there");
        assert_eq!(read(&file, 0, 4000), Ok(vec![5; 3000]));
        assert_eq!(world.size(b"/file"), Ok(3000));
    }
    assert_eq!((world.server.asked(kind::READ), world.server.asked(kind::GET_ATTRIBUTES)), (1, 2));
    let file = world.create(b"/written").expect("it is new");
    assert_eq!(write(&file, 0, &[6; 3000]), Ok(3000));
    assert_eq!(world.server.asked(kind::WRITE), 0);
    file.closed_by(0).expect("the server takes it");
    assert_eq!(world.server.contents(&[b"written"]), Some(vec![6; 3000]), "closing writes");
    drop(file);
    world.unmount();
}

fn a_transport_is_one_mounts_alone() {
    let server = Server::new();
    let world = World::mount(&server, b"").expect("the server is there");
    let file_system = find_file_system(b"9p").expect("it is registered");
    assert_eq!(file_system.mount(b"nothing", b"").err(), Some(Error::NotFound));
    assert_eq!(file_system.mount(b"nothing", b"version=9p2000").err(), Some(Error::Invalid));
    assert_eq!(file_system.mount(world.name.as_bytes(), b"").err(), Some(Error::Busy));
    world.unmount();
}

fn who_waits_for_a_server_that_goes_is_told() {
    // With pages kept, reading ahead fails first and the read asks again.
    for options in &BOTH[..1] {
        let world = World::mount(&Server::new(), options).expect("the server is there");
        world.server.put(b"file", &[1; 5000]);
        let file = world.open(b"/file", OpenFlags::empty()).expect("it is there");
        world.server.be_silent(true);
        let outcome = Arc::new((sched::Completion::default(), std::sync::Mutex::new(None)));
        let (own, told) = (file.clone(), outcome.clone());
        let body = Box::new(move || {
            *told.1.lock().unwrap() = Some(read(&own, 0, 5000));
            drop(own);
            told.0.complete();
        });
        sched::spawn(sched::Builder::new("reader"), body).expect("there is memory");
        while !world.server.holds(kind::READ) {
            sched::yield_now();
        }
        world.server.be_silent(false);
        outcome.0.wait();
        assert!(matches!(*outcome.1.lock().unwrap(), Some(Err(Error::Io))));
        assert!(read(&file, 0, 5000) == Ok(vec![1; 5000]), "it is back");
        drop(file);
        world.unmount();
    }
}

/// A generator of numbers that is the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    const VALUES: [u64; 8] = [0, 1, 7, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];
    match random.below(7) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        2 => {
            let (at, value) = (random.below(bytes.len()), VALUES[random.below(8)].to_le_bytes());
            let end = bytes.len().min(at + [1, 2, 4, 8][random.below(4)]);
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
        3 => bytes[4] = random.next() as u8,
        4 => bytes.extend((0..random.below(5000)).map(|_| 0xa5)),
        5 => {
            let length = (VALUES[random.below(8)] as u32).to_le_bytes();
            bytes[..4].copy_from_slice(&length);
        }
        _ => bytes.iter_mut().skip(7).for_each(|byte| *byte = random.next() as u8),
    }
}

/// Does this and that, whatever comes of it.
fn exercise(world: &World, random: &mut Random) {
    const PATHS: [&[u8]; 6] = [b"/a", b"/b", b"/d/a", b"/d/b", b"/d", b"/link"];
    let (context, root) = (world.context(), &world.places.root);
    let (path, other) = (PATHS[random.below(6)], PATHS[random.below(6)]);
    let length = random.below(30_000);
    let _ = match random.below(12) {
        0 => context.make_directory(root, path, 0o755),
        1 => context.unlink(root, path),
        2 => context.remove_directory(root, path),
        3 => context.rename(root, path, root, other, RenameFlags::empty()),
        4 => context.make_hard_link(root, path, root, other, LookupFlags::empty()),
        5 => context.make_symbolic_link(b"d/a", root, path),
        6 => world.names(path).map(|_| ()),
        7 => context.truncate(root, path, length as i64),
        8 => world.size(path).map(|_| ()),
        9 | 10 => world.create(path).and_then(|file| {
            write(&file, random.below(9000) as i64, &vec![3; length])?;
            file.closed_by(0)
        }),
        _ => world.open(path, OpenFlags::empty()).and_then(|file| read(&file, 0, length)).map(|_| ()),
    };
}

fn hostile_replies_are_errors() {
    let wanted: usize =
        std::env::var("P9_FUZZ_REPLIES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    for (seed, options) in (1..).zip(BOTH) {
        let spoilt = Arc::new(AtomicUsize::new(0));
        let mut random = Random(0x9e37_79b9_7f4a_7c15 >> seed);
        while spoilt.load(Ordering::Relaxed) < wanted / 2 {
            let world = World::mount(&Server::new(), options).expect("the server is good yet");
            let (count, mut own) = (spoilt.clone(), Random(random.next()));
            world.server.mutate(Some(Box::new(move |bytes| {
                if own.below(4) == 0 {
                    count.fetch_add(1, Ordering::Relaxed);
                    spoil(&mut own, bytes);
                }
            })));
            (0..400).for_each(|_| exercise(&world, &mut random));
            world.server.mutate(None);
            world.server.put(b"after", b"good again");
            let file = world.open(b"/after", OpenFlags::empty());
            if let Ok(file) = file {
                assert_eq!(read(&file, 0, 20), Ok(b"good again".to_vec()));
            }
            world.unmount();
        }
    }
}

fn a_hostile_server_is_not_mounted() {
    let mut random = Random(99);
    for _ in 0..300 {
        let server = Server::new();
        let mut own = Random(random.next());
        server.mutate(Some(Box::new(move |bytes| spoil(&mut own, bytes))));
        if let Ok(world) = World::mount(&server, b"") {
            world.unmount();
        }
    }
}

/// One after the other: several at a time would wait for each other's processors.
#[test]
fn mounted_servers() {
    files_at_the_server_are_what_was_written();
    an_open_file_outlives_its_name();
    without_a_cache_each_read_asks_the_server();
    a_loose_cache_asks_once();
    a_transport_is_one_mounts_alone();
    who_waits_for_a_server_that_goes_is_told();
    hostile_replies_are_errors();
    a_hostile_server_is_not_mounted();
}
