package peer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/peer"
)

// A name is looked up for each connection, so that the way follows one that
// moves (B84).
func TestARouteLooksNamesUpAnew(t *testing.T) {
	t.Parallel()
	var route peer.Route
	for _, want := range [][]string{{"192.0.2.1"}, {"192.0.2.2", "192.0.2.3"}} {
		config, err := pgx.ParseConfig("host=db.test user=x sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		config.LookupFunc = func(context.Context, string) ([]string, error) { return want, nil }
		route.Take(t.Context(), config, 4*time.Second)
		got, err := config.LookupFunc(t.Context(), "db.test")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the name leads to %v, %v; want %v", got, err, want)
		}
		if limit := 4 * time.Second / time.Duration(len(want)); config.ConnectTimeout != limit {
			t.Errorf("%v for each of %d addresses, want %v", config.ConnectTimeout, len(want), limit)
		}
	}
}
