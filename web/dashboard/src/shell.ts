// "Copy as CLI": the command whose output corresponds to the page.

/** A word as a shell takes it for one word, whatever is in it. */
export function quoted(word: string): string {
  if (/^[A-Za-z0-9_./:@%+=-]+$/.test(word)) return word;
  if (/[\u0000-\u001f\u007f]/.test(word)) return `$'${[...word].map(escaped).join("")}'`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function command(...words: string[]): string {
  return words.map(quoted).join(" ");
}

const DEFAULT_URLS = ["dunlin://127.0.0.1:4220", "dunlin://localhost:4220"];
/** What goes to a node; `dunlin dev` and its like start one, and what they run is told where it is. */
const GOES_TO_A_NODE = /\bdunlin (?=(?:elect|feed|kv|lock|pub|reply|req|space|sub|subscriptions|task|top|topics)\b)/;

/** The command line for a node that the command line would not find by itself: `address` is that of its TCP door. */
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
