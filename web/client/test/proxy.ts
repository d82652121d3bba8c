/** A proxy to a node. Tests use it to interrupt connections. */

import { connect, createServer, type Server, type Socket } from "node:net";

export class Proxy {
  private readonly sockets = new Set<Socket>();
  /** Whether the proxy refuses all connections. */
  private shut = false;

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(port: number): Promise<Proxy> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address() as { port: number };
    const proxy = new Proxy(server, `http://127.0.0.1:${address.port}`);
    server.on("connection", (client) => {
      if (proxy.shut) return void client.destroy();
      const node = connect(port, "127.0.0.1");
      for (const [one, other] of [[client, node], [node, client]] as const) {
        proxy.sockets.add(one);
        one.on("error", () => {});
        one.on("close", () => {
          proxy.sockets.delete(one);
          other.destroy();
        });
        one.pipe(other);
      }
    });
    return proxy;
  }

  /** Closes all connections, and refuses new connections until `open` is called. */
  cut(): void {
    this.shut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  open(): void {
    this.shut = false;
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}
