//! A job on a real backplane: three agents, real processes, and a launcher of a few lines that says
//! what launcher/core/protocol.md makes the real one say.
#![allow(clippy::unwrap_used)]

mod harness;

use ftb_client::blocking::{BlockingClient, BlockingSubscription};
use ftb_client::{ClientConfig, Delivery, Event, Severity, Start, event};
use ftb_tests::cluster::{Cluster, PATIENCE};
use harness::image_path;
use harness::pmi_server::PmiServer;
use harness::processes::{example, result, run_job, start_rank};
use std::collections::BTreeSet;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

const POISSON: (&str, &[&str]) =
    ("poisson", &["--grid", "24", "--iterations", "700", "--sleep-us", "4000"]);
const RANKS: u32 = 4;

struct Launcher {
    cluster: Cluster,
    client: BlockingClient,
    notices: BlockingSubscription,
    pmi: Arc<PmiServer>,
    images: tempfile::TempDir,
}

impl Launcher {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let cluster = runtime.block_on(Cluster::start(3, 2)).unwrap();
        let client = BlockingClient::connect(ClientConfig {
            job_id: "job-1".into(),
            socket: cluster.socket(0).into(),
            ..ClientConfig::new("launcher")
        });
        let client = client.unwrap();
        let filter = "event_space=ftb.mpi, jobid=job-1";
        let notices = client.subscribe(filter, Start::Now, PATIENCE).unwrap();
        let images = tempfile::tempdir().unwrap();
        Self { cluster, client, notices, pmi: PmiServer::new(RANKS), images }
    }

    fn start(&self, rank: u32, node: usize, more: &[(&str, String)]) -> Child {
        let images = self.images.path().join(self.cluster.host(node));
        let mut variables = vec![
            ("FTB_AGENT_SOCKET", self.cluster.socket(node).display().to_string()),
            ("FTB_IMAGE_DIR", images.display().to_string()),
        ];
        variables.extend_from_slice(more);
        start_rank(&self.pmi, rank, POISSON, self.cluster.host(node), &variables)
    }

    /// Says it again and again until these ranks have answered it with that event.
    fn request(&mut self, request: &Event, answer: &str, ranks: &[u32]) {
        let mut missing = BTreeSet::from_iter(ranks.iter().map(u32::to_string));
        let episode = request.tag("episode");
        let publish = || drop(self.client.publish(request.clone()).unwrap());
        publish();
        while !missing.is_empty() {
            let Ok(delivery) = self.notices.next(Duration::from_secs(1)) else {
                publish();
                continue;
            };
            let Some(Delivery::Event(notice)) = delivery else {
                panic!("the subscription gave {delivery:?}");
            };
            let notice = &notice.event;
            if notice.name.as_str() == answer && notice.tag("episode") == episode {
                missing.remove(notice.tag("rank").unwrap());
            }
        }
    }
}

fn request(name: &str, payload: &str, episode: u64, set: &str) -> ftb_client::EventBuilder {
    event("ftb.jl", name)
        .unwrap()
        .payload(payload.to_owned())
        .tag("episode", episode)
        .tag("set", set)
}

/// The spine of all this: a checkpoint, then the ranks of a node go on elsewhere, and the result
/// has the same bits as that of an undisturbed run.
#[test]
fn a_solver_that_is_checkpointed_and_moved_over_the_backplane_ends_with_the_same_bits() {
    example("poisson");
    let mut launcher = Launcher::new();
    let mut ranks: Vec<Child> = (0..RANKS)
        .map(|rank| launcher.start(rank, rank as usize / 2, &[("FTB_EPISODE", "1".into())]))
        .collect();
    launcher.pmi.wait_barriers(1);

    let checkpoint = request("FTB_CHECKPOINT", "s2", 2, "s2").build();
    launcher.request(&checkpoint, "FTB_CHECKPOINT_DONE", &[0, 1, 2, 3]);
    launcher.request(&checkpoint, "FTB_CHECKPOINT_DONE", &[0, 1, 2, 3]);

    let migrate = request("FTB_MIGRATE", "node02", 3, "m3").severity(Severity::Warning);
    let migrate = migrate.tag("source", "node02").tag("ranks", "2 3").build();
    launcher.request(&migrate, "FTB_CHECKPOINT_DONE", &[2, 3]);
    for left in ranks.drain(2..) {
        let left = left.wait_with_output().unwrap();
        assert!(left.status.success(), "{left:?}");
    }
    let (from, to) = (launcher.images.path().join("node02"), launcher.images.path().join("node03"));
    std::fs::create_dir_all(to.join("m3")).unwrap();
    for rank in [2, 3] {
        std::fs::copy(image_path(&from.join("m3"), rank), image_path(&to.join("m3"), rank))
            .unwrap();
        let restore = to.join("m3").display().to_string();
        let variables = [("FTB_EPISODE", "3".into()), ("FTB_RESTORE", restore)];
        ranks.push(launcher.start(rank, 2, &variables));
    }
    launcher.request(&migrate, "FTB_MPI_RESUMED", &[0, 1, 2, 3]);

    let outputs: Vec<_> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    let goes_on = String::from_utf8_lossy(&outputs[2].stdout).into_owned();
    assert!(goes_on.contains("goes on behind iteration"), "{goes_on}");
    let undisturbed = run_job(RANKS, |_| "node01".into(), POISSON);
    assert_eq!(result(&outputs), result(&undisturbed));
}
