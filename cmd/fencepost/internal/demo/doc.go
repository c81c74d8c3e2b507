// Package demo tells two stories with real processes on a real database, and
// counts what happened.
//
// [Run] tells how Fencepost behaves when a worker is killed with SIGKILL in
// the middle of its work, and when another one is frozen with SIGSTOP past the
// end of its leases and then wakes up. [RunNaive] tells what becomes of the
// same load with a queue as one writes it on a first afternoon.
//
// Each story has a schema of its own with a random name, which is dropped at
// the end, on a private server or on one that the caller names. Workers are
// processes that the caller's program starts of itself; they call [Work].
//
// It runs where there are SIGSTOP and SIGCONT: on Linux and macOS.
package demo
