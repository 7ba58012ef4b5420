//! Drills (`ftbctl drill`): hears them, checks who may start them, publishes the launcher's answer.
//! Nothing else follows from a drill.

use crate::backplane::{EventGate, StandingSubscription};
use crate::refused::Reason;
use crate::reports::proof_of;
use ftb_client::{Client, Delivery, Proofs, Received};
use ftb_core::catalog::names;
use ftb_launcher_core::drill::{self, Drill, DrillSource};
use tokio::sync::mpsc;

/// Most drills that wait for their answer; further ones are counted as missed.
const DRILLS_MAX: usize = 16;

/// A drill with its event.
pub type Heard = (DrillSource, Drill);

/// A receiver of the drills that this job answers: those of root and the agent's user, who alone
/// may publish in their event space, and those of the job's owner.
///
/// # Errors
/// The agent refuses a subscription.
pub async fn begin(
    client: &Client,
    job: &str,
    gate: &EventGate,
) -> Result<mpsc::Receiver<Heard>, String> {
    let (to, drills) = mpsc::channel(DRILLS_MAX);
    let name = names::FTB_DRILL;
    let all = format!("event_space={}, event_name={name}", drill::SPACE);
    let own = format!("event_space={}, event_name={name}, jobid={job}", drill::SPACE_OF_JOB);
    for filter in [all, own] {
        let drills = StandingSubscription::begin(client, filter, false, gate).await?;
        let (job, proofs) = (job.to_owned(), Proofs::new(client));
        tokio::spawn(follow(drills, job, proofs, gate.clone(), to.clone()));
    }
    Ok(drills)
}

/// Passes on drills. A missed one needs no answer: its publisher reports that.
async fn follow(
    mut drills: StandingSubscription,
    job: String,
    proofs: Proofs,
    gate: EventGate,
    to: mpsc::Sender<Heard>,
) {
    loop {
        let next = tokio::select! {
            next = drills.next() => next,
            () = to.closed() => return,
        };
        let Some(delivery) = next else { return };
        let Delivery::Event(received) = delivery else { continue };
        let Some(heard) = admit(&received, &job, &proofs, &gate) else { continue };
        match to.try_send(heard) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                gate.refuse(Reason::Missed, "drills: too many at once");
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return,
        }
    }
}

/// The drill, if it is for this job and its publisher may start it.
fn admit(received: &Received, job: &str, proofs: &Proofs, gate: &EventGate) -> Option<Heard> {
    let (event, uid) = (&received.event, received.uid);
    let owner = nix::unistd::Uid::effective().as_raw();
    let is_protected = event.space.as_str().eq_ignore_ascii_case(drill::SPACE);
    if !(is_protected || uid == 0 || uid == owner) {
        gate.refuse(Reason::Foreign, format_args!("{} of uid {uid}", event.name));
        return None;
    }
    let drill = drill::from_drill(event).map_err(|error| gate.refuse(Reason::Malformed, error));
    let drill = drill.ok().filter(|drill| drill.job.is_empty() || drill.job == job)?;
    let (id, host, proof) = (received.id, received.host.clone(), proof_of(received, proofs));
    // Agents sign the faults of publishers, and no event of an ordinary user.
    Some((DrillSource { id, uid, host, proof, is_own: !is_protected }, drill))
}
