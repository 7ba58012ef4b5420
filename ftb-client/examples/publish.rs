//! Publishes one event and waits until the cluster holds it:
//! `cargo run -p ftb-client --example publish -- "the text"`.

use ftb_client::{Client, Severity, event};
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "hello".to_owned());
    let client = Client::builder("example-publish").build()?;
    let greeting = event("ftb.example", "EXAMPLE_GREETING")?
        .severity(Severity::Warning)
        .tag("language", "Rust")
        .payload(text);
    // Works without an agent too: the event waits in the client until one is there.
    let receipt = client.publish(greeting)?;
    client.flush(Duration::from_secs(10)).await?;
    println!("{}", receipt.confirmed().await?);
    client.close(Duration::from_secs(1)).await?;
    Ok(())
}
