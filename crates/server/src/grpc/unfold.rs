//! A stream whose items come from an async function with a state.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_stream::Stream;

type Step<S, T> = Pin<Box<dyn Future<Output = Option<(T, S)>> + Send>>;

/// A stream that calls an async function for each item, until the function returns `None`.
pub(super) struct Unfold<S, T, F> {
    state: Option<S>,
    step: F,
    running: Option<Step<S, T>>,
}

/// Creates a stream. Each call of `step` receives the state, and returns an item and the next state.
pub(super) fn unfold<S, T, F, Fut>(
    state: S,
    step: F,
) -> Unfold<S, T, impl FnMut(S) -> Step<S, T> + Send + Unpin>
where
    F: Fn(S) -> Fut + Send + Unpin,
    Fut: Future<Output = Option<(T, S)>> + Send + 'static,
{
    Unfold { state: Some(state), step: move |state| Box::pin(step(state)) as Step<S, T>, running: None }
}

impl<S: Unpin, T, F: FnMut(S) -> Step<S, T> + Unpin> Stream for Unfold<S, T, F> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        if let Some(state) = this.state.take() {
            this.running = Some((this.step)(state));
        }
        let Some(running) = &mut this.running else { return Poll::Ready(None) };
        let Poll::Ready(outcome) = running.as_mut().poll(cx) else { return Poll::Pending };
        this.running = None;
        Poll::Ready(outcome.map(|(item, state)| {
            this.state = Some(state);
            item
        }))
    }
}
