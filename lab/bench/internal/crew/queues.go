package crew

import (
	"errors"
	"runtime/debug"
)

// ErrNoWay means that a queue has no such call.
var ErrNoWay = errors.New("the queue has no such call")

// Queues are those that this program can be. "floor" and "wakefloor" are
// hand-written SQL, not queues; "guest" is Fencepost in a service.
var Queues = map[string]func() Queue{
	"fencepost": func() Queue { return &fencepostQueue{} },
	"river":     func() Queue { return &riverQueue{} },
	"gue":       func() Queue { return &gueQueue{} },
	"floor":     func() Queue { return &floor{} },
	"wakefloor": func() Queue { return &wakeFloor{} },
	"guest":     func() Queue { return &guest{} },
}

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}
