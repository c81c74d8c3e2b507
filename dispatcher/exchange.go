package dispatcher

import (
	"context"
	"time"
)

// tripTime bounds a trip from outside. The Store's own deadlines, one for each
// statement, end a stalled one sooner.
const tripTime = 10 * time.Second

// errand is what is to be done on a lane: a trip, or, if that is empty, to open
// or close the second lane's connection.
type errand struct {
	trip Trip
	open bool
}

// returned is an errand that is done.
type returned struct {
	errand
	haul Haul
	err  error     // of one without a trip
	sent time.Time // leases that it brings began no earlier
}

// exchange does one errand of a lane after the other until there are no more.
// back has room for one of each lane, so that it ends even when nobody waits for
// the last.
func exchange(ctx context.Context, store Store, errands <-chan errand, back chan<- returned) {
	for e := range errands {
		r := returned{errand: e, sent: time.Now()}
		ctx, cancel := context.WithTimeout(ctx, tripTime)
		switch {
		case !e.trip.empty():
			r.haul = check(e.trip, store.Exchange(ctx, e.trip))
		case e.open:
			r.err = store.OpenSecond(ctx)
		default:
			store.CloseSecond()
		}
		cancel()
		back <- r
	}
}
