//! The one table of error codes, the same through every door.
//!
//! A code's number never changes and is never used again. `docs/protocol.md` holds the same table;
//! a test compares the two.

use crate::layout::layout;

/// Whether trying the same again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request will be refused again.
    No,
    /// The same request may be accepted later: wait a little longer each time.
    Later,
    /// Connect again, then resume.
    Reconnect,
}

impl std::fmt::Display for Retry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Retry::No => "no",
            Retry::Later => "later",
            Retry::Reconnect => "reconnect",
        })
    }
}

macro_rules! grpc_statuses {
    ($($number:literal $status:ident $name:literal)*) => {
        /// The statuses that gRPC has for all of its services.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum GrpcStatus {
            $(#[doc = $name] $status = $number,)*
        }

        impl GrpcStatus {
            /// Its name as gRPC writes it.
            pub fn name(self) -> &'static str {
                match self {
                    $(GrpcStatus::$status => $name,)*
                }
            }

            /// Its number on the wire.
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

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRow {
    /// The code.
    pub code: ErrorCode,
    /// Its name in documents and logs.
    pub name: &'static str,
    /// Whether to try again.
    pub retry: Retry,
    /// The status of an HTTP answer that says it. Where the request itself was at fault, the door may say so more closely.
    pub http: u16,
    /// The status of a gRPC answer that says it.
    pub grpc: GrpcStatus,
    /// What the refusal's three numbers and its text are.
    pub carries: &'static str,
    /// What to do about it.
    pub advice: &'static str,
}

macro_rules! codes {
    ($($number:literal $code:ident $name:literal $retry:ident $http:literal $grpc:ident
        $carries:literal $advice:literal;)*) => {
        /// Why something was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $advice] $code,)*
            /// A code that this version does not know.
            Other(u16),
        }

        /// Every code, in order of its number.
        pub const CODES: &[CodeRow] = &[$(CodeRow {
            code: ErrorCode::$code,
            name: $name,
            retry: Retry::$retry,
            http: $http,
            grpc: GrpcStatus::$grpc,
            carries: $carries,
            advice: $advice,
        },)*];

        impl ErrorCode {
            /// Its number on the wire.
            pub fn number(self) -> u16 {
                match self {
                    $(ErrorCode::$code => $number,)*
                    ErrorCode::Other(number) => number,
                }
            }

            /// The code with this number.
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
    0 Asked "AS_ASKED" No 200 Ok "" "Nothing: this end was asked for.";
    1 Version "VERSION" No 400 FailedPrecondition "node's lowest version, node's highest" "Use a client that speaks one of the node's versions.";
    2 Protocol "PROTOCOL" No 400 InvalidArgument "text: what was wrong" "The other side broke the protocol; report it.";
    3 Unauthenticated "UNAUTHENTICATED" No 401 Unauthenticated "text: why" "Give credentials that the node knows.";
    4 Forbidden "FORBIDDEN" No 403 PermissionDenied "text: what" "Ask for the permission, or use another subject.";
    5 TenantUnknown "TENANT_UNKNOWN" No 404 NotFound "text: the tenant" "Name a tenant that exists.";
    6 Limit "LIMIT" Later 429 ResourceExhausted "the limit's value; text: its name, and how many there would be, where that is known" "Use fewer, or have the named limit raised.";
    7 BudgetSpent "BUDGET_SPENT" Later 503 ResourceExhausted "bytes asked, bytes used, bytes allowed" "Wait until readers catch up, or raise the memory budget.";
    8 ShuttingDown "SHUTTING_DOWN" Reconnect 503 Unavailable "" "Connect again with back-off and resume.";
    9 Handshake "HANDSHAKE_TIMEOUT" Reconnect 408 DeadlineExceeded "milliseconds waited" "Send the preamble and HELLO at once after connecting.";
    10 TlsRequired "TLS_REQUIRED" No 400 FailedPrecondition "" "Connect by TLS: tls:// instead of dunlin://, https:// instead of http://.";
    11 RateLimit "RATE_LIMIT" Later 429 ResourceExhausted "milliseconds to wait, the limit's value; text: its name" "Wait as long as it says, then go on more slowly.";
    12 Opening "OPENING" Reconnect 503 Unavailable "text: what the node is doing" "Connect again with back-off: the node has started, and is not open yet.";
    13 OtherCluster "OTHER_CLUSTER" No 409 FailedPrecondition "text: the cluster the client was connected to, and the node's" "The address belongs to another cluster now, which has none of this client's topics, keys and leases: find out why, then begin with a new client.";
    20 Subject "SUBJECT" No 400 InvalidArgument "text: what breaks the rules of names" "Correct the subject or pattern.";
    21 NoTopic "NO_TOPIC" Later 404 NotFound "text: the subject" "Create a topic that owns the subject.";
    22 TopicExists "TOPIC_EXISTS" No 409 AlreadyExists "text: the topic" "Use the topic, or another name.";
    23 PatternOverlaps "PATTERN_OVERLAPS" No 409 FailedPrecondition "text: the topic that owns some of it" "Choose a pattern that no other topic's meets, or delete that topic: one that came into being by itself holds what was published to its name.";
    24 TopicConfig "TOPIC_CONFIG" No 400 InvalidArgument "text: which value and why" "Correct the topic's configuration.";
    25 Closed "CLOSED" Later 410 Aborted "" "The topic was deleted; create it again or stop.";
    40 RecordTooLarge "RECORD_TOO_LARGE" No 413 InvalidArgument "bytes, bytes allowed" "Split the record, or raise the topic's record_bytes_max.";
    41 BadFrame "BAD_FRAME" No 400 InvalidArgument "text: what is wrong with it" "Correct the record's fields.";
    42 Batch "BATCH" No 400 InvalidArgument "text: what is wrong with it" "Send a smaller batch, and one partition's records only.";
    43 SeqMoved "SEQ_MOVED" No 412 Aborted "expected sequence, last sequence" "Read what was appended since, decide anew.";
    44 DuplicateForgotten "DUPLICATE_FORGOTTEN" No 409 AlreadyExists "producer sequence, oldest remembered" "Treat it as published: newer ones of this producer were.";
    45 ProducerGap "PRODUCER_GAP" No 409 FailedPrecondition "producer sequence, last accepted" "Send again from after the last accepted.";
    46 ProducerFenced "PRODUCER_FENCED" No 409 FailedPrecondition "producer epoch, epoch in force" "Stop: another instance of this producer has taken over.";
    47 Full "FULL" Later 503 ResourceExhausted "oldest sequence not consumed, ns waited; text: the slowest reader" "Let the reader catch up, or evict it.";
    48 NotOpen "NOT_OPEN" No 400 FailedPrecondition "the number" "Open the publisher, or subscribe, before using its number.";
    49 Partition "PARTITION" No 400 InvalidArgument "partition, partitions" "Choose a partition below the topic's count.";
    50 DiskBehind "DISK_BEHIND" Later 503 Unavailable "bytes not stored yet, ns waited" "Publish less, or give the node a faster disk.";
    51 DiskFull "DISK_FULL" Later 507 ResourceExhausted "text: what the disk said" "Make room on the node's disk; publishing goes on by itself then.";
    52 DiskFailed "DISK_FAILED" No 500 DataLoss "text: what the disk said" "Replace the disk; what was acknowledged as synced can be read. Nothing without an answer is sure to be stored.";
    53 OwnerBehind "OWNER_BEHIND" Later 503 Unavailable "bytes without an answer, ns waited" "Publish less, or to the node that owns the topic.";
    54 OwnerAway "OWNER_AWAY" Later 503 Unavailable "text: the topic, its owner, what it waits for" "Try again: a volatile topic gets another owner soon, a durable one waits for its own to return.";
    55 Fold "FOLD" No 422 InvalidArgument "which record of the batch, from 1 (0: it was one alone); text: why" "Correct the record: the topic's state does not take it in.";
    56 NoResponder "NO_RESPONDER" Later 503 Unavailable "text: the subject" "Start somebody who answers; nothing was published.";
    57 NoReply "NO_REPLY" Later 504 DeadlineExceeded "milliseconds waited" "Ask again if asking twice does no harm, or wait longer.";
    58 OutcomeUnknown "OUTCOME_UNKNOWN" Later 504 DeadlineExceeded "text: why" "Whether it was appended is not known: try again under the same producer and number, which never appends twice, or read.";
    59 Elsewhere "ELSEWHERE" No 421 FailedPrecondition "the node that owns the topic; text: the topic, and where that node is" "Connect to the node that owns the topic: only there can this be had.";
    60 ManyLogs "MANY_LOGS" No 400 InvalidArgument "logs the pattern spans; text: the pattern" "Start by time, or name one log.";
    61 Ahead "AHEAD" No 416 OutOfRange "epoch of the last position, its sequence, sequence asked" "Start at a position that was handed out.";
    62 Lost "LOST" No 410 DataLoss "" "Subscribe again where going on makes sense: records were lost, as the gap before said.";
    63 Evicted "EVICTED" Later 410 Aborted "oldest sequence not consumed" "Read faster: a reliable topic stopped waiting for this reader.";
    66 NoState "NO_STATE" No 409 FailedPrecondition "text: the topic, and why" "Follow a topic that keeps a state, and all of it.";
    67 StateLost "STATE_LOST" No 410 DataLoss "text: the topic" "Publish the whole state, then go on: the topic began anew and has lost records that were acknowledged.";
    80 GroupKind "GROUP_KIND" No 409 FailedPrecondition "text: the kind the group has" "Join with the group's own kind.";
    81 StaleClaim "STALE_CLAIM" No 409 Aborted "the token" "Its deadline passed: the record went to somebody else.";
    99 Internal "INTERNAL" Later 500 Internal "text" "The node has a bug or a broken disk; report it.";
    100 KeyMoved "KEY_MOVED" No 412 Aborted "the revision that last wrote the key (0 for none)" "Read the key, decide anew.";
    101 NoLease "NO_LEASE" No 404 NotFound "the lease" "It has ended, with all that was tied to it: begin with a new one.";
    102 LockHeld "LOCK_HELD" Later 409 FailedPrecondition "the holder's lease, its token" "Wait for the lock, or do something else.";
    103 LockNotHeld "LOCK_NOT_HELD" No 409 FailedPrecondition "the lease" "Stop: the lock is not this lease's, or not any more.";
    104 BadKey "BAD_KEY" No 400 InvalidArgument "text: what is wrong" "Correct the key, range or time to live.";
    105 KeyTooLarge "KEY_TOO_LARGE" No 413 InvalidArgument "size, size allowed; text: the name of the limit, which is in bytes or operations" "Use a shorter key or value, or fewer operations at a time.";
    106 NoRoom "NO_ROOM" Later 507 ResourceExhausted "bytes the state would have, bytes allowed; text: which limit, and what to do" "Delete keys, or raise the limit; deleting works.";
    107 NoLeader "NO_LEADER" Later 503 Unavailable "milliseconds it was tried; text: what stood in the way" "Nothing was done. Try again: a majority of the nodes has to be up and connected.";
    108 CommandUnknown "COMMAND_UNKNOWN" No 504 Unknown "" "It may have been done or not: read what there is before asking again.";
    109 Compacted "COMPACTED" No 410 OutOfRange "the oldest revision held, the revision asked for" "Read the keys, and watch on from the revision that the answer names.";
    110 NoControl "NO_CONTROL" Later 503 Unavailable "text: why" "This node takes no part in its cluster any more: see its log, and use another.";
    120 BadTask "BAD_TASK" No 400 InvalidArgument "text: what is wrong" "Correct the task, quota, schedule or worker.";
    121 TaskTooLarge "TASK_TOO_LARGE" No 413 InvalidArgument "size, size allowed; text: the name of the limit" "Pass on less: where the content lies, not the content.";
    122 NoTask "NO_TASK" No 404 NotFound "the task" "It was never there, or was over too long ago.";
    123 TaskOver "TASK_OVER" No 409 FailedPrecondition "the task; text: how it stands" "Look at the task: it is not at the stage that this is for.";
    124 StaleToken "STALE_TOKEN" No 409 Aborted "the task, the token" "Stop working on it: it timed out, was cancelled, or another worker has it.";
    125 NoWorker "NO_WORKER" No 404 NotFound "the worker" "It was silent for too long or left, and what it held went to others: attach anew.";
    126 QueueFull "QUEUE_FULL" Later 429 ResourceExhausted "milliseconds to wait, tasks waiting, tasks allowed" "Wait as long as it says, then submit more slowly, or raise the tenant's queued_max.";
}

impl ErrorCode {
    /// Its row of the table; `None` for a code that this version does not know.
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
    /// Why something was refused, with the numbers needed to act.
    pub struct Refusal<'a> {
        /// Which refusal.
        pub code: ErrorCode,
        /// What they are stands in the code's row.
        pub numbers: [u64; 3],
        /// For people, or the name the code's row promises.
        pub text: &'a str,
    }
}

impl<'a> Refusal<'a> {
    /// A refusal without numbers.
    pub fn new(code: ErrorCode, text: &'a str) -> Refusal<'a> {
        Refusal { code, numbers: [0; 3], text }
    }

    /// The text. Where that is a limit's name alone, the limit's value is added, and what was over it.
    pub fn detail(&self) -> String {
        let Refusal { code, numbers: [first, second, _], text } = *self;
        match code {
            _ if text.is_empty() || text.contains(' ') => text.to_owned(),
            ErrorCode::KeyTooLarge | ErrorCode::TaskTooLarge if second > 0 => {
                format!("{text} = {second}, and this is {first}")
            }
            ErrorCode::Limit if second > first => format!("{text} = {first}, and this would be {second}"),
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
