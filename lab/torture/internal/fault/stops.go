package fault

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var stopFaults = []Fault{{
	Name: "stop", About: "workers are stopped in order (SIGTERM), half of them at a time, and started again, as when a new version is rolled out",
	Length: 10 * time.Second, touches: processes, body: stopHalf,
}}

// stopTime is what a worker may take to stop, beyond what it was told.
const stopTime = 20 * time.Second

func stopHalf(ctx context.Context, a *act) error {
	var stopped errgroup.Group
	for _, p := range a.victims() {
		stopped.Go(func() error {
			told := p.Assignment()
			err := p.Term(told.SoftStop + told.HardStop + stopTime)
			return errors.Join(ignoreDead(err), p.Again(stage.Next{}))
		})
	}
	return stopped.Wait()
}
