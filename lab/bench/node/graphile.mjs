// Graphile Worker as a child of the bench.
import { EventEmitter, once } from 'node:events'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { connections, serve, version } from './serve.mjs'

// What the page "Performance" of its docs has for high throughput. Each batch
// is stored at once, with a delay of 0: it then holds what has ended meanwhile.
const best = { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }

// Its "queues" run one job at a time, so a queue of the bench is one of its
// tasks.
const task = 'bench'

class Graphile {
  async open (options) {
    const preset = { worker: { connectionString: options.dsn, ...(options.best ? best : {}) } }
    const { worker } = preset
    if (options.slots) worker.concurrentJobs = options.slots
    if (options.batch) worker.localQueue = { size: options.batch }
    worker.maxPoolSize = connections(options.dsn, worker.maxPoolSize ?? 10)
    // Jobs that are meant to fail are no news.
    const logger = new Logger(() => (level, message) => {
      if (level === 'error' && !message.includes('once more')) console.error(message)
    })
    this.options = { preset, logger, noHandleSignals: true }
    this.utils = await makeWorkerUtils({ preset, logger })
    await this.utils.migrate()
    this.tasks = options.queues?.length ? options.queues : [task]
    return {
      version: version('graphile-worker'),
      settings: `concurrentJobs ${worker.concurrentJobs ?? 1}, ` +
        (worker.localQueue ? `a local queue of ${worker.localQueue.size} that each claim fills, ` : 'no local queue, each claim for one job, ') +
        (options.best ? 'completions in batches, without a delay: the settings of "Performance" in its docs; ' : 'no batches of completions: the defaults; ') +
        `a pool of ${worker.maxPoolSize} connections; done jobs deleted; every commit durable; ` +
        `a failed job comes back after a time of its own choice, 2.7 s the first time; on ${process.version} of Node`,
    }
  }

  async one (job) {
    await this.utils.addJob(job.queue || task, job.payload, { runAt: job.runAt })
  }

  async many (jobs) {
    await this.utils.addJobs(jobs.map(job => ({ identifier: job.queue || task, payload: job.payload, runAt: job.runAt })))
  }

  // It has no faster call.
  copy (jobs) { return this.many(jobs) }

  async work (handle) {
    const taskList = Object.fromEntries(this.tasks.map(name => [name, handle]))
    const events = new EventEmitter()
    const listens = once(events, 'pool:listen:success')
    this.runner = await run({ ...this.options, taskList, events })
    await listens
  }

  async stop () {
    await this.runner.stop()
  }

  async close () {
    await this.utils?.release()
  }
}

await serve(new Graphile())
