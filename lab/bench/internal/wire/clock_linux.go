package wire

import "golang.org/x/sys/unix"

// Now is the time since the computer started, in nanoseconds: the one clock
// that all processes of a computer share and nobody sets. Node has it as
// process.hrtime.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // cannot be, on a kernel that runs Go
	}
	return t.Nano()
}
