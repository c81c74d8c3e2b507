package crew

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Serve answers requests about the queue until it is told to close, or in ends.
func Serve(ctx context.Context, q Queue, in io.Reader, out io.Writer) error {
	s := &server{queue: q}
	defer q.Close()
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return s.end()
		}
		if err != nil {
			return errors.Join(err, s.end())
		}
		var m struct {
			Do   string          `json:"do"`
			With json.RawMessage `json:"with"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return errors.Join(err, s.end())
		}
		result, err := s.do(ctx, m.Do, m.With)
		reply := struct {
			Error  string `json:"error,omitempty"`
			Result any    `json:"result,omitempty"`
		}{Result: result}
		if err != nil {
			reply.Error, reply.Result = err.Error(), nil
		}
		if err := json.NewEncoder(out).Encode(reply); err != nil {
			return errors.Join(err, s.end())
		}
		if m.Do == wire.DoClose {
			return s.end()
		}
	}
}

// server is one child: it produces, or works, or both.
type server struct {
	queue  Queue
	worker *worker // nil: it does not work
}

func (s *server) do(ctx context.Context, verb string, with json.RawMessage) (any, error) {
	switch verb {
	case wire.DoOpen:
		return call(with, func(o wire.Options) (any, error) { return s.queue.Open(ctx, o) })
	case wire.DoProduce:
		return call(with, func(p wire.Produce) (any, error) { return produce(ctx, s.queue, p) })
	case wire.DoWork:
		return call(with, func(w wire.Work) (any, error) {
			if s.worker != nil {
				return nil, errors.New("it works already")
			}
			var err error
			s.worker, err = startWorker(ctx, s.queue, w)
			return nil, err
		})
	case wire.DoAwait:
		return call(with, func(a wire.Await) (any, error) {
			if s.worker == nil {
				return nil, errors.New("it does not work")
			}
			return s.worker.await(ctx, a)
		})
	case wire.DoStop:
		if s.worker == nil {
			return nil, errors.New("it does not work")
		}
		w := s.worker
		s.worker = nil
		return w.stop()
	case wire.DoUsage:
		return usage(), nil
	case wire.DoClose:
		return nil, s.end()
	}
	return nil, fmt.Errorf("unknown verb %q", verb)
}

func (s *server) end() error {
	if s.worker == nil {
		return nil
	}
	w := s.worker
	s.worker = nil
	_, err := w.stop()
	return err
}

func call[T any](with json.RawMessage, do func(T) (any, error)) (any, error) {
	var t T
	if len(with) > 0 {
		if err := json.Unmarshal(with, &t); err != nil {
			return nil, err
		}
	}
	return do(t)
}

func usage() wire.Usage {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before) // before the collection allocates
	runtime.GC()
	runtime.ReadMemStats(&after)
	return wire.Usage{Allocs: before.Mallocs, Bytes: before.TotalAlloc, Heap: after.HeapAlloc, Threads: runtime.NumGoroutine()}
}
