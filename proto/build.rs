//! Generates the gRPC types. protox is a protobuf compiler in Rust: no protoc on the machine.

use std::path::{Path, PathBuf};
use tonic_build::manual::{Builder, Method, Service};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["event", "client", "admin", "link"].map(|name| format!("ftb/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=ftb");
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    raw_services()
}

/// The same streams once more, with messages that are written and read without prost: the side that
/// accepts them, and of a link the side that dials.
fn raw_services() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let received = "prost::bytes::Bytes";
    let frame = "ftb_core::frame::Frame";
    let clients = service("Clients", "Attach", received, "crate::client::Outgoing");
    let accept = [clients, service("Link", "Exchange", received, frame)];
    generate(&out.join("accept"), false, &accept)?;
    generate(&out.join("dial"), true, &[service("Link", "Exchange", frame, received)])?;
    Ok(())
}

fn service(name: &str, method: &str, input: &str, output: &str) -> Service {
    let method = Method::builder()
        .name(method.to_lowercase())
        .route_name(method)
        .input_type(input)
        .output_type(output)
        .codec_path("crate::wire::WireCodec")
        .client_streaming()
        .server_streaming()
        .build();
    Service::builder().name(name).package("ftb.v1").method(method).build()
}

fn generate(folder: &Path, dial: bool, services: &[Service]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    Builder::new().build_client(dial).build_server(!dial).out_dir(folder).compile(services);
    Ok(())
}
