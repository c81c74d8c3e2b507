package fencepost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// holderMain is a worker with 100 slots, the given lease, and otherwise the
// defaults, that runs its jobs until it ends, and tells what happens on its
// standard output.
func holderMain(ctx context.Context, dsn, lease string) error {
	length, err := time.ParseDuration(lease)
	if err != nil {
		return err
	}
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	vanishOnSignal(pc.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return err
	}
	defer pool.Close()
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	client, err := fencepost.New(pool, fencepost.Config{
		Queues:   map[string]fencepost.Queue{"default": {Slots: 100}},
		Lease:    length,
		SoftStop: -1,
		Observer: fencepost.Observer{
			Hearing: func(hearing bool) { fmt.Println("hearing", hearing) },
			Died:    func(worker string, jobs int) { fmt.Println("died", worker, jobs) },
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fencepost.HandleKind(client, "hold", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		fmt.Println("began", job.ID, job.Attempt)
		<-ctx.Done()
		fmt.Println("ended", job.ID, context.Cause(ctx))
		return ctx.Err()
	})
	return client.Run(ctx)
}

// holder is a process of holderMain.
type holder struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // what it tells
	ended chan struct{}
}

func startHolder(t *testing.T, dsn string) *holder {
	t.Helper()
	return startHolderFor(t, dsn, 30*time.Second)
}

func startHolderFor(t *testing.T, dsn string, lease time.Duration) *holder {
	t.Helper()
	h := &holder{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 10_000), ended: make(chan struct{})}
	h.cmd.Env = append(os.Environ(), workerDSN+"="+dsn, workerHolds+"="+lease.String())
	h.cmd.Stderr = t.Output()
	stdin, err := h.cmd.StdinPipe() // closed with this process, at the latest
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			h.lines <- scanner.Text()
		}
		_ = h.cmd.Wait() // it dies of our signal
	}()
	t.Cleanup(func() {
		h.kill()
		_ = stdin.Close()
	})
	return h
}

// kill ends the process as nothing else does, and waits for its end.
func (h *holder) kill() {
	h.signal(sigCont)
	h.signal(syscall.SIGKILL)
	<-h.ended
}

func (h *holder) signal(s syscall.Signal) { _ = h.cmd.Process.Signal(s) } // it may have ended

// tells waits for n lines that begin so.
func (h *holder) tells(n int, prefix string) {
	h.t.Helper()
	for deadline := time.After(patience); n > 0; {
		select {
		case line := <-h.lines:
			if strings.HasPrefix(line, prefix) {
				n--
			}
		case <-deadline:
			h.t.Fatalf("%d lines %q are missing after %v", n, prefix, patience)
		}
	}
}

// told returns the lines with the prefix that have come so far and were not
// waited for.
func (h *holder) told(prefix string) (told []string) {
	for len(h.lines) > 0 {
		if line := <-h.lines; strings.HasPrefix(line, prefix) {
			told = append(told, line)
		}
	}
	return told
}
