package fencepost_test

import (
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost"
)

// B103: who may INSERT and nothing more does so by SQL, and the client says
// what it lacks to do it. Who has the rights of a producer can enqueue and
// cannot look.
func TestProducersRights(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	const insert = "INSERT INTO fencepost.jobs (kind) VALUES ('sql')"
	producers := as(t, pool, producerRole)
	producer := newClient(t, producers, fencepost.Config{})
	enqueue(t, producer, fencepost.NewJob{Kind: "client"})
	for what, err := range map[string]error{
		"get":      second(producer.Get(t.Context(), 1)),
		"list":     second(producer.List(t.Context(), fencepost.Filter{})),
		"set keep": producer.SetKeep(t.Context(), "q", 0),
		"run":      newWorker(t, producer).Run(t.Context()),
	} {
		if err == nil || !strings.Contains(err.Error(), "42501") || what == "run" && !strings.Contains(err.Error(), "fencepost migrate grants") {
			t.Errorf("%s as a producer: %v", what, err)
		}
	}

	if _, err := admin(t, pool).Exec(t.Context(), "REVOKE SELECT (id) ON fencepost.jobs FROM "+producerRole); err != nil {
		t.Fatal(err)
	}
	if _, err := producers.Exec(t.Context(), insert); err != nil {
		t.Errorf("by SQL: %v", err)
	}
	_, err := producer.Enqueue(t.Context(), fencepost.NewJob{Kind: "refused"})
	if err == nil || !strings.Contains(err.Error(), "fencepost migrate grants --producer") {
		t.Errorf("by the client: %v", err)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE kind IN ('client', 'sql')"); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs"); n != 2 {
		t.Errorf("%d jobs in all, want 2", n)
	}
}

func second[T any](_ T, err error) error { return err }

func newWorker(t *testing.T, client *fencepost.Client) *fencepost.Client {
	t.Helper()
	echo(client)
	return client
}
