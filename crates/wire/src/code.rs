//! Defines the error codes, which are the same for all protocols, as a table.
//!
//! A code's number never changes and is never given to another code. A test compares this table with the one in
//! `docs/protocol.md`.

use crate::layout::layout;

/// Whether a request that was refused can succeed if it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryAdvice {
    /// The same request must not be sent again: it would be refused again, or might be executed twice.
    No,
    /// The same request may succeed later. The client should retry with increasing delays.
    Later,
    /// The same request may succeed after the client has reconnected and resumed.
    Reconnect,
}

impl std::fmt::Display for RetryAdvice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RetryAdvice::No => "no",
            RetryAdvice::Later => "later",
            RetryAdvice::Reconnect => "reconnect",
        })
    }
}

macro_rules! grpc_statuses {
    ($($number:literal $status:ident $name:literal)*) => {
        /// A status code of gRPC. It states why a call was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum GrpcStatus {
            $(#[doc = $name] $status = $number,)*
        }

        impl GrpcStatus {
            /// The status's name in gRPC, such as `ABORTED`.
            pub fn name(self) -> &'static str {
                match self {
                    $(GrpcStatus::$status => $name,)*
                }
            }

            /// The status's number in gRPC messages.
            pub fn number(self) -> i32 {
                self as i32
            }
        }
    };
}

grpc_statuses! {
    0 Ok "OK"
    1 Cancelled "CANCELLED"
    2 Unknown "UNKNOWN"
    3 InvalidArgument "INVALID_ARGUMENT"
    4 DeadlineExceeded "DEADLINE_EXCEEDED"
    5 NotFound "NOT_FOUND"
    6 AlreadyExists "ALREADY_EXISTS"
    7 PermissionDenied "PERMISSION_DENIED"
    8 ResourceExhausted "RESOURCE_EXHAUSTED"
    9 FailedPrecondition "FAILED_PRECONDITION"
    10 Aborted "ABORTED"
    11 OutOfRange "OUT_OF_RANGE"
    12 Unimplemented "UNIMPLEMENTED"
    13 Internal "INTERNAL"
    14 Unavailable "UNAVAILABLE"
    15 DataLoss "DATA_LOSS"
    16 Unauthenticated "UNAUTHENTICATED"
}

/// A row of the table of error codes: a code, its name, its HTTP and gRPC statuses, and advice for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRow {
    /// The code.
    pub code: ErrorCode,
    /// The code's name.
    pub name: &'static str,
    /// Whether the same request can succeed if it is sent again.
    pub retry: RetryAdvice,
    /// HTTP status of the code. For an invalid request, an HTTP listener may use a more specific status.
    pub http: u16,
    /// gRPC status of the code.
    pub grpc: GrpcStatus,
    /// Description of the numbers and the text in a refusal with this code. Responses over HTTP use the part before
    /// `text:` as the JSON names of the numbers.
    pub carries: &'static str,
    /// Advice for the caller, as a sentence.
    pub advice: &'static str,
}

macro_rules! codes {
    ($($number:literal $code:ident $name:literal $retry:ident $http:literal $grpc:ident
        $carries:literal $advice:literal;)*) => {
        /// The code of a refusal: the reason why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $advice] $code,)*
            /// A code that this version of Dunlin does not know.
            Other(u16),
        }

        /// All codes, in the order of their numbers.
        pub const CODES: &[CodeRow] = &[$(CodeRow {
            code: ErrorCode::$code,
            name: $name,
            retry: RetryAdvice::$retry,
            http: $http,
            grpc: GrpcStatus::$grpc,
            carries: $carries,
            advice: $advice,
        },)*];

        impl ErrorCode {
            /// The code's number in messages.
            pub fn number(self) -> u16 {
                match self {
                    $(ErrorCode::$code => $number,)*
                    ErrorCode::Other(number) => number,
                }
            }

            /// The code with this number; [`ErrorCode::Other`] if no code has it.
            pub fn from_number(number: u16) -> ErrorCode {
                match number {
                    $($number => ErrorCode::$code,)*
                    other => ErrorCode::Other(other),
                }
            }
        }
    };
}

