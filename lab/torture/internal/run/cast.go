package run

import (
	"fmt"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

func (r *one) worker(i int) script.Assignment {
	return script.Assignment{
		Role:     script.Worker,
		Name:     fmt.Sprintf("worker-%d", i+1),
		Seed:     r.Seed + uint64(i),
		Lease:    r.Lease,
		Poll:     r.Poll,
		SoftStop: r.SoftStop,
		HardStop: hardStop,
		Slots:    r.Slots,
		MaxConns: 8,
		Break:    string(r.Break),
	}
}

// producer is one of those who share the load.
func (r *one) producer(i int) script.Assignment {
	return script.Assignment{
		Role:  script.Producer,
		Name:  fmt.Sprintf("producer-%d", i+1),
		Seed:  r.Seed + 100 + uint64(i),
		Rate:  r.Rate / float64(r.Producers),
		Start: r.begin,
		Mix:   r.Mix,

		Bursts: r.Bursts,
	}
}

func (r *one) other(role script.Role) script.Assignment {
	a := script.Assignment{Role: role, Name: string(role) + "-1", Seed: r.Seed + 200, Lease: r.Lease}
	if role == script.Zombie { // it writes by the same statements as a worker
		a.Break = string(r.Break)
	}
	return a
}
