package fencepost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// A bad config is refused with every reason at once.
func TestConfigNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	_, err := fencepost.New(pool, fencepost.Config{
		Schema:       "pg_mine",
		Queues:       map[string]fencepost.Queue{"": {}, "a": {Slots: -1}, "b": {Spares: -1}, strings.Repeat("c", 129): {}},
		Lease:        time.Second,
		PollInterval: time.Millisecond,
		JobTimeout:   -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"Schema", "is empty", "Slots is -1", "Spares is -1", "129 bytes", "Lease is 1s", "PollInterval is 1ms", "JobTimeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
	if _, err := fencepost.New(nil, fencepost.Config{}); err == nil {
		t.Error("a nil pool is accepted")
	}
	if _, err := fencepost.New(pool, fencepost.Config{}); err != nil {
		t.Errorf("the zero config: %v", err)
	}
}

func TestDefaultRetryDelay(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 1 << 40: time.Hour} {
		for range 50 {
			d := fencepost.DefaultRetryDelay(failures, nil)
			if d < want*8/10 || d > want*12/10 || d > time.Hour {
				t.Errorf("after %d failures: %v, want %v ± 20 %%, at most 1h", failures, d, want)
			}
		}
	}
}
