package crew

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// guest is Fencepost in a service that has something else to do: the same
// process answers HTTP on an address of its own.
type guest struct {
	fencepostQueue
	server *http.Server
}

func (q *guest) Open(ctx context.Context, o wire.Options) (wire.Described, error) {
	d, err := q.fencepostQueue.Open(ctx, o)
	if err != nil {
		return d, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return d, err
	}
	q.server = &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = q.server.Serve(listener) }() // until it is closed
	d.Address = "http://" + listener.Addr().String()
	return d, nil
}

// answer does a little of what services do: it makes JSON of a few kilobytes,
// which leaves something for the collector, and works out a sum of it.
func answer(w http.ResponseWriter, _ *http.Request) {
	type item struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	items := make([]item, 50)
	for i := range items {
		items[i] = item{strings.Repeat("x", 20+i%20), i}
	}
	body, err := json.Marshal(items)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(body)
	_, _ = w.Write(append(body, sum[:]...)) // who asked may be gone
}

func (q *guest) Close() {
	if q.server != nil {
		_ = q.server.Close() // the process ends
	}
	q.fencepostQueue.Close()
}
