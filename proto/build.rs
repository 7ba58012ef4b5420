//! Generates the gRPC types. protox is a protobuf compiler in Rust: no protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = ["event", "client", "admin", "link"].map(|name| format!("ftb/v1/{name}.proto"));
    let files = own.into_iter().chain(["nvhcd/nvhcd.proto".to_owned()]);
    println!("cargo:rerun-if-changed=ftb");
    println!("cargo:rerun-if-changed=nvhcd");
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".").build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
