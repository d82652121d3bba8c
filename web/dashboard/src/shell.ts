// "Copy as CLI": the command whose output corresponds to the page.

/** Quotes a word for a shell, whichever characters it has. */
export function quoted(word: string): string {
  if (/^[A-Za-z0-9_./:@%+=-]+$/.test(word)) return word;
  if (/[\u0000-\u001f\u007f]/.test(word)) return `$'${[...word].map(escaped).join("")}'`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function command(...words: string[]): string {
  return words.map(quoted).join(" ");
}

const DEFAULT_URLS = ["dunlin://127.0.0.1:4220", "dunlin://localhost:4220"];
/**
 * Commands that connect to a node. `dunlin dev` and similar commands start one, and pass its address to their
 * programs.
 */
const GOES_TO_A_NODE = /\bdunlin (?=(?:elect|feed|kv|lock|pub|reply|req|space|sub|subscriptions|task|top|topics)\b)/;

/**
 * The command line with the node's address, if the command would not find the node by itself; `address` is that of
 * listener `tcp`.
 */
export function toNode(line: string, address: string | undefined, host: string): string {
  if (!address) return line;
  const url = `dunlin://${address.replace(/^(0\.0\.0\.0|\[::\]):/, `${host}:`)}`;
  return DEFAULT_URLS.includes(url) || line.startsWith("dunlin dev") ? line : line.replace(GOES_TO_A_NODE, `dunlin --url ${quoted(url)} `);
}

function escaped(letter: string): string {
  if (letter === "'" || letter === "\\") return `\\${letter}`;
  const code = letter.codePointAt(0) ?? 0;
  return code < 32 || code === 127 ? `\\x${code.toString(16).padStart(2, "0")}` : letter;
}
