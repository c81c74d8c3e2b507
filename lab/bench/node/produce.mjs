// Producing, as package crew does it.
import { now, unix, until } from './clock.mjs'

// produce enqueues as it is asked to.
export function produce (queue, asked) {
  return asked.rate > 0 ? openLoop(queue, asked) : closedLoop(queue, asked)
}

// closedLoop enqueues as fast as it goes.
async function closedLoop (queue, asked) {
  const size = asked.way === 'one' || !asked.way ? 1 : Math.max(asked.batch, 1)
  const out = produced(asked)
  // Made beforehand: it is the queue that is measured.
  const random = generator(asked.seed + 2)
  const batches = []
  for (let at = 0; at < asked.n; at += size) {
    const batch = []
    for (let i = at; i < Math.min(at + size, asked.n); i++) batch.push(jobOf(asked, i, random, out))
    batches.push(batch)
  }
  let next = 0
  const client = async () => {
    while (next < batches.length) {
      const i = next++
      await send(queue, asked.way, batches[i])
      if (out.returned) out.returned.fill(now(), i * size, i * size + batches[i].length)
    }
  }
  const began = now()
  await Promise.all(Array.from({ length: Math.max(asked.clients, 1) }, client))
  out.seconds = (now() - began) / 1e9
  return out
}

async function send (queue, way, jobs) {
  if (way === 'many') return queue.many(jobs)
  if (way === 'copy') return queue.copy(jobs)
  for (const job of jobs) await queue.one(job)
}

// openLoop enqueues at the times that the rate says, whatever the queue makes
// of them: a call that is late makes no other later.
async function openLoop (queue, asked) {
  const gaps = generator(asked.seed + 1)
  const delays = generator(asked.seed + 2)
  const out = produced(asked)
  const began = now()
  const clients = Math.max(asked.clients, 1)
  const sent = []
  let failed
  let busy = 0
  let free = () => {}
  let at = began + 10e6
  for (let i = 0; i < asked.n; i++) {
    if (i > 0) {
      const second = asked.gap > 0 && i % 2 === 1
      at += second ? between(gaps, asked.gap, asked.gap_to) : -Math.log(1 - gaps()) / asked.rate * 1e9
    }
    const job = jobOf(asked, i, delays, out)
    await until(at)
    out.scheduled[i] = Math.round(at)
    while (busy >= clients) await new Promise(resolve => { free = resolve })
    busy++
    sent.push(queue.one(job).catch(error => { failed ??= error }).then(() => {
      out.returned[i] = now()
      busy--
      free()
    }))
  }
  await Promise.all(sent)
  if (failed) throw failed
  out.seconds = (now() - began) / 1e9
  return out
}

function produced (asked) {
  const delayed = asked.delay > 0 || asked.delay_to > 0
  const out = { seconds: 0 }
  if (asked.log || asked.rate > 0 || delayed) {
    out.scheduled = new Array(asked.n).fill(0)
    out.returned = new Array(asked.n).fill(0)
  }
  if (delayed) out.due = new Array(asked.n).fill(0)
  return out
}

// jobOf makes the job with the given place among those asked for. Dates of
// JavaScript have whole milliseconds, so that is when a job is due.
function jobOf (asked, i, delays, out) {
  const n = asked.first + i
  const job = { payload: payload(n, asked.bytes), queue: asked.queue }
  if (out.due) {
    const due = Math.floor((unix() + between(delays, asked.delay, asked.delay_to)) / 1e6)
    job.runAt = new Date(due)
    out.due[i] = due * 1e6
  }
  return job
}

// payload is one whose JSON has the given size, if that is enough for n.
function payload (n, bytes) {
  const bare = '{"n":,"pad":""}'.length + String(n).length
  return { n, pad: 'x'.repeat(Math.max(bytes - bare, 0)) }
}

function between (random, from, to) {
  return to > from ? from + random() * (to - from) : from
}

// generator makes the same random numbers from the same seed, from 0 to below 1
// (mulberry32).
function generator (seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6D2B79F5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
