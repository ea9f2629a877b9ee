// Loads a trace into trace_processor (wasm) and answers SQL: node trace-sql.mjs DIR TRACE SQL...
// DIR holds what scripts/trace-sql fetches. Called by that script only.
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runInThisContext } from 'node:vm';

const [dir, trace, ...queries] = process.argv.slice(2);
if (trace === undefined || queries.length === 0) {
  console.error('usage: trace-sql TRACE SQL...');
  process.exit(2);
}

// startWorker runs the bundle, which is made for a browser's worker, in this thread: it gets the
// globals of one and the wasm's bytes, and says when the wasm is ready. The bundle then waits for the
// port over which it is spoken to.
async function startWorker() {
  const ready = new Promise((resolve) => {
    globalThis.wasmReady = resolve;
  });
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class {};
  globalThis.location = { href: 'file:///' };
  globalThis.wasmBytes = new Uint8Array(readFileSync(join(dir, 'trace_processor.wasm')));
  const edits = [
    ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'], // the package has the 32-bit wasm only
    ['locateFile: (s) => s,', 'wasmBinary: globalThis.wasmBytes, locateFile: (s) => s,'],
    ['deferredRuntimeInitialized.then(() => {', 'deferredRuntimeInitialized.then(() => { setImmediate(globalThis.wasmReady);'],
  ];
  let code = readFileSync(join(dir, 'engine_bundle.node.js'), 'utf8');
  for (const [from, to] of edits) {
    if (code.split(from).length !== 2) {
      throw new Error(`the bundle does not hold ${JSON.stringify(from)} once`);
    }
    code = code.replace(from, () => to);
  }
  runInThisContext(code, { filename: 'engine_bundle.node.js' });
  await ready;
}

async function connect() {
  const { EngineBase } = await import(pathToFileURL(join(dir, 'engine.mjs')).href);
  class Engine extends EngineBase {
    id = 'trace-sql';
    mode = 'WASM';
    constructor(port) {
      super();
      this.port = port;
      port.onmessage = (event) => this.onRpcResponseBytes(event.data);
    }
    rpcSendRequestBytes(bytes) {
      this.port.postMessage(bytes);
    }
    [Symbol.dispose]() {
      this.port.close();
    }
  }
  const { port1, port2 } = new MessageChannel();
  globalThis.onmessage({ data: port1 });
  return new Engine(port2);
}

async function load(engine) {
  const file = openSync(trace);
  const buffer = Buffer.alloc(16 << 20);
  for (;;) {
    const n = readSync(file, buffer);
    if (n === 0) break;
    await engine.parse(new Uint8Array(buffer.subarray(0, n)));
  }
  closeSync(file);
  await engine.notifyEof();
}

// plain makes a value fit JSON: integers beyond 2^53 become strings.
function plain(v) {
  if (typeof v !== 'bigint') return v;
  return Number.isSafeInteger(Number(v)) ? Number(v) : v.toString();
}

async function rows(engine, sql) {
  const result = await engine.query(sql);
  const columns = result.columns();
  const out = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    out.push(Object.fromEntries(columns.map((c) => [c, plain(row.get(c))])));
  }
  return out;
}

console.warn = () => {}; // of the bundle: it warns of every empty result
await startWorker();
const engine = await connect();
const begin = performance.now();
await load(engine);
console.error(`loaded in ${(performance.now() - begin).toFixed(0)} ms, ${(process.memoryUsage.rss() / 1e6).toFixed(0)} MB resident`);
let failed = false;
for (const sql of queries) {
  try {
    const answer = JSON.stringify(await rows(engine, sql));
    await new Promise((written) => process.stdout.write(`${answer}\n`, written)); // exit cuts what is not
  } catch (err) {
    console.error(`trace-sql: ${err.message}`);
    failed = true;
  }
}
process.exit(failed ? 1 : 0);
