//! The echo server with which listener `grpc` is compared. The echo server is a plain server on one thread, made with
//! the library tonic, with a unary call and a stream.

use std::net::Ipv4Addr;
use std::pin::Pin;

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::node::ServerReady;
use super::proto::echo_server::{Echo, EchoServer};
use super::proto::{Message, StreamRequest};
use crate::cores;
use crate::payload::NumberedPayload;
use crate::role::{RoleArgs, print_line};

struct Plain;

#[tonic::async_trait]
impl Echo for Plain {
    async fn echo(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type StreamStream = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

    async fn stream(&self, request: Request<StreamRequest>) -> Result<Response<Self::StreamStream>, Status> {
        let StreamRequest { messages, bytes } = request.into_inner();
        let mut payload = NumberedPayload::new(bytes as usize);
        let message = move |seq| {
            let payload = Bytes::copy_from_slice(payload.with_seq(seq));
            Ok(Message { payloads: vec![payload] })
        };
        Ok(Response::new(Box::pin(tokio_stream::iter((0..messages).map(message)))))
    }
}

/// The main function of the echo server's process, which serves until it is killed.
pub fn serve(args: &RoleArgs) -> Result<()> {
    let _pinned = cores::CorePinning::parse(args.text("pin")?)?.side(1)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on a local port")?;
        print_line(&ServerReady { address: listener.local_addr()? })?;
        let connections = TcpListenerStream::new(listener);
        let connections = tokio_stream::StreamExt::map(connections, |stream| {
            stream.inspect(|stream| drop(stream.set_nodelay(true)))
        });
        Server::builder().add_service(EchoServer::new(Plain)).serve_with_incoming(connections).await?;
        Ok(())
    })
}
