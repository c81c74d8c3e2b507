package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// visitors ask an HTTP address at a fixed rate, whatever becomes of their
// requests: one that is late makes no other later.
type visitors struct {
	address string
	rate    int // requests a second
	client  *http.Client
}

func newVisitors(address string, rate int) *visitors {
	return &visitors{address: address, rate: rate, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: rate}, Timeout: patience,
	}}
}

// call asks for so long, and counts from when each request was to be sent until
// its answer has been read.
func (v *visitors) call(ctx context.Context, lasting time.Duration) (latency, error) {
	l := newLatency()
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	began, n := wire.Now(), int(lasting.Seconds()*float64(v.rate))
	for i := range n {
		at := began + int64(i)*int64(time.Second)/int64(v.rate)
		until(at)
		if ctx.Err() != nil {
			break
		}
		group.Go(func() {
			err := v.once(ctx)
			took := wire.Now() - at
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err, l.add(took))
		})
	}
	group.Wait()
	return l, errors.Join(failed, ctx.Err())
}

func (v *visitors) once(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.address, nil)
	if err != nil {
		return err
	}
	answer, err := v.client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", v.address, answer.Status))
	}
	return errors.Join(err, answer.Body.Close())
}

func (v *visitors) close() error {
	v.client.CloseIdleConnections()
	return nil
}
