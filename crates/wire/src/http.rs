//! Reads and writes the text formats of the HTTP listener: query strings, server-sent events, and resume tokens for
//! streams of such events. HTTP itself and JSON are handled elsewhere.

mod event;
mod query;
mod resume;

pub use event::{base64, plain_text, write_comment, write_event, write_id, write_retry};
pub use query::{QueryError, query_pairs};
pub use resume::{LogKey, RESUME_LOGS_MAX, ResumeError, ResumeToken, write_position};
