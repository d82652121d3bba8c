//! Several things under way at once.

use std::future::poll_fn;
use std::task::Poll;

/// What comes of each, in their order, when all are over.
pub(super) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut under_way: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, output) in under_way.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(cx) {
                *output = Some(ready);
            }
        }
        if under_way.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    under_way.into_iter().filter_map(|(_, output)| output).collect()
}
