// Deno loads this module before each file of tests. It leaves out tests, and limits the time of each other test.
// SUITE_TESTS is the name of a JSON file with the tests to run, as "FILE: NAME". Without it, Deno lists all tests as
// ignored.

type Definition = { name?: string; fn?: Function; ignore?: boolean } & Record<string, unknown>;

const patience = 60_000;
const register = Deno.test as unknown as (definition: Definition) => void;
const list = Deno.env.get("SUITE_TESTS");
const chosen = list && new Set<string>(JSON.parse(Deno.readTextFileSync(list)));

function limited(fn: Function) {
  return async (context: unknown) => {
    let timer: number | undefined;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`the test did not end within ${patience} ms`)), patience);
    });
    try {
      await Promise.race([fn(context), late]);
    } finally {
      clearTimeout(timer);
    }
  };
}

function replaced(...args: unknown[]) {
  const definition: Definition = {};
  for (const arg of args) {
    if (typeof arg === "string") definition.name = arg;
    else if (typeof arg === "function") definition.fn = arg;
    else Object.assign(definition, arg);
  }
  // The report has the place of the call below as the place of each test. Therefore, the name begins with the file.
  definition.name = `${Deno.mainModule.replace(/.*\//, "")}: ${definition.name ?? definition.fn!.name}`;
  if (!chosen) {
    register({ ...definition, ignore: true });
  } else if (chosen.has(definition.name)) {
    register({ ...definition, fn: limited(definition.fn!) });
  }
}

Object.defineProperty(Deno, "test", { value: Object.assign(replaced, Deno.test) });
