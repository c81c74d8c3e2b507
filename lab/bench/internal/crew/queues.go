package crew

import "errors"

// ErrNoWay means that a queue has no such call.
var ErrNoWay = errors.New("the queue has no such call")

// Queues are those that this program can be.
var Queues = map[string]func() Queue{
	"fencepost": func() Queue { return &fencepostQueue{} },
}
