//! What this machine can do at best for a checkpoint: writes to new memory, and streams between
//! nodes. The model of FMI: s/mem + (s + s/(n-1))/net + s/mem.

#![allow(unreachable_pub)]

use ftb_launcher_core::link::cipher::{
    HEAD_BYTES, HELLO_BYTES, Handshake, NONCE_BYTES, Opener, Sealer, Secret, Side,
};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes that are sealed together, as between launch agents.
const PIECE: usize = 64 * 1024;
/// Of several measurements the best counts.
const TRIES: usize = 3;

/// Bytes a second of each node, while all of them do the same.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    mem: f64,
    plain: f64,
    sealed: f64,
}

impl Floor {
    /// For this number of nodes, with `bytes` each.
    pub fn measure(nodes: usize, bytes: usize) -> Self {
        let best = |run: &dyn Fn() -> Duration| {
            let times = (0..TRIES).map(|_| run().as_secs_f64());
            bytes as f64 / times.fold(f64::INFINITY, f64::min)
        };
        Self {
            mem: best(&|| at_once(nodes, &|_| fill(bytes))),
            plain: best(&|| ring(nodes, bytes, false)),
            sealed: best(&|| ring(nodes, bytes, true)),
        }
    }

    /// The best of two measurements.
    pub fn or(self, other: Self) -> Self {
        Self {
            mem: self.mem.max(other.mem),
            plain: self.plain.max(other.plain),
            sealed: self.sealed.max(other.sealed),
        }
    }

    pub fn model(self, nodes: usize, bytes: usize) -> Duration {
        time(nodes, bytes, self.mem, self.sealed)
    }

    pub fn plain_model(self, nodes: usize, bytes: usize) -> Duration {
        time(nodes, bytes, self.mem, self.plain)
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |rate: f64| rate / f64::from(1 << 20);
        let (mem, plain, sealed) = (mib(self.mem), mib(self.plain), mib(self.sealed));
        write!(f, "mem {mem:.0}, net {sealed:.0} sealed and {plain:.0} plain MiB/s a node")
    }
}

fn time(nodes: usize, bytes: usize, mem: f64, net: f64) -> Duration {
    let bytes = bytes as f64;
    let moved = bytes + bytes / (nodes as f64 - 1.0);
    Duration::from_secs_f64(2.0 * bytes / mem + moved / net)
}

/// The time until all have done it.
fn at_once(count: usize, run: &(dyn Fn(usize) + Sync)) -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for index in 0..count {
            scope.spawn(move || run(index));
        }
    });
    begin.elapsed()
}

/// A copy into memory of its own, as an image.
fn fill(bytes: usize) {
    let mut file: File = ftb_job::memory::create("floor").unwrap();
    let piece = vec![0xa5; PIECE];
    for _ in 0..bytes / PIECE {
        file.write_all(&piece).unwrap();
    }
}

/// Each node sends to the next one and receives from the one before.
fn ring(nodes: usize, bytes: usize, is_sealed: bool) -> Duration {
    let listeners: Vec<TcpListener> =
        (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let dial = |index: usize| TcpStream::connect(listeners[index].local_addr().unwrap()).unwrap();
    let streams: Vec<(TcpStream, TcpStream)> =
        (0..nodes).map(|index| (dial(index), listeners[index].accept().unwrap().0)).collect();
    at_once(2 * nodes, &|index| {
        let (to, from) = &streams[index / 2];
        let (sealer, opener) = pair();
        match index % 2 {
            0 => send(to, bytes, is_sealed.then_some(sealer)),
            _ => receive(from, bytes, is_sealed.then_some(opener)),
        }
    })
}

fn pair() -> (Sealer, Opener) {
    let of = |side| Handshake::new(Secret::new("floor"), side, [7; NONCE_BYTES]);
    let (dialer, listener) = (of(Side::Dialer), of(Side::Listener));
    let hellos: [[u8; HELLO_BYTES]; 2] = [dialer.hello(), listener.hello()];
    let (dialer, listener) =
        (dialer.on_hello(&hellos[1]).unwrap(), listener.on_hello(&hellos[0]).unwrap());
    let proofs = [dialer.proof(), listener.proof()];
    let (sealer, _) = dialer.on_proof(&proofs[1]).unwrap();
    let (_, opener) = listener.on_proof(&proofs[0]).unwrap();
    (sealer, opener)
}

fn send(mut to: &TcpStream, bytes: usize, mut sealer: Option<Sealer>) {
    let piece = vec![0xa5; PIECE];
    let mut frame = Vec::new();
    for _ in 0..bytes / PIECE {
        match &mut sealer {
            Some(sealer) => {
                frame.clear();
                sealer.seal(&piece, &mut frame).unwrap();
                to.write_all(&frame).unwrap();
            }
            None => to.write_all(&piece).unwrap(),
        }
    }
}

fn receive(mut from: &TcpStream, bytes: usize, mut opener: Option<Opener>) {
    let mut frame = vec![0; PIECE];
    for _ in 0..bytes / PIECE {
        if let Some(opener) = &mut opener {
            let mut head = [0; HEAD_BYTES];
            from.read_exact(&mut head).unwrap();
            frame.resize(Opener::length(head).unwrap(), 0);
            from.read_exact(&mut frame).unwrap();
            opener.open(&mut frame).unwrap();
        } else {
            from.read_exact(&mut frame).unwrap();
        }
    }
}
