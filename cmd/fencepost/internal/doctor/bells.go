package doctor

import (
	"context"
	"strings"
)

// sqlBells lists the queues that have a setting, or a slot, with what is
// promised for them.
const sqlBells = `
SELECT q.name, q.bell, q.quiet_slot IS NOT NULL,
       coalesce({{schema}}.promised(q.quiet_slot) - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint BETWEEN 0 AND 3000000, false)
FROM {{schema}}.queues AS q
ORDER BY q.name
LIMIT 1000`

type bells struct {
	Queue    string
	Mode     string
	Slot     bool
	Promised bool
}

// ringing says what an INSERT into each queue does. What is not listed rings
// unless it is promised that somebody looks.
func ringing(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[bells](ctx, e, sqlBells)
	if err != nil {
		return nil, err
	}
	said := []string{"each new job rings, unless a queue is so busy that somebody looks all the time"}
	slots, promised := 0, 0
	modes := make(map[string]string)
	for _, b := range rows {
		modes[b.Queue] = b.Mode
		if b.Slot {
			slots++
		}
		if b.Promised {
			promised++
		}
		switch {
		case len(said) > worst:
		case b.Mode == "never":
			said = append(said, b.Queue+" never rings: its jobs wait for the poll interval")
		case b.Mode == "always":
			said = append(said, b.Queue+" always rings")
		case b.Promised:
			said = append(said, b.Queue+" is silent now, somebody looks all the time")
		}
	}
	if slots == 64 {
		said = append(said, "all 64 slots for that are given away, and further queues always ring")
	}
	return []Finding{ok(figures{"modes": modes, "slots": slots, "promised": promised}, "%s", strings.Join(said, "; "))}, nil
}
