// The clocks, in nanoseconds as numbers: those of the monotonic clock are exact
// for the first hundred days after the computer's start, those since 1970 to a
// quarter of a microsecond.

// now is the time of the monotonic clock that all processes of the computer
// share, package wire's Now.
export const now = () => Number(process.hrtime.bigint())

// unix is the time since 1970.
export const unix = () => Math.round((performance.timeOrigin + performance.now()) * 1e6)

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// until sleeps until the time of now, or a millisecond longer: timers of Node
// know no less.
export async function until (at) {
  const ms = (at - now()) / 1e6
  if (ms > 0) await sleep(Math.ceil(ms))
}
