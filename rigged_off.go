//go:build !torture

package fencepost

import (
	"context"

	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/notify"
	"github.com/fencepost-go/fencepost/poller"
)

// A test program watches a client, and takes guards away from it, at these
// places; see internal/torture.

func riggedTick(tick func(context.Context) (poller.Look, error)) func(context.Context) (poller.Look, error) {
	return tick
}

func riggedListener(_ *running, c notify.Config) notify.Config { return c }

func riggedStore(_ context.Context, s *store) dispatcher.Store { return s }

func riggedAlone(alone bool) bool { return alone }

func riggedLastLook() bool { return false }

func riggedPromised(string, int64) {}
