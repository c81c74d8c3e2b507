package dispatcher

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// order is what the keeper is to do: extend the leases, only check them, or,
// without any, rest.
type order struct {
	leases []claim.Lease
	check  bool
}

// kept is an order that was carried out.
type kept struct {
	order
	lost []claim.Loss
	err  error
	sent time.Time // the extended leases began no earlier
}

// keep carries out one order after the other until there are no more. back has
// room for one, so that it ends even when nobody waits for the last.
func keep(ctx context.Context, store Store, term time.Duration, orders <-chan order, back chan<- kept) {
	for o := range orders {
		k := kept{order: o, sent: time.Now()}
		switch {
		case len(o.leases) == 0:
			store.Rest()
		case o.check:
			ctx, cancel := context.WithTimeout(ctx, checkTime(term))
			k.lost, k.err = store.Check(ctx, o.leases)
			cancel()
		default:
			ctx, cancel := context.WithTimeout(ctx, extendTime(term))
			k.lost, k.err = store.Extend(ctx, o.leases)
			cancel()
		}
		back <- k
	}
}
