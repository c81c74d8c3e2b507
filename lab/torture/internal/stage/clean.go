package stage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// Proxies and servers need a moment to see that a process is gone.
const cleanPatience = 2 * time.Second

const sqlLeft = `
SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1::text),
    (SELECT count(*) FROM pg_stat_activity WHERE usename = $1::text AND xact_start IS NOT NULL),
    (SELECT count(*) FROM fencepost.jobs WHERE status = 'running' AND split_part(worker_id, ':', 2) = $2::text)`

// clean looks for what a process has left after an end that it was asked for:
// connections, open transactions and leases. The result is in the history.
func (p *Process) clean(c *child) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	patience := time.Now().Add(cleanPatience)
	for {
		var connections, transactions, leases int
		err := p.stage.Admin().QueryRow(ctx, sqlLeft, p.base, fmt.Sprint(c.pid)).Scan(&connections, &transactions, &leases)
		if err != nil {
			return fmt.Errorf("look for what %s has left: %w", c.name, err)
		}
		var left []string
		for what, n := range map[string]int{"connections": connections, "open transactions": transactions, "leases": leases} {
			if n > 0 {
				left = append(left, fmt.Sprintf("%d %s", n, what))
			}
		}
		if len(left) == 0 || time.Now().After(patience) {
			p.stage.note(history.Event{
				Op: history.Clean, Target: c.name, Error: c.how(),
				Ref: history.Ref{Result: strings.Join(left, ", ")},
			})
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}
