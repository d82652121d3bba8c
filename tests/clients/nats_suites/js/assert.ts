// The assertions that the tests of nats.js import from @std/assert, made from Node's assertions.
import nodeAssert from "node:assert";
import { isDeepStrictEqual } from "node:util";

// deno-lint-ignore no-explicit-any
type Class = new (...args: any[]) => unknown;

export const equal = isDeepStrictEqual;

export function assert(value: unknown, message?: string): asserts value {
  nodeAssert.ok(value, message);
}

export function assertFalse(value: unknown, message?: string) {
  nodeAssert.ok(!value, message);
}

export function assertExists(value: unknown, message?: string) {
  nodeAssert.ok(value !== null && value !== undefined, message ?? `${value} is no value`);
}

export function assertEquals(actual: unknown, expected: unknown, message?: string) {
  nodeAssert.deepStrictEqual(actual, expected, message);
}

export function assertNotEquals(actual: unknown, expected: unknown, message?: string) {
  nodeAssert.notDeepStrictEqual(actual, expected, message);
}

export function assertMatch(text: string, pattern: RegExp, message?: string) {
  nodeAssert.match(text, pattern, message);
}

export function assertStringIncludes(text: string, part: string, message?: string) {
  nodeAssert.ok(text.includes(part), message ?? `"${text}" does not contain "${part}"`);
}

export function assertArrayIncludes(list: ArrayLike<unknown>, parts: ArrayLike<unknown>, message?: string) {
  for (const part of Array.from(parts)) {
    nodeAssert.ok(Array.from(list).some((one) => equal(one, part)), message ?? `${part} is not in [${Array.from(list)}]`);
  }
}

export function assertInstanceOf(value: unknown, type: Class, message?: string) {
  nodeAssert.ok(value instanceof type, message ?? `${value} is no ${type.name}`);
}

export function fail(message?: string): never {
  nodeAssert.fail(message);
}

/** Checks the class of an error, and that its message contains a text. */
function check(error: unknown, type?: Class | string, part?: string) {
  if (typeof type === "function") {
    assertInstanceOf(error, type, `expected a ${type.name}: ${error}`);
    if (part) assertStringIncludes((error as Error).message, part);
  }
}

export function assertThrows(call: () => unknown, type?: Class | string, part?: string): unknown {
  try {
    call();
  } catch (error) {
    check(error, type, part);
    return error;
  }
  fail("the function threw no error");
}

export async function assertRejects(call: () => PromiseLike<unknown>, type?: Class | string, part?: string): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    check(error, type, part);
    return error;
  }
  fail("the promise was not rejected");
}
