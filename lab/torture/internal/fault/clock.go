package fault

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var clockFaults = []Fault{{
	Name: "clock", About: "the clocks of half of the workers are wrong by hours, ahead and behind in turn",
	Needs:  Needs{Wrong: true},
	Length: 15 * time.Second, touches: processes, body: wrongClocks,
}}

// wrongClocks ends workers in order and gives each a life in the wrong time.
func wrongClocks(ctx context.Context, a *act) error {
	some := a.victims()
	var errs []error
	for i, p := range some {
		off := a.between(time.Hour, 9*time.Hour)
		if i%2 == 1 {
			off = -off
		}
		errs = append(errs, another(p, stage.Next{
			Program: a.Options().Wrong,
			Env:     []string{stage.ClockVariable + "=" + strconv.Itoa(int(off.Seconds()))},
		}))
	}
	errs = append(errs, alive(ctx, some))
	wait(ctx, a.length)
	for _, p := range some {
		errs = append(errs, another(p, stage.Next{}))
	}
	return errors.Join(append(errs, alive(ctx, some))...)
}
