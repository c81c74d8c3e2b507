// The loop that drives a queue as the bench asks, as package crew does in Go:
// requests on standard input, answers on standard output, one JSON object a
// line. What they say is in package wire.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { produce } from './produce.mjs'
import { Worker } from './worker.mjs'

const verbs = {
  open: (state, options) => state.queue.open(options),
  produce: (state, asked) => produce(state.queue, asked),
  work: async (state, how) => {
    if (state.worker) throw new Error('it works already')
    state.worker = new Worker(how)
    await state.queue.work(state.worker.handle, how)
    return {}
  },
  await: (state, asked) => {
    if (!state.worker) throw new Error('it does not work')
    return state.worker.await(asked)
  },
  stop: async (state) => {
    const { worker } = state
    if (!worker) throw new Error('it does not work')
    state.worker = undefined
    await state.queue.stop()
    return worker.stopped()
  },
  usage: () => {
    globalThis.gc?.()
    return { allocs: 0, bytes: 0, heap: process.memoryUsage().heapUsed, threads: 0 }
  },
  close: async (state) => {
    if (state.worker) await state.queue.stop()
    state.worker = undefined
    await state.queue.close()
    return {}
  },
}

// serve answers requests about the queue until it is told to close, or the
// input ends. A queue has: open(options) → described, one(job), many(jobs),
// copy(jobs), work(handle, how), which returns when jobs can come, stop(), which
// returns when every outcome is stored, and close().
export async function serve (queue) {
  // Standard output is for answers: some libraries log to the console.
  console.log = console.info = console.debug = console.error
  const state = { queue, worker: undefined }
  let ended = false
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const { do: verb, with: asked } = JSON.parse(line)
    let answer
    try {
      if (!verbs[verb]) throw new Error(`unknown verb ${verb}`)
      answer = { result: await verbs[verb](state, asked ?? {}) }
    } catch (error) {
      answer = { error: error.stack ?? String(error) }
    }
    await new Promise(resolve => process.stdout.write(JSON.stringify(answer) + '\n', resolve))
    if ((ended = verb === 'close')) break
  }
  if (!ended) await verbs.close(state)
  process.exit(0)
}

// connections is how many a pool may have: more than the library has it, if the
// connection string says so in the way of the Go side.
export function connections (dsn, own) {
  const found = /[?&]pool_max_conns=(\d+)/.exec(dsn)
  return found ? Math.max(Number(found[1]), own) : own
}

// version is that of an installed package.
export function version (name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), 'utf8')).version
}
