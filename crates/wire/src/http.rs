//! The text formats that HTTP clients see: query strings, resume tokens of event streams, and events. A library parses
//! HTTP itself, and the server writes JSON.

mod event;
mod query;
mod resume;

pub use event::{base64, plain_text, write_comment, write_event, write_id, write_retry};
pub use query::{QueryError, query_pairs};
pub use resume::{LogKey, RESUME_LOGS_MAX, ResumeError, ResumeToken, write_position};
