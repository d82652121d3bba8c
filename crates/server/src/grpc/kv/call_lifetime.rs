//! Ends long calls when the server stops or the user loses access.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::Refused;
use dunlin::topic::Waiter;
use dunlin::wire::ErrorCode;

use super::super::connection::{GrpcConnection, StreamRegistration};
use crate::access::Admission;
use crate::shared::STOP;

/// Decides whether a long call may continue.
#[derive(Debug)]
pub(super) struct CallLifetime {
    waiter: Arc<Waiter>,
    admission: Option<Admission>,
    _registration: StreamRegistration,
}

impl CallLifetime {
    pub(super) fn new(connection: &GrpcConnection) -> Result<CallLifetime, Refused> {
        let waiter = Waiter::new();
        let registration = connection.register_stream(&waiter)?;
        Ok(CallLifetime {
            waiter,
            admission: connection.login.as_ref().map(Admission::of),
            _registration: registration,
        })
    }

    /// Fails if the call must end. Otherwise, the task is woken when it must check again.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Refused> {
        loop {
            if let Some(admission) = &mut self.admission {
                admission.check()?;
            }
            let mut stop = false;
            self.waiter.take_ready(|token| stop |= token == STOP);
            if stop {
                return Err(Refused::new(ErrorCode::ShuttingDown, ""));
            }
            if self.waiter.set_waker(cx.waker()) {
                return Ok(());
            }
        }
    }
}

/// Waits until `work` is done. Fails if the call must end earlier.
pub(super) async fn until_call_ends<T>(
    connection: &GrpcConnection,
    work: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    let mut lifetime = CallLifetime::new(connection)?;
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => match lifetime.poll(cx) {
            Ok(()) => Poll::Pending,
            Err(ended) => Poll::Ready(Err(ended)),
        },
    })
    .await
}
