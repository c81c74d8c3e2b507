// pg-boss as a child of the bench.
import { PgBoss } from 'pg-boss'
import { connections, serve, version } from './serve.mjs'

const queueName = 'bench'

// What its docs have for low latency (LISTEN and NOTIFY, which make the poll a
// safety net of 30 s) and for a backlog (large batches, fetched one after the
// other as long as they come back full).
const bestBatch = 1000

class Boss {
  async open (options) {
    const { best } = options
    const max = connections(options.dsn, 10)
    this.boss = new PgBoss({ connectionString: options.dsn, max, useListenNotify: best })
    this.boss.on('error', console.error)
    this.boss.on('warning', console.error)
    await this.boss.start()
    this.queues = options.queues?.length ? options.queues : [queueName]
    for (const name of this.queues) await this.boss.createQueue(name, { notify: best })
    const batchSize = options.batch || options.slots || (best ? bestBatch : 1)
    this.options = best ? { batchSize, burstWhenBatchFull: true } : { batchSize }
    return {
      version: version('pg-boss'),
      settings: `batchSize ${batchSize}, the jobs of a batch at once and completed together; ` +
        (best ? 'LISTEN and NOTIFY with a poll each 30 s, burstWhenBatchFull, as its docs have for latency and for a backlog; ' : 'a poll each 2 s: the defaults; ') +
        `a pool of ${max} connections; done jobs kept for 7 days, they cannot be deleted when they end; every commit durable; ` +
        `a failed job is due again at once; on ${process.version} of Node`,
    }
  }

  async one (job) {
    await this.boss.send(job.queue || queueName, job.payload, job.runAt ? { startAfter: job.runAt } : {})
  }

  many (jobs) { return this.insert(jobs, { returnId: true }) }

  copy (jobs) { return this.insert(jobs, {}) }

  // The jobs of one call are all for one queue.
  insert (jobs, options) {
    return this.boss.insert(jobs[0].queue || queueName, jobs.map(job => ({ data: job.payload, startAfter: job.runAt })), options)
  }

  // Only where jobs are to fail is each settled by itself: otherwise one would
  // make all of its batch fail.
  async work (handle, how) {
    const each = how.fail_every > 0
    for (const name of this.queues) {
      await this.boss.work(name, { ...this.options, perJobResults: each }, each ? settle(handle) : together(handle))
    }
  }

  async stop () {
    for (const name of this.queues) await this.boss.offWork(name)
  }

  async close () {
    await this.boss?.stop({ graceful: true })
  }
}

const together = handle => async jobs => {
  const pending = []
  for (const job of jobs) {
    const sleeps = handle(job.data)
    if (sleeps) pending.push(sleeps)
  }
  await Promise.all(pending)
}

const settle = handle => jobs => Promise.all(jobs.map(async ({ id, data }) => {
  try {
    await handle(data)
    return { id, status: 'completed' }
  } catch (error) {
    return { id, status: 'failed', output: { message: error.message } }
  }
}))

await serve(new Boss())
