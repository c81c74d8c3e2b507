// Command crew is the bench's child for the queues that are written in Go. It
// does what it is told on standard input; see package wire.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencepost-go/fencepost/lab/bench/internal/crew"
)

func main() {
	if len(os.Args) != 2 || crew.Queues[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "crew: it is the bench that starts this program, with the name of a queue")
		os.Exit(2)
	}
	if err := crew.Serve(context.Background(), crew.Queues[os.Args[1]](), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crew:", err)
		os.Exit(1)
	}
}
