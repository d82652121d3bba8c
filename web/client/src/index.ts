/** Dunlin's client for browsers: see README.md. */

export { Batch, type Log } from "./batch.js";
export { type Book, followBook, type BookReplica, type Level } from "./book.js";
export type { Position } from "./bytes.js";
export { Client, connect, type ConnectOptions, type NodeInfo, type State } from "./client.js";
export { Code, DunlinError, errorTable, type Retry } from "./errors.js";
export type { Event, NoticeEvent, RecordEvent } from "./events.js";
export type { TopicLine, TopicsPage } from "./http.js";
export type { Kv, KvChange } from "./kv.js";
export { followLast, type LastReplica } from "./last.js";
export { type Published, Publisher, type PublishOptions } from "./publisher.js";
export { type SubscribeOptions, Subscription } from "./subscription.js";
