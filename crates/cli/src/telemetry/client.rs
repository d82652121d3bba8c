//! The HTTP client of the trace exporter. It runs on a thread of the exporter.
//!
//! A response may have at most [`RESPONSE_BYTES_MAX`] bytes, and must be complete within the client's timeout.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::{Builder, Runtime};

const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// The blocking HTTP client with which the trace exporter sends spans.
#[derive(Debug)]
pub struct ExporterClient {
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    runtime: Runtime,
    timeout: Duration,
}

impl ExporterClient {
    pub fn new(timeout: Duration) -> Result<ExporterClient> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot create an HTTP client for the collector")?;
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Ok(ExporterClient { http, runtime, timeout })
    }
}

#[async_trait]
impl HttpClient for ExporterClient {
    /// Although `async`, this function blocks its thread. The exporter's thread has no other work, and no asynchronous
    /// runtime.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.block_on(async {
            let response = async {
                let (head, body) = self.http.request(request.map(Full::new)).await?.into_parts();
                let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?.to_bytes();
                Ok(Response::from_parts(head, body))
            };
            tokio::time::timeout(self.timeout, response).await?
        })
    }
}
