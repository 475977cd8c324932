//! Compiles the protocols without `protoc`: messages and clients by prost and tonic, and the servers of the
//! services of the database with our own codecs, since responses that carry events are encoded by hand (see
//! `frame`).

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;
use tonic_prost_build::manual::{self, Method, Service};

const PROTOS: [&str; 3] =
    ["umadb/v1/umadb.proto", "ropewalk/events/v1/events.proto", "ropewalk/v1/transactions.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    manual::Builder::new().build_client(false).compile(&[umadb(), events(), transactions()]);
    Ok(())
}

/// A call whose response prost encodes.
fn unary(package: &str, name: &str, request: &str, response: &str) -> Method {
    let module = format!("crate::proto::{}", package.replace('.', "::"));
    method(name, &format!("{module}::{request}"), &format!("{module}::{response}")).build()
}

/// A call whose responses are frames.
fn frames(package: &str, name: &str, request: &str) -> Method {
    framed(package, name, request).server_streaming().build()
}

/// A call whose response is one frame.
fn frame(package: &str, name: &str, request: &str) -> Method {
    framed(package, name, request).build()
}

fn framed(package: &str, name: &str, request: &str) -> manual::MethodBuilder {
    let module = format!("crate::proto::{}", package.replace('.', "::"));
    method(name, &format!("{module}::{request}"), "crate::frame::Frame")
}

fn method(name: &str, input: &str, output: &str) -> manual::MethodBuilder {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    Method::builder()
        .name(snake)
        .route_name(name)
        .input_type(input)
        .output_type(output)
        .codec_path("crate::frame::Codec")
}

fn umadb() -> Service {
    let package = "umadb.v1";
    Service::builder()
        .name("DCB")
        .package(package)
        .method(frames(package, "Read", "ReadRequest"))
        .method(frames(package, "Subscribe", "SubscribeRequest"))
        .method(unary(package, "Append", "AppendRequest", "AppendResponse"))
        .method(unary(package, "Head", "HeadRequest", "HeadResponse"))
        .method(unary(package, "GetTrackingInfo", "TrackingRequest", "TrackingResponse"))
        .build()
}

fn events() -> Service {
    let package = "ropewalk.events.v1";
    Service::builder()
        .name("Events")
        .package(package)
        .method(unary(package, "Append", "AppendRequest", "AppendResponse"))
        .method(frames(package, "Read", "ReadRequest"))
        .method(unary(package, "Last", "LastRequest", "LastResponse"))
        .method(unary(package, "Count", "CountRequest", "CountResponse"))
        .method(unary(package, "Exists", "ExistsRequest", "ExistsResponse"))
        .method(unary(package, "Head", "HeadRequest", "HeadResponse"))
        .method(unary(package, "Tracking", "TrackingRequest", "TrackingResponse"))
        .method(frames(package, "Subscribe", "SubscribeRequest"))
        .method(unary(package, "ListStores", "ListStoresRequest", "ListStoresResponse"))
        .method(unary(package, "CreateStore", "CreateStoreRequest", "CreateStoreResponse"))
        .method(unary(package, "DeleteStore", "DeleteStoreRequest", "DeleteStoreResponse"))
        .build()
}

fn transactions() -> Service {
    let package = "ropewalk.v1";
    Service::builder()
        .name("Transactions")
        .package(package)
        .method(frame(package, "Commit", "CommitRequest"))
        .method(unary(package, "Begin", "BeginRequest", "BeginResponse"))
        .method(frame(package, "Execute", "ExecuteRequest"))
        .method(unary(package, "CommitOpen", "CommitOpenRequest", "CommitOpenResponse"))
        .method(unary(package, "Rollback", "RollbackRequest", "RollbackResponse"))
        .build()
}
