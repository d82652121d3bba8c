/** Refusals: the one table of errors of docs/protocol.md, which a test compares with this. */

/** Whether trying again can help. */
export type Retry = "no" | "later" | "reconnect";

const ROWS: readonly (readonly [number, string, Retry, string])[] = [
  [0, "AS_ASKED", "no", "Nothing: this end was asked for."],
  [1, "VERSION", "no", "Use a client that speaks one of the node's versions."],
  [2, "PROTOCOL", "no", "The other side broke the protocol; report it."],
  [3, "UNAUTHENTICATED", "no", "Give credentials that the node knows."],
  [4, "FORBIDDEN", "no", "Ask for the permission, or use another subject."],
  [5, "TENANT_UNKNOWN", "no", "Name a tenant that exists."],
  [6, "LIMIT", "later", "Use fewer, or have the named limit raised."],
  [7, "BUDGET_SPENT", "later", "Wait until readers catch up, or raise the memory budget."],
  [8, "SHUTTING_DOWN", "reconnect", "Connect again with back-off and resume."],
  [9, "HANDSHAKE_TIMEOUT", "reconnect", "Send the preamble and HELLO at once after connecting."],
  [10, "TLS_REQUIRED", "no", "Connect by TLS: tls:// instead of dunlin://, https:// instead of http://."],
  [11, "RATE_LIMIT", "later", "Wait as long as it says, then go on more slowly."],
  [12, "OPENING", "reconnect", "Connect again with back-off: the node has started, and is not open yet."],
  [13, "OTHER_CLUSTER", "no", "The address belongs to another cluster now, which has none of this client's topics, keys and leases: find out why, then begin with a new client."],
  [20, "SUBJECT", "no", "Correct the subject or pattern."],
  [21, "NO_TOPIC", "later", "Create a topic that owns the subject."],
  [22, "TOPIC_EXISTS", "no", "Use the topic, or another name."],
  [23, "PATTERN_OVERLAPS", "no", "Choose a pattern that no other topic's meets, or delete that topic: one that came into being by itself holds what was published to its name."],
  [24, "TOPIC_CONFIG", "no", "Correct the topic's configuration."],
  [25, "CLOSED", "later", "The topic was deleted; create it again or stop."],
  [40, "RECORD_TOO_LARGE", "no", "Split the record, or raise the topic's record_bytes_max."],
  [41, "BAD_FRAME", "no", "Correct the record's fields."],
  [42, "BATCH", "no", "Send a smaller batch, and one partition's records only."],
  [43, "SEQ_MOVED", "no", "Read what was appended since, decide anew."],
  [44, "DUPLICATE_FORGOTTEN", "no", "Treat it as published: newer ones of this producer were."],
  [45, "PRODUCER_GAP", "no", "Send again from after the last accepted."],
  [46, "PRODUCER_FENCED", "no", "Stop: another instance of this producer has taken over."],
  [47, "FULL", "later", "Let the reader catch up, or evict it."],
  [48, "NOT_OPEN", "no", "Open the publisher, or subscribe, before using its number."],
  [49, "PARTITION", "no", "Choose a partition below the topic's count."],
  [50, "DISK_BEHIND", "later", "Publish less, or give the node a faster disk."],
  [51, "DISK_FULL", "later", "Make room on the node's disk; publishing goes on by itself then."],
  [52, "DISK_FAILED", "no", "Replace the disk; what was acknowledged as synced can be read. Nothing without an answer is sure to be stored."],
  [53, "OWNER_BEHIND", "later", "Publish less, or to the node that owns the topic."],
  [54, "OWNER_AWAY", "later", "Try again: a volatile topic gets another owner soon, a durable one waits for its own to return."],
  [55, "FOLD", "no", "Correct the record: the topic's state does not take it in."],
  [56, "NO_RESPONDER", "later", "Start somebody who answers; nothing was published."],
  [57, "NO_REPLY", "later", "Ask again if asking twice does no harm, or wait longer."],
  [58, "OUTCOME_UNKNOWN", "later", "Whether it was appended is not known: try again under the same producer and number, which never appends twice, or read."],
  [59, "ELSEWHERE", "no", "Connect to the node that owns the topic: only there can this be had."],
  [60, "MANY_LOGS", "no", "Start by time, or name one log."],
  [61, "AHEAD", "no", "Start at a position that was handed out."],
  [62, "LOST", "no", "Subscribe again where going on makes sense: records were lost, as the gap before said."],
  [63, "EVICTED", "later", "Read faster: a reliable topic stopped waiting for this reader."],
  [66, "NO_STATE", "no", "Follow a topic that keeps a state, and all of it."],
  [67, "STATE_LOST", "no", "Publish the whole state, then go on: the topic began anew and has lost records that were acknowledged."],
  [80, "GROUP_KIND", "no", "Join with the group's own kind."],
  [81, "STALE_CLAIM", "no", "Its deadline passed: the record went to somebody else."],
  [99, "INTERNAL", "later", "The node has a bug or a broken disk; report it."],
  [100, "KEY_MOVED", "no", "Read the key, decide anew."],
  [101, "NO_LEASE", "no", "It has ended, with all that was tied to it: begin with a new one."],
  [102, "LOCK_HELD", "later", "Wait for the lock, or do something else."],
  [103, "LOCK_NOT_HELD", "no", "Stop: the lock is not this lease's, or not any more."],
  [104, "BAD_KEY", "no", "Correct the key, range or time to live."],
  [105, "KEY_TOO_LARGE", "no", "Use a shorter key or value, or fewer operations at a time."],
  [106, "NO_ROOM", "later", "Delete keys, or raise the limit; deleting works."],
  [107, "NO_LEADER", "later", "Nothing was done. Try again: a majority of the nodes has to be up and connected."],
  [108, "COMMAND_UNKNOWN", "no", "It may have been done or not: read what there is before asking again."],
  [109, "COMPACTED", "no", "Read the keys, and watch on from the revision that the answer names."],
  [110, "NO_CONTROL", "later", "This node takes no part in its cluster any more: see its log, and use another."],
  [120, "BAD_TASK", "no", "Correct the task, quota, schedule or worker."],
  [121, "TASK_TOO_LARGE", "no", "Pass on less: where the content lies, not the content."],
  [122, "NO_TASK", "no", "It was never there, or was over too long ago."],
  [123, "TASK_OVER", "no", "Look at the task: it is not at the stage that this is for."],
  [124, "STALE_TOKEN", "no", "Stop working on it: it timed out, was cancelled, or another worker has it."],
  [125, "NO_WORKER", "no", "It was silent for too long or left, and what it held went to others: attach anew."],
  [126, "QUEUE_FULL", "later", "Wait as long as it says, then submit more slowly, or raise the tenant's queued_max."],
];

const BY_NUMBER = new Map(ROWS.map((row) => [row[0], row] as const));

/** Something was refused, by the node or by this client. */
export class DunlinError extends Error {
  /** The number in the table of errors. */
  readonly code: number;
  readonly retry: Retry;
  /** The numbers that the code carries. */
  readonly numbers: readonly bigint[];
  /** What to do about it. */
  readonly advice: string;
  /** The status, where it came over HTTP. */
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

/** Numbers of codes that this client itself goes by. */
export const Code = {
  Asked: 0,
  Protocol: 2,
  Unauthenticated: 3,
  Limit: 6,
  ShuttingDown: 8,
  RateLimit: 11,
  OtherCluster: 13,
  Closed: 25,
  NotOpen: 48,
  ProducerGap: 45,
  OutcomeUnknown: 58,
  Internal: 99,
} as const;

/** All rows, for whoever shows them. */
export function errorTable(): readonly { code: number; name: string; retry: Retry; advice: string }[] {
  return ROWS.map(([code, name, retry, advice]) => ({ code, name, retry, advice }));
}
