/** The numbers of messages in docs/protocol.md. A test compares them with that page. */

export const ToNode = {
  HELLO: 1,
  PUBLISH: 2,
  OPEN_PUBLISHER: 3,
  CLOSE_PUBLISHER: 4,
  RESUME: 5,
  SUBSCRIBE: 6,
  UNSUBSCRIBE: 7,
  CREDIT: 8,
  LEAVE: 18,
  FOLLOW: 19,
  RESYNC: 20,
  EXPECT_TOPIC: 26,
} as const;

export const FromNode = {
  WELCOME: 65,
  REFUSED: 66,
  RUN: 67,
  PUBLISHER_OPENED: 68,
  PUBLISHER_REFUSED: 69,
  PUBLISHED: 70,
  PUBLISH_REFUSED: 71,
  LOG: 72,
  SUBSCRIBED: 73,
  SUBSCRIPTION_ENDED: 74,
  GAP: 75,
  LAGGING: 76,
  EPOCH_CHANGED: 77,
  ADVANCE: 78,
  DELETED: 79,
  HEARTBEAT: 80,
  ERROR: 88,
  GOODBYE: 89,
  SNAPSHOT: 90,
  CHECKSUM: 91,
  PUBLISHER_TOPIC: 96,
  PUBLISHERS: 97,
} as const;

/** The versions of the protocol that this client speaks. */
export const VERSION_MIN = 4;
export const VERSION_MAX = 5;
export const SUBPROTOCOL = "dunlin.v1";

/** The flag of a PUBLISH message that requests an acknowledgement. */
export const FLAG_ACK = 1;

/** Flags in a record's frame, which show the fields that the frame contains. */
export const Flag = { EVENT_TIME: 1, EXPIRES: 2, SUBJECT: 4, KEY: 8, REPLY: 16, HEADERS: 32 } as const;
