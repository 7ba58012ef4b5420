//! A PMI-1 server for a job whose ranks all connect here.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub struct PmiServer {
    size: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, String>,
    entered: u32,
    barriers: u64,
    finalized: Vec<u32>,
}

impl PmiServer {
    pub fn new(size: u32) -> Arc<Self> {
        Arc::new(Self { size, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The rank's end of a new connection.
    pub fn connect(self: &Arc<Self>, rank: u32) -> UnixStream {
        let (own, other) = UnixStream::pair().unwrap();
        let server = Arc::clone(self);
        thread::spawn(move || server.serve(rank, own));
        other
    }

    /// What some rank has put.
    pub fn value(&self, key: &str) -> Option<String> {
        self.state.lock().unwrap().values.get(key).cloned()
    }

    pub fn finalized(&self) -> Vec<u32> {
        let mut finalized = self.state.lock().unwrap().finalized.clone();
        finalized.sort_unstable();
        finalized
    }

    /// Waits until that number of ranks is in the barrier that is not complete.
    pub fn wait_entered(&self, count: u32) {
        let mut state = self.state.lock().unwrap();
        while state.entered < count {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until that number of barriers is complete.
    pub fn wait_barriers(&self, count: u64) {
        let mut state = self.state.lock().unwrap();
        while state.barriers < count {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn serve(&self, rank: u32, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let answer = self.answer(rank, &line);
            if writer.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, rank: u32, line: &str) -> String {
        let field = |key: &str| {
            let mut pairs = line.split(' ').filter_map(|field| field.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        let mut state = self.state.lock().unwrap();
        match field("cmd").as_deref() {
            Some("init") => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            Some("get_my_kvsname") => "cmd=my_kvsname kvsname=kvs_1".to_owned(),
            Some("put") => {
                state.values.insert(field("key").unwrap(), field("value").unwrap());
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            Some("get") => match state.values.get(&field("key").unwrap()) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found".to_owned(),
            },
            Some("barrier_in") => {
                state.entered += 1;
                self.changed.notify_all();
                if state.entered == self.size {
                    state.entered = 0;
                    state.barriers += 1;
                    self.changed.notify_all();
                } else {
                    let mine = state.barriers;
                    while state.barriers == mine {
                        state = self.changed.wait(state).unwrap();
                    }
                }
                "cmd=barrier_out rc=0".to_owned()
            }
            Some("finalize") => {
                state.finalized.push(rank);
                "cmd=finalize_ack rc=0".to_owned()
            }
            other => panic!("unknown command {other:?}"),
        }
    }
}
