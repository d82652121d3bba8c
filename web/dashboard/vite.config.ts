import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// The address of the node for the development server. To change it: DUNLIN_HTTP=http://127.0.0.1:18222 npm run dev
const node = process.env.DUNLIN_HTTP ?? "http://127.0.0.1:8222";
const to = { target: node, changeOrigin: true, headers: { origin: node } };

export default defineConfig({
  // Paths are relative, because a proxy may serve the page below another path than `/`.
  base: "./",
  resolve: { alias: { dunlin: fileURLToPath(new URL("../client/src/index.ts", import.meta.url)) } },
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false }, reportCompressedSize: true },
  server: { proxy: { "/v1": { ...to, ws: true }, "/metrics": to, "/readyz": to, "/report": to } },
});
