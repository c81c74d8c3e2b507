package fencepost

import (
	"context"

	"github.com/fencepost-go/fencepost/claim"
)

// WorkerInfo is a process that works, or did, as an operator sees it.
type WorkerInfo = claim.WorkerInfo

// States of a worker.
const (
	WorkerLive    = claim.WorkerLive    // its connection is there
	WorkerSilent  = claim.WorkerSilent  // its connection is gone: it is dead, or about to connect again
	WorkerUnknown = claim.WorkerUnknown // it has no lock to tell by, as behind a pooler: its leases alone tell
)

// Workers returns the workers that are registered or hold a job, in the order
// in which they started.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	return fromPool(ctx, c, func(db poolDB) ([]WorkerInfo, error) { return c.table.Workers(ctx, db) })
}