codes! {
    0 Ended "ENDED" No 200 Ok "" "Nothing to do: the client ended this itself.";
    1 Version "VERSION" No 400 FailedPrecondition "node's lowest version, node's highest" "Use a client that supports one of the node's protocol versions.";
    2 Protocol "PROTOCOL" No 400 InvalidArgument "text: the violation" "Correct the request: it violates the protocol. If a Dunlin client sent it, report a bug.";
    3 Unauthenticated "UNAUTHENTICATED" No 401 Unauthenticated "text: the reason" "Send a token, password, certificate or nkey of a user of this node.";
    4 Forbidden "FORBIDDEN" No 403 PermissionDenied "text: the missing permission" "Ask an administrator for the permission, or use a subject that the user may access.";
    5 TenantUnknown "TENANT_UNKNOWN" No 404 NotFound "text: the tenant" "Use the tenant to which the user belongs, or leave it empty.";
    6 Limit "LIMIT" Later 429 ResourceExhausted "the limit's value; text: the limit's name, and the refused value if known" "Stay below the named limit, or raise it.";
    7 BudgetSpent "BUDGET_SPENT" Later 503 ResourceExhausted "bytes asked, bytes used, bytes allowed" "Try again later. If the error stays, keep less history in topics, or raise the node's memory_bytes_max or the tenant's memory_bytes.";
    8 ShuttingDown "SHUTTING_DOWN" Reconnect 503 Unavailable "" "Reconnect with increasing delays, then resume.";
    9 Handshake "HANDSHAKE_TIMEOUT" Reconnect 408 DeadlineExceeded "milliseconds waited" "Send the preamble and HELLO immediately after connecting.";
    10 TlsRequired "TLS_REQUIRED" No 400 FailedPrecondition "" "Connect with TLS: tls:// instead of dunlin://, https:// instead of http://.";
    11 RateLimit "RATE_LIMIT" Later 429 ResourceExhausted "milliseconds to wait, the limit's value; text: the limit's name" "Wait for the given time, then send more slowly.";
    12 Opening "OPENING" Reconnect 503 Unavailable "text: what the node is doing" "Reconnect with increasing delays: the node is starting and does not serve clients yet.";
    13 OtherCluster "OTHER_CLUSTER" No 409 FailedPrecondition "text: the client's cluster, and the node's" "The address belongs to another cluster, without this client's topics, keys and leases. Find out why, then create a new client.";
    20 Subject "SUBJECT" No 400 InvalidArgument "text: the violated rule of names" "Correct the subject or pattern.";
    21 NoTopic "NO_TOPIC" Later 404 NotFound "text: the subject" "Correct the subject, or create a topic that owns it.";
    22 TopicExists "TOPIC_EXISTS" No 409 AlreadyExists "text: the topic" "Use the existing topic, or choose another name. If the request accepts an existing topic, this one has another configuration.";
    23 PatternOverlaps "PATTERN_OVERLAPS" No 409 FailedPrecondition "text: the topic that owns some of the subjects; empty if the user may not see it" "Choose a pattern that overlaps no other topic's, or delete that topic. A topic that was created automatically holds the records that were published to its name.";
    24 TopicConfig "TOPIC_CONFIG" No 400 InvalidArgument "text: the invalid value, and the reason" "Correct the topic's configuration.";
    25 Closed "CLOSED" Later 410 Aborted "" "The topic was deleted, or the node is shutting down. To continue, create the topic if it is missing, and open the publisher or subscription again.";
    40 RecordTooLarge "RECORD_TOO_LARGE" No 413 InvalidArgument "bytes, bytes allowed" "Split the record or the batch. If one record alone is too large, you can also raise the topic's record_bytes_max.";
    41 BadFrame "BAD_FRAME" No 400 InvalidArgument "text: the fault" "Correct the record's fields.";
    42 Batch "BATCH" No 400 InvalidArgument "text: the fault" "Correct the batch as the text says. For example, send fewer records, or records of one partition only.";
    43 SeqMoved "SEQ_MOVED" No 412 Aborted "expected sequence, last sequence" "Read the records that were appended since, then decide again.";
    44 DuplicateForgotten "DUPLICATE_FORGOTTEN" No 409 AlreadyExists "producer sequence, oldest remembered" "Treat the record as published: the topic has newer records of this producer.";
    45 ProducerGap "PRODUCER_GAP" No 409 FailedPrecondition "producer sequence, last accepted" "Send the records after the last accepted one again.";
    46 ProducerFenced "PRODUCER_FENCED" No 409 FailedPrecondition "producer epoch, epoch in force" "Stop: another instance of this producer has taken over.";
    47 Full "FULL" Later 503 ResourceExhausted "oldest sequence not consumed, ns waited; text: the slowest subscriber" "Try again when the named subscriber has caught up, or end this subscriber.";
    48 NotOpen "NOT_OPEN" No 400 FailedPrecondition "the number" "Open the publisher or the subscription before using its number.";
    49 Partition "PARTITION" No 400 InvalidArgument "partition, partitions" "Use a partition number below the topic's number of partitions.";
    50 DiskBehind "DISK_BEHIND" Later 503 Unavailable "bytes not stored yet, ns waited" "Publish more slowly, or give the node a faster disk.";
    51 DiskFull "DISK_FULL" Later 507 ResourceExhausted "text: the disk's error" "Free space on the node's disk, or raise the quota or limit that the text names. Publishing then continues automatically.";
    52 DiskFailed "DISK_FAILED" No 500 DataLoss "text: the cause" "If the disk failed, replace it: records that were acknowledged as synced can be read, others may be lost. If the text names a topic's files, restore them, or delete the topic.";
    53 OwnerBehind "OWNER_BEHIND" Later 503 Unavailable "bytes without an answer, ns waited" "Publish more slowly, or connect to the node that owns the topic.";
    54 OwnerAway "OWNER_AWAY" Later 503 Unavailable "text: the topic, its owner, and what the topic waits for" "Try again. A volatile topic gets another owner soon; a durable topic waits until its owner returns.";
    55 Reducer "REDUCER" No 422 InvalidArgument "number of the record in the batch, from 1 (0: a record without a batch); text: the reason" "Correct the record: the topic's reducer rejects it.";
    56 NoResponder "NO_RESPONDER" Later 503 Unavailable "text: the subject" "Start a responder for the subject. The request was not published.";
    57 NoReply "NO_REPLY" Later 504 DeadlineExceeded "milliseconds waited" "Send the request again if a repetition does no harm, or wait longer.";
    58 OutcomeUnknown "OUTCOME_UNKNOWN" Later 504 DeadlineExceeded "text: the reason" "The record may have been appended. Retry with the same producer and sequence, which never appends twice, or read the topic.";
    59 Elsewhere "ELSEWHERE" No 421 FailedPrecondition "the node that owns the topic; text: the topic, and the owner's address" "Connect to the topic's owner: no other node can serve this request.";
    60 ManyLogs "MANY_LOGS" No 400 InvalidArgument "logs the pattern spans; text: the pattern" "Start by time, or name a single log.";
    61 Ahead "AHEAD" No 416 OutOfRange "epoch of the last position, its sequence, sequence asked" "Start at a position that the node has delivered.";
    62 Lost "LOST" No 410 DataLoss "" "Subscribe again if reading can continue without the records that the last gap reported.";
    63 Evicted "EVICTED" Later 410 Aborted "oldest sequence not consumed" "Subscribe again, and read faster: the reliable topic has stopped waiting for this subscriber.";
    66 NoState "NO_STATE" No 409 FailedPrecondition "text: the topic, and the reason" "Follow a state topic, and all of its subjects.";
    67 StateLost "STATE_LOST" No 410 DataLoss "text: the topic" "The topic began a new epoch and lost acknowledged records. Publish the whole state, then continue.";
    80 GroupKind "GROUP_KIND" No 409 FailedPrecondition "text: the group's kind" "Join with the group's existing kind.";
    81 StaleClaim "STALE_CLAIM" No 409 Aborted "the token" "Stop working on the record: the claim's deadline passed, and another member may have it.";
    99 Internal "INTERNAL" Later 500 Internal "text: the cause" "The node has a bug or a failing disk. Read its log, and report the error.";
    100 KeyMoved "KEY_MOVED" No 412 Aborted "the revision that last wrote the key (0 for none)" "Read the key, then decide again.";
    101 NoLease "NO_LEASE" No 404 NotFound "the lease" "The lease has ended, with all keys and locks that depend on it. Grant a new lease.";
    102 LockHeld "LOCK_HELD" Later 409 FailedPrecondition "the holder's lease, its token" "Wait for the lock, or do something else.";
    103 LockNotHeld "LOCK_NOT_HELD" No 409 FailedPrecondition "the lease" "Stop: this lease does not hold the lock.";
    104 BadKey "BAD_KEY" No 400 InvalidArgument "text: the fault" "Correct the key, range or time to live.";
    105 KeyTooLarge "KEY_TOO_LARGE" No 413 InvalidArgument "size, size allowed; text: the limit's name, which is in bytes or operations" "Use a shorter key or value, or fewer operations at a time.";
    106 NoRoom "NO_ROOM" Later 507 ResourceExhausted "bytes the state would have, bytes allowed; text: the limit, and what to do" "Delete keys, or discard tasks or let them finish, or raise the limit that the text names. Deletions still work.";
    107 NoLeader "NO_LEADER" Later 503 Unavailable "milliseconds spent on attempts; text: the obstacle" "Nothing was changed. Try again once a majority of the nodes is up and connected.";
    108 CommandUnknown "COMMAND_UNKNOWN" No 504 Unknown "" "The node may have executed the command, or may do so later. Repeat only a conditional write, or a task with an idempotency key.";
    109 Compacted "COMPACTED" No 410 OutOfRange "the oldest revision held, the revision asked for" "Read the keys, then watch from the revision that the response names.";
    110 NoControl "NO_CONTROL" Later 503 Unavailable "text: the reason" "This node does not take part in its cluster. Read its log, and use another node.";
    111 NoCluster "NO_CLUSTER" No 409 FailedPrecondition "text: the refused operation" "To begin a cluster, run `dunlin cluster init` and start the node with --cluster-listen: see docs/operations.md. A single node needs no cluster.";
    120 BadTask "BAD_TASK" No 400 InvalidArgument "text: the fault" "Correct the task, quota, schedule or worker.";
    121 TaskTooLarge "TASK_TOO_LARGE" No 413 InvalidArgument "size, size allowed; text: the limit's name, or a sentence that names the value and the limit" "Pass a reference to the content instead of the content.";
    122 NoTask "NO_TASK" No 404 NotFound "the task" "Check the task's id: the task never existed, or ended too long ago.";
    123 TaskOver "TASK_OVER" No 409 FailedPrecondition "the task; text: its state" "Look at the task: its state does not allow this operation.";
    124 StaleToken "STALE_TOKEN" No 409 Aborted "the task, the token" "Stop working on the task: it timed out, was cancelled, or another worker has it.";
    125 NoWorker "NO_WORKER" No 404 NotFound "the worker" "Attach again: the worker was silent for too long or left, and its tasks went to others.";
    126 QueueFull "QUEUE_FULL" Later 429 ResourceExhausted "milliseconds to wait, tasks waiting, tasks allowed" "Wait for the given time, then submit more slowly, or raise the tenant's queued_max.";
}

