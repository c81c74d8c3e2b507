package dispatcher

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// extension is a call of Extend that is back; without leases it was a Rest.
type extension struct {
	leases, lost []claim.Lease
	err          error
	sent         time.Time // the extended leases began no earlier
}

// keep makes one extension after the other until there are no more; an order
// without leases is to rest. back has room for one, so that it ends even when
// nobody waits for the last.
func keep(ctx context.Context, store Store, most time.Duration, orders <-chan []claim.Lease, back chan<- extension) {
	for leases := range orders {
		e := extension{leases: leases, sent: time.Now()}
		if len(leases) == 0 {
			store.Rest()
		} else {
			ctx, cancel := context.WithTimeout(ctx, most)
			e.lost, e.err = store.Extend(ctx, leases)
			cancel()
		}
		back <- e
	}
}
