package dispatcher

import (
	"context"
	"time"
)

// tripTime bounds a trip from outside. The Store's own deadlines, one for each
// statement, end a stalled one sooner.
const tripTime = 10 * time.Second

// returned is a trip that is back.
type returned struct {
	trip Trip
	haul Haul
	sent time.Time // leases that it brings began no earlier
}

// exchange makes one trip after the other until there are no more. back has
// room for one, so that it ends even when nobody waits for the last.
func exchange(ctx context.Context, store Store, trips <-chan Trip, back chan<- returned) {
	for trip := range trips {
		r := returned{trip: trip, sent: time.Now()}
		ctx, cancel := context.WithTimeout(ctx, tripTime)
		r.haul = check(trip, store.Exchange(ctx, trip))
		cancel()
		back <- r
	}
}
