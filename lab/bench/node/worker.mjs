// What the handlers of a queue at work have seen, as package crew does it.
import { now, sleep, unix } from './clock.mjs'

// Retry is the error of a handler that wants the job again.
export class Retry extends Error {
  constructor (after) {
    super('once more')
    this.after = after // nanoseconds
  }
}

export class Worker {
  constructor (how) {
    this.how = how
    this.done = this.first = this.last = 0
    this.windows = []
    this.starts = {}
    this.ends = {}
    this.startsUnix = {}
    this.failed = new Set()
    this.changed = () => {}
  }

  // handle is every job's handler. It returns a promise only if it sleeps, so
  // that a job that does nothing costs nothing.
  handle = payload => {
    const { how } = this
    this.first ||= now()
    if (how.log) {
      this.starts[payload.n] = now()
      this.startsUnix[payload.n] = unix()
    }
    if (how.sleep > 0) return sleep(how.sleep / 1e6).then(() => this.end(payload.n))
    this.end(payload.n)
  }

  end (n) {
    const { how } = this
    if (how.fail_every > 0 && n % how.fail_every === 0 && !this.failed.has(n)) {
      this.failed.add(n)
      throw new Retry(how.retry_after)
    }
    this.last = now()
    this.done++
    if (how.log) this.ends[n] = this.last
    if (how.window > 0 && this.done % how.window === 0) this.windows.push(this.last)
    this.changed()
  }

  await ({ n, seconds }) {
    return new Promise(resolve => {
      const finish = () => {
        clearTimeout(limit)
        this.changed = () => {}
        resolve(this.worked())
      }
      const limit = setTimeout(finish, seconds * 1000)
      this.changed = () => { if (this.done >= n) finish() }
      this.changed()
    })
  }

  worked () {
    const { done, first, last, windows } = this
    return { done, first, last, windows }
  }

  stopped () {
    return { ...this.worked(), starts: this.starts, ends: this.ends, starts_unix: this.startsUnix }
  }
}
