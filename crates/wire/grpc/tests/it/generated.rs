//! The committed files of `generated/` are those that the files of `proto/` give.
//!
//! Messages and clients by prost and tonic, and the servers of the services of the database with our own codecs,
//! since responses that carry events are encoded by hand (see `frame`). The memory of decoded messages, by
//! field, becomes the statics of `decoded`. All without `protoc`.
//!
//! They are committed, so that building the server compiles no compiler of protocols. After a change of
//! `proto/`: `UPDATE_PROTOCOLS=1 cargo test -p ropewalk-grpc --test grpc generated`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{FieldDescriptorProto, FileDescriptorSet};
use tonic_prost_build::manual::{self, Method, Service};

const PROTOS: [&str; 3] =
    ["umadb/v1/umadb.proto", "ropewalk/events/v1/events.proto", "ropewalk/v1/transactions.proto"];

#[test]
fn generated_files_are_those_of_the_protocols() -> Result<(), Box<dyn Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = crate_dir.join("generated");
    let fresh = tempfile::tempdir()?;
    generate(&crate_dir.join("proto"), fresh.path())?;
    if std::env::var_os("UPDATE_PROTOCOLS").is_some() {
        for (name, bytes) in files(fresh.path())? {
            std::fs::write(committed.join(name), bytes)?;
        }
    }
    let (fresh, committed) = (files(fresh.path())?, files(&committed)?);
    assert_eq!(fresh.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, bytes) in fresh {
        assert!(
            committed.get(&name) == Some(&bytes),
            "generated/{name} is older than proto/: UPDATE_PROTOCOLS=1"
        );
    }
    Ok(())
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?);
    }
    Ok(found)
}

fn generate(protos: &Path, into: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(PROTOS, [protos])?;
    std::fs::write(into.join("descriptors.bin"), descriptors.encode_to_vec())?;
    std::fs::write(into.join("shapes.rs"), shapes(&descriptors)?)?;
    tonic_prost_build::configure().build_server(false).out_dir(into).compile_fds(descriptors)?;
    manual::Builder::new().build_client(false).out_dir(into).compile(&[umadb(), events(), transactions()]);
    Ok(())
}

/// A static for each message, and the function that finds the message of a call.
fn shapes(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let (mut out, mut calls) = (String::new(), String::new());
    for file in &descriptors.file {
        for message in &file.message_type {
            let name = format!(".{}.{}", file.package(), message.name());
            writeln!(out, "static {}: Shape = Shape {{ fields: &[", identifier(&name))?;
            for field in &message.field {
                out.push_str(&field_of(field)?);
            }
            writeln!(out, "] }};")?;
        }
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                writeln!(calls, "{path:?} => Some(&{}),", identifier(method.input_type()))?;
            }
        }
    }
    writeln!(out, "pub(super) fn of_call(path: &str) -> Option<&'static Shape> {{")?;
    writeln!(out, "match path {{\n{calls}_ => None,\n}}\n}}")?;
    Ok(out)
}

/// A field that takes memory beyond that of its message; empty for another.
fn field_of(field: &FieldDescriptorProto) -> Result<String, Box<dyn Error>> {
    let is_repeated = field.label() == Label::Repeated;
    let (ty, message) = match field.r#type() {
        Type::String | Type::Bytes => ("Vec<u8>".to_owned(), "None".to_owned()),
        Type::Message => {
            let name = field.type_name();
            let path = name.trim_start_matches('.').replace('.', "::");
            (format!("crate::proto::{path}"), format!("Some(&{})", identifier(name)))
        }
        _ if is_repeated => return Err(format!("{}: a list of numbers is not counted", field.name()).into()),
        _ => return Ok(String::new()),
    };
    let element = if is_repeated { format!("size_of::<{ty}>()") } else { "0".to_owned() };
    let number = field.number();
    Ok(format!("Field {{ number: {number}, element: {element}, message: {message} }},\n"))
}

/// The static of a message, from its full name with a leading point.
fn identifier(name: &str) -> String {
    name.trim_start_matches('.').replace('.', "_").to_uppercase()
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
