// Calls the services of dunlin.v1 with @grpc/grpc-js, which reads the .proto files at run time.
// Usage: node client.js ADDRESS PROTO_FOLDER
const assert = require('node:assert');
const { once } = require('node:events');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, folder] = process.argv.slice(2);
const options = { includeDirs: [folder], longs: Number, enums: String, oneofs: true, arrays: true, defaults: true };
const definition = loader.loadSync('dunlin/v1/dunlin.proto', options);
const { dunlin } = grpc.loadPackageDefinition(definition);
const client = new dunlin.v1.Dunlin(address, grpc.credentials.createInsecure());
const deadline = () => ({ deadline: Date.now() + 60_000 });

const call = (name, request) =>
  new Promise((resolve, reject) =>
    client[name](request, deadline(), (error, answer) => (error ? reject(error) : resolve(answer))));

async function main() {
  const stream = client.Subscribe({ subjects: ['node.*'] }, deadline());
  const events = stream[Symbol.asyncIterator]();
  const first = (await events.next()).value;
  assert.strictEqual(first.event, 'subscribed');

  const published = await call('Publish', {
    subject: 'node.1',
    record: { payload: Buffer.from('hello'), headers: [{ name: 'h', value: Buffer.from([255]) }] },
  });
  assert.deepStrictEqual([published.receipt.topic, published.receipt.seq], ['node.1', 1]);
  const { records } = (await events.next()).value;
  assert.deepStrictEqual([records.subject, records.records[0].payload.toString()], ['node.1', 'hello']);
  assert.strictEqual(records.records[0].headers[0].value[0], 255);
  stream.on('error', () => {});
  stream.cancel();
  console.log('records: published and delivered');

  const publishing = client.PublishStream(deadline());
  let through = 0;
  publishing.on('data', (answer) => {
    assert.ok(answer.through > through && answer.refused.length === 0);
    through = answer.through;
  });
  for (let number = 0; number < 100; number += 1) {
    const record = { payload: Buffer.alloc(10, number) };
    publishing.write({ subject: number === 0 ? 'node-stream' : '', records: [record, record] });
  }
  publishing.end();
  await once(publishing, 'end');
  assert.strictEqual(through, 200);
  console.log('publish stream: acknowledged cumulatively');

  const reading = client.Subscribe({ subjects: ['node-stream'], start: { earliest: true } }, deadline());
  let seq = 0;
  for await (const event of reading) {
    for (const record of event.records?.records ?? []) {
      seq += 1;
      assert.deepStrictEqual([record.seq, record.payload[0]], [seq, Math.floor((seq - 1) / 2)]);
    }
    if (seq === 200) break;
  }
  reading.on('error', () => {});
  reading.cancel();
  console.log('read from the first record, in order');

  await assert.rejects(call('Publish', { subject: 'a..b', record: {} }), (error) => {
    assert.strictEqual(error.code, grpc.status.INVALID_ARGUMENT);
    assert.ok(error.metadata.get('grpc-status-details-bin')[0].includes('SUBJECT'));
    return true;
  });
  console.log('errors: a status with its details');

  const member = client.JoinGroup(deadline());
  const told = member[Symbol.asyncIterator]();
  member.write({ join: { topic: 'node-stream', group: 'crew', kind: 'GROUP_KIND_SHARE', start: { earliest: true } } });
  assert.strictEqual((await told.next()).value.event, 'joined');
  const { deliveries } = (await told.next()).value.deliveries;
  assert.strictEqual(deliveries[0].record.seq, 1);
  member.on('error', () => {});
  member.cancel();
  console.log('share group: joined and given records');

  await keys();
  client.close();
}

async function keys() {
  const { dunlin: both } = grpc.loadPackageDefinition(loader.loadSync('dunlin/v1/kv.proto', options));
  const kv = new both.v1.Kv(address, grpc.credentials.createInsecure());
  const ask = (name, request) =>
    new Promise((resolve, reject) =>
      kv[name](request, deadline(), (error, answer) => (error ? reject(error) : resolve(answer))));
  const watch = kv.Watch({ key: Buffer.from('node/'), rangeEnd: Buffer.from('node0') }, deadline());
  const changes = watch[Symbol.asyncIterator]();
  assert.deepStrictEqual((await changes.next()).value.events, []);
  const { revision } = await ask('Put', { key: Buffer.from('node/a'), value: Buffer.from('1') });
  const change = (await changes.next()).value;
  assert.deepStrictEqual([change.revision, change.events[0].type, change.events[0].kv.value.toString()], [revision, 'PUT', '1']);
  const found = await ask('Range', { key: Buffer.from('node/'), rangeEnd: Buffer.from('node0') });
  assert.deepStrictEqual([found.kvs.length, found.kvs[0].modRevision, found.more], [1, revision, false]);
  await assert.rejects(ask('Put', { key: Buffer.from('node/a'), expectModRevision: 0 }), (error) => {
    assert.strictEqual(error.code, grpc.status.ABORTED);
    return true;
  });
  watch.on('error', () => {});
  watch.cancel();
  kv.close();
  console.log('keys: put, got, watched');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
