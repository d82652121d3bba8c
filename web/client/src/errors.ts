/** The table of errors in docs/protocol.md. A test compares the table in that page with this file. */

/** Whether a retry can succeed: not at all, later, or after reconnecting. */
export type Retry = "no" | "later" | "reconnect";

const ROWS: readonly (readonly [number, string, Retry, string])[] = [
  [0, "ENDED", "no", "Nothing to do: the client ended this itself."],
  [1, "VERSION", "no", "Use a client that supports one of the node's protocol versions."],
  [2, "PROTOCOL", "no", "Correct the request: it violates the protocol. If a Dunlin client sent it, report a bug."],
  [3, "UNAUTHENTICATED", "no", "Send a token, password, certificate or nkey of a user of this node."],
  [4, "FORBIDDEN", "no", "Ask an administrator for the permission, or use a subject that the user may access."],
  [5, "TENANT_UNKNOWN", "no", "Use the tenant to which the user belongs, or leave it empty."],
  [6, "LIMIT", "later", "Stay below the named limit, or raise it."],
  [7, "BUDGET_SPENT", "later", "Try again later. If the error stays, keep less history in topics, or raise the node's memory_bytes_max or the tenant's memory_bytes."],
  [8, "SHUTTING_DOWN", "reconnect", "Reconnect with increasing delays, then resume."],
  [9, "HANDSHAKE_TIMEOUT", "reconnect", "Send the preamble and HELLO immediately after connecting."],
  [10, "TLS_REQUIRED", "no", "Connect with TLS: tls:// instead of dunlin://, https:// instead of http://."],
  [11, "RATE_LIMIT", "later", "Wait for the given time, then send more slowly."],
  [12, "OPENING", "reconnect", "Reconnect with increasing delays: the node is starting and does not serve clients yet."],
  [13, "OTHER_CLUSTER", "no", "The address belongs to another cluster, without this client's topics, keys and leases. Find out why, then create a new client."],
  [20, "SUBJECT", "no", "Correct the subject or pattern."],
  [21, "NO_TOPIC", "later", "Correct the subject, or create a topic that owns it."],
  [22, "TOPIC_EXISTS", "no", "Use the existing topic, or choose another name. If the request accepts an existing topic, this one has another configuration."],
  [23, "PATTERN_OVERLAPS", "no", "Choose a pattern that overlaps no other topic's, or delete that topic. A topic that was created automatically holds the records that were published to its name."],
  [24, "TOPIC_CONFIG", "no", "Correct the topic's configuration."],
  [25, "CLOSED", "later", "The topic was deleted, or the node is shutting down. To continue, create the topic if it is missing, and open the publisher or subscription again."],
  [40, "RECORD_TOO_LARGE", "no", "Split the record or the batch. If one record alone is too large, you can also raise the topic's record_bytes_max."],
  [41, "BAD_FRAME", "no", "Correct the record's fields."],
  [42, "BATCH", "no", "Correct the batch as the text says. For example, send fewer records, or records of one partition only."],
  [43, "SEQ_MOVED", "no", "Read the records that were appended since, then decide again."],
  [44, "DUPLICATE_FORGOTTEN", "no", "Treat the record as published: the topic has newer records of this producer."],
  [45, "PRODUCER_GAP", "no", "Send the records after the last accepted one again."],
  [46, "PRODUCER_FENCED", "no", "Stop: another instance of this producer has taken over."],
  [47, "FULL", "later", "Try again when the named subscriber has caught up, or end this subscriber."],
  [48, "NOT_OPEN", "no", "Open the publisher or the subscription before using its number."],
  [49, "PARTITION", "no", "Use a partition number below the topic's number of partitions."],
  [50, "DISK_BEHIND", "later", "Publish more slowly, or give the node a faster disk."],
  [51, "DISK_FULL", "later", "Free space on the node's disk, or raise the quota or limit that the text names. Publishing then continues automatically."],
  [52, "DISK_FAILED", "no", "If the disk failed, replace it: records that were acknowledged as synced can be read, others may be lost. If the text names a topic's files, restore them, or delete the topic."],
  [53, "OWNER_BEHIND", "later", "Publish more slowly, or connect to the node that owns the topic."],
  [54, "OWNER_AWAY", "later", "Try again. A volatile topic gets another owner soon; a durable topic waits until its owner returns."],
  [55, "REDUCER", "no", "Correct the record: the topic's reducer rejects it."],
  [56, "NO_RESPONDER", "later", "Start a responder for the subject. The request was not published."],
  [57, "NO_REPLY", "later", "Send the request again if a repetition does no harm, or wait longer."],
  [58, "OUTCOME_UNKNOWN", "later", "The record may have been appended. Retry with the same producer and sequence, which never appends twice, or read the topic."],
  [59, "ELSEWHERE", "no", "Connect to the topic's owner: no other node can serve this request."],
  [60, "MANY_LOGS", "no", "Start by time, or name a single log."],
  [61, "AHEAD", "no", "Start at a position that the node has delivered."],
  [62, "LOST", "no", "Subscribe again if reading can continue without the records that the last gap reported."],
  [63, "EVICTED", "later", "Subscribe again, and read faster: the reliable topic has stopped waiting for this subscriber."],
  [66, "NO_STATE", "no", "Follow a state topic, and all of its subjects."],
  [67, "STATE_LOST", "no", "The topic began a new epoch and lost acknowledged records. Publish the whole state, then continue."],
  [80, "GROUP_KIND", "no", "Join with the group's existing kind."],
  [81, "STALE_CLAIM", "no", "Stop working on the record: the claim's deadline passed, and another member may have it."],
  [99, "INTERNAL", "later", "The node has a bug or a failing disk. Read its log, and report the error."],
  [100, "KEY_MOVED", "no", "Read the key, then decide again."],
  [101, "NO_LEASE", "no", "The lease has ended, with all keys and locks that depend on it. Grant a new lease."],
  [102, "LOCK_HELD", "later", "Wait for the lock, or do something else."],
  [103, "LOCK_NOT_HELD", "no", "Stop: this lease does not hold the lock."],
  [104, "BAD_KEY", "no", "Correct the key, range or time to live."],
  [105, "KEY_TOO_LARGE", "no", "Use a shorter key or value, or fewer operations at a time."],
  [106, "NO_ROOM", "later", "Delete keys, or discard tasks or let them finish, or raise the limit that the text names. Deletions still work."],
  [107, "NO_LEADER", "later", "Nothing was changed. Try again once a majority of the nodes is up and connected."],
  [108, "COMMAND_UNKNOWN", "no", "The node may have executed the command, or may do so later. Repeat only a conditional write, or a task with an idempotency key."],
  [109, "COMPACTED", "no", "Read the keys, then watch from the revision that the response names."],
  [110, "NO_CONTROL", "later", "This node does not take part in its cluster. Read its log, and use another node."],
  [111, "NO_CLUSTER", "no", "To begin a cluster, run `dunlin cluster init` and start the node with --cluster-listen: see docs/operations.md. A single node needs no cluster."],
  [120, "BAD_TASK", "no", "Correct the task, quota, schedule or worker."],
  [121, "TASK_TOO_LARGE", "no", "Pass a reference to the content instead of the content."],
  [122, "NO_TASK", "no", "Check the task's id: the task never existed, or ended too long ago."],
  [123, "TASK_OVER", "no", "Look at the task: its state does not allow this operation."],
  [124, "STALE_TOKEN", "no", "Stop working on the task: it timed out, was cancelled, or another worker has it."],
  [125, "NO_WORKER", "no", "Attach again: the worker was silent for too long or left, and its tasks went to others."],
  [126, "QUEUE_FULL", "later", "Wait for the given time, then submit more slowly, or raise the tenant's queued_max."],
];

