// Package poller is everything that happens because time passed: the slow
// tick, which is the safety net under the notifications, and one alarm per
// queue for the next job that falls due.
//
// A notification is for speed; the tick is for truth. With every notification
// lost, a job still starts within one interval of being due. The alarm makes
// scheduled and retried jobs start on time without polling: whoever learns
// when the next job of a queue is due arms it.
//
// Two more decisions hang on times: whether this process looks so often that a
// queue's bell need not ring ([Quiet]), and when it claims because of a bell that
// others have heard as well ([Turns]). The root carries them out.
//
// What to do when is decided by a type without goroutine, clock or I/O (the
// agenda); one loop, [Poller.Run], feeds it and does what it says. The
// package does not talk to a database: the tick is a func that it is given.
//
// Only the API of the root package is stable; this one may change with any
// release.
package poller
