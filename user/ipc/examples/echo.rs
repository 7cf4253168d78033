//! A server thread that answers with what it gets, and a client that calls it: `echo [ROUNDS]`.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use starling_ipc::{Message, NEVER, Options, Result, ThreadId, ZERO};

/// A message whose first word is this ends the server.
const STOP: u64 = u64::MAX;

fn serve(tell: &mpsc::Sender<ThreadId>) -> Result<u64> {
    let own = starling_ipc::this_thread(Options::default())?;
    tell.send(own).expect("the client waits for it");
    let mut served = 0;
    let mut request = starling_ipc::wait(NEVER)?;
    while request.words[0] != STOP {
        served += 1;
        request = starling_ipc::reply_and_wait(request, ZERO, NEVER)?;
    }
    starling_ipc::send(request, ZERO)?;
    Ok(served)
}

fn call(server: ThreadId, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let message = Message { partner: server, words: [round, round * 2, round * 3] };
        assert_eq!(starling_ipc::call_and_wait(message, NEVER, NEVER)?, message);
    }
    starling_ipc::call_and_wait(Message { partner: server, words: [STOP; 3] }, NEVER, NEVER)?;
    Ok(())
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let (tell, told) = mpsc::channel();
    let server = thread::spawn(move || serve(&tell));
    let Ok(id) = told.recv() else {
        // It could not get a number: its error says why.
        return server.join().expect("the server does not panic").map(|_| ());
    };
    let begin = Instant::now();
    call(id, rounds)?;
    let spent = begin.elapsed();
    let served = server.join().expect("the server does not panic")?;
    println!("{served} round trips, {:.2} µs each", spent.as_secs_f64() * 1e6 / rounds as f64);
    Ok(())
}
