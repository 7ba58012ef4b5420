//! Prints every event that matches a filter, and every gap:
//! `cargo run -p ftb-client --example watch -- "severity>=warning"`.

use ftb_client::{Client, Delivery, Start};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let client = Client::builder("example-watch").build()?;
    let mut subscription = client.subscribe(&filter, Start::Now).await?;
    println!("active from {}", subscription.position());
    while let Some(delivery) = subscription.next().await {
        match delivery {
            Delivery::Event(received) => {
                let event = &received.event;
                println!("{} {} {} {:?}", event.severity, received.host, event.name, event.tags);
            }
            Delivery::Gap(gap) => println!("{:?} events are missing: {:?}", gap.count, gap.reason),
        }
    }
    Ok(())
}
