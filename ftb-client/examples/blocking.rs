//! A program without tokio: answers every greeting of the `publish` example, ten of them.

use ftb_client::{ClientConfig, Delivery, Start, blocking, event};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let client = blocking::BlockingClient::connect(ClientConfig::new("example-blocking"))?;
    let wait = Duration::from_secs(10);
    let mut greetings = client.subscribe("event_name=EXAMPLE_GREETING", Start::Now, wait)?;
    for _ in 0..10 {
        if let Some(Delivery::Event(greeting)) = greetings.next(Duration::MAX)? {
            let answer = event("ftb.example", "EXAMPLE_ANSWER")?.response_to(greeting.id);
            let receipt = client.publish(answer)?;
            println!("answered {} with {}", greeting.id, client.confirmed(receipt, wait)??);
        }
    }
    client.close(wait)?;
    Ok(())
}
