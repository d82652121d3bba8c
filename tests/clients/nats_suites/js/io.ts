// The function that the Deno transport of nats.js imports from @std/io.

interface Writer {
  write(bytes: Uint8Array): Promise<number>;
}

export async function writeAll(writer: Writer, bytes: Uint8Array) {
  for (let written = 0; written < bytes.length;) {
    written += await writer.write(bytes.subarray(written));
  }
}
