//! Rust's standard library under load: threads, channels, locks, time-outs, panics, processes and files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() > 1 {
        return child(&words);
    }
    locks();
    channels();
    pipeline();
    conditions();
    panics();
    processes();
    files();
    allocation();
}

fn child(words: &[String]) {
    match words[1].as_str() {
        "echo" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).unwrap();
            print!("{}", text.to_uppercase());
            eprintln!("child has read {} bytes", text.len());
            std::process::exit(words.len() as i32);
        }
        "sleep" => thread::sleep(Duration::from_secs(100)),
        "environment" => {
            let all: BTreeMap<String, String> = std::env::vars().collect();
            println!("{all:?} in {}", std::env::current_dir().unwrap().display());
        }
        _ => std::process::abort(),
    }
}

fn locks() {
    let counter = Arc::new(Mutex::new(0u64));
    let table = Arc::new(RwLock::new(HashMap::new()));
    let atomic = Arc::new(AtomicU64::new(0));
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8u64)
        .map(|me| {
            let (counter, table, atomic, barrier) = (counter.clone(), table.clone(), atomic.clone(), barrier.clone());
            thread::Builder::new()
                .name(format!("worker-{me}"))
                .stack_size(128 << 10)
                .spawn(move || {
                    barrier.wait();
                    for i in 0..2000u64 {
                        *counter.lock().unwrap() += i;
                        atomic.fetch_add(me, Ordering::Relaxed);
                        if i % 100 == 0 {
                            table.write().unwrap().insert((me, i), i * me);
                        } else if let Some(value) = table.read().unwrap().get(&(me, i / 100 * 100)) {
                            assert_eq!(*value, i / 100 * 100 * me);
                        }
                    }
                    thread::current().name().map(str::len).unwrap_or(0)
                })
                .unwrap()
        })
        .collect();
    let names: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("locks: {} {} {} {names}", counter.lock().unwrap(), atomic.load(Ordering::SeqCst), table.read().unwrap().len());
    static ONCE: Once = Once::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                ONCE.call_once(|| {
                    thread::sleep(Duration::from_millis(5));
                    CALLS.fetch_add(1, Ordering::SeqCst);
                });
            });
        }
    });
    println!("once: {}", CALLS.load(Ordering::SeqCst));
}

fn channels() {
    let (sender, receiver) = mpsc::channel::<(u32, u32)>();
    for producer in 0..6 {
        let sender = sender.clone();
        thread::spawn(move || (0..500).for_each(|value| sender.send((producer, value)).unwrap()));
    }
    drop(sender);
    let mut next = [0; 6];
    let mut ordered = true;
    for (producer, value) in receiver {
        ordered &= next[producer as usize] == value;
        next[producer as usize] += 1;
    }
    println!("channels: {next:?} ordered {ordered}");
    let (sender, receiver) = mpsc::sync_channel::<u64>(0);
    let consumer = thread::spawn(move || receiver.iter().take(1000).sum::<u64>());
    let sent = (0..2000).take_while(|value| sender.send(*value).is_ok()).count();
    println!("rendezvous: {} {}", consumer.join().unwrap(), sent >= 1000);
    let (sender, receiver) = mpsc::channel::<()>();
    let start = Instant::now();
    let result = receiver.recv_timeout(Duration::from_millis(20));
    println!("time-out: {} {}", result == Err(RecvTimeoutError::Timeout), start.elapsed() >= Duration::from_millis(20));
    drop(sender);
    println!("hung up: {}", receiver.recv().is_err());
}

fn pipeline() {
    let (first, mut receiver) = mpsc::channel::<u64>();
    for stage in 0..20 {
        let (sender, next) = mpsc::channel();
        let input = std::mem::replace(&mut receiver, next);
        thread::spawn(move || input.iter().for_each(|value| sender.send(value * 3 + stage).unwrap_or(())));
    }
    thread::spawn(move || (0..200).for_each(|value| first.send(value).unwrap()));
    let sum = receiver.iter().fold(0u64, |sum, value| sum.wrapping_mul(31).wrapping_add(value));
    println!("pipeline: {sum}");
}

