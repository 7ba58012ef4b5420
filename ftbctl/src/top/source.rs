//! Where `ftbctl top` has its news from: the local agent.

use super::model::{EVENTS_MAX, News, NewsSource, Row};
use crate::common::Common;
use crate::events::{details_of, gap_line};
use crate::failure::Failure;
use crate::text;
use core::time::Duration;
use ftb_client::admin::{Admin, AdminError};
use ftb_client::{Client, Conditions, Delivery, Start, SubscribeError, Subscription, now_ns};
use std::path::Path;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

/// How far back events are shown at the beginning.
const BACK: Duration = Duration::from_secs(3_600);

/// The agent, the conditions and the events, as they are followed from now on.
pub(crate) struct Sources {
    client: Client,
    conditions: Conditions,
    events: Subscription,
}

impl Sources {
    /// # Errors
    /// There is no agent, or the filter is wrong.
    pub(crate) async fn open(common: &Common, filter: &str) -> Result<Self, Failure> {
        let client = common.client().build().map_err(Failure::failed)?;
        client.wait_connected(common.timeout()).await?;
        let opened = timeout(common.timeout(), async {
            let mut conditions = Conditions::open(&client, "condition=*").await?;
            conditions.load().await?;
            let events = client.subscribe(filter, since()).await?;
            Ok::<_, SubscribeError>((conditions, events))
        });
        let waited = text::exact(common.timeout());
        let late = |_| Failure::no_answer(format_args!("no answer within {waited}"));
        let (conditions, events) = opened.await.map_err(late)??;
        Ok(Self { client, conditions, events })
    }

    /// All that is there now, with the time of each.
    ///
    /// # Errors
    /// The agent does not answer.
    pub(crate) async fn once(
        mut self,
        common: &Common,
        interval: Duration,
    ) -> Result<Vec<(u64, News)>, Failure> {
        let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
        let mut news = vec![(now_ns(), table(&self.conditions))];
        let past = timeout(common.timeout(), async {
            while let Some(delivery) = self.events.next_of_past().await {
                news.push((now_ns(), News::Event(row(&delivery))));
                // The model keeps no more; they are in order.
                if news.len() > 2 * EVENTS_MAX {
                    news.drain(1..=EVENTS_MAX);
                }
            }
        });
        let waited = text::exact(common.timeout());
        let late = |_| Failure::no_answer(format_args!("no answer within {waited}"));
        past.await.map_err(late)?;
        news.push((now_ns(), News::Tree(admin.tree().await?)));
        news.push((now_ns(), News::Status(Box::new(admin.status().await?))));
        sleep(interval).await;
        news.push((now_ns(), News::Status(Box::new(admin.status().await?))));
        drop(self.client);
        Ok(news)
    }

    /// Sends news until the receiver has gone.
    pub(crate) async fn follow(self, common: Common, interval: Duration, news: Sender<News>) {
        let socket = common.socket();
        let agent = follow_agent(&socket, common.timeout(), interval, &news);
        let conditions = follow_conditions(self.conditions, &news);
        let events = follow_events(self.events, &news);
        tokio::select! {
            () = agent => {}
            () = async { tokio::join!(conditions, events); core::future::pending().await } => {}
        }
        drop(self.client);
    }
}

fn since() -> Start {
    Start::SinceNs(now_ns().saturating_sub(u64::try_from(BACK.as_nanos()).unwrap_or(0)))
}

/// Asks the agent again and again. Returns when the receiver has gone.
async fn follow_agent(socket: &Path, deadline: Duration, interval: Duration, news: &Sender<News>) {
    let mut admin = None;
    loop {
        let found = ask(&mut admin, socket, deadline, news).await;
        if found.is_err() {
            admin = None;
        }
        let problem = found.err().map(|error| error.to_string());
        if news.send(News::Problem(NewsSource::Agent, problem)).await.is_err() {
            return;
        }
        sleep(interval).await;
    }
}

async fn ask(
    admin: &mut Option<Admin>,
    socket: &Path,
    deadline: Duration,
    news: &Sender<News>,
) -> Result<(), AdminError> {
    let admin = match admin {
        Some(admin) => admin,
        None => admin.insert(Admin::connect(socket, deadline).await?),
    };
    let (tree, status) = (admin.tree().await?, admin.status().await?);
    // The next message shows whether the receiver has gone.
    let _ = news.send(News::Tree(tree)).await;
    let _ = news.send(News::Status(Box::new(status))).await;
    Ok(())
}

fn table(conditions: &Conditions) -> News {
    News::Table(conditions.states().cloned().collect())
}

async fn follow_conditions(mut conditions: Conditions, news: &Sender<News>) {
    let mut next = table(&conditions);
    while news.send(next).await.is_ok() {
        next = match conditions.changed().await {
            Ok(Some(subject)) => match conditions.state(&subject) {
                Some(state) => News::Condition(Box::new(state.clone())),
                None => table(&conditions),
            },
            Ok(None) => table(&conditions),
            Err(error) => {
                let problem = format!("conditions: {error}");
                let _ = news.send(News::Problem(NewsSource::Conditions, Some(problem))).await;
                return;
            }
        };
    }
}

async fn follow_events(mut events: Subscription, news: &Sender<News>) {
    while let Some(delivery) = events.next().await {
        if news.send(News::Event(row(&delivery))).await.is_err() {
            return;
        }
    }
    let why = events.ended().map_or("ended".to_owned(), |why| why.to_string());
    let _ = news.send(News::Problem(NewsSource::Events, Some(format!("events: {why}")))).await;
}

fn row(delivery: &Delivery) -> Row {
    match delivery {
        Delivery::Gap(gap) => Row {
            severity: None,
            time_ns: 0,
            host: String::new(),
            name: String::new(),
            details: gap_line(gap),
        },
        Delivery::Event(received) => {
            let hosts = received.folded.as_ref().and_then(|folded| folded.hosts.as_deref());
            Row {
                severity: Some(received.event.severity),
                time_ns: received.event.time_ns,
                host: text::printable(hosts.unwrap_or(&received.host)),
                name: text::printable(received.event.name.as_str()),
                details: details_of(received),
            }
        }
    }
}
