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
	mend, cancel := mending(ctx)
	defer cancel()
	some := a.victims()
	off := make(map[*stage.Process]time.Duration)
	for i, p := range some {
		off[p] = a.between(time.Hour, 9*time.Hour)
		if i%2 == 1 {
			off[p] *= -1
		}
	}
	err := another(mend, some, func(p *stage.Process) stage.Next {
		seconds := strconv.Itoa(int(off[p].Seconds()))
		return stage.Next{Program: a.Options().Wrong, Env: []string{stage.ClockVariable + "=" + seconds}}
	})
	wait(ctx, a.length)
	return errors.Join(err, another(mend, some, usual))
}
