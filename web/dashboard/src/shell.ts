// "Copy as CLI": the command that does what the page shows.

/** A word as a shell takes it for one word, whatever is in it. */
export function quoted(word: string): string {
  if (/^[A-Za-z0-9_./:@%+=-]+$/.test(word)) return word;
  if (/[\u0000-\u001f\u007f]/.test(word)) return `$'${[...word].map(escaped).join("")}'`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function command(...words: string[]): string {
  return words.map(quoted).join(" ");
}

function escaped(letter: string): string {
  if (letter === "'" || letter === "\\") return `\\${letter}`;
  const code = letter.codePointAt(0) ?? 0;
  return code < 32 || code === 127 ? `\\x${code.toString(16).padStart(2, "0")}` : letter;
}
