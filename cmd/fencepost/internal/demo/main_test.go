package demo

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// workerArgument makes this test binary a worker.
const workerArgument = "demo-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Run(m))
}
