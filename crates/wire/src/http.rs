//! Text of door `http`: queries, the tokens by which a stream of events resumes, and the events themselves.
//!
//! Not here: HTTP itself, which a library reads; JSON, which the door writes.

mod event;
mod query;
mod resume;

pub use event::{base64, plain_text, write_comment, write_event, write_id, write_retry};
pub use query::{QueryError, query_pairs};
pub use resume::{LogKey, RESUME_LOGS_MAX, Resume, ResumeError, write_one};