const BY_NUMBER = new Map(ROWS.map((row) => [row[0], row] as const));

/** The error of a request that the node or this client refused. */
export class DunlinError extends Error {
  /** The number in the table of errors. */
  readonly code: number;
  readonly retry: Retry;
  /** Values that the code's row describes, such as a limit. */
  readonly numbers: readonly bigint[];
  /** The next step for the program or its operator. */
  readonly advice: string;
  /** The status code, if the refusal came over HTTP. */
  readonly status?: number;

  constructor(code: number, text: string, numbers: readonly bigint[] = [], status?: number) {
    const row = BY_NUMBER.get(code);
    const name = row?.[1] ?? `CODE_${code}`;
    const told = numbers.filter((number) => number !== 0n).join(", ");
    super([name, text || told || row?.[3]].filter(Boolean).join(": "));
    this.name = name;
    this.code = code;
    this.retry = row?.[2] ?? "later";
    this.numbers = numbers;
    this.advice = row?.[3] ?? "";
    if (status !== undefined) this.status = status;
  }
}

/** The codes that this client handles in a special way, and codes of errors that it creates. */
export const Code = {
  Asked: 0,
  Protocol: 2,
  Unauthenticated: 3,
  Limit: 6,
  ShuttingDown: 8,
  RateLimit: 11,
  OtherCluster: 13,
  Closed: 25,
  BadFrame: 41,
  SeqMoved: 43,
  DuplicateForgotten: 44,
  ProducerGap: 45,
  ProducerFenced: 46,
  NotOpen: 48,
  Reducer: 55,
  OutcomeUnknown: 58,
  StateLost: 67,
  Internal: 99,
  BadKey: 104,
} as const;

/** All rows, for programs that show them. */
export function errorTable(): readonly { code: number; name: string; retry: Retry; advice: string }[] {
  return ROWS.map(([code, name, retry, advice]) => ({ code, name, retry, advice }));
}
