// Command lines for the button "Copy as CLI", whose output corresponds to the page.

/** Quotes a word for a shell. The word may contain any characters. */
export function quoted(word: string): string {
  if (/^[A-Za-z0-9_./:@%+=-]+$/.test(word)) return word;
  if (/[\u0000-\u001f\u007f]/.test(word)) return `$'${[...word].map(escaped).join("")}'`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function command(...words: string[]): string {
  return words.map(quoted).join(" ");
}

const DEFAULT_URLS = ["dunlin://127.0.0.1:4220", "dunlin://localhost:4220"];
/** Matches commands that connect to a node. Other commands, such as `dunlin dev`, start a node themselves. */
const GOES_TO_A_NODE = /\bdunlin (?=(?:elect|feed|kv|lock|pub|reply|req|space|sub|subscriptions|task|top|topics)\b)/;

/**
 * Adds the node's address to a command line if the command would not connect to the node by default. `address` is the
 * address of the node's listener `tcp`.
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
