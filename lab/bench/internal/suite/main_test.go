package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-go/fencepost/lab/bench/internal/crew"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// childVariable makes this program the child that its value names.
const childVariable = "BENCH_SUITE_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		q := crew.Queues[name]
		if name == "liar" {
			q = func() crew.Queue { return &liar{} }
		}
		if err := crew.Serve(context.Background(), q(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	unfinished["liar"] = "lies"
	goleak.VerifyTestMain(m)
}

// open makes a bench with a server of its own, whose children are this program.
func open(t *testing.T) *Bench {
	t.Helper()
	h, err := host.Start(t.Context(), 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &Bench{
		Host: h, Rounds: 1, Peers: []string{"fencepost"}, Log: io.Discard,
		Record: func(figures.Sample) {}, Report: func(figures.Line) {},
		Start: func(ctx context.Context, peer string, o wire.Options) (*wire.Child, error) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+peer)
			child, err := wire.Start(peer, cmd, os.Stderr)
			if err != nil {
				return nil, err
			}
			if err := child.Call(ctx, wire.DoOpen, o, &child.Described); err != nil {
				return nil, errors.Join(err, child.Close())
			}
			return child, nil
		},
	}
}
