package notify

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// proof judges, by the bells that this process rings for itself, whether the
// current connection hears. All times are measured by timers that give the
// connection up; a timer of an earlier connection has nothing to give up.
type proof struct {
	limit time.Duration // how long a bell may take

	mu      sync.Mutex
	token   int64             // the last one given out; tokens count up
	since   int64             // the first token that can be judged: given out while the connection listened
	giveUp  func(cause error) // ends the connection; nil: none is listening
	waiting []awaited         // bells that were rung and not yet heard, oldest first
}

type awaited struct {
	token int64
	timer *time.Timer
}

// listening says that a connection hears from now on whatever is rung.
func (p *proof) listening(giveUp func(cause error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveUp, p.since = giveUp, p.token+1
}

// over says that the connection is gone: there is nothing to judge.
func (p *proof) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveUp = nil
	p.heardUpTo(p.token)
}

// expect gives out a token.
func (p *proof) expect() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token++
	return strconv.FormatInt(p.token, 10)
}

// await starts the time that the bell with this token may take.
func (p *proof) await(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.known(token)
	if !ok || p.giveUp == nil || n < p.since {
		return
	}
	giveUp, cause := p.giveUp, fmt.Errorf("listening, but a notification did not arrive within %v; "+
		"the network may lose them, or a pooler that shares server connections may sit between", p.limit)
	p.waiting = append(p.waiting, awaited{n, time.AfterFunc(p.limit, func() { giveUp(cause) })})
}

// heard takes a bell that has arrived on the own channel, and says whether it
// is one of ours. It answers for all that were rung before it.
func (p *proof) heard(token string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.known(token)
	if ok {
		p.heardUpTo(n)
		p.since = max(p.since, n+1) // its await may still come
	}
	return ok
}

func (p *proof) known(token string) (int64, bool) {
	n, err := strconv.ParseInt(token, 10, 64)
	return n, err == nil && 0 < n && n <= p.token
}

func (p *proof) heardUpTo(n int64) {
	for len(p.waiting) > 0 && p.waiting[0].token <= n {
		p.waiting[0].timer.Stop()
		p.waiting = p.waiting[1:]
	}
}
