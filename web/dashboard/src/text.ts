// Converts payloads to text: JSON is indented, other text is unchanged, and other bytes are in hexadecimal.

const strict = new TextDecoder("utf-8", { fatal: true });
const HEX_BYTES_MAX = 1024;

export interface Shown {
  form: "json" | "text" | "bytes" | "empty";
  text: string;
}

export function shown(payload: Uint8Array): Shown {
  if (payload.length === 0) return { form: "empty", text: "" };
  const text = utf8(payload);
  if (text === null) return { form: "bytes", text: hex(payload) };
  try {
    if (/^\s*[[{"]/.test(text)) return { form: "json", text: JSON.stringify(JSON.parse(text), null, 2) };
  } catch {
    // The text begins like JSON but is invalid, so it is shown unchanged.
  }
  return { form: "text", text };
}

/** The start of a payload as one line of text. */
export function preview(payload: Uint8Array, length = 300): string {
  const text = utf8(payload.subarray(0, length));
  if (text !== null) return text.replace(/[\r\n\t]+/g, " ");
  // The limit may split a character of several bytes. Without the last three bytes, the text may be valid.
  const cut = payload.length > length ? utf8(payload.subarray(0, length - 3)) : null;
  return cut ?? hex(payload.subarray(0, 32)).replaceAll("\n", " ");
}

export function utf8(bytes: Uint8Array): string | null {
  try {
    const text = strict.decode(bytes);
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

function hex(bytes: Uint8Array): string {
  const lines: string[] = [];
  const all = bytes.subarray(0, HEX_BYTES_MAX);
  for (let at = 0; at < all.length; at += 16) {
    const part = [...all.subarray(at, at + 16)];
    const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${letters}`);
  }
  if (bytes.length > all.length) lines.push(`… ${bytes.length - all.length} bytes more`);
  return lines.join("\n");
}
