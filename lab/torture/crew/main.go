// Crew is one of those who take part in a run of the torture lab: a worker, a
// producer, a zombie or an operator. It is started by the harness, which builds
// it with the tag torture, reads its script.Assignment as JSON from standard
// input, and ends with code 0 after a clean stop, for which it is told with
// SIGTERM. Code 3 is that of jobs that end their process.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencepost-go/fencepost/lab/torture/internal/crew"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "crew:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var a script.Assignment
	if err := json.NewDecoder(os.Stdin).Decode(&a); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	return crew.Run(ctx, a, os.Exit)
}