impl ErrorCode {
    /// The code's row in the table; `None` for a code that this version of Dunlin does not know.
    pub fn row(self) -> Option<&'static CodeRow> {
        CODES.iter().find(|row| row.code == self)
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.row() {
            Some(row) => f.write_str(row.name),
            None => write!(f, "CODE_{}", self.number()),
        }
    }
}

layout! {
    /// A refusal of a request: a code, and numbers and a text whose meaning depends on the code.
    pub struct Refusal<'a> {
        /// The code.
        pub code: ErrorCode,
        /// Numbers whose meaning [`CodeRow::carries`] describes; unused numbers are 0.
        pub numbers: [u64; 3],
        /// A text whose meaning [`CodeRow::carries`] describes.
        pub text: &'a str,
    }
}

impl<'a> Refusal<'a> {
    /// Creates a refusal without numbers.
    pub fn new(code: ErrorCode, text: &'a str) -> Refusal<'a> {
        Refusal { code, numbers: [0; 3], text }
    }

    /// The text of the refusal for people. If the text is only a name, such as that of a limit, or is empty although
    /// the code needs an explanation, the result is a sentence with the refusal's numbers, as far as they are known.
    pub fn detail(&self) -> String {
        let Refusal { code, numbers: [first, second, _], text } = *self;
        match code {
            _ if text.contains(' ') => text.to_owned(),
            ErrorCode::DiskBehind if text.is_empty() => {
                format!("{first} bytes are not stored on the disk yet")
            }
            ErrorCode::OwnerBehind if text.is_empty() => {
                format!("the topic's owner has not confirmed {first} bytes yet")
            }
            _ if text.is_empty() => String::new(),
            ErrorCode::Full => format!("subscriber {text:?} has not consumed record {first}"),
            ErrorCode::KeyTooLarge | ErrorCode::TaskTooLarge if second > 0 => {
                format!("{text} = {second}, but the size is {first}")
            }
            ErrorCode::Limit if second > first => {
                format!("{text} = {first}, but the number would be {second}")
            }
            ErrorCode::Limit if first > 0 => format!("{text} = {first}"),
            _ => text.to_owned(),
        }
    }
}

impl std::fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        let detail = self.detail();
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        if detail == self.text && self.numbers != [0; 3] {
            write!(f, " {:?}", self.numbers)?;
        }
        Ok(())
    }
}
