//! The signals that the launcher takes.

use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// The signals that the launcher takes.
pub(super) struct Caught(Vec<(i32, Signals)>);

impl Caught {
    pub(super) fn listen() -> std::io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let listen = |kind: SignalKind| Ok((kind.as_raw_value(), signal(kind)?));
        kinds.into_iter().map(listen).collect::<std::io::Result<_>>().map(Self)
    }

    pub(super) async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        futures_util::future::select_all(waits).await.0
    }
}
