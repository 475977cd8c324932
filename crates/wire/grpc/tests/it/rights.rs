//! Every call of the table, by every caller of the matrix.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use ropewalk_auth::{Operation, Resource};
use ropewalk_grpc::proto::ropewalk::events::v1::HeadRequest;
use tokio_stream::{Stream, StreamExt as _};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use crate::matrix::{self, Matrix, MatrixCaller, OTHER_STORE, PASSWORD, STORE};
use crate::{Server, within};

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(out, item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes::Buf::copy_to_bytes(from, bytes::Buf::remaining(from))))
    }
}

async fn code(
    server: &Server,
    path: &str,
    caller: &MatrixCaller,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Code {
    let mut request = Request::new(messages);
    if caller.roles.is_some() {
        let credentials = format!("Basic {}", STANDARD.encode(format!("{}:{PASSWORD}", caller.name)));
        request.metadata_mut().insert("authorization", credentials.parse().unwrap());
    }
    let mut client = tonic::client::Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let sent = client.streaming(request, path.parse().unwrap(), Raw);
    let mut responses = match within(sent).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status.code(),
    };
    // Subscriptions send no first message; a call with one response sends it, or an error.
    let first = tokio::time::timeout(core::time::Duration::from_millis(20), responses.next()).await;
    match first {
        Ok(Some(Err(status))) => status.code(),
        _ => Code::Ok,
    }
}

/// A request of any call: those of `ropewalk.events.v1` begin with the name of the store.
fn message(operation: &Operation) -> Bytes {
    let store = if operation.name.starts_with("/ropewalk.") { STORE } else { "" };
    HeadRequest { store: store.to_owned() }.encode_to_vec().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_refused_exactly_without_its_rights() {
    let operations = ropewalk_grpc::operations();
    let mut matrix = Matrix::new("grpc");
    for caller in matrix::callers() {
        let server = Server::start().await;
        matrix::create_users(server.service.access()).await;
        for operation in &operations {
            let is_allowed = caller.is_allowed(operation.needs);
            // Rights on another store are checked when the message has named its store.
            let is_decoded = operation.needs.resource == Resource::Message && caller.name == OTHER_STORE;
            let code = if is_allowed || is_decoded {
                code(&server, &operation.name, &caller, tokio_stream::once(message(operation))).await
            } else {
                // Rejected by the headers alone: no message is sent.
                code(&server, &operation.name, &caller, tokio_stream::pending()).await
            };
            let is_refused = [Code::PermissionDenied, Code::Unauthenticated].contains(&code);
            matrix.note(&operation.name, &caller, is_allowed, (is_refused, code));
        }
    }
    matrix.finish(operations.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_a_row_is_not_served() {
    let server = Server::start().await;
    let caller = &matrix::callers()[0];
    for path in ["/umadb.v1.DCB/Other", "/umadb.UmaDBService/Other", "/grpc.health.v1.Health/Other", "/a.B/C"]
    {
        let code = code(&server, path, caller, tokio_stream::pending()).await;
        assert_eq!(code, Code::Unimplemented, "{path}");
    }
    matrix::create_users(server.service.access()).await;
    let code = code(&server, "/a.B/C", caller, tokio_stream::pending()).await;
    assert_eq!(code, Code::Unauthenticated);
}
