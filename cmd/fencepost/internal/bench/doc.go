// Package bench measures what a database can do for a queue, and says what
// limits it.
//
// A measurement is one small func with its statements; the list in bench.go is
// what the bench does, in its order and with its share of the time. It all
// happens in a schema of its own, which is dropped at the end, so nobody's jobs
// are touched; the server is loaded all the same. The verdict is a pure func of
// what was seen, in verdict.go.
package bench
