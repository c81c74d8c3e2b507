package filter

import "sync"

// queue is what was read and not yet written, without a limit: a reader that
// waited would block whatever is behind it.
type queue struct {
	mu    sync.Mutex
	parts [][]byte
	ended bool
	more  chan struct{} // holds one token when there may be something new
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

func (q *queue) push(part []byte) {
	if len(part) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.parts = append(q.parts, part)
		q.tell()
	}
}

// end says that nothing comes any more.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.tell()
}

func (q *queue) tell() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// pop waits for the next part. It returns false at the end, and when gone is
// closed.
func (q *queue) pop(gone <-chan struct{}) ([]byte, bool) {
	for {
		q.mu.Lock()
		if len(q.parts) > 0 {
			part := q.parts[0]
			q.parts = q.parts[1:]
			q.mu.Unlock()
			return part, true
		}
		ended := q.ended
		q.mu.Unlock()
		if ended {
			return nil, false
		}
		select {
		case <-q.more:
		case <-gone:
			return nil, false
		}
	}
}