fn conditions() {
    let shared = Arc::new((Mutex::new(0usize), Condvar::new()));
    let threads: Vec<_> = (0..5usize)
        .map(|me| {
            let shared = shared.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    let mut turn = shared.1.wait_while(shared.0.lock().unwrap(), |turn| *turn != round * 5 + me).unwrap();
                    *turn += 1;
                    shared.1.notify_all();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("conditions: {}", shared.0.lock().unwrap());
    let parked = thread::spawn(|| {
        thread::park();
        thread::park_timeout(Duration::from_millis(1));
        "woken"
    });
    parked.thread().unpark();
    println!("park: {}", parked.join().unwrap());
}

fn panics() {
    std::panic::set_hook(Box::new(|_| {}));
    let poisoned = Arc::new(Mutex::new(1));
    let clone = poisoned.clone();
    let result = thread::spawn(move || {
        let _guard = clone.lock().unwrap();
        panic!("on purpose");
    })
    .join();
    println!("panic: {} poisoned {}", result.is_err(), poisoned.is_poisoned());
    let caught = std::panic::catch_unwind(|| {
        let values = [1, 2, 3];
        values[std::env::args().count() + 5]
    });
    println!("caught: {}", caught.is_err());
}

fn processes() {
    let program = std::env::current_exe().unwrap();
    let threads: Vec<_> = (0..6)
        .map(|me| {
            let program = program.clone();
            thread::spawn(move || {
                let mut child = Command::new(program)
                    .args(["echo"].into_iter().chain(std::iter::repeat_n("x", me)))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                let text = format!("text of {me}\n").repeat(400);
                let mut input = child.stdin.take().unwrap();
                let writer = thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
                let output = child.wait_with_output().unwrap();
                writer.join().unwrap();
                format!("{} {} {:?}", output.status, output.stdout.len(), String::from_utf8(output.stderr).unwrap())
            })
        })
        .collect();
    for thread in threads {
        println!("process: {}", thread.join().unwrap());
    }
    let mut sleeper = Command::new(&program).arg("sleep").spawn().unwrap();
    println!("running: {:?}", sleeper.try_wait().unwrap());
    sleeper.kill().unwrap();
    println!("killed: {}", sleeper.wait().unwrap());
    let output = Command::new(&program).arg("environment").env_clear().env("KEY", "value").current_dir("/").output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("missing: {:?}", Command::new("/does/not/exist").spawn().map(|_| ()).unwrap_err().kind());
    println!("abort: {}", Command::new(&program).arg("abort").status().unwrap().success());
}

fn files() {
    fs::create_dir_all("rust/a/b").unwrap();
    let mut file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open("rust/a/file").unwrap();
    for line in 0..1000 {
        writeln!(file, "line {line}").unwrap();
    }
    file.seek(SeekFrom::Start(0)).unwrap();
    let bytes: usize = BufReader::new(&file).lines().map(|line| line.unwrap().len()).sum();
    println!("file: {bytes} {}", file.metadata().unwrap().len());
    fs::rename("rust/a/file", "rust/a/b/renamed").unwrap();
    println!("missing: {:?}", fs::read("rust/a/file").unwrap_err().kind());
    fs::copy("rust/a/b/renamed", "rust/copy").unwrap();
    let mut names: Vec<_> = fs::read_dir("rust").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    println!("names: {names:?}");
    fs::remove_dir_all("rust").unwrap();
    println!("gone: {}", fs::metadata("rust").is_err());
}

fn allocation() {
    let sums: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4usize)
            .map(|me| {
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for i in 0..300usize {
                        let block = vec![(i + me) as u8; 1 + i * 997 % 60_000];
                        if i % 3 == 0 {
                            kept.push(block);
                        }
                    }
                    kept.iter().map(|block| block.iter().map(|byte| usize::from(*byte)).sum::<usize>()).sum()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!("allocation: {sums:?}");
}
