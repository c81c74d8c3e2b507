package play

import (
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/lab/bench/internal/suite"
)

func TestWhoTakesPart(t *testing.T) {
	t.Parallel()
	s := suite.Suite{Peers: []string{"river", "graphile", "floor"}}
	for _, c := range []struct {
		how  How
		want []string
	}{
		{How{}, []string{"fencepost", "river", "graphile", "floor"}},
		{How{Quick: true}, []string{"fencepost", "river", "floor"}},
		{How{Full: true}, []string{"fencepost", "river", "graphile", "pgboss", "gue", "floor"}},
		{How{Quick: true, Full: true, Peers: []string{"gue"}}, []string{"gue"}},
	} {
		if got := c.how.peers(s); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, not %v", c.how, got, c.want)
		}
	}
	if !slices.Equal(s.Peers, []string{"river", "graphile", "floor"}) {
		t.Errorf("the suite's own list was changed: %v", s.Peers)
	}
}
