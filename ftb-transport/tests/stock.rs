//! Our streams against tonic's own client and server: any gRPC implementation may be the peer.
//! `tests/tests/grpcio.py` does the same with Python's grpcio against an agent.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use ftb_proto::v1::link_client::LinkClient;
use ftb_proto::v1::link_server::{Link, LinkServer};
use ftb_proto::v1::{LinkClose, LinkFrame, link_frame};
use ftb_transport::executor::Executor;
use ftb_transport::frame_body::FrameBody;
use ftb_transport::outbound::OutboundStream;
use ftb_transport::stream::client::open_stream;
use ftb_transport::stream::server::{Server, StreamService};
use ftb_transport::stream::{InboundStream, StreamError, Windows};
use ftb_transport::unix::UnixStream;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use std::future::{pending, ready};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt as _, iter};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::codegen::http::Extensions;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

const METHOD: &str = "/ftb.v1.Link/Exchange";
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Larger and smaller than a frame, than a window, and empty.
const SIZES: [usize; 6] = [0, 10, 70_000, 1, 600_000, 300];
const WINDOWS: Windows = Windows {
    stream_bytes: 1 << 17,
    connection_bytes: 1 << 18,
    frame_bytes: 1 << 16,
    unsent_bytes: 1 << 16,
};

fn frame(size: usize) -> LinkFrame {
    let close = LinkClose { reason: "x".repeat(size), ..LinkClose::default() };
    LinkFrame { frame: Some(link_frame::Frame::Close(close)) }
}

/// Sends each message back, and refuses a connection that is marked so.
#[derive(Clone)]
struct Echo;

#[derive(Clone)]
struct Refused;

impl StreamService for Echo {
    const METHOD: &'static str = METHOD;
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    type Messages = OutboundStream<Bytes>;

    fn accept(
        &self,
        connection: &Extensions,
        mut inbound: InboundStream,
        executor: &Executor,
    ) -> Result<Self::Messages, Status> {
        if connection.get::<Refused>().is_some() {
            return Err(Status::permission_denied("not you"));
        }
        let (sender, receiver) = mpsc::channel(1);
        executor.spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
        let encode = |message| Some(FrameBody::message(vec![message]));
        let last = FrameBody::message(vec![Bytes::from(frame(4).encode_to_vec())]);
        Ok(OutboundStream::new(receiver, encode, Some(last), CancellationToken::new()))
    }
}

/// A stock client of our server.
async fn stock_client(connection: Extensions) -> LinkClient<tonic::transport::Channel> {
    let (here, there) = tokio::net::UnixStream::pair().unwrap();
    let server = Server::new(Echo, tonic::service::Routes::default(), WINDOWS);
    tokio::spawn(async move {
        let io = TokioIo::new(UnixStream::new(there).unwrap());
        let _ = server.serve(io, connection, pending()).await;
    });
    let mut here = Some(TokioIo::new(here));
    let connector = tower::service_fn(move |_| ready(here.take().ok_or("connected once")));
    let endpoint = Endpoint::from_static("http://agent.invalid");
    LinkClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

#[tokio::test]
async fn a_stock_client_exchanges_messages_with_our_server() {
    let mut client = stock_client(Extensions::new()).await;
    let answer = client.exchange(iter(SIZES.map(frame))).await.unwrap();
    let frames: Vec<LinkFrame> = answer.into_inner().map(Result::unwrap).collect().await;
    let expected = SIZES.into_iter().chain([4]).map(frame);
    assert!(frames.into_iter().eq(expected));
}

#[tokio::test]
async fn a_stock_client_sees_the_status_of_a_refusal() {
    let mut refused = Extensions::new();
    refused.insert(Refused);
    let error = stock_client(refused).await.exchange(iter([])).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (tonic::Code::PermissionDenied, "not you"));
}

/// tonic's server: sends each message back, and ends the stream with an error after an empty one.
struct StockServer;

#[tonic::async_trait]
impl Link for StockServer {
    type ExchangeStream = BoxStream<LinkFrame>;

    async fn exchange(
        &self,
        request: Request<Streaming<LinkFrame>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let mut inbound = request.into_inner();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(frame)) = inbound.message().await {
                let is_end = frame == self::frame(0);
                let answer = if is_end { Err(Status::aborted("enough")) } else { Ok(frame) };
                if sender.send(answer).await.is_err() || is_end {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

#[tokio::test]
async fn our_client_exchanges_messages_with_a_stock_server() {
    let (here, there) = tokio::net::UnixStream::pair().unwrap();
    let server = tonic::transport::Server::builder().add_service(LinkServer::new(StockServer));
    tokio::spawn(server.serve_with_incoming(iter([Ok::<_, std::io::Error>(there)])));
    let executor = Executor::default();
    let exchange = async {
        let encode = |size: usize| FrameBody::message(vec![frame(size).encode_to_vec().into()]);
        let messages = iter([1, 70_000, 20, 600_000, 0].map(encode));
        let io = UnixStream::new(here).unwrap();
        let opened = open_stream(&executor, io, WINDOWS, METHOD, messages, MESSAGE_BYTES_MAX);
        let mut inbound = opened.await.unwrap();
        let mut received = Vec::new();
        loop {
            match inbound.message().await {
                Ok(Some(message)) => received.push(LinkFrame::decode(message).unwrap()),
                Ok(None) => panic!("the stream ends with a status"),
                Err(StreamError::Status(status)) => return (received, status),
                Err(malformed) => panic!("{malformed}"),
            }
        }
    };
    let (received, status) = executor.run(exchange, ready(())).await;
    assert!(received.into_iter().eq([1, 70_000, 20, 600_000].map(frame)));
    assert_eq!((status.code(), status.message()), (tonic::Code::Aborted, "enough"));
}
